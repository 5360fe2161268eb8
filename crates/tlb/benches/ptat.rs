//! Parsing speed of bus monitor captures on one core, in records per second: `cargo bench -p
//! tierscope-tlb --bench ptat`.
//!
//! 32 Mi requests, captured by one, two and four boards: half of them read 128 Ki page-table
//! entries at random, which map 512 MiB of 4 KiB pages; the others lie elsewhere in memory. A
//! second input is a dump that maps 1 Mi pages. All inputs are in memory.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tierscope_core::{Level, Rng};
use tierscope_tlb::ptat::{
    BoardReader, BoardWriter, BusHeader, Capture, Change, DumpHeader, DumpReader, DumpWriter,
    KernelEvent, What, Window,
};

const REQUESTS: u64 = 32 << 20;
const PAGES: u64 = 128 << 10;
const CHANGES: u64 = 1 << 20;

fn header() -> DumpHeader {
    let region = Window { start: 1 << 45, bytes: 256 << 20 };
    DumpHeader { record: 13, region, tags: Window { start: 1 << 44, bytes: 1 << 20 } }
}

fn dump(pages: u64) -> Vec<u8> {
    let mut dump = DumpWriter::new("dump", Vec::new(), header()).expect("memory");
    for page in 0..pages {
        let entry = (1 << 45) + page * 8;
        let (what, level) = (What::Map, Level::PTE);
        let change =
            Change { what, pid: 1, level, writable: true, page, frame: page, entry, reads: 0 };
        dump.record(&KernelEvent::Change(change)).expect("memory");
    }
    dump.record(&KernelEvent::Tag(0)).expect("memory");
    dump.finish().expect("memory")
}

/// Streams of `count` boards, with cache lines interleaved between boards.
fn boards(count: u8, requests: u64) -> Vec<Vec<u8>> {
    let mut rng = Rng::seeded(3);
    let mut writers: Vec<_> = (0..count)
        .map(|board| {
            let header = BusHeader { board, boards: count, grain: 6, tick_ps: 1250, start: 0 };
            BoardWriter::new("board", Vec::new(), header).expect("memory")
        })
        .collect();
    writers[0].request(0, 1 << 44, false).expect("memory");
    for ticks in 0..requests {
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
    let few = dump(PAGES);
    for count in [1, 2, 4] {
        let boards = boards(count, REQUESTS);
        let mut group = criterion.benchmark_group("bus records");
        group.throughput(Throughput::Elements(REQUESTS)).sample_size(10);
        group.bench_function(format!("{count} boards"), |bencher| {
            bencher.iter(|| black_box(parse(&boards, &few)));
        });
        group.finish();
    }
    let (many, boards) = (dump(CHANGES), boards(1, 1));
    let mut group = criterion.benchmark_group("dump");
    group.throughput(Throughput::Elements(CHANGES)).sample_size(10);
    group.bench_function("changes", |bencher| {
        bencher.iter(|| black_box(parse(&boards, &many)));
    });
    group.finish();
}

criterion_group!(benches, captures);
criterion_main!(benches);
