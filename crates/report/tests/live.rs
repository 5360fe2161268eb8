//! The live screen of a small generated recording: its contents, character by character, and the
//! effect of keys.

use std::time::{Duration, UNIX_EPOCH};

use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use tierscope_core::drive::{Sink, Window};
use tierscope_core::{
    Backing, CpuTime, Level, Mapping, Mappings, Node, OnNode, Placed, Range, Rate, Region,
    Residence, Snapshot, Space, SpaceId, SpaceResidence, Time, Unknown,
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

/// 8 MiB of heap and a stack for each process.
fn mappings(processes: u32) -> Mappings {
    let mapping = |space, start, bytes, backing, name: &str| Mapping {
        range: range(space, start, bytes),
        backing,
        name: name.into(),
        writable: true,
        object: None,
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
        ..Mappings::default()
    }
}

fn region(range: Range, hits: f32, age: u64, level: Level) -> Region {
    Region { age: age as u32, level: Some(level), ..Region::sampled(range, hits, 40) }
}

/// Windows of one second. In the first process a MiB that is always hit moves up the heap, one MiB
/// per window; the last MiB is never probed; the stack is hit in a quarter of the samples. The
/// second process is idle.
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

/// The profiler takes half a second to start, then 1 % of a CPU; the target uses 80 %.
fn record(windows: std::ops::Range<u64>, processes: u32, recorder: &mut Recorder<&mut Memory>) {
    for number in windows {
        let cpu = CpuTime {
            profiler: Duration::from_millis(500 + 10 * (number + 1)),
            target: Duration::from_millis(800 * (number + 1)),
        };
        let snapshot = snapshot(number, processes);
        let mappings = (number == 0).then(|| mappings(processes));
        let mappings = mappings.as_ref();
        let window = Window { mappings, cpu, ..Window::of(&snapshot) };
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

/// The screen as lines, without trailing spaces.
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

/// Compares with `golden`, line by line; prints the whole screen if it differs.
fn check(live: &mut Live, golden: &str) {
    let golden: Vec<&str> = golden.trim_matches('\n').lines().map(str::trim_end).collect();
    let shown = screen(live, 80, 21);
    assert!(shown == golden, "the screen is\n{}\nand not\n{}", shown.join("\n"), golden.join("\n"));
}

// 9 MiB in eight rows is 1.25 MiB per row: the hot MiB of window 0 fills four fifths of the first.
#[test]
fn regions_hottest_first() {
    check(
        &mut replay(8, 1),
        "
redis[100]  telescope bounded, 25 ms / 1 s                                ended
window 8 of 8 at 8 s · profiler 1.0 % of a CPU (mean 7.2 %) · target 80.0 %
mapped 9 MiB · hot 2 MiB (22.2 %) · unknown 0 B (0.0 %) · 4 regions
resident bytes and tiers: not in this recording
  heat of all: 9 MiB, 1.2 MiB a row, 1 window a column
0x555555800000                                          %-.....% [heap]
0x555555940000                                          .*+.....
0x555555a80000                                          ..+*....
0x555555bc0000                                          ...-%...
0x555555d00000                                          .....%-.
0x555555e40000                                          ......@.
0x555555f80000                                          ????????
0x7ffc00000000┆                                         ======== [stack]
                                                             8 s
▶ regions by heat: 1 to 4 of 4
         start      size      freq       hot   age level name
0x555555800000     1 MiB @ 100.0 %     1 MiB     0   PTE [heap]
0x7ffc00000000     1 MiB =  25.0 %     1 MiB     7   PTE [stack]
0x555555900000     6 MiB .   0.0 %               7   PMD [heap]
0x555555f00000     1 MiB         ?               0       [heap]
? help · q quit · Space pause · Enter/Esc in/out · +/- z/Z zoom · s sort · Tab
",
    );
}

// Of the 8 MiB of heap one is hot, three are unknown, two were not probed, two are cold. In the map
// a row is a MiB.
#[test]
fn unknown_memory_and_rates_are_shown() {
    let rate = |mean| Some(Rate { low: mean / 2.0, mean, high: mean * 2.0 });
    let heap = |from: u64, to: u64, hits| {
        region(range(0, HEAP + from * MIB, (to - from) * MIB), hits, 0, Level::PMD)
    };
    let regions = vec![
        Region { rate: rate(620.0), ..heap(0, 1, 40.0) },
        Region { unknown: Some(Unknown::Evidence), rate: rate(9.0), ..heap(1, 4, 40.0) },
        Region { unknown: Some(Unknown::Evidence), samples: 0, ..heap(4, 6, 0.0) },
        Region { rate: rate(0.5), ..heap(6, 8, 0.0) },
    ];
    let snapshot = Snapshot { start: Time(0), end: Time(SECOND), samples: 40, regions };
    let mut memory = Memory::default();
    let mut recorder = Recorder::create_in(&mut memory, &meta()).unwrap();
    let mut layout = mappings(1);
    layout.mappings.truncate(1);
    recorder.window(&Window { mappings: Some(&layout), ..Window::of(&snapshot) }).unwrap();
    recorder.finish().unwrap();
    let recording = Recording::from_source(Box::new(memory)).unwrap();
    let mut live = Live::new(recording, Start::Newest, Color::None);
    let lines = screen(&mut live, 120, 21);
    assert_eq!(lines[2], "mapped 8 MiB · hot 1 MiB (12.5 %) · unknown 3 MiB (37.5 %) · 4 regions");
    let marks: Vec<char> = lines[5..13].iter().filter_map(|line| line.chars().nth(97)).collect();
    assert_eq!(marks.iter().collect::<String>(), "@uuu??..", "{}", lines.join("\n"));
    let rows: Vec<Vec<&str>> =
        lines[15..20].iter().map(|line| line.split_whitespace().skip(2).collect()).collect();
    let row = |text: &'static str| text.split(' ').collect::<Vec<_>>();
    assert_eq!(rows[0], row("size freq hot unknown rate /s a page age level name")[..]);
    assert_eq!(rows[1], row("1 MiB @ 100.0 % 1 MiB 620 /s (310..1,200) 0 PMD [heap]"));
    assert_eq!(rows[2], row("2 MiB . 0.0 % 0.5 /s (0.25..1) 0 PMD [heap]"));
    assert_eq!(rows[3], row("3 MiB unknown 3 MiB 0 PMD [heap]"));
    assert_eq!(rows[4], row("2 MiB ? 0 PMD [heap]"));
}

// Of the 8 MiB probed in the first process one is always hit, and one in a quarter of the samples:
// 15.6 %.
#[test]
fn from_process_to_mapping_to_region_and_back() {
    let mut live = replay(8, 2);
    press(&mut live, "p");
    check(
        &mut live,
        "
redis[100]  telescope bounded, 25 ms / 1 s                                ended
window 8 of 8 at 8 s · profiler 1.0 % of a CPU (mean 7.2 %) · target 80.0 %
mapped 18 MiB · hot 2 MiB (11.1 %) · unknown 0 B (0.0 %) · 5 regions
resident bytes and tiers: not in this recording
  heat of all: 17 MiB, 3 MiB a row, 1 window a column
0x555555800000                                          ===....= [heap] …is[100]
0x555555b00000                                          ...===..
0x555555e00000                                          ......@.
0x7ffc00000000┆                                         ======== [stack] …s[100]
0x555555800000┆                                         ........ [heap] …is[101]
0x555555b00000                                          ........
0x555555e00000                                          ........

                                                             8 s
▶ processes by heat: 1 to 2 of 2
         start      size      freq       hot   age level name
0x555555800000     9 MiB -  15.6 %     2 MiB             redis[100]
0x555555800000     9 MiB .   0.0 %                       redis[101]


? help · q quit · Space pause · Enter/Esc in/out · +/- z/Z zoom · s sort · Tab
",
    );
    live.update(Key::Enter);
    let lines = screen(&mut live, 80, 21);
    assert_eq!(lines[4], "  heat of all ▸ redis[100]: 9 MiB, 1.2 MiB a row, 1 window a column");
    assert_eq!(lines[14], "▶ mappings by heat: 1 to 2 of 2");
    assert_eq!(lines[16], "0x7ffc00000000     1 MiB =  25.0 %     1 MiB             [stack]");
    assert_eq!(lines[17], "0x555555800000     8 MiB -  14.3 %     1 MiB             [heap]");
    live.update(Key::Down);
    live.update(Key::Enter);
    let lines = screen(&mut live, 80, 21);
    assert_eq!(
        lines[4],
        "  heat of all ▸ redis[100] ▸ [heap]: 8 MiB, 1 MiB a row, 1 window a column"
    );
    assert_eq!(lines[5], "0x555555800000                                          @......@ [heap]");
    assert_eq!(lines[14], "▶ regions by heat: 1 to 3 of 3");
    live.update(Key::Enter);
    let lines = screen(&mut live, 100, 21);
    assert!(lines[4].contains("▸ [heap] ▸ 0x555555800000-0x555555900000: 1 MiB, 128 KiB a row"));
    (0..3).for_each(|_| live.update(Key::Esc));
    assert_eq!(screen(&mut live, 80, 21)[14], "▶ processes by heat: 1 to 2 of 2");
    live.update(Key::Esc);
    assert_eq!(screen(&mut live, 80, 21)[14], "▶ processes by heat: 1 to 2 of 2");
}

// Displayed seconds 1, 2, 3, ... of the recording; from 0 at double speed.
#[test]
fn a_replay_plays_pauses_and_seeks() {
    let start = Start::Replay { from: Duration::ZERO, speed: 2.0 };
    let mut live = Live::new(recording(8, 1, true), start, Color::None);
    let at = |live: &mut Live| {
        let lines = screen(live, 80, 21);
        let window = lines[1].split(" at ").next().unwrap().to_string();
        (window, lines[0].rsplit("  ").next().unwrap().trim().to_string())
    };
    let is = |window: &str, motion: &str| (format!("window {window} of 8"), motion.to_string());
    assert_eq!(at(&mut live), is("1", "playing ×2"));
    assert_eq!(live.due(), Some(Duration::from_millis(500)));
    live.advance(Duration::from_millis(1000));
    assert_eq!(at(&mut live), is("3", "playing ×2"));
    press(&mut live, " ");
    live.advance(Duration::from_secs(10));
    assert_eq!((at(&mut live), live.due()), (is("3", "paused"), None));
    press(&mut live, ">");
    assert_eq!(at(&mut live), is("4", "paused"));
    press(&mut live, "<<");
    assert_eq!(at(&mut live), is("2", "paused"));
    press(&mut live, " ]");
    assert_eq!(at(&mut live), is("2", "playing ×4"));
    live.update(Key::End);
    assert_eq!(at(&mut live), is("8", "ended"));
    live.update(Key::Home);
    assert_eq!(at(&mut live), is("1", "paused"));
}

#[test]
fn a_screen_of_the_newest_follows_unless_it_is_held() {
    let mut live = Live::new(recording(8, 1, false), Start::Newest, Color::None);
    assert!(screen(&mut live, 80, 21)[0].ends_with("following"));
    press(&mut live, " ");
    assert!(screen(&mut live, 80, 21)[0].ends_with("paused"));
    press(&mut live, " ");
    live.end("the target has ended; q quits");
    let lines = screen(&mut live, 80, 21);
    assert!(lines[0].ends_with("ended"), "{}", lines[0]);
    assert_eq!(lines[20], "the target has ended; q quits");
    assert!(!live.quits());
    press(&mut live, "q");
    assert!(live.quits());
}

// Two windows per column: the hot MiB is in a row for half of the column's time.
#[test]
fn zooms_time_and_addresses() {
    let mut live = replay(100, 1);
    screen(&mut live, 80, 21);
    press(&mut live, "Z");
    let lines = screen(&mut live, 80, 21);
    assert_eq!(lines[4], "  heat of all: 9 MiB, 1.2 MiB a row, 2 windows a column");
    assert_eq!(lines[13].split_whitespace().collect::<Vec<_>>(), ["4", "s", "1", "min", "40", "s"]);
    press(&mut live, "z+");
    let lines = screen(&mut live, 80, 21);
    assert_eq!(lines[4], "  heat of all: 4.5 MiB, zoomed, 640 KiB a row, 1 window a column");
    assert!(lines[5].starts_with("0x555555a40000"), "{}", lines[5]);
    live.update(Key::Tab);
    live.update(Key::Up);
    let lines = screen(&mut live, 80, 21);
    assert!(lines[5].starts_with("0x5555559a0000"), "{}", lines[5]);
    press(&mut live, "0");
    assert!(screen(&mut live, 80, 21)[5].starts_with("0x555555800000"));
}

#[test]
fn sorts_and_tabulates() {
    let mut live = replay(8, 1);
    let first = |live: &mut Live| {
        let lines = screen(live, 80, 21);
        (lines[14].clone(), lines[16].split_whitespace().next().unwrap().to_string())
    };
    let is = |title: &str, start: &str| (format!("▶ {title}"), start.to_string());
    press(&mut live, "ss");
    assert_eq!(first(&mut live), is("regions by size: 1 to 4 of 4", "0x555555900000"));
    press(&mut live, "ss");
    assert_eq!(first(&mut live), is("regions by address: 1 to 4 of 4", "0x555555800000"));
    press(&mut live, "m");
    assert_eq!(first(&mut live), is("mappings by address: 1 to 2 of 2", "0x555555800000"));
}

// Two processes: of one the nodes of its pages are known, of the other only their number.
#[test]
fn totals_are_shown_by_tier() {
    let on = |node, mib: u64| OnNode { node: Node(node), bytes: mib * MIB };
    let memory = |id, mib: u64, placed| SpaceResidence {
        extents: None,
        space: SpaceId(id),
        taken: Time(0),
        bytes: mib * MIB,
        placed,
    };
    let placed = Placed { taken: Time(0), nodes: vec![on(0, 5), on(2, 1)], drawn: 0 };
    let spaces = vec![memory(0, 6, Some(placed)), memory(1, 2, None)];
    let residence = Residence { spaces, ..Residence::default() };
    let mut memory = Memory::default();
    let mut meta = meta();
    meta.machine.tiers = vec![vec![Node(0)], vec![Node(2)]];
    let mut recorder = Recorder::create_in(&mut memory, &meta).unwrap();
    let (snapshot, mappings) = (snapshot(0, 2), mappings(2));
    let window = Window { mappings: Some(&mappings), ..Window::of(&snapshot) };
    recorder.window(&Window { residence: Some(&residence), ..window }).unwrap();
    recorder.finish().unwrap();
    let recording = Recording::from_source(Box::new(memory)).unwrap();
    let mut live = Live::new(recording, Start::Newest, Color::None);
    assert_eq!(
        screen(&mut live, 100, 21)[3],
        "resident 8 MiB · tier 0 (node 0) 5 MiB · tier 1 (node 2) 1 MiB · 2 MiB not looked at yet"
    );
}

#[test]
fn names_missing_data() {
    let mut live = Live::new(recording(0, 1, false), Start::Newest, Color::None);
    assert_eq!(screen(&mut live, 80, 21)[2], "waiting for the first window to end");
    let lines = screen(&mut live, 59, 21);
    assert_eq!(lines[0], "too small: 59 × 21");
    assert_eq!(lines[1], "at least 60 × 16 needed");
    let mut live = replay(8, 1);
    press(&mut live, "?");
    let lines = screen(&mut live, 60, 16);
    assert_eq!(lines[0], "keys (any key goes back)");
    assert_eq!(lines[14], "q                  quit");
}

// With colours: the hottest cell is the brightest, in either palette.
#[test]
fn colours_are_those_of_the_reports() {
    use ratatui::style::Color as Paint;
    for (color, hottest) in
        [(Color::Ansi256, Paint::Indexed(231)), (Color::True, Paint::Rgb(255, 255, 220))]
    {
        let start = Start::Replay { from: Duration::from_secs(3600), speed: 1.0 };
        let mut live = Live::new(recording(8, 1, true), start, color);
        while !live.prepare(80, 21) {}
        let mut terminal = Terminal::new(TestBackend::new(80, 21)).unwrap();
        terminal.draw(|frame| live.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer();
        // Row 6 holds the MiB that was hit in window 7 of 8, and no other.
        assert_eq!(buffer[(62, 10)].bg, hottest);
        assert_ne!(buffer[(61, 10)].bg, hottest);
    }
}

/// All keys with an effect, and some without.
fn any_key() -> impl Strategy<Value = Key> {
    let others = [
        Key::Up,
        Key::Down,
        Key::Left,
        Key::Right,
        Key::PageUp,
        Key::PageDown,
        Key::Home,
        Key::End,
        Key::Enter,
        Key::Esc,
        Key::Tab,
    ];
    let chars = "hjklHL+-zZ0pmrs <>[]?x".chars().map(Key::Char);
    prop::sample::select(chars.chain(others).collect::<Vec<_>>())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    // For any keys and any size, something is shown, and widening the view restores everything.
    #[test]
    fn no_keys_lead_astray(
        keys in prop::collection::vec(any_key(), 0..40),
        (width, height) in (1u16..150, 1u16..60),
    ) {
        let mut live = replay(30, 2);
        screen(&mut live, width, height);
        for key in keys {
            live.update(key);
            live.advance(Duration::from_millis(300));
            screen(&mut live, width, height);
            prop_assert!(live.shown().is_some_and(|index| index < 30));
        }
        live.update(Key::Char('x'));
        (0..40).for_each(|_| live.update(Key::Esc));
        press(&mut live, "0");
        let lines = screen(&mut live, 80, 21);
        prop_assert!(lines[4].contains("heat of all: 17 MiB"), "{}", lines[4]);
        prop_assert!(!live.quits());
    }
}
