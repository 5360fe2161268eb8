//! The page's data and the figures over windows, compared with counting page by page.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::Value;
use tierscope_core::drive::{Sink, Window};
use tierscope_core::metrics::HOT_FREQUENCY;
use tierscope_core::{
    Backing, Mapping, Mappings, Range, Region, Snapshot, Space, SpaceId, Time, Unknown,
};
use tierscope_record::{Memory, Meta, Recorder, Recording};
use tierscope_report::{Cell, Grid, View, ages, heatmap, html, summary, wss};

const PAGE: u64 = 4096;
const BASE: u64 = 0x7f00_0000_0000;
/// Pages of the test space.
const PAGES: u64 = 64;

/// State of a region.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Known,
    Unknown,
    Unseen,
}

/// A window: consecutive regions, each with its pages, hits, state and age.
type Plan = Vec<(u64, u8, State, u32)>;

fn regions(plan: &Plan) -> Vec<Region> {
    let mut at = 0;
    let mut regions = Vec::new();
    for (pages, hits, state, age) in plan {
        let end = (at + pages).min(PAGES);
        if end > at {
            let range = Range::new(SpaceId(0), BASE + at * PAGE, BASE + end * PAGE);
            let (hits, samples) = match state {
                State::Unseen => (0.0, 0),
                _ => (f32::from(*hits), 40),
            };
            regions.push(Region {
                age: *age,
                unknown: (*state == State::Unknown).then_some(Unknown::Evidence),
                ..Region::sampled(range, hits, samples)
            });
        }
        at = end;
    }
    regions
}

fn record(plans: &[Plan]) -> Recording {
    let range = Range::new(SpaceId(0), BASE, BASE + PAGES * PAGE);
    let mapping = Mapping {
        range,
        backing: Backing::Heap,
        name: "[heap]".into(),
        writable: true,
        object: None,
    };
    let layout = Mappings {
        taken: Time(0),
        spaces: vec![Space { id: SpaceId(0), name: "toy".into() }],
        mappings: vec![mapping],
        ..Mappings::default()
    };
    let mut memory = Memory::default();
    let mut recorder = Recorder::create_in(&mut memory, &Meta::default()).unwrap();
    for (number, plan) in plans.iter().enumerate() {
        let start = Time(number as u64 * 200_000_000);
        let end = start + Duration::from_millis(200);
        let snapshot = Snapshot { start, end, samples: 40, regions: regions(plan) };
        let mappings = (number == 0).then_some(&layout);
        let window = Window { mappings, ..Window::of(&snapshot) };
        recorder.window(&window).unwrap();
    }
    recorder.finish().unwrap();
    Recording::from_source(Box::new(memory)).unwrap()
}

/// First unit, one past the last, heat, and the shares known and unknown.
type Part = (u64, u64, u8, [u8; 2]);

/// Unpacks a level like the page's script: the parts of each piece.
fn unpacked(level: &Value) -> Vec<Vec<Part>> {
    let packed = crate::chromium::from_base64(level["packed"].as_str().unwrap());
    let bytes = miniz_oxide::inflate::decompress_to_vec(&packed).unwrap();
    let length = |index: usize| level["streams"][index].as_u64().unwrap() as usize;
    let (gaps, rest) = bytes.split_at(length(0));
    let (lengths, rest) = rest.split_at(length(1));
    let (heats, rest) = rest.split_at(length(2));
    let (seens, unknowns) = rest.split_at(length(3));
    assert_eq!(unknowns.len(), length(4));
    let (mut gaps, mut lengths) = (numbers(gaps), numbers(lengths));
    let mut bytes = heats.iter().zip(seens.iter().zip(unknowns));
    let mut piece = |count: &Value| {
        let mut at = 0;
        let mut part = |_| {
            let start = at + gaps.next().unwrap();
            at = start + lengths.next().unwrap();
            let (heat, (seen, unknown)) = bytes.next().unwrap();
            (start, at, *heat, [*seen, *unknown])
        };
        (0..count.as_u64().unwrap()).map(&mut part).collect()
    };
    let pieces = level["parts"].as_array().unwrap().iter().map(&mut piece).collect();
    assert!(gaps.next().is_none() && lengths.next().is_none() && bytes.next().is_none());
    pieces
}

fn numbers(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.split_inclusive(|byte| byte & 0x80 == 0).map(|group| {
        let sevens = group.iter().rev();
        sevens.fold(0, |number, byte| number << 7 | u64::from(byte & 0x7f))
    })
}

