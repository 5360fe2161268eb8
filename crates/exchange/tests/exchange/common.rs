//! Generators of recordings for property tests.

use std::io::Cursor;
use std::time::{Duration, UNIX_EPOCH};

use proptest::prelude::*;
use tierscope_core::drive::{Sink, Window};
use tierscope_core::{
    Backing, CpuTime, Level, Mapping, Mappings, Range, Rate, Region, Result, Snapshot, Space,
    SpaceId, Time, Unknown,
};
use tierscope_exchange::Imported;
use tierscope_record::{Memory, Meta, Recorder, Recording};

/// A generated window with regions of one to three spaces.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) snapshot: Snapshot,
    pub(crate) cpu: CpuTime,
}

fn region(space: u32, start: u64, end: u64) -> impl Strategy<Value = Region> {
    let level = prop::option::of(1u8..=5).prop_map(|n| n.and_then(Level::new));
    let hits = prop_oneof![(0u32..=40).prop_map(|hits| hits as f32), 0f32..40.0];
    let samples = prop_oneof![4 => Just(40u32), 1 => 0u32..60];
    let confidence = prop_oneof![3 => Just(1f32), 1 => 0f32..=1.0];
    let rate = (0f32..1e3, 1f32..4.0).prop_map(|(mean, factor)| Rate {
        low: mean / factor,
        mean,
        high: mean * factor,
    });
    let rate = prop::option::of(rate);
    let unknown = prop::option::of(prop::sample::select(Unknown::ALL.to_vec()));
    let resident = prop::option::of(0..=end - start);
    (hits, samples, any::<u32>(), level, confidence, rate, unknown, resident).prop_map(
        move |(hits, samples, age, level, confidence, rate, unknown, resident)| Region {
            range: Range::new(SpaceId(space), start, end),
            hits,
            samples,
            age,
            level,
            confidence,
            rate,
            unknown,
            resident,
        },
    )
}

fn regions() -> impl Strategy<Value = Vec<Region>> {
    let points = prop::collection::btree_set(any::<u64>(), 0..=8);
    prop::collection::vec(points, 0..=3).prop_flat_map(|spaces| {
        let of = |(space, points): (usize, std::collections::BTreeSet<u64>)| {
            let points: Vec<u64> = points.into_iter().collect();
            let pair = |pair: &[u64]| region(space as u32 * 5, pair[0], pair[1]);
            points.chunks_exact(2).map(pair).collect::<Vec<_>>()
        };
        spaces.into_iter().enumerate().flat_map(of).collect::<Vec<_>>()
    })
}

/// Strategy: up to `most` windows in order of time.
pub(crate) fn windows(most: usize) -> impl Strategy<Value = Vec<Seen>> {
    let window = (0u64..200_000_000, regions(), any::<(u32, u32)>(), 0u32..50);
    prop::collection::vec(window, 1..=most).prop_map(|windows| {
        let mut now = Time(1_000_000_007);
        let place = |(length, regions, (profiler, target), samples)| {
            let start = now;
            now += Duration::from_nanos(length);
            let nanos = |count: u32| Duration::from_nanos(count.into());
            let cpu = CpuTime { profiler: nanos(profiler), target: nanos(target) };
            Seen { snapshot: Snapshot { start, end: now, samples, regions }, cpu }
        };
        windows.into_iter().map(place).collect()
    })
}

pub(crate) fn meta() -> Meta {
    Meta {
        instrument: "telescope".into(),
        target: "redis-server[4711]".into(),
        started: UNIX_EPOCH + Duration::from_secs(1_700_000_000),
        annotations: [("who".to_owned(), "a, \"b\"\n".to_owned())].into(),
        ..Meta::default()
    }
}

pub(crate) fn layout() -> Mappings {
    let space = |id: u32| Space { id: SpaceId(id), name: format!("redis \"{id}\"[47]").into() };
    let mapping = |start: u64, backing, name: &str| Mapping {
        range: Range::new(SpaceId(0), start, start + 4096),
        backing,
        name: name.into(),
        writable: start > 0,
        object: None,
    };
    Mappings {
        taken: Time(7),
        spaces: [0, 5, 10].map(space).to_vec(),
        mappings: vec![
            mapping(0, Backing::File, "/a \"b\", c"),
            mapping(8192, Backing::Anonymous, ""),
        ],
        ..Mappings::default()
    }
}

pub(crate) fn record(windows: &[Seen]) -> Recording {
    let mut memory = Memory::default();
    let mut recorder = Recorder::create_in(&mut memory, &meta()).unwrap();
    let layout = layout();
    for (index, seen) in windows.iter().enumerate() {
        let mappings = (index == 0).then_some(&layout);
        let (snapshot, cpu) = (&seen.snapshot, seen.cpu);
        recorder.window(&Window { mappings, cpu, ..Window::of(snapshot) }).unwrap();
    }
    recorder.finish().unwrap();
    Recording::from_source(Box::new(memory)).unwrap()
}

pub(crate) fn scratch() -> Box<Cursor<Vec<u8>>> {
    Box::default()
}

#[derive(Default)]
pub(crate) struct Kept {
    pub(crate) windows: Vec<Seen>,
    pub(crate) layouts: Vec<Mappings>,
}

impl Sink for Kept {
    fn window(&mut self, window: &Window<'_>) -> Result<()> {
        self.windows.push(Seen { snapshot: window.snapshot.clone(), cpu: window.cpu });
        self.layouts.extend(window.mappings.cloned());
        Ok(())
    }
}

pub(crate) fn kept(mut imported: Imported) -> Kept {
    let mut kept = Kept::default();
    imported.write(&mut kept, &mut |_, _| Ok(())).unwrap();
    kept
}
