//! A small recording made by code, and what the reports say of it, to the byte.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use tierscope_core::drive::{Sink, Window};
use tierscope_core::{
    Backing, CpuTime, Level, Mapping, Mappings, Radix, Range, Region, Snapshot, Space, SpaceId,
    Time,
};
use tierscope_record::{Machine, Memory, Meta, Recorder, Recording};
use tierscope_report::{
    Color, Grid, RegionsOptions, Sort, Style, View, heatmap, regions, summary, write_json,
};

const MIB: u64 = 1 << 20;
const HEAP: u64 = 0x5555_5580_0000;
const MMAP: u64 = 0x7f00_0000_0000;
const STACK: u64 = 0x7ffc_0000_0000;
const WINDOWS: u64 = 20;

fn mapping(start: u64, bytes: u64, backing: Backing, name: &str) -> Mapping {
    let range = Range::new(SpaceId(0), start, start + bytes);
    Mapping { range, backing, name: name.into(), writable: true }
}

/// 8 MiB of heap, from the tenth window on 64 MiB of a file, and a stack.
fn mappings(window: u64) -> Mappings {
    let mut mappings = vec![mapping(HEAP, 8 * MIB, Backing::Heap, "[heap]")];
    if window >= 10 {
        mappings.push(mapping(MMAP, 64 * MIB, Backing::File, "/var/lib/redis/dump.rdb"));
    }
    mappings.push(mapping(STACK, MIB, Backing::Stack, "[stack]"));
    let space = Space { id: SpaceId(0), name: "redis-server[4711]".into() };
    Mappings { taken: Time(window), spaces: vec![space], mappings }
}

fn region(start: u64, bytes: u64, hits: f32, age: u64, level: Level) -> Region {
    let range = Range::new(SpaceId(0), start, start + bytes);
    let level = Some(level);
    Region { range, hits, samples: 40, age: age as u32, level, confidence: 1.0 }
}

/// A hot MiB walks up the heap, one MiB each fourth window; the first 16 MiB of the file warm up;
/// nobody looks at the second half of it.
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
        machine: Machine { kernel: "6.12.0-test".into(), radix: Some(Radix::X86_64) },
        command: "tierscope record -p 4711 -o redis".into(),
        started: UNIX_EPOCH + Duration::from_secs(1_795_190_400),
        version: "0.1.0".into(),
        annotations: BTreeMap::from([("tlb_flush_period".into(), "20ms".into())]),
        ..Meta::default()
    }
}

fn recording() -> Recording {
    let mut memory = Memory::default();
    let mut recorder = Recorder::create_in(&mut memory, &meta()).expect("memory takes all");
    for window in 0..WINDOWS {
        let changed = (window % 10 == 0).then(|| mappings(window));
        let cpu = CpuTime {
            profiler: Duration::from_millis(6 * window),
            target: Duration::from_millis(180 * window),
        };
        let snapshot = snapshot(window);
        let mappings = changed.as_ref();
        let window = Window { snapshot: &snapshot, mappings, actions: &[], outcomes: &[], cpu };
        recorder.window(&window).expect("memory takes all");
    }
    recorder.finish().expect("memory takes all");
    Recording::from_source(Box::new(memory)).expect("it was just written")
}

/// Compares with tests/golden/`name`; takes the new text over when TIERSCOPE_ACCEPT is set.
fn check(name: &str, text: &[u8]) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("TIERSCOPE_ACCEPT").is_some() {
        std::fs::write(&path, text).expect("golden files can be written");
    }
    let golden = std::fs::read(&path).unwrap_or_default();
    if golden == text {
        return;
    }
    let mut message = format!("{name} differs from {}:\n", path.display());
    let (old, new) = (String::from_utf8_lossy(&golden), String::from_utf8_lossy(text));
    let (mut old, mut new) = (old.lines(), new.lines());
    loop {
        match (old.next(), new.next()) {
            (None, None) => break,
            (a, b) if a == b => {}
            (a, b) => {
                let _ = writeln!(message, "- {}\n+ {}", a.unwrap_or(""), b.unwrap_or(""));
            }
        }
    }
    panic!(
        "{message}If the new text is right, accept it with\n    \
         TIERSCOPE_ACCEPT=1 cargo test -p tierscope-report --test golden"
    );
}

