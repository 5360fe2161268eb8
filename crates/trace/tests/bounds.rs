//! The memory that a reader of a trace takes at most, with the worst files that can be made: a few
//! kilobytes that unpack to as much as the format allows.

use std::io::{Cursor, Read};

use tierscope_conformance::peak::{self, Peak};
use tierscope_trace::compact::{Reader, varint};
use tierscope_trace::input::Input;
use tierscope_trace::{Batch, Source};

#[global_allocator]
static ALLOCATOR: Peak = Peak;

/// The ceiling of all readers of foreign files.
const CEILING: usize = 256 << 20;
/// Limits of FORMAT.md.
const LONGEST: usize = 1 << 24;
const LONGEST_END: usize = 1 << 26;
const MOST_EVENTS: u32 = 1 << 17;

/// The kinds of blocks.
const ACCESSES: u8 = 1;
const EVENTS: u8 = 2;
const END: u8 = 3;

/// A file of one block, packed, and an end block if the first one is none.
fn file(kind: u8, count: u32, payload: &[u8]) -> Vec<u8> {
    let mut file = b"\x89TSTR\r\n\x1a\x02\0\0\0".to_vec();
    file.extend(crc32fast::hash(&file).to_le_bytes());
    block(&mut file, kind, count, 0, payload);
    if kind != END {
        block(&mut file, END, 0, 1, &[1, 0, 0, 0, 0, 0, 0, 0]);
    }
    file
}

fn block(file: &mut Vec<u8>, kind: u8, count: u32, number: u64, payload: &[u8]) {
    let packed = lz4_flex::block::compress(payload);
    let mut header = b"\xb1TSB".to_vec();
    header.extend([kind, 1, 0, 0]);
    header.extend((packed.len() as u32).to_le_bytes());
    header.extend((payload.len() as u32).to_le_bytes());
    header.extend(0u32.to_le_bytes());
    header.extend(count.to_le_bytes());
    header.extend(number.to_le_bytes());
    header.extend(0u64.to_le_bytes());
    header.extend(crc32fast::hash(&packed).to_le_bytes());
    header.extend(crc32fast::hash(&header).to_le_bytes());
    file.extend(header);
    file.extend(packed);
}

/// Reads a file to its end; returns whether it was read without an error.
fn read(file: &[u8]) -> bool {
    let mut reader = Reader::new("t", file).unwrap();
    let (mut batch, mut sound) = (Batch::default(), true);
    loop {
        match reader.fill(&mut batch) {
            Ok(true) => batch.clear(),
            Ok(false) => return sound,
            Err(_) if reader.go_on() => sound = false,
            Err(_) => return false,
        }
    }
}

/// Varints of these numbers.
fn numbers(all: &[u64]) -> Vec<u8> {
    let mut out = Vec::new();
    all.iter().for_each(|number| varint::put(*number, &mut out));
    out
}

/// A block of `count` repetitions of a part.
fn repeated(head: &[u8], part: &[u8], count: usize) -> Vec<u8> {
    [head, &part.repeat(count)].concat()
}

/// The worst files: name, file, and whether it is sound.
fn worst() -> Vec<(&'static str, Vec<u8>, bool)> {
    let given: &[u8] = &[0xf3, 0, 2, 3];
    let most = MOST_EVENTS as usize;
    let site: &[u8] = &[0xf2, 0];
    let symbol: &[u8] = &[4, 7, 1, 1, 0];
    let unmap: &[u8] = &[3, 0, 7, 0, 0];
    let thread = numbers(&[7, 7, 1, 1, 1, 1, 0]);
    let threads = [numbers(&[1, 0, 0, 0, 0, 0, 1 << 20]), thread.repeat(1 << 20), vec![0]].concat();
    let blocks = LONGEST_END / 2 - 64;
    let pages = numbers(&[1, 0, 0, 0, 0, 0, 0, 1, 7, blocks as u64]);
    let access = repeated(&[0xf1, 8 << 2], &[0x10, 2], 1 << 20);
    let long_name = |length: usize| {
        let name = numbers(&[4, 7, 1, 1, length as u64]);
        [name, vec![b'x'; length]].concat()
    };
    vec![
        ("allocations", file(ACCESSES, 0, &repeated(&[0xf2, 1, b'x'], given, most - 1)), true),
        ("more", file(ACCESSES, 0, &repeated(&[0xf2, 1, b'x'], given, LONGEST / 4 - 1)), false),
        ("places", file(ACCESSES, 0, &repeated(&[], site, LONGEST / 2)), false),
        ("accesses", file(ACCESSES, 1 << 20, &access), true),
        ("symbols", file(EVENTS, MOST_EVENTS, &repeated(&[], symbol, most)), true),
        ("unmaps", file(EVENTS, MOST_EVENTS, &repeated(&[], unmap, most)), true),
        ("too many events", file(EVENTS, 1 << 20, &repeated(&[], symbol, 1 << 20)), false),
        ("a long name", file(EVENTS, 1, &long_name(LONGEST - 16)), true),
        ("threads", file(END, 0, &threads), true),
        ("pages", file(END, 0, &[repeated(&pages, &[0, 1], blocks), vec![0]].concat()), true),
    ]
}

/// An xz stream whose dictionary has 4 GiB - 1 bytes, with a byte of data.
fn large_dictionary() -> Vec<u8> {
    let mut file = b"\xfd7zXZ\0\0\0".to_vec();
    file.extend(crc32fast::hash(&file[6..8]).to_le_bytes());
    let block = [2, 0, 0x21, 1, 40, 0, 0, 0];
    file.extend(block);
    file.extend(crc32fast::hash(&block).to_le_bytes());
    // A chunk without compression, then the end of the block.
    file.extend([1, 0, 0, b'x', 0]);
    file
}

// One test: the allocator counts all threads.
#[test]
fn no_file_takes_more_than_the_ceiling() {
    for (name, file, sound) in worst() {
        let (read, bytes) = peak::of(|| read(&file));
        eprintln!("{name}: {} KiB of file, {} MiB of memory", file.len() >> 10, bytes >> 20);
        assert_eq!(read, sound, "{name}");
        assert!(bytes <= CEILING, "{name}: {bytes} bytes");
    }
    let mut text = Vec::new();
    let opened = Input::new("t", Box::new(Cursor::new(large_dictionary())));
    let error = opened.map(|mut input| input.bytes.read_to_end(&mut text)).err();
    assert!(error.is_some_and(|error| error.to_string().contains("limit")), "{text:?}");
}
