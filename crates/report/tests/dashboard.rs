//! The dashboard in packaging/grafana uses exported metrics only.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;
use tierscope_core::drive::{Sink, Window};
use tierscope_core::{
    Backing, Charge, CpuTime, Extent, Mapping, Mappings, Node, OnNode, Placed, Range, Rate, Region,
    Residence, Snapshot, Space, SpaceId, SpaceResidence, Time,
};
use tierscope_record::{Memory, Meta, Metric, Recorder, Recording};
use tierscope_report::metrics::Collector;

/// Metrics text of a window with everything that can be exported.
fn exposition() -> String {
    let range = Range::new(SpaceId(0), 0, 4096);
    let heap = Mapping {
        range,
        backing: Backing::Heap,
        name: "[heap]".into(),
        writable: true,
        object: None,
    };
    let space = Space { id: SpaceId(0), name: "redis-server[4711]".into() };
    let layout = Mappings { spaces: vec![space], mappings: vec![heap], ..Mappings::default() };
    let region = Region {
        age: 5,
        rate: Some(Rate { low: 0.1, mean: 0.2, high: 0.4 }),
        ..Region::sampled(range, 0.0, 40)
    };
    let (start, end) = (Time(0), Time(200_000_000));
    let snapshot = Snapshot { start, end, samples: 40, regions: vec![region] };
    let cpu = CpuTime { profiler: Duration::from_millis(3), ..CpuTime::default() };
    let mut memory = Memory::default();
    let mut recorder = Recorder::create_in(&mut memory, &Meta::default()).unwrap();
    recorder.metric(Metric { time: end, name: "of_others".into(), space: None, value: 1.0 });
    let on = OnNode { node: Node(0), bytes: 4096 };
    let extents = Some([Extent { range, resident: 4096, swapped: 0 }].into());
    let placed = Some(Placed { taken: end, nodes: vec![on], drawn: 0 });
    let of = SpaceResidence { space: SpaceId(0), taken: end, bytes: 4096, placed, extents };
    let charges = vec![(Charge::PageCache, 4096), (Charge::MajorFaults, 1)];
    let (spaces, zswapped) = (vec![of], Some(0));
    let residence = Residence { spaces, zswapped, charges, ..Residence::default() };
    let residence = Some(&residence);
    let mappings = Some(&layout);
    recorder.window(&Window { mappings, cpu, residence, ..Window::of(&snapshot) }).unwrap();
    recorder.finish().unwrap();
    let recording = Recording::from_source(Box::new(memory)).unwrap();
    let mut collector = Collector::default();
    collector.advance(&recording);
    collector.render(&recording).unwrap()
}

/// Names of the samples, and of their labels.
fn exported(text: &str) -> (BTreeSet<&str>, BTreeSet<&str>) {
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let names = samples.clone().map(|line| line.split(['{', ' ']).next().unwrap()).collect();
    let labels = samples
        .filter_map(|line| line.split_once('{'))
        .flat_map(|(_, rest)| rest.split("\",").map(|pair| pair.split('=').next().unwrap()))
        .collect();
    (names, labels)
}

/// Collects every string below `value` whose key is one of `keys`.
fn strings<'a>(value: &'a Value, keys: &[&str], found: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            for (key, field) in fields {
                match field {
                    Value::String(text) if keys.contains(&key.as_str()) => found.push(text),
                    field => strings(field, keys, found),
                }
            }
        }
        Value::Array(all) => all.iter().for_each(|one| strings(one, keys, found)),
        _ => {}
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

#[test]
fn every_metric_and_label_of_the_dashboard_is_exported() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/grafana/tierscope.json");
    let dashboard: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let text = exposition();
    let (names, labels) = exported(&text);
    let mut queries = Vec::new();
    strings(&dashboard, &["expr", "query"], &mut queries);
    let asked: BTreeSet<&str> =
        queries.iter().flat_map(|q| words(q)).filter(|w| w.starts_with("tierscope_")).collect();
    assert!(asked.len() > 10, "{asked:?}");
    assert_eq!(asked.difference(&names).collect::<Vec<_>>(), Vec::<&&str>::new());
    for query in queries {
        for group in query.split(" by (").skip(1) {
            let label = group.split(')').next().unwrap();
            assert!(labels.contains(label), "no label {label} in {query}");
        }
    }
    // Every exported metric must be shown, with one exception.
    let shown = |name: &&&str| asked.contains(**name);
    let hidden: Vec<_> = names.iter().filter(|name| !shown(name)).collect();
    assert_eq!(hidden, [&"tierscope_idle_age_seconds_gsum"]);
}
