//! Import, export, import again is the identity on everything that a foreign format can hold: one
//! property per format. What the first import cannot keep it counts as dropped; the second one has
//! nothing to drop.

use std::fmt::Write as _;

use proptest::prelude::*;
use tierscope_exchange::damo::{Shape, write};
use tierscope_exchange::{Imported, Options, read};
use tierscope_record::{Memory, Recorder, Recording};

use crate::common::scratch;

/// A window of a target: regions with start, end, accesses, and age in windows.
type Regions = Vec<(u64, u64, u64, u64)>;

/// What another tool wrote: ids of targets, and the regions of each in each window.
#[derive(Clone, Debug)]
struct Source {
    targets: Vec<u64>,
    windows: Vec<Vec<Regions>>,
    ages: bool,
}

fn regions() -> impl Strategy<Value = Regions> {
    let points = prop::collection::btree_set(0u64..1 << 47, 2..=10);
    (points, prop::collection::vec((0u64..=20, 0u64..1000), 5)).prop_map(|(points, values)| {
        let points: Vec<u64> = points.into_iter().collect();
        let pairs = points.chunks_exact(2).zip(values);
        pairs.map(|(pair, (hits, age))| (pair[0], pair[1], hits, age)).collect()
    })
}

fn sources() -> impl Strategy<Value = Source> {
    let targets = prop::collection::btree_set(prop_oneof![0u64..4, any::<u64>()], 1..=3);
    (targets, 1usize..=4, any::<bool>()).prop_flat_map(|(targets, windows, ages)| {
        let targets: Vec<u64> = targets.into_iter().collect();
        let window = prop::collection::vec(regions(), targets.len());
        prop::collection::vec(window, windows).prop_map(move |windows| Source {
            targets: targets.clone(),
            windows,
            ages,
        })
    })
}

impl Source {
    /// End of a target's window in ns: targets are some µs apart.
    fn end(&self, window: usize, target: usize) -> u64 {
        (window as u64 + 1) * 100_000_000 + target as u64 * 3000
    }

    /// damo's JSON, with or without intervals, indices and ages; numbers as text with commas.
    fn json(&self, intervals: bool, indices: Option<(u8, u8, u8)>) -> String {
        let intervals = if intervals {
            r#"{"sample_us": "5000", "aggr_us": "100,000", "ops_update_us": "2000000"}"#
        } else {
            "null"
        };
        let (kdamond, context, scheme) = match indices {
            Some((a, b, c)) => (a.to_string(), b.to_string(), c.to_string()),
            None => ("null".into(), "null".into(), "null".into()),
        };
        let record = |(target, id): (usize, &u64)| {
            let snapshot = |(number, window): (usize, &Vec<Regions>)| {
                let region = |(start, end, hits, age): &(u64, u64, u64, u64)| {
                    let age = if self.ages { age.to_string() } else { "null".into() };
                    format!(
                        r#"{{"start": "{start}", "end": "{end}", "nr_accesses": {{"samples": {hits}, "percent": null}},
                        "age": {{"usec": null, "aggr_intervals": {age}}}, "sz_filter_passed": "4,096"}}"#
                    )
                };
                let regions: Vec<_> = window[target].iter().map(region).collect();
                let end = self.end(number, target);
                format!(
                    r#"{{"start_time": "{}", "end_time": "{end}", "regions": [{}]}}"#,
                    end - 100_000_000,
                    regions.join(",")
                )
            };
            let snapshots: Vec<_> = self.windows.iter().enumerate().map(snapshot).collect();
            format!(
                r#"{{"kdamond_idx": {kdamond}, "context_idx": {context}, "scheme_idx": {scheme}, "target_id": {id},
                "intervals": {intervals}, "snapshots": [{}]}}"#,
                snapshots.join(",")
            )
        };
        let records: Vec<_> = self.targets.iter().enumerate().map(record).collect();
        format!("[{}]", records.join(","))
    }

    /// Lines of the tracepoint, as perf and trace-cmd print them.
    fn events(&self) -> String {
        let mut text = String::new();
        for (number, window) in self.windows.iter().enumerate() {
            for (target, (id, regions)) in self.targets.iter().zip(window).enumerate() {
                let micros = self.end(number, target) / 1000;
                for (start, end, hits, age) in regions {
                    let _ = write!(
                        text,
                        "kdamond.0 9 [001] {}.{:06}: damon:damon_aggregated: target_id={id} nr_regions={} {start}-{end}: {hits}",
                        micros / 1_000_000,
                        micros % 1_000_000,
                        regions.len(),
                    );
                    let _ = if self.ages { writeln!(text, " {age}") } else { writeln!(text) };
                }
            }
        }
        text
    }

    /// The record file of debugfs, of a version.
    fn record_file(&self, version: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        if version > 0 {
            bytes.extend(b"damon_recfmt_ver");
            bytes.extend(version.to_le_bytes());
        }
        for (number, window) in self.windows.iter().enumerate() {
            let end = self.end(number, 0);
            bytes.extend((end / 1_000_000_000).to_le_bytes());
            bytes.extend((end % 1_000_000_000).to_le_bytes());
            bytes.extend((window.len() as u32).to_le_bytes());
            for (id, regions) in self.targets.iter().zip(window) {
                let id = id.to_le_bytes();
                bytes.extend(if version == 1 { &id[..4] } else { &id[..] });
                bytes.extend((regions.len() as u32).to_le_bytes());
                for (start, end, hits, _) in regions {
                    bytes.extend(start.to_le_bytes());
                    bytes.extend(end.to_le_bytes());
                    bytes.extend((*hits as u32).to_le_bytes());
                }
            }
        }
        bytes
    }

    /// Memory samples at the starts of the regions.
    fn samples(&self) -> String {
        let mut text = String::new();
        for (number, window) in self.windows.iter().enumerate() {
            for (target, (id, regions)) in self.targets.iter().zip(window).enumerate() {
                let micros = self.end(number, target) / 1000;
                for (start, ..) in regions {
                    let (seconds, part, pid) =
                        (micros / 1_000_000, micros % 1_000_000, id & 0xffff);
                    let _ = writeln!(text, "redis {pid}/{pid} {seconds}.{part:06}: mem: {start:x}");
                }
            }
        }
        text
    }
}

