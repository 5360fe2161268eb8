//! A small generated recording, for all tests of reports.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use tierscope_core::drive::{Sink, Window};
use tierscope_core::{
    Backing, CpuTime, Level, Mapping, Mappings, Node, OnNode, Placed, Radix, Range, Region,
    Residence, Snapshot, Space, SpaceId, SpaceResidence, Time,
};
use tierscope_record::{Machine, Memory, Meta, Recorder, Recording};

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const HEAP: u64 = 0x5555_5580_0000;
pub(crate) const MMAP: u64 = 0x7f00_0000_0000;
const STACK: u64 = 0x7ffc_0000_0000;
pub(crate) const WINDOWS: u64 = 20;

fn mapping(start: u64, bytes: u64, backing: Backing, name: &str) -> Mapping {
    let range = Range::new(SpaceId(0), start, start + bytes);
    Mapping { range, backing, name: name.into(), writable: true, object: None }
}

/// 8 MiB of heap; from the tenth window on 64 MiB of a file; and a stack.
fn mappings(window: u64) -> Mappings {
    let mut mappings = vec![mapping(HEAP, 8 * MIB, Backing::Heap, "[heap]")];
    if window >= 10 {
        mappings.push(mapping(MMAP, 64 * MIB, Backing::File, "/var/lib/redis/dump.rdb"));
    }
    mappings.push(mapping(STACK, MIB, Backing::Stack, "[stack]"));
    let space = Space { id: SpaceId(0), name: "redis-server[4711]".into() };
    Mappings { taken: Time(window), spaces: vec![space], mappings, ..Mappings::default() }
}

fn region(start: u64, bytes: u64, hits: f32, age: u64, level: Level) -> Region {
    let range = Range::new(SpaceId(0), start, start + bytes);
    let level = Some(level);
    Region { age: age as u32, level, ..Region::sampled(range, hits, 40) }
}

/// A hot MiB moves up the heap, one MiB every four windows; the first 16 MiB of the file warm up;
/// its second half is never probed.
fn snapshot(window: u64) -> Snapshot {
    let hot = HEAP + window / 4 * MIB;
    let mut regions = Vec::new();
    if hot > HEAP {
        regions.push(region(HEAP, hot - HEAP, 0.0, window, Level::PMD));
    }
    regions.push(region(hot, MIB, 40.0, window % 4, Level::PTE));
    let end = HEAP + 8 * MIB;
    regions.push(region(hot + MIB, end - hot - MIB, 0.0, window, Level::PMD));
    if window >= 10 {
        regions.push(region(MMAP, 16 * MIB, (window - 9) as f32, 0, Level::PMD));
        regions.push(region(MMAP + 16 * MIB, 16 * MIB, 0.0, window - 10, Level::PMD));
        let far = region(MMAP + 32 * MIB, 32 * MIB, 0.0, 0, Level::PMD);
        regions.push(Region { samples: 0, level: None, ..far });
    }
    regions.push(region(STACK, MIB, 3.0, window, Level::PTE));
    let nanos = Duration::from_millis(200).as_nanos() as u64;
    let start = Time(1_000_000_000 + window * nanos);
    Snapshot { start, end: start + Duration::from_nanos(nanos), samples: 40, regions }
}

fn meta() -> Meta {
    Meta {
        instrument: "telescope".into(),
        settings: BTreeMap::from([("variant".into(), "bounded".into())]),
        target: "redis-server[4711]".into(),
        machine: Machine {
            kernel: "6.12.0-test".into(),
            radix: Some(Radix::X86_64),
            tiers: vec![vec![Node(0)], vec![Node(2)]],
        },
        command: "tierscope record -p 4711 -o redis".into(),
        started: UNIX_EPOCH + Duration::from_secs(1_795_190_400),
        version: "0.1.0".into(),
        annotations: BTreeMap::from([("tlb-flush-period".into(), "20ms".into())]),
        ..Meta::default()
    }
}

/// All windows, closed properly.
pub(crate) fn recording() -> Recording {
    let mut memory = Memory::default();
    record(&mut memory, WINDOWS).finish().expect("memory takes all");
    Recording::from_source(Box::new(memory)).expect("it was just written")
}

/// The first `count` windows, as if the recording were still being written.
pub(crate) fn first_windows(count: u64) -> Recording {
    let mut memory = Memory::default();
    drop(record(&mut memory, count));
    Recording::from_source(Box::new(memory)).expect("it was just written")
}

/// From the fifth window on the resident bytes are known; from the tenth on also their nodes: tier
/// 0 (node 0) has 8 MiB, tier 1 (node 2) a MiB more with each window.
fn residence(window: u64) -> Option<Residence> {
    let on = |node, mib| OnNode { node: Node(node), bytes: mib * MIB };
    let nodes = vec![on(0, 8), on(2, window - window.min(9))];
    let (space, taken) = (SpaceId(0), Time(window));
    let placed = (window >= 10).then_some(Placed { taken, nodes, drawn: 0 });
    let bytes = (8 + window - window.min(9)) * MIB;
    let spaces = vec![SpaceResidence { space, taken, bytes, placed, extents: None }];
    (window >= 5).then_some(Residence { spaces, ..Residence::default() })
}