/// The page of each unit of an area.
fn pages_of_units(area: &Value) -> Vec<u64> {
    let units = area["units"].as_u64().unwrap();
    let parts = area["parts"].as_array().unwrap();
    let page = |unit: u64| {
        let part = parts.iter().rfind(|part| part[1].as_u64().unwrap() <= unit).unwrap();
        let start = part[0].as_str().unwrap().strip_prefix("0x").unwrap();
        let start = u64::from_str_radix(start, 16).unwrap();
        (start - BASE) / PAGE + unit - part[1].as_u64().unwrap()
    };
    (0..units).map(page).collect()
}

/// Windows of up to 8 regions, more of them than tiles of two zooms sum up.
fn many_plans() -> impl Strategy<Value = Vec<Plan>> {
    let plan = prop::collection::vec((1u64..24, 0u8..=40, any_state(), 0u32..100), 0..8);
    prop::collection::vec(plan, 60..140)
}

/// Mean frequency of known pages of a row in a column, and how much more of it is unknown than
/// known; `None` if nothing was looked at. Both by page and by millisecond.
fn naive_cell(plans: &[Plan], pages: &[u64], [from, to]: [f64; 2]) -> Option<(f64, f64)> {
    let (mut known, mut hot, mut unknown) = (0.0, 0.0, 0.0);
    for (number, plan) in plans.iter().enumerate() {
        let window = [number as f64 * 200.0, (number + 1) as f64 * 200.0];
        let time = window[1].min(to) - window[0].max(from);
        for region in regions(plan).iter().filter(|_| time > 1e-6) {
            let inside = |page: &&u64| {
                region.range.covers(&Range::new(
                    SpaceId(0),
                    BASE + **page * PAGE,
                    BASE + (**page + 1) * PAGE,
                ))
            };
            let amount = pages.iter().filter(inside).count() as f64 * time;
            match (region.samples, region.unknown) {
                (0, _) => {}
                (_, Some(_)) => unknown += amount,
                _ => {
                    known += amount;
                    hot += amount * region.frequency();
                }
            }
        }
    }
    (known + unknown > 0.0).then(|| (hot / f64::max(known, 1e-9), unknown - known))
}

fn any_state() -> impl Strategy<Value = State> {
    prop_oneof![Just(State::Known), Just(State::Unknown), Just(State::Unseen)]
}

prop_compose! {
    fn any_plans()(plans in prop::collection::vec(
        prop::collection::vec((1u64..24, 0u8..=40, any_state(), 0u32..100), 1..8), 1..12)
    ) -> Vec<Plan> {
        plans
    }
}