fn recorded(mut imported: Imported) -> Recording {
    let mut memory = Memory::default();
    let meta = imported.meta("import");
    let mut recorder = Recorder::create_in(&mut memory, &meta).unwrap();
    imported.write(&mut recorder, &mut |_, _| Ok(())).unwrap();
    recorder.finish().unwrap();
    Recording::from_source(Box::new(memory)).unwrap()
}

fn exported(recording: &Recording) -> Vec<u8> {
    let mut out = Vec::new();
    let _ =
        write(recording, Shape::Compressed, &mut out, &mut *scratch(), &mut |_, _| Ok(())).unwrap();
    out
}

/// Everything of a recording but how it was imported.
fn content(recording: &Recording) -> impl PartialEq + std::fmt::Debug + use<> {
    let mut meta = recording.meta().to_map();
    meta.retain(|key, _| !key.contains("import"));
    let facts: std::collections::BTreeMap<_, _> = meta.into_iter().collect();
    let windows = 0..recording.commits().len();
    let snapshots: Vec<_> = windows.map(|index| recording.snapshot(index).unwrap()).collect();
    let spaces = recording.layout(0).unwrap().spaces.clone();
    (facts, snapshots, spaces)
}

/// Imports `bytes`, exports that, and imports it again.
fn check(bytes: &[u8], options: Options) -> Result<Imported, TestCaseError> {
    let first = |bytes: &[u8]| read("x", &mut &*bytes, options, scratch()).unwrap();
    let a = recorded(first(bytes));
    let exported = exported(&a);
    let mut again = first(&exported);
    let kept = crate::common::kept(read("x", &mut &*exported, options, scratch()).unwrap());
    prop_assert!(!kept.windows.is_empty());
    prop_assert_eq!(again.flaws().count, 0);
    again.write(&mut crate::common::Kept::default(), &mut |_, _| Ok(())).unwrap();
    prop_assert!(again.dropped().is_empty(), "{:?}", again.dropped());
    let b = recorded(first(&exported));
    prop_assert_eq!(content(&a), content(&b));
    let mut first = first(bytes);
    first.write(&mut crate::common::Kept::default(), &mut |_, _| Ok(())).unwrap();
    Ok(first)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn of_damos_json(source in sources(), intervals: bool, indices: Option<(u8, u8, u8)>) {
        let imported = check(source.json(intervals, indices).as_bytes(), Options::default())?;
        let regions = source.windows.iter().flatten().map(Vec::len).sum::<usize>() as u64;
        prop_assert_eq!(imported.dropped()["sz_filter_passed"], regions);
        // Of targets that end at other moments, the window has the last moment.
        let moved = (source.targets.len() - 1) * source.windows.len();
        prop_assert_eq!(imported.dropped().get("end_time").copied().unwrap_or(0), moved as u64);
    }

    #[test]
    fn of_events_as_text(source in sources()) {
        check(source.events().as_bytes(), Options::default())?;
    }

    #[test]
    fn of_record_files(source in sources(), version in 0u32..=2) {
        use tierscope_exchange::Format;
        let options = Options { format: Some(Format::DamoRecord), ..Options::default() };
        let bytes = source.record_file(version);
        let imported = read("x", &mut &*bytes, options, scratch()).unwrap();
        let a = recorded(imported);
        let b = read("x", &mut &*exported(&a), Options::default(), scratch()).unwrap();
        prop_assert_eq!(content(&a), content(&recorded(b)));
    }

    #[test]
    fn of_memory_samples(source in sources()) {
        check(source.samples().as_bytes(), Options::default())?;
    }
}
