//! Cost of a window for the recorder: 16,000 scattered regions, of which a sixth change from window
//! to window, compared with an empty window.

use std::hint::black_box;
use std::io;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tierscope_core::drive::{Sink, Window};
use tierscope_core::{Level, Range, Region, Rng, Snapshot, SpaceId, Time};
use tierscope_record::{Meta, Recorder, Store, Table};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const BASE: u64 = 1 << 44;

/// Number of pregenerated windows, which are recorded cyclically.
const WINDOWS: u64 = 64;

/// Hot ranges of 2 MiB in a terabyte.
const RANGES: u64 = 8000;

/// The instrument scans one of this many 1 GiB tables per window, in rotation.
const TURNS: u64 = 6;

/// A store that counts bytes and discards them.
#[derive(Default)]
struct Nowhere {
    bytes: usize,
}

impl Store for Nowhere {
    fn append(&mut self, _: Table, bytes: &[u8]) -> io::Result<()> {
        self.bytes += bytes.len();
        Ok(())
    }

    fn name(&self) -> String {
        "nowhere".into()
    }
}

/// Hits of a hot range at its last scan in or before `window`: 1 to 8, rarely 0.
fn hits(start: u64, window: u64) -> f32 {
    let table = start / GIB;
    let looked = (window + table % TURNS) / TURNS;
    Rng::seeded(start ^ looked << 50).below(64).div_ceil(8) as f32
}

/// Hot ranges, and the cold ranges between them.
fn scattered(window: u64) -> Vec<Region> {
    let mut regions = Vec::new();
    let mut at = BASE;
    let region = |start, end, hits: f32, age| Region {
        range: Range::new(SpaceId(0), start, end),
        hits,
        samples: 8,
        age,
        level: Some(Level::PMD),
        confidence: if hits > 0.0 { 0.5 } else { 1.0 },
        rate: None,
        unknown: None,
        resident: None,
    };
    let spread = 1024 * GIB / RANGES;
    for i in 0..RANGES {
        let slot = BASE + i * spread;
        let entries = spread / (2 * MIB);
        let start =
            slot / (2 * MIB) * (2 * MIB) + (1 + Rng::seeded(i).below(entries - 2)) * 2 * MIB;
        let hits = hits(start, window);
        if hits > 0.0 {
            regions.push(region(at, start, 0.0, window as u32));
            regions.push(region(start, start + 2 * MIB, hits, (window / 3) as u32));
            at = start + 2 * MIB;
        }
    }
    regions.push(region(at, BASE + 1024 * GIB, 0.0, window as u32));
    regions
}

fn record(c: &mut Criterion, name: &str, regions: impl Fn(u64) -> Vec<Region>) {
    let windows: Vec<_> = (0..WINDOWS).map(regions).collect();
    let mut recorder = Recorder::create_in(Nowhere::default(), &Meta::default()).unwrap();
    let mut group = c.benchmark_group("window");
    group.throughput(Throughput::Elements(windows[0].len() as u64));
    let mut turn = 0;
    let mut snapshot = Snapshot { samples: 8, ..Snapshot::default() };
    group.bench_function(name, |b| {
        b.iter(|| {
            snapshot.regions.clone_from(&windows[(turn % WINDOWS) as usize]);
            (snapshot.start, snapshot.end) =
                (Time(turn * 200_000_000), Time((turn + 1) * 200_000_000));
            turn += 1;
            let snapshot = black_box(&snapshot);
            recorder.window(&Window::of(snapshot))
        });
    });
    group.finish();
}

fn windows(c: &mut Criterion) {
    record(c, "of no regions", |_| Vec::new());
    record(c, "of scattered regions", scattered);
}

criterion_group!(benches, windows);
criterion_main!(benches);