const STYLE: Style = Style { width: 80, color: Color::None };

fn grid() -> Grid {
    Grid::for_terminal(80, 24)
}

#[test]
fn summary_text() {
    let mut text = Vec::new();
    summary(&recording(), &View::default()).unwrap().write_text(&mut text, &STYLE).unwrap();
    check("summary.txt", &text);
}

#[test]
fn summary_json() {
    let mut text = Vec::new();
    write_json(&summary(&recording(), &View::default()).unwrap(), &mut text).unwrap();
    check("summary.json", &text);
}

#[test]
fn heatmap_plain() {
    let mut text = Vec::new();
    heatmap(&recording(), &View::default(), grid()).unwrap().write_text(&mut text, &STYLE).unwrap();
    check("heatmap.txt", &text);
}

#[test]
fn heatmap_in_256_colours() {
    let mut text = Vec::new();
    let style = Style { color: Color::Ansi256, ..STYLE };
    heatmap(&recording(), &View::default(), grid()).unwrap().write_text(&mut text, &style).unwrap();
    check("heatmap-256.txt", &text);
}

#[test]
fn heatmap_of_a_part() {
    let view = View {
        time: Some(Duration::from_millis(1900)..Duration::from_millis(2500)),
        addresses: Some(HEAP..MMAP + MIB),
        space: Some(SpaceId(0)),
        ranges: None,
    };
    let mut text = Vec::new();
    let grid = Grid { columns: 3, rows: 8 };
    write_json(&heatmap(&recording(), &view, grid).unwrap(), &mut text).unwrap();
    check("heatmap-part.json", &text);
}

#[test]
fn regions_text() {
    let mut text = Vec::new();
    let options = RegionsOptions { last: Duration::from_secs(1), sort: Sort::Address };
    let regions = regions(&recording(), &View::default(), &options).unwrap();
    regions.write_text(&mut text, &STYLE).unwrap();
    check("regions.txt", &text);
}

#[test]
fn regions_by_heat_json() {
    let mut text = Vec::new();
    let options = RegionsOptions { sort: Sort::Heat, ..RegionsOptions::default() };
    write_json(&regions(&recording(), &View::default(), &options).unwrap(), &mut text).unwrap();
    check("regions.json", &text);
}

// The last window alone is what the accuracy figures are about: 1 MiB of heap at 40/40, 16 MiB of
// the file at 10/40.
#[test]
fn hot_ranges_of_the_last_window() {
    let recording = recording();
    let options = RegionsOptions { last: Duration::from_millis(200), ..Default::default() };
    let regions = regions(&recording, &View::default(), &options).unwrap();
    assert_eq!(regions.windows, 1);
    assert_eq!(regions.hot, [(HEAP + 4 * MIB, HEAP + 5 * MIB), (MMAP, MMAP + 16 * MIB)]);
    let hot: Arc<_> = Arc::new(tierscope_core::metrics::hot(
        &recording.snapshot(WINDOWS as usize - 1).unwrap(),
        tierscope_core::metrics::HOT_FREQUENCY,
    ));
    assert_eq!(regions.hot_bytes, hot.bytes());
}

#[test]
fn a_view_outside_names_the_remedy() {
    let view =
        View { time: Some(Duration::from_secs(60)..Duration::from_secs(61)), ..View::default() };
    let error = summary(&recording(), &view).unwrap_err().to_string();
    assert_eq!(
        error,
        "no window from 1 min 0 s to 1 min 1 s: the recording lasts 4 s; choose a time within it"
    );
}

#[test]
fn a_closed_pipe_is_no_error() {
    struct Closed;
    impl std::io::Write for Closed {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let recording = recording();
    assert!(summary(&recording, &View::default()).unwrap().write_text(&mut Closed, &STYLE).is_ok());
    assert!(write_json(&summary(&recording, &View::default()).unwrap(), &mut Closed).is_ok());
}
