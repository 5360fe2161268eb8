//! Unknown memory is a separate state in every report, and rates are shown with their interval: a
//! recording of 16 MiB for which every figure can be computed by hand.

use std::time::Duration;

use tierscope_core::drive::{Sink, Window};
use tierscope_core::{
    Backing, Mapping, Mappings, Range, Rate, Region, Snapshot, Space, SpaceId, Time, Unknown,
};
use tierscope_record::{Memory, Meta, Recorder, Recording};
use tierscope_report::metrics::Collector;
use tierscope_report::{
    Cell, Color, Grid, RegionRow, RegionsOptions, Sort, Style, View, ages, heatmap, html, regions,
    summary, write_json, wss,
};

const MIB: u64 = 1 << 20;
const BASE: u64 = 0x7f00_0000_0000;

/// Rates of the hot, the cold and the unknown memory.
const HOT: Rate = Rate { low: 903.0, mean: 1238.4, high: 1699.0 };
const COLD: Rate = Rate { low: 0.2, mean: 0.5, high: 2.0 };
const VAGUE: Rate = Rate { low: 0.0, mean: 100.0, high: 1e4 };

fn range(from: u64, to: u64) -> Range {
    Range::new(SpaceId(0), BASE + from * MIB, BASE + to * MIB)
}

fn region(from: u64, to: u64, hits: f32, rate: Option<Rate>) -> Region {
    let (range, level) = (range(from, to), None);
    Region { level, rate, ..Region::sampled(range, hits, 40) }
}

fn hot(from: u64, to: u64) -> Region {
    region(from, to, 40.0, Some(HOT))
}

/// A region that was hit in every sample, and is nevertheless unknown.
fn unknown(from: u64, to: u64) -> Region {
    Region { unknown: Some(Unknown::Evidence), ..region(from, to, 40.0, Some(VAGUE)) }
}

/// MiB 0 and 1 are hot, 2 to 5 cold, 6 to 8 unknown. In the last two windows 9 is hot and 10 and 11
/// are unknown; before that 9 is unknown and 10 and 11 are hot. From 12 on nothing is probed.
fn snapshot(window: u64, windows: u64) -> Snapshot {
    let is_late = window + 2 >= windows;
    let regions = vec![
        hot(0, 2),
        region(2, 6, 0.1, Some(COLD)),
        unknown(6, 9),
        if is_late { hot(9, 10) } else { unknown(9, 10) },
        if is_late { unknown(10, 12) } else { hot(10, 12) },
        Region { unknown: Some(Unknown::Evidence), samples: 0, ..region(12, 16, 0.0, None) },
    ];
    let at = |window: u64| Time(window * 200_000_000);
    Snapshot { start: at(window), end: at(window + 1), samples: 40, regions }
}

fn recording(windows: u64) -> Recording {
    let (range, backing) = (range(0, 16), Backing::Heap);
    let layout = Mappings {
        taken: Time(0),
        spaces: vec![Space { id: SpaceId(0), name: "toy".into() }],
        mappings: vec![Mapping {
            range,
            backing,
            name: "[heap]".into(),
            writable: true,
            object: None,
        }],
        ..Mappings::default()
    };
    let mut memory = Memory::default();
    let mut recorder = Recorder::create_in(&mut memory, &Meta::default()).unwrap();
    for number in 0..windows {
        let snapshot = snapshot(number, windows);
        let mappings = (number == 0).then_some(&layout);
        recorder.window(&Window { mappings, ..Window::of(&snapshot) }).unwrap();
    }
    recorder.finish().unwrap();
    Recording::from_source(Box::new(memory)).unwrap()
}

/// A view of the whole time.
fn all() -> View {
    View { time: Some(Duration::ZERO..Duration::from_secs(3600)), ..View::default() }
}

// 3 hot, 4 cold, 5 unknown, 4 not probed: 16 MiB. In earlier windows 4 were hot and 4 unknown.
#[test]
fn a_summary_counts_each_byte_once() {
    let recording = recording(10);
    let part = View { addresses: Some(BASE..BASE + 16 * MIB), ..View::default() };
    for view in [View::default(), part] {
        let summary = summary(&recording, &view).unwrap();
        let states =
            [summary.hot_bytes, summary.not_hot_bytes, summary.unknown_bytes, summary.unseen_bytes];
        assert_eq!([summary.warm_bytes.now, summary.cold_bytes.now], [0, 4 * MIB]);
        assert_eq!(states.map(|state| state.now / MIB), [3, 4, 5, 4]);
        assert_eq!(states.map(|state| state.p50 / MIB), [4, 4, 4, 4]);
        assert_eq!(summary.spaces[0].unknown_bytes.now, 5 * MIB);
    }
}

