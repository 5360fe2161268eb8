//! How fast captures of a bus monitor are parsed, one core: records a second. `cargo bench -p tierscope-trace --bench ptat`.
//!
//! 16 Mi requests of two boards: half of them reads of 1 Mi page-table entries at random, which map 4 GiB of small pages,
//! the others lie elsewhere in memory. All of it is in memory.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tierscope_core::{Level, Rng};
use tierscope_trace::ptat::{
    BoardReader, BoardWriter, BusHeader, Capture, Change, DumpHeader, DumpReader, DumpWriter, Told,
    What, Window,
};

const REQUESTS: u64 = 16 << 20;
const PAGES: u64 = 1 << 20;

fn header() -> DumpHeader {
    let region = Window { start: 1 << 45, bytes: 256 << 20 };
    DumpHeader { record: 13, region, tags: Window { start: 1 << 44, bytes: 1 << 20 } }
}

fn dump() -> Vec<u8> {
    let mut dump = DumpWriter::new("dump", Vec::new(), header()).expect("memory");
    for page in 0..PAGES {
        let entry = (1 << 45) + page * 8;
        let (what, level) = (What::Map, Level::PTE);
        let change =
            Change { what, pid: 1, level, writable: true, page, frame: page, entry, reads: 0 };
        dump.told(&Told::Change(change)).expect("memory");
    }
    dump.told(&Told::Tag(0)).expect("memory");
    dump.finish().expect("memory")
}

/// Streams of so many boards, between which lines alternate.
fn boards(count: u8) -> Vec<Vec<u8>> {
    let mut rng = Rng::seeded(3);
    let mut writers: Vec<_> = (0..count)
        .map(|board| {
            let header = BusHeader { board, boards: count, grain: 6, tick_ps: 1250, start: 0 };
            BoardWriter::new("board", Vec::new(), header).expect("memory")
        })
        .collect();
    writers[0].request(0, 1 << 44, false).expect("memory");
    for ticks in 0..REQUESTS {
        let address = match ticks % 2 {
            0 => (1 << 45) + rng.below(PAGES) * 8,
            _ => rng.below(16 << 30),
        };
        let board = (address >> 6) as usize % usize::from(count);
        writers[board].request(10 + 8 * ticks, address, rng.below(4) == 0).expect("memory");
    }
    writers.into_iter().map(|writer| writer.finish().expect("memory")).collect()
}

fn parse(boards: &[Vec<u8>], dump: &[u8]) -> u64 {
    let boards = boards.iter().map(|bytes| BoardReader::new("board", &bytes[..]).expect("ours"));
    let dump = DumpReader::new("dump", dump).expect("ours");
    let mut capture = Capture::of(boards.collect(), dump).expect("one machine");
    while capture.step(&mut ()) {}
    let (misses, damage) = capture.finish();
    assert_eq!(damage.count, 0);
    misses.total()
}

fn captures(criterion: &mut Criterion) {
    let dump = dump();
    for count in [1, 2, 4] {
        let boards = boards(count);
        let mut group = criterion.benchmark_group("bus records");
        group.throughput(Throughput::Elements(REQUESTS)).sample_size(10);
        group.bench_function(format!("{count} boards"), |bencher| {
            bencher.iter(|| black_box(parse(&boards, &dump)));
        });
        group.finish();
    }
}

criterion_group!(benches, captures);
criterion_main!(benches);
