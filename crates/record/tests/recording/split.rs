//! Every mapped byte is recorded in exactly one state, and hot memory is resident.

use crate::common::{meta, open};
use proptest::prelude::*;
use tierscope_core::drive::{Sink, Window};
use tierscope_core::{
    Backing, Extent, Mapping, Mappings, Range, Region, Residence, Snapshot, Space, SpaceId,
    SpaceResidence, Time, Unknown, footprint,
};
use tierscope_record::{Memory, Metric, Recorder};

const PAGE: u64 = 4096;
const SPACES: u32 = 2;

/// A mapping: unmapped pages before it, its pages, its backing, its resident and swapped pages.
type MappingPlan = (u64, u64, Backing, u64, u64);
/// A region: pages, hits, whether it was probed, why it is unknown.
type RegionPlan = (u64, f32, bool, Option<Unknown>);

fn mapping_plan() -> impl Strategy<Value = MappingPlan> {
    let backings = [Backing::Anonymous, Backing::Heap, Backing::File, Backing::Stack];
    (0u64..9, 1u64..30, prop::sample::select(backings.to_vec()), 0u64..30, 0u64..30)
}

fn region_plan() -> impl Strategy<Value = RegionPlan> {
    let why = prop::option::weighted(0.3, prop::sample::select(Unknown::ALL.to_vec()));
    (1u64..20, prop::sample::select(vec![0.0, 0.5, 1.0, 40.0]), any::<bool>(), why)
}

/// The mappings of a space, and the extents, one in each mapping.
fn laid_out(space: SpaceId, plans: &[MappingPlan]) -> (Vec<Mapping>, Vec<Extent>) {
    let mut at = 0;
    let mut lay = |&(gap, pages, backing, resident, swapped): &MappingPlan| {
        let start = at + gap * PAGE;
        at = start + pages * PAGE;
        let (range, name) = (Range::new(space, start, at), "".into());
        let resident = resident.min(pages);
        let swapped = swapped.min(pages - resident) * PAGE;
        let mapping = Mapping { range, backing, name, writable: true, object: None };
        (mapping, Extent { range, resident: resident * PAGE, swapped })
    };
    plans.iter().map(&mut lay).unzip()
}

/// Regions that tile a space up to its last mapping, in the order of their plans.
fn tiled(space: SpaceId, plans: &[RegionPlan], end: u64) -> Vec<Region> {
    let mut at = 0;
    let mut regions = Vec::new();
    for &(pages, hits, probed, unknown) in plans.iter().cycle() {
        let range = Range::new(space, at, (at + pages * PAGE).min(end));
        if range.is_empty() {
            break;
        }
        at = range.end;
        let (hits, samples) = if probed { (hits, 40) } else { (0.0, 0) };
        let (age, level, confidence, rate, resident) = (0, None, 1.0, None, None);
        regions.push(Region {
            range,
            hits,
            samples,
            age,
            level,
            confidence,
            rate,
            unknown,
            resident,
        });
    }
    regions
}

/// Sum of the series of a space.
fn sum(metrics: &[Metric], space: SpaceId, names: &[&str]) -> u64 {
    let of = |metric: &&Metric| metric.space == Some(space) && names.contains(&&*metric.name);
    metrics.iter().filter(of).map(|metric| metric.value as u64).sum()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

    // Two spaces, windows with random regions. The measured resident bytes are too small, as those
    // of a growing process.
    #[test]
    fn every_mapped_byte_is_in_one_state(
        plans in prop::collection::vec(prop::collection::vec(mapping_plan(), 1..6), SPACES as usize),
        windows in prop::collection::vec(prop::collection::vec(region_plan(), 1..9), 1..5),
    ) {
        let ids = (0..SPACES).map(SpaceId);
        let layouts: Vec<_> = ids.clone().zip(&plans).map(|(id, plan)| laid_out(id, plan)).collect();
        let mappings = Mappings {
            spaces: ids.clone().map(|id| Space { id, name: "toy".into() }).collect(),
            mappings: layouts.iter().flat_map(|(mappings, _)| mappings.clone()).collect(),
            ..Mappings::default()
        };
        let measured = |(space, (_, extents)): (SpaceId, &(Vec<Mapping>, Vec<Extent>))| {
            let (taken, extents) = (Time(0), Some(extents.clone().into()));
            SpaceResidence { space, taken, bytes: PAGE, extents, placed: None }
        };
        let spaces = ids.clone().zip(&layouts).map(measured).collect();
        let residence = Residence { spaces, ..Residence::default() };
        let mut memory = Memory::default();
        let mut recorder = Recorder::create_in(&mut memory, &meta())?;
        for (number, plan) in windows.iter().enumerate() {
            let tile = |(space, (mappings, _)): (SpaceId, &(Vec<Mapping>, _))| {
                tiled(space, plan, mappings[mappings.len() - 1].range.end)
            };
            let regions = ids.clone().zip(&layouts).flat_map(tile).collect();
            let mut snapshot = Snapshot { regions, samples: 40, ..Snapshot::default() };
            footprint::fit(&mut snapshot, &mappings, &residence);
            let layout = (number == 0).then_some(&mappings);
            let window = Window { mappings: layout, residence: Some(&residence), ..Window::of(&snapshot) };
            recorder.window(&window)?;
        }
        recorder.finish()?;
        let recording = open(&memory)?;
        for index in 0..windows.len() {
            let metrics = recording.metrics(index)?;
            for (space, (mappings, extents)) in ids.clone().zip(&layouts) {
                let mapped: u64 = mappings.iter().map(|mapping| mapping.range.bytes()).sum();
                let held: u64 = extents.iter().map(|extent| extent.resident).sum();
                let of = |names: &[&str]| sum(&metrics, space, names);
                let apart = ["swapped_bytes", "reserved_bytes", "absent_bytes"];
                prop_assert_eq!(of(&["region_bytes"]) + of(&apart), mapped);
                let (hot, resident) = (of(&["hot_bytes"]), of(&["rss_bytes"]));
                prop_assert!(hot <= resident, "{} of {}", hot, resident);
                prop_assert!(of(&["region_bytes"]) >= held && of(&["region_bytes"]) <= resident);
                // Hot, warm and cold, unknown and unseen are parts of the regions.
                let (accessed, unknown) = (of(&["accessed_bytes"]), of(&["unknown_bytes"]));
                prop_assert!(hot <= accessed);
                prop_assert!(accessed + unknown + of(&["unseen_bytes"]) <= of(&["region_bytes"]));
                prop_assert!(of(&["unknown_refused_bytes", "unknown_guest_bytes"]) <= unknown);
            }
        }
    }
}