// Accessed and hot: 4 MiB in eight windows, 3 in two. Unknown: 4 and 5 MiB.
#[test]
fn a_working_set_holds_nothing_unknown() {
    let wss = wss(&recording(10), &View::default()).unwrap();
    let means = [wss.accessed_mean, wss.hot_mean, wss.unknown_mean];
    assert_eq!(means, [38 * MIB / 10, 38 * MIB / 10, 42 * MIB / 10]);
    let at = |percent: usize| wss.percentiles[percent].unknown_bytes / MIB;
    assert_eq!([0, 80, 81, 100].map(at), [4, 4, 5, 5]);
    assert_eq!(wss.over_time.last().unwrap().unknown_bytes, 5 * MIB);
}

#[test]
fn ages_report_memory_outside_of_all_bins() {
    let ages = ages(&recording(10), &View::default()).unwrap();
    let states = [ages.hot_bytes, ages.warm_bytes, ages.cold_bytes, ages.unknown_bytes];
    assert_eq!(states.map(|bytes| bytes / MIB), [3, 0, 4, 5]);
    assert_eq!((ages.unseen_bytes, ages.bins.as_ref().unwrap()[0].bytes()), (4 * MIB, 7 * MIB));
    let mut text = Vec::new();
    ages.write_text(&mut text, &Style::default()).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(
        text.contains("besides: 5 MiB unknown (too little evidence), 4 MiB not looked at"),
        "{text}"
    );
}

// A row is a MiB. MiB 9 is unknown in eight windows of ten, 10 and 11 in two.
#[test]
fn a_heatmap_has_a_mark_for_it() {
    let recording = recording(10);
    let map = heatmap(&recording, &View::default(), Grid { columns: 1, rows: 16 }).unwrap();
    let cells: Vec<Cell> = map.areas[0].rows.iter().map(|row| row.cells[0]).collect();
    let (hot, unknown, unseen) = (Cell::Heat(1.0), Cell::Unknown, Cell::NotLookedAt);
    assert_eq!(cells[..2], [hot; 2]);
    assert!(cells[2..6].iter().all(|cell| matches!(cell, Cell::Heat(heat) if *heat < 0.01)));
    assert_eq!(cells[6..12], [unknown, unknown, unknown, unknown, hot, hot]);
    assert_eq!(cells[12..], [unseen; 4]);
    let mut text = Vec::new();
    map.write_text(&mut text, &Style::default()).unwrap();
    let text = String::from_utf8(text).unwrap();
    let marks: Vec<&str> = text.lines().filter_map(|line| line.get(19..20)).collect();
    // Among peaks, the hot windows of MiB 9 show.
    assert_eq!(marks[2..18].concat(), "@@::::uuu@@@????", "{text}");
    assert!(text.contains("u unknown: little evidence"), "{text}");
    let mut json = Vec::new();
    write_json(&map, &mut json).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let cell = |row: usize| json["areas"][0]["rows"][row]["cells"][0].clone();
    assert_eq!([cell(0), cell(6), cell(12)].map(|cell| cell.as_f64()), [1.0, -2.0, -1.0].map(Some));
}

/// First MiB, one past the last, and whether the row is hot and unknown.
fn columns(row: &RegionRow) -> (u64, u64, bool, bool) {
    ((row.start - BASE) / MIB, (row.end - BASE) / MIB, row.hot, row.unknown)
}

// Memory unknown in the last window is not hot, whatever it was before; memory known then is not
// unknown. Ten windows are read one by one; for 600, tiles are used.
#[test]
fn regions_report_rates_and_unknown_memory() {
    for windows in [10, 600] {
        let regions = regions(&recording(windows), &all(), &RegionsOptions::default()).unwrap();
        assert_eq!(regions.exact, windows == 10);
        let rows: Vec<_> = regions.regions.iter().map(columns).collect();
        let want = [
            (0, 2, true, false),
            (2, 6, false, false),
            (6, 9, false, true),
            (9, 10, true, false),
            (10, 12, false, true),
        ];
        assert_eq!(rows, want, "{windows} windows");
        assert_eq!((regions.hot_bytes, regions.unknown_bytes), (3 * MIB, 5 * MIB));
        let rates: Vec<_> = regions.regions.iter().map(|row| row.rate.map(|r| r.mean)).collect();
        assert_eq!(rates, [Some(HOT.mean), Some(COLD.mean), None, Some(HOT.mean), None]);
        assert!(regions.regions.iter().all(|row| row.unknown == row.frequency.is_none()));
    }
}