fn is_known(region: &Region) -> bool {
    region.samples > 0 && region.unknown.is_none()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    // The finest level holds every window unchanged.
    // Every cell of the default view is the mean over time and space, by pages and windows.
    #[test]
    fn cells_are_means_over_time_and_space(plans in many_plans(), columns in 1usize..40) {
        let recording = record(&plans);
        let map = heatmap(&recording, &View::default(), Grid { columns, rows: 12 }).unwrap();
        prop_assert!(map.exact);
        let length = plans.len() as f64 * 200.0 / map.columns as f64;
        for row in map.areas.iter().flat_map(|area| &area.rows) {
            let page = |at: u64| (at - BASE) / PAGE;
            let pages: Vec<u64> =
                row.parts.iter().flat_map(|part| page(part.start)..page(part.end)).collect();
            for (column, cell) in row.cells.iter().enumerate() {
                let time = [column as f64 * length, (column + 1) as f64 * length];
                let is_right = match (cell, naive_cell(&plans, &pages, time)) {
                    (Cell::Heat(found), Some((naive, more))) => {
                        more < 1e-6 && (found - naive).abs() < 1e-6
                    }
                    (Cell::Unknown, Some((_, more))) => more > -1e-6,
                    (Cell::NotLookedAt, None) => true,
                    _ => false,
                };
                prop_assert!(is_right, "{:?} in column {} of {:?}", cell, column, row.parts);
            }
        }
    }

    #[test]
    fn the_page_holds_the_recorded_data(plans in any_plans()) {
        let recording = record(&plans);
        let data = html::data(&recording, &html::Options::default()).unwrap();
        let data: Value = serde_json::from_str(&data).unwrap();
        let page_of = pages_of_units(&data["areas"][0]);
        let seen = |page: &u64| plans.iter().flat_map(regions).any(|r| {
            (r.range.start..r.range.end).contains(&(BASE + page * PAGE))
        });
        prop_assert_eq!(&page_of, &(0..PAGES).filter(seen).collect::<Vec<_>>());
        let pieces = unpacked(data["levels"].as_array().unwrap().last().unwrap());
        prop_assert_eq!(pieces.len(), plans.len());
        for (plan, parts) in plans.iter().zip(pieces) {
            let looked = regions(plan).into_iter().filter(|region| region.samples > 0);
            let want: Vec<_> = looked.map(|region| {
                let unit = |at: u64| (at - BASE) / PAGE;
                let heat = (region.frequency() * 255.0).round() as u8;
                let (heat, shares) = if region.unknown.is_some() { (0, [0, 255]) } else { (heat, [255, 0]) };
                (unit(region.range.start), unit(region.range.end), heat, shares)
            }).collect();
            let page = |unit: u64| page_of[unit as usize];
            let of_pages = |(start, past, heat, shares)| (page(start), page(past - 1) + 1, heat, shares);
            prop_assert_eq!(parts.into_iter().map(of_pages).collect::<Vec<_>>(), want);
        }
    }

    // Sums equal page-by-page sums; a partial view leaves out the first and the last quarter.
    #[test]
    fn sums_are_those_of_pages(plans in any_plans(), partial in any::<bool>()) {
        let recording = record(&plans);
        let shown = if partial { PAGES / 4..PAGES * 3 / 4 } else { 0..PAGES };
        let addresses = BASE + shown.start * PAGE..BASE + shown.end * PAGE;
        let view = View { addresses: partial.then_some(addresses), ..View::default() };
        let count = |plan: &Plan, is: &dyn Fn(&Region) -> bool| {
            let regions = regions(plan);
            let of = |page: u64| regions.iter().find(|r| (r.range.start..r.range.end).contains(&(BASE + page * PAGE)));
            shown.clone().filter(|page| of(*page).is_some_and(is)).count() as u64 * PAGE
        };
        let mut accessed: Vec<u64> = plans.iter().map(|p| count(p, &|r| is_known(r) && r.hits >= 1.0)).collect();
        let hot: u64 = plans.iter().map(|p| count(p, &|r| r.is_hot(HOT_FREQUENCY))).sum();
        let unknown: u64 = plans.iter().map(|p| count(p, &|r| r.unknown.is_some())).sum();
        let wss = wss(&recording, &view).unwrap();
        prop_assert_eq!(wss.unknown_mean, unknown / plans.len() as u64);
        prop_assert_eq!(wss.hot_mean, hot / plans.len() as u64);
        accessed.sort_unstable();
        prop_assert_eq!(wss.percentiles[0].accessed_bytes, accessed[0]);
        prop_assert_eq!(wss.percentiles[50].accessed_bytes, accessed[(plans.len() - 1) / 2]);
        prop_assert_eq!(wss.percentiles[100].accessed_bytes, accessed[plans.len() - 1]);

        let last = plans.last().unwrap();
        let ages = ages(&recording, &view).unwrap();
        prop_assert_eq!(ages.unseen_bytes, count(last, &|r| r.samples == 0));
        prop_assert_eq!(ages.unknown_bytes, count(last, &|r| r.unknown.is_some()));
        for bin in ages.bins.iter().flatten() {
            let aged = |r: &Region| (bin.from_windows..bin.to_windows).contains(&r.age.into());
            let is_cold = |r: &Region| is_known(r) && r.hits < 1.0;
            prop_assert_eq!(bin.hot_bytes, count(last, &|r| aged(r) && r.is_hot(HOT_FREQUENCY)));
            prop_assert_eq!(bin.cold_bytes, count(last, &|r| aged(r) && is_cold(r)));
        }
        let all = ages.hot_bytes + ages.warm_bytes + ages.cold_bytes;
        prop_assert_eq!(all, count(last, &is_known));

        let summary = summary(&recording, &view).unwrap();
        let states =
            [summary.hot_bytes, summary.not_hot_bytes, summary.unknown_bytes, summary.unseen_bytes];
        prop_assert_eq!(states[0].now + states[1].now, all);
        prop_assert_eq!([states[2].now, states[3].now], [ages.unknown_bytes, ages.unseen_bytes]);
    }
}
