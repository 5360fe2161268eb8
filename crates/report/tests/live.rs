//! The live screen of a small recording made by code: what it shows, to the character, and what
//! keys do to it.

use std::time::{Duration, UNIX_EPOCH};

use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use tierscope_core::drive::{Sink, Window};
use tierscope_core::{
    Backing, CpuTime, Level, Mapping, Mappings, Range, Region, Snapshot, Space, SpaceId, Time,
};
use tierscope_record::{Memory, Meta, Recorder, Recording};
use tierscope_report::Color;
use tierscope_report::live::{Key, Live, Start};

const MIB: u64 = 1 << 20;
const HEAP: u64 = 0x5555_5580_0000;
const STACK: u64 = 0x7ffc_0000_0000;
const SECOND: u64 = 1_000_000_000;

fn range(space: u32, start: u64, bytes: u64) -> Range {
    Range::new(SpaceId(space), start, start + bytes)
}

/// Of each process 8 MiB of heap and a stack.
fn mappings(processes: u32) -> Mappings {
    let mapping = |space, start, bytes, backing, name: &str| Mapping {
        range: range(space, start, bytes),
        backing,
        name: name.into(),
        writable: true,
    };
    let of = |space: u32| {
        [
            mapping(space, HEAP, 8 * MIB, Backing::Heap, "[heap]"),
            mapping(space, STACK, MIB, Backing::Stack, "[stack]"),
        ]
    };
    let space = |id: u32| Space { id: SpaceId(id), name: format!("redis[{}]", 100 + id).into() };
    Mappings {
        taken: Time(0),
        spaces: (0..processes).map(space).collect(),
        mappings: (0..processes).flat_map(of).collect(),
    }
}

fn region(range: Range, hits: f32, age: u64, level: Level) -> Region {
    Region { range, hits, samples: 40, age: age as u32, level: Some(level), confidence: 1.0 }
}

/// Windows of a second. In the first process a MiB that is always hit walks up the heap, a MiB a
/// window; nobody looks at the last MiB; the stack is hit in a quarter of the samples. The second
/// process sleeps.
fn snapshot(window: u64, processes: u32) -> Snapshot {
    let hot = HEAP + window % 7 * MIB;
    let end = HEAP + 7 * MIB;
    let mut regions = vec![
        region(range(0, HEAP, hot - HEAP), 0.0, window, Level::PMD),
        region(range(0, hot, MIB), 40.0, 0, Level::PTE),
        region(range(0, hot + MIB, end - hot - MIB), 0.0, window, Level::PMD),
        Region { samples: 0, level: None, ..region(range(0, end, MIB), 0.0, 0, Level::PMD) },
        region(range(0, STACK, MIB), 10.0, window, Level::PTE),
    ];
    if processes > 1 {
        regions.push(region(range(1, HEAP, 8 * MIB), 0.0, window, Level::PUD));
    }
    regions.retain(|region| !region.range.is_empty());
    let at = |window| Time(SECOND * (1 + window));
    Snapshot { start: at(window), end: at(window + 1), samples: 40, regions }
}

/// The profiler takes half a second to start, then 1 % of a CPU; the target 80 %.
fn record(windows: std::ops::Range<u64>, processes: u32, recorder: &mut Recorder<&mut Memory>) {
    for number in windows {
        let cpu = CpuTime {
            profiler: Duration::from_millis(500 + 10 * (number + 1)),
            target: Duration::from_millis(800 * (number + 1)),
        };
        let snapshot = snapshot(number, processes);
        let mappings = (number == 0).then(|| mappings(processes));
        let mappings = mappings.as_ref();
        let window = Window { snapshot: &snapshot, mappings, actions: &[], outcomes: &[], cpu };
        recorder.window(&window).expect("memory takes all");
    }
}

fn meta() -> Meta {
    Meta {
        instrument: "telescope".into(),
        settings: [("variant".to_string(), "bounded".to_string())].into(),
        window: Duration::from_secs(1),
        sampling: Duration::from_millis(25),
        target: "redis[100]".into(),
        started: UNIX_EPOCH + Duration::from_secs(1_795_190_400),
        ..Meta::default()
    }
}

fn recording(windows: u64, processes: u32, finish: bool) -> Recording {
    let mut memory = Memory::default();
    let mut recorder = Recorder::create_in(&mut memory, &meta()).expect("memory takes all");
    record(0..windows, processes, &mut recorder);
    if finish {
        recorder.finish().expect("memory takes all");
    }
    Recording::from_source(Box::new(memory)).expect("it was just written")
}

fn replay(windows: u64, processes: u32) -> Live {
    let start = Start::Replay { from: Duration::from_secs(3600), speed: 1.0 };
    Live::new(recording(windows, processes, true), start, Color::None)
}

/// The screen, as lines without spaces at their ends.
fn screen(live: &mut Live, width: u16, height: u16) -> Vec<String> {
    while !live.prepare(width, height) {}
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| live.draw(frame)).unwrap();
    let cells = terminal.backend().buffer().content();
    let line = |row: &[ratatui::buffer::Cell]| {
        row.iter().map(ratatui::buffer::Cell::symbol).collect::<String>().trim_end().to_string()
    };
    cells.chunks(width.into()).map(line).collect()
}

fn press(live: &mut Live, keys: &str) {
    keys.chars().for_each(|key| live.update(Key::Char(key)));
}

/// Compares with `golden`, a line each; shows the whole screen if it differs.
fn check(live: &mut Live, golden: &str) {
    let golden: Vec<&str> = golden.trim_matches('\n').lines().map(str::trim_end).collect();
    let shown = screen(live, 80, 20);
    assert!(shown == golden, "the screen is\n{}\nand not\n{}", shown.join("\n"), golden.join("\n"));
}

#[test]
fn print() {
    let mut live = replay(8, 1);
    println!("{}", screen(&mut live, 80, 20).join("\n"));
    println!("{}", screen(&mut live, 120, 24).join("\n"));
    live.update(Key::Enter);
    println!("{}", screen(&mut live, 80, 20).join("\n"));
    press(&mut live, "?");
    println!("{}", screen(&mut live, 80, 20).join("\n"));
    let mut live = replay(8, 2);
    press(&mut live, "p");
    println!("{}", screen(&mut live, 80, 20).join("\n"));
    let mut live = Live::new(recording(8, 1, false), Start::Newest, Color::None);
    println!("{}", screen(&mut live, 80, 20).join("\n"));
    println!("{}", screen(&mut live, 40, 20).join("\n"));
}