#[test]
fn the_table_shows_rates_with_their_interval() {
    let options = RegionsOptions { sort: Sort::Heat, ..RegionsOptions::default() };
    let regions = regions(&recording(10), &all(), &options).unwrap();
    let mut text = Vec::new();
    regions.write_text(&mut text, &Style { width: 120, color: Color::None }).unwrap();
    let text = String::from_utf8(text).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let head = "\
3 MiB hot (frequency of at least 12.5 %)
5 MiB unknown: too little evidence to tell hot from cold
rate: accesses a second and page of 4 KiB at the end, and the 90 % interval

         start             end   size     freq                   rate  age  level  hot  mapping
0x7f0000000000  0x7f0000200000  2 MiB  100.0 %  1,240 /s (900..1,700)    0      -  hot  [heap]
0x7f0000900000  0x7f0000a00000  1 MiB  100.0 %  1,240 /s (900..1,700)    0      -  hot  [heap]
0x7f0000200000  0x7f0000600000  4 MiB    0.3 %        0.5 /s (0.2..2)    0      -       [heap]
0x7f0000600000  0x7f0000900000  3 MiB  unknown                           0      -       [heap]
0x7f0000a00000  0x7f0000c00000  2 MiB  unknown                           0      -       [heap]";
    assert_eq!(lines[1..].join("\n"), head, "{text}");
}

#[test]
fn the_page_has_words_and_numbers() {
    let page = html::page(&recording(10), &html::Options::default(), html::Data::Inline).unwrap();
    for part in [
        "5 MiB unknown at the end",
        "--unknown: light-dark(",
        r#"class="unknown"><title>unknown: too little evidence to tell hot from cold</title>"#,
        r#"<path class="unknown""#,
        "besides: 5 MiB unknown (too little evidence), 4 MiB not looked at",
        // Of the heap, 12 MiB probed, 3 hot, 5 unknown; three MiB at a frequency of 1, four at 0.1
        // of 40.
        "<td>12 MiB</td><td>3 MiB</td><td>5 MiB</td><td>43.0 %</td><td>1,240 /s (900..1,700)</td>",
    ] {
        assert!(page.contains(part), "the page lacks {part}");
    }
}

// Idle: less than one hit of 40 is expected. 3 MiB are 768 pages at 1238.4 accesses per second.
#[test]
fn a_scrape_has_a_gauge_of_it() {
    let recording = recording(10);
    let mut collector = Collector::default();
    collector.advance(&recording);
    let text = collector.render(&recording).unwrap();
    let own = r#"{space="0",process="toy""#;
    let gauge = |name: &str, labels: &str, value: f64| {
        let start = format!("{name}{own}{labels}}} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&start));
        let found: f64 = line.unwrap_or_else(|| panic!("no {start} in {text}")).parse().unwrap();
        assert!((found - value).abs() <= value.abs() * 1e-6, "{start}{found}, not {value}");
    };
    let mib = |count: u64| (count * MIB) as f64;
    for (reason, count) in [("evidence", 5), ("refused", 0), ("guest", 0)] {
        gauge("tierscope_unknown_bytes", &format!(r#",reason="{reason}""#), mib(count));
    }
    let states = [("hot", 3), ("warm", 0), ("cold", 4), ("unknown", 5), ("unseen", 4)];
    for (heat, count) in states {
        let labels = format!(r#",backing="heap",heat="{heat}""#);
        gauge("tierscope_memory_bytes", &labels, mib(count));
    }
    gauge("tierscope_accesses_per_second", r#",heat="hot""#, 768.0 * 1238.4);
    gauge("tierscope_accesses_per_second", r#",heat="cold""#, 1024.0 * 0.5);
    assert!(!text.contains(r#"name="unknown_bytes""#), "it has a family of its own");
}