fn record(memory: &mut Memory, windows: u64) -> Recorder<&mut Memory> {
    let mut recorder = Recorder::create_in(memory, &meta()).expect("memory takes all");
    for window in 0..windows {
        let changed = (window % 10 == 0).then(|| mappings(window));
        let cpu = CpuTime {
            profiler: Duration::from_millis(6 * window),
            target: Duration::from_millis(180 * window),
        };
        let snapshot = snapshot(window);
        let (mappings, residence) = (changed.as_ref(), residence(window));
        let residence = residence.as_ref();
        let window = Window { mappings, cpu, residence, ..Window::of(&snapshot) };
        recorder.window(&window).expect("memory takes all");
    }
    recorder
}

/// A parent, and a child that ends after five of eight windows; both are hot.
pub(crate) fn family() -> Recording {
    let space = |id: u32, name: &str| Space { id: SpaceId(id), name: name.into() };
    let heap = |id: u32| Range::new(SpaceId(id), HEAP, HEAP + MIB);
    let mut memory = Memory::default();
    let mut recorder = Recorder::create_in(&mut memory, &meta()).expect("memory takes all");
    for number in 0..8 {
        let mut living = vec![space(0, "parent[1]"), space(1, "child[2]")];
        living.truncate(if number < 5 { 2 } else { 1 });
        let range = |space: &Space| heap(space.id.0);
        let backing = Backing::Heap;
        let mapping =
            |range| Mapping { range, backing, name: "[heap]".into(), writable: true, object: None };
        let region = |range| Region { range, ..region(HEAP, MIB, 40.0, number, Level::PTE) };
        let regions = living.iter().map(range).map(region).collect();
        let mappings = living.iter().map(range).map(mapping).collect();
        let start = Time(number * 200_000_000);
        let end = start + Duration::from_millis(200);
        let snapshot = Snapshot { start, end, samples: 40, regions };
        let layout = Mappings { taken: start, spaces: living, mappings, ..Mappings::default() };
        let mappings = [0, 5].contains(&number).then_some(&layout);
        let window = Window { mappings, ..Window::of(&snapshot) };
        recorder.window(&window).expect("memory takes all");
    }
    recorder.finish().expect("memory takes all");
    Recording::from_source(Box::new(memory)).expect("it was just written")
}

/// `make`, and in every window after the first a compiler that runs in that window only; all of
/// the memory is hot. Even compilers still run at the end of their window.
pub(crate) fn build(windows: u32) -> Recording {
    let space = |id: u32, name: &str| Space { id: SpaceId(id), name: name.into() };
    let heap = |id: u32| Range::new(SpaceId(id), HEAP, HEAP + MIB);
    let mut memory = Memory::default();
    let mut recorder = Recorder::create_in(&mut memory, &meta()).expect("memory takes all");
    for number in 0..windows {
        let all = if number == 0 { vec![0] } else { vec![0, number] };
        let region =
            |id: &u32| Region { range: heap(*id), ..region(HEAP, MIB, 40.0, 0, Level::PTE) };
        let start = Time(u64::from(number) * 200_000_000);
        let end = start + Duration::from_millis(200);
        let regions = all.iter().map(region).collect();
        let snapshot = Snapshot { start, end, samples: 40, regions };
        let living: Vec<u32> = all.into_iter().filter(|id| id % 2 == 0).collect();
        let named = |id: &u32| match id {
            0 => space(0, "make[10]"),
            _ => space(*id, &format!("cc1[{}]", 10 + id)),
        };
        let mapping = |id: &u32| Mapping {
            range: heap(*id),
            backing: Backing::Heap,
            name: "[heap]".into(),
            writable: true,
            object: None,
        };
        let layout = Mappings {
            taken: start,
            spaces: living.iter().map(named).collect(),
            mappings: living.iter().map(mapping).collect(),
            ..Mappings::default()
        };
        let window = Window { mappings: Some(&layout), ..Window::of(&snapshot) };
        recorder.window(&window).expect("memory takes all");
    }
    recorder.finish().expect("memory takes all");
    Recording::from_source(Box::new(memory)).expect("it was just written")
}

/// 56 MiB of heap, cold but for one page in its third quarter that is accessed in every sample.
pub(crate) fn one_hot_page(windows: u64) -> Recording {
    let (end, hot) = (HEAP + 56 * MIB, HEAP + 35 * MIB);
    let heap = mapping(HEAP, 56 * MIB, Backing::Heap, "[heap]");
    let space = Space { id: SpaceId(0), name: "toy[1]".into() };
    let layout = Mappings {
        taken: Time(0),
        spaces: vec![space],
        mappings: vec![heap],
        ..Mappings::default()
    };
    let mut memory = Memory::default();
    let mut recorder = Recorder::create_in(&mut memory, &meta()).expect("memory takes all");
    for window in 0..windows {
        let start = Time(window * 200_000_000);
        let regions = vec![
            region(HEAP, hot - HEAP, 0.0, window, Level::PMD),
            region(hot, 4096, 40.0, window, Level::PTE),
            region(hot + 4096, end - hot - 4096, 0.0, window, Level::PMD),
        ];
        let end = start + Duration::from_millis(200);
        let snapshot = Snapshot { start, end, samples: 40, regions };
        let mappings = (window == 0).then_some(&layout);
        recorder.window(&Window { mappings, ..Window::of(&snapshot) }).expect("memory takes all");
    }
    recorder.finish().expect("memory takes all");
    Recording::from_source(Box::new(memory)).expect("it was just written")
}
