//! The heatmap of a group of processes: shared memory, a heap and libraries in each, and a
//! reservation that is hardly used. Addresses span 48 TiB.

use std::time::Duration;

use serde_json::Value;
use tierscope_core::drive::{Sink, Window};
use tierscope_core::{Backing, Mapping, Mappings, Range, Region, Snapshot, Space, SpaceId, Time};
use tierscope_record::{Memory, Meta, Recorder, Recording};
use tierscope_report::{Cell, Color, Grid, Heatmap, Style, View, heatmap, html};

use crate::toy::{HEAP, MIB, MMAP};

const PROCESSES: u32 = 8;
/// The space of shared memory.
const SHARED: SpaceId = SpaceId(PROCESSES);
const GIB: u64 = 1 << 30;

/// Backing, name, start and bytes of the mappings of a process.
const OWN: [(Backing, &str, u64, u64); 5] = [
    (Backing::Heap, "[heap]", HEAP, 4 * MIB),
    (Backing::Anonymous, "", MMAP - 128 * GIB, 64 * GIB),
    (Backing::File, "/usr/lib/libc.so.6", MMAP, MIB / 2),
    (Backing::File, "/usr/lib/libc.so.6", MMAP + MIB, MIB / 2),
    (Backing::Stack, "[stack]", MMAP + 512 * GIB, 64 << 10),
];

fn mapping(space: SpaceId, backing: Backing, name: &str, start: u64, bytes: u64) -> Mapping {
    let range = Range::new(space, start, start + bytes);
    Mapping { range, backing, name: name.into(), writable: true, object: None }
}

/// The last process ends after half of the windows.
fn layout(processes: u32) -> Mappings {
    let of = |id: u32| {
        OWN.map(|(backing, name, at, bytes)| mapping(SpaceId(id), backing, name, at, bytes))
    };
    let mut mappings: Vec<Mapping> = (0..processes).flat_map(of).collect();
    mappings.push(mapping(SHARED, Backing::File, "/dev/shm/pool", 0x1000_0000, 64 * MIB));
    let name = |id: u32| Space { id: SpaceId(id), name: format!("worker[{}]", 10 + id).into() };
    let mut spaces: Vec<Space> = (0..processes).map(name).collect();
    spaces.push(Space { id: SHARED, name: "shared memory".into() });
    Mappings { taken: Time(0), spaces, mappings, ..Mappings::default() }
}

/// 8 MiB in the middle of the shared memory are hot, and the stack of the first process. A MiB of
/// each reservation is in memory, all of it cold.
fn regions(processes: u32) -> Vec<Region> {
    let region = |space, start, bytes, hits| {
        Region::sampled(Range::new(space, start, start + bytes), hits, 40)
    };
    let of = |id: u32| {
        let stack = if id == 0 { 40.0 } else { 0.0 };
        let used = [4 * MIB, MIB, MIB / 2, MIB / 2, 64 << 10];
        OWN.iter().zip(used).map(move |((_, name, start, _), bytes)| {
            let hits = if *name == "[stack]" { stack } else { 0.0 };
            region(SpaceId(id), *start, bytes, hits)
        })
    };
    let mut regions: Vec<Region> = (0..processes).flat_map(of).collect();
    let pool = |from: u64, to: u64, hits| {
        region(SHARED, 0x1000_0000 + from * MIB, (to - from) * MIB, hits)
    };
    regions.extend([pool(0, 24, 0.0), pool(24, 32, 40.0), pool(32, 64, 0.0)]);
    regions
}

fn recording(windows: u64) -> Recording {
    let mut memory = Memory::default();
    let mut recorder = Recorder::create_in(&mut memory, &Meta::default()).unwrap();
    for number in 0..windows {
        let processes = if number < windows / 2 { PROCESSES } else { PROCESSES - 1 };
        let start = Time(number * 200_000_000);
        let end = start + Duration::from_millis(200);
        let snapshot = Snapshot { start, end, samples: 40, regions: regions(processes) };
        let layout = layout(processes);
        let changed = number == 0 || number == windows / 2;
        let mappings = changed.then_some(&layout);
        recorder.window(&Window { mappings, ..Window::of(&snapshot) }).unwrap();
    }
    recorder.finish().unwrap();
    Recording::from_source(Box::new(memory)).unwrap()
}

