//! Each mapped byte is in one state of every report, and heat is counted in resident memory: a
//! recording of 32 MiB for which every figure can be computed by hand.

use std::time::Duration;

use tierscope_core::drive::{Sink, Window};
use tierscope_core::{
    Backing, Charge, Extent, Mapping, Mappings, Range, Region, Residence, Snapshot, Space, SpaceId,
    SpaceResidence, Time, Unknown, footprint,
};
use tierscope_record::{Memory, Meta, Recorder, Recording};
use tierscope_report::metrics::Collector;
use tierscope_report::{
    RegionsOptions, Style, View, ages, html, regions, summary, write_json, wss,
};

const MIB: u64 = 1 << 20;
const BASE: u64 = 0x7f00_0000_0000;
const FILE: u64 = 24;

fn range(from: u64, to: u64) -> Range {
    Range::new(SpaceId(0), BASE + from * MIB, BASE + to * MIB)
}

fn region(from: u64, to: u64, hits: f32, unknown: Option<Unknown>) -> Region {
    Region { age: 3, unknown, ..Region::sampled(range(from, to), hits, 40) }
}

/// A heap of 24 MiB: 0 to 4 are hot, of which half is resident; 4 to 8 warm; 8 to 20 cold, of which
/// 8 to 10 are resident and 2 MiB swapped; 20 to 21 refused, 21 to 22 a guest's, 22 to 23 without
/// evidence, 23 to 24 not listed. A file of 8 MiB, not accessed, of which 1 MiB is resident.
fn recording() -> Recording {
    let mapping = |range, backing| {
        let name = if backing == Backing::Heap { "[heap]" } else { "/data" };
        Mapping { range, backing, name: name.into(), writable: true, object: None }
    };
    let layout = Mappings {
        spaces: vec![Space { id: SpaceId(0), name: "toy".into() }],
        mappings: vec![
            mapping(range(0, FILE), Backing::Heap),
            mapping(range(FILE, 32), Backing::File),
        ],
        ..Mappings::default()
    };
    let extent = |from, to, resident, swapped| Extent {
        range: range(from, to),
        resident: resident * MIB,
        swapped: swapped * MIB,
    };
    let extents = [
        extent(0, 4, 2, 0),
        extent(4, 10, 6, 0),
        extent(12, 14, 0, 2),
        extent(20, FILE, 4, 0),
        extent(30, 31, 1, 0),
    ];
    let (space, taken, extents) = (SpaceId(0), Time(0), Some(extents.into()));
    let of = SpaceResidence { space, taken, bytes: 13 * MIB, extents, placed: None };
    let mut memory = Memory::default();
    let mut recorder = Recorder::create_in(&mut memory, &Meta::default()).unwrap();
    for number in 0..4 {
        let listed = vec![
            region(0, 4, 40.0, None),
            region(4, 8, 2.0, None),
            region(8, 20, 0.0, None),
            region(20, 21, 0.0, Some(Unknown::Refused)),
            region(21, 22, 0.0, Some(Unknown::Guest)),
            region(22, 23, 40.0, Some(Unknown::Evidence)),
            region(FILE, 32, 0.0, None),
        ];
        let at = |window: u64| Time(window * 200_000_000);
        // The last window is late, and has a quarter of the samples.
        let (end, samples) = if number == 3 { (at(6), 10) } else { (at(number + 1), 40) };
        // Page cache grows by a MiB in each window, with two refaults.
        let charges = vec![
            (Charge::PageCache, (60 + number) * MIB),
            (Charge::Slab, MIB),
            (Charge::FileRefaults, 100 + 2 * number),
        ];
        let (spaces, zswapped) = (vec![of.clone()], Some(MIB));
        let residence = Residence { spaces, zswapped, charges, ..Residence::default() };
        let mut snapshot = Snapshot { start: at(number), end, samples, regions: listed };
        footprint::fit(&mut snapshot, &layout, &residence);
        let mappings = (number == 0).then_some(&layout);
        let residence = Some(&residence);
        recorder.window(&Window { mappings, residence, ..Window::of(&snapshot) }).unwrap();
    }
    recorder.finish().unwrap();
    Recording::from_source(Box::new(memory)).unwrap()
}

fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut text = Vec::new();
    write(&mut text);
    String::from_utf8(text).unwrap()
}

// Hot 2, warm 4, cold 2 + 1, unknown 3 (1 of each reason), not looked at 1; not resident 7,
// swapped 2, reserved the rest of the heap's 24: 10. Together 32.
#[test]
fn a_summary_adds_up_to_what_is_mapped() {
    let summary = summary(&recording(), &View::default()).unwrap();
    let states = [
        summary.hot_bytes,
        summary.warm_bytes,
        summary.cold_bytes,
        summary.unknown_bytes,
        summary.unseen_bytes,
        summary.absent_bytes.unwrap(),
        summary.swapped_bytes.unwrap(),
        summary.reserved_bytes.unwrap(),
    ];
    assert_eq!(states.map(|state| state.now / MIB), [2, 4, 3, 3, 1, 7, 2, 10]);
    assert_eq!(
        states.iter().map(|state| state.now).sum::<u64>(),
        summary.mapped_bytes.unwrap().now
    );
    let reasons = [summary.unknown_refused_bytes, summary.unknown_guest_bytes];
    assert_eq!(reasons.map(|state| state.now), [MIB, MIB]);
    assert_eq!(summary.zswapped_bytes.unwrap().now, MIB);
    assert_eq!((summary.samples.min, summary.samples.p50, summary.late_windows), (10, 40, Some(1)));
    let shown = text(|out| summary.write_text(out, &Style::default()).unwrap());
    for row in [
        "4 windows, 1 of them late",
        "\n- refused ",
        "\n- guest ",
        "\n- in zswap ",
        "\nreserved ",
        "\nsamples ",
    ] {
        assert!(shown.contains(row), "no {row:?} in\n{shown}");
    }
    let json = text(|out| write_json(&summary, out).unwrap());
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["reserved_bytes"]["now"], 10 * MIB);
}

