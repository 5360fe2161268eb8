//! Writes the corpus of the fuzz target `walks`:
//! `cargo run -p tierscope-tlb --example walks_corpus fuzz/corpus/walks`.

use std::fs;
use std::path::Path;

use tierscope_core::{Level, Time};
use tierscope_wire::{Record, TlbMiss};

/// A page walk record: time, page number, entry address and level, root table, entry value.
fn walk(time: u64, page: u64, (entry, level): (u64, Level), root: u64, maps: u64) -> Vec<u8> {
    let (time, address) = (Time(time), page << 12 | 0x123);
    let miss = TlbMiss { time, address, entry, level, root, cpu: 0 };
    let mut words = [0; TlbMiss::WORDS + 1];
    miss.write(&mut words[..TlbMiss::WORDS]);
    words[TlbMiss::WORDS] = maps;
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn main() {
    let directory = std::env::args().nth(1).expect("the corpus's directory");
    fs::create_dir_all(&directory).expect("it can be made");
    let write = |name: &str, first: &[u8], second: &[u8]| {
        let length = (first.len() as u32).to_le_bytes();
        let bytes = [&length[..], first, second].concat();
        fs::write(Path::new(&directory).join(name), bytes).expect("it can be written");
    };
    let (pte, pmd) = (Level::PTE, Level::PMD);
    // Page 5, which is remapped to another frame; an entry shared by two address spaces.
    let first = [
        walk(10, 5, (0x1028, pte), 0x9000, 0x7007),
        walk(20, 5, (0x1028, pte), 0x9000, 0x8007),
        walk(30, 5, (0x1028, pte), 0xa000, 0x8005),
    ];
    // A 2 MiB page beyond 64 GiB, a kernel page, and another walk much later.
    let second = [
        walk(20, 513, (0x5008, pmd), 0xa000, 20 << 30 << 3 | 0x87),
        walk(20, 0xf_ffff_ffff_f000, (0x5010, pte), 0xa000, 0x9003),
        walk(1 << 50, 513, (0x5008, pmd), 0xa000, 20 << 30 << 3 | 0x87),
    ];
    let [one, two] = [&first, &second].map(|walks| walks.concat());
    write("good-two-cpus", &one, &two);
    write("good-one-cpu", &two, &[]);
    write("bad-nothing", &[], &[]);
    write("bad-cut", &one[..100], &two);
    write("bad-backwards", &[&two[..], &one].concat(), &[]);
    write("bad-level", &walk(1, 5, (0x1028, Level::P4D), 0x9000, 7), &[]);
    write("bad-far-apart", &one, &walk(1, 5, (1 << 31, pte), 0x9000, 7));
    write("bad-no-memory", &walk(1, 5, (1 << 46, pte), 0x9000, 7), &[]);
    write("bad-time", &walk(1 << 60, 5, (0x1028, pte), 0x9000, 7), &[]);
}