fn text(map: &Heatmap) -> String {
    let mut text = Vec::new();
    map.write_text(&mut text, &Style { width: 90, color: Color::None }).unwrap();
    String::from_utf8(text).unwrap()
}

// 30 rows for 112.5 MiB are rows of 4 MiB: the pool has 16 and each heap one. The hot stack has a
// row of its own; 23 mappings of at most a MiB, 16.4 MiB, share five.
#[test]
fn a_group_is_readable() {
    let map = heatmap(&recording(8), &View::default(), Grid { columns: 8, rows: 30 }).unwrap();
    assert_eq!(map.row_bytes, 4 * MIB);
    let areas: Vec<_> = map
        .areas
        .iter()
        .map(|area| (area.mapping.as_str(), area.name.as_str(), area.rows.len()))
        .collect();
    let mut want = vec![("[heap]", "worker[10]", 1), ("[stack]", "worker[10]", 1)];
    let names: Vec<String> = (11..18).map(|pid| format!("worker[{pid}]")).collect();
    want.extend(names.iter().map(|name| ("[heap]", name.as_str(), 1)));
    want.push(("/dev/shm/pool", "shared memory", 16));
    want.push(("23 small mappings", "", 5));
    assert_eq!(areas, want);
    let row_of = |index: usize| map.areas[9].rows[index].peak;
    let hot: Vec<usize> = (0..16).filter(|row| row_of(*row) == Some(1.0)).collect();
    assert_eq!(hot, [6, 7], "MiB 24 to 32");
    // Of each of the 7 processes at the end, 64 GiB but a MiB.
    assert_eq!(map.left_out_bytes, 7 * (64 * GIB - MIB));
    let text = text(&map);
    assert!(text.contains(" @@@@@@@@    1    1 [stack] worker[10]\n"), "{text}");
    assert!(text.contains("23 small mappings"), "{text}");
    assert!(text.contains("no rows: 448 GiB, mapped but not resident or never seen"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 90), "{text}");
}

// The page has the same blocks at the number of rows of its static map, with every byte of them.
#[test]
fn the_page_has_the_blocks_of_the_report() {
    let recording = recording(8);
    let map = heatmap(&recording, &View::default(), Grid { columns: 8, rows: 90 }).unwrap();
    let data = html::data(&recording, &html::Options::default()).unwrap();
    let data: Value = serde_json::from_str(&data).unwrap();
    let areas = data["areas"].as_array().unwrap();
    let page: Vec<_> = areas
        .iter()
        .map(|area| (area["mapping"].as_str().unwrap(), area["rows"].as_u64().unwrap()))
        .collect();
    let report: Vec<_> =
        map.areas.iter().map(|area| (area.mapping.as_str(), area.rows.len() as u64)).collect();
    assert_eq!(page, report);
    let bytes: u64 = regions(PROCESSES).iter().map(Region::bytes).sum();
    let units: u64 = areas.iter().map(|area| area["units"].as_u64().unwrap()).sum();
    assert_eq!(units * data["unit_bytes"].as_u64().unwrap(), bytes);
}

// From 64 windows on columns come from the zoom pyramid. The first and the last tile of the heap of
// the process that ended hold windows with and without it.
#[test]
fn nothing_is_hot_where_nothing_is_mapped() {
    for windows in [8, 400] {
        let recording = recording(windows);
        let map = heatmap(&recording, &View::default(), Grid { columns: 4, rows: 30 }).unwrap();
        let ended = map.areas.iter().find(|area| area.name == "worker[17]").unwrap();
        let cells = &ended.rows[0].peaks;
        assert_eq!(cells[..2], [Cell::Heat(0.0); 2], "{windows} windows");
        assert_eq!(cells[3], Cell::Unmapped, "{windows} windows");
    }
}