#[test]
fn memory_in_no_page_table_has_rows_of_its_own() {
    let recording = recording();
    let all = summary(&recording, &View::default()).unwrap();
    let cache = all.charged_bytes["page_cache_bytes"];
    assert_eq!((cache.now, cache.min, all.charged_bytes.len()), (63 * MIB, 60 * MIB, 2));
    assert_eq!(all.faults, [("file_refaults", 6)].into());
    let shown = text(|out| all.write_text(out, &Style::default()).unwrap());
    for part in [
        "\npage cache ",
        "\nslab ",
        "not visible to ACCESSED bits",
        "\ncgroup: 6 refaults of files\n",
    ] {
        assert!(shown.contains(part), "no {part:?} in\n{shown}");
    }
    let json = text(|out| write_json(&all, out).unwrap());
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["charged_bytes"]["page_cache_bytes"]["now"], 63 * MIB);
    assert_eq!(json["faults"]["file_refaults"], 6);
    let one = View { space: Some(SpaceId(0)), ..View::default() };
    assert!(summary(&recording, &one).unwrap().charged_bytes.is_empty());
    let page = html::page(&recording, &html::Options::default(), html::Data::Inline).unwrap();
    assert!(page.contains("page cache 63 MiB, slab 1 MiB"));
    let mut collector = Collector::default();
    collector.advance(&recording);
    let scrape = collector.render(&recording).unwrap();
    for line in [
        r#"tierscope_charged_bytes{kind="page_cache"} 66060288"#,
        r#"tierscope_cgroup_faults_total{kind="file_refaults"} 106"#,
    ] {
        assert!(scrape.contains(line), "no {line} in {scrape}");
    }
    assert!(!scrape.contains(r#"name="slab_bytes""#), "it has a family of its own");
}

// The same with the figures computed from regions, for some addresses only.
#[test]
fn a_part_counts_resident_memory() {
    let view = View { addresses: Some(BASE + 2 * MIB..BASE + 32 * MIB), ..View::default() };
    let summary = summary(&recording(), &view).unwrap();
    let states = [summary.hot_bytes, summary.warm_bytes, summary.cold_bytes, summary.unknown_bytes];
    assert_eq!(states.map(|state| state.now / MIB), [1, 4, 3, 3]);
    assert_eq!(summary.reserved_bytes, None);
    assert_eq!(wss(&recording(), &view).unwrap().hot_mean, MIB);
}

#[test]
fn cold_memory_of_ages_is_resident() {
    let ages = ages(&recording(), &View::default()).unwrap();
    let states = [ages.hot_bytes, ages.warm_bytes, ages.cold_bytes, ages.unknown_bytes];
    assert_eq!(states.map(|bytes| bytes / MIB), [2, 4, 3, 3]);
    let outside = [ages.absent_bytes, ages.swapped_bytes, ages.reserved_bytes];
    assert_eq!(outside, [Some(7 * MIB), Some(2 * MIB), Some(10 * MIB)]);
    let shown = text(|out| ages.write_text(out, &Style::default()).unwrap());
    let rest = "besides: 1 MiB unknown (too little evidence), 1 MiB unknown (refused), \
                1 MiB unknown (guest memory), 1 MiB not looked at, 7 MiB not resident, \
                2 MiB swapped, 10 MiB reserved and never touched";
    assert!(shown.contains(rest), "{shown}");
}

// The hot row has 4 MiB, of which 2 are resident; the cold ones have resident memory only.
#[test]
fn regions_have_a_column_of_resident_bytes() {
    let view = View { time: Some(Duration::ZERO..Duration::from_secs(9)), ..View::default() };
    let regions = regions(&recording(), &view, &RegionsOptions::default()).unwrap();
    assert_eq!((regions.hot_bytes, regions.spaces[0].hot_bytes), (2 * MIB, 2 * MIB));
    assert_eq!(regions.unknown_bytes, 3 * MIB);
    let sizes: Vec<_> =
        regions.regions.iter().map(|row| (row.bytes / MIB, row.resident_bytes / MIB)).collect();
    assert_eq!(sizes, [(4, 2), (4, 4), (2, 2), (3, 3), (1, 1)]);
    let shown = text(|out| regions.write_text(out, &Style::default()).unwrap());
    assert!(shown.contains("resident"), "{shown}");
}

#[test]
fn a_scrape_counts_idle_memory_that_is_resident() {
    let recording = recording();
    let mut collector = Collector::default();
    collector.advance(&recording);
    let text = collector.render(&recording).unwrap();
    let gauge = |name: &str, labels: &str, mib: u64| {
        let start = format!(r#"{name}{{space="0",process="toy"{labels}}} "#);
        let line = text.lines().find_map(|line| line.strip_prefix(&start));
        let value: f64 = line.unwrap_or_else(|| panic!("no {start} in {text}")).parse().unwrap();
        assert_eq!(value as u64, mib * MIB, "{start}");
    };
    let states = [("hot", 2), ("warm", 4), ("cold", 2), ("unknown", 3), ("unseen", 1)];
    for (heat, mib) in states {
        let labels = format!(r#",backing="heap",heat="{heat}""#);
        gauge("tierscope_memory_bytes", &labels, mib);
    }
    gauge("tierscope_memory_bytes", r#",backing="file",heat="cold""#, 1);
    for reason in ["evidence", "refused", "guest"] {
        gauge("tierscope_unknown_bytes", &format!(r#",reason="{reason}""#), 1);
    }
    gauge("tierscope_swapped_bytes", "", 2);
    gauge("tierscope_reservation_bytes", "", 10);
    gauge("tierscope_absent_bytes", "", 7);
    gauge("tierscope_resident_bytes", "", 13);
    assert!(text.contains("\ntierscope_zswapped_bytes 1048576\n"), "{text}");
    assert!(!text.contains(r#"name="swapped_bytes""#), "it has a family of its own");
}

#[test]
fn the_page_has_the_split() {
    let page = html::page(&recording(), &html::Options::default(), html::Data::Inline).unwrap();
    let states = "hot 2 MiB, warm 4 MiB, cold 3 MiB, unknown 3 MiB, of it refused 1 MiB, \
                  of it guest 1 MiB, not looked at 1 MiB, not resident 7 MiB, swapped 2 MiB, of it in zswap 1 MiB, \
                  reserved 10 MiB";
    for part in [states, "at least 10 a window, 40 in the median"] {
        assert!(page.contains(part), "the page lacks {part}");
    }
}
