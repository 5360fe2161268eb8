//! Counters in the memory controller on the toy machine: the conformance suite, and sweeps.

use std::time::Duration;

use tierscope_conformance::instrument::{conforms, run};
use tierscope_conformance::toy::{Toy, random_touches};
use tierscope_core::metrics::{Accuracy, HOT_FREQUENCY, hot};
use tierscope_core::{Instrument, Range, RangeSet, SpaceId};
use tierscope_instruments::nemo::{Config, Nemo};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn make(config: Config) -> Box<dyn Instrument> {
    Box::new(Nemo::new(config).unwrap())
}

#[test]
fn conforms_to_the_suite() {
    conforms(&|| make(Config::default()));
}

#[test]
fn pages_conform_to_the_suite() {
    conforms(&|| make(Config { granularity: 4096, ..Config::default() }));
}

/// Precision and recall after `windows` windows of 200 ms, and the bytes watched so far.
fn after(windows: u32, config: Config, mapped: Range, hot_range: Range) -> (f64, f64, u64) {
    let mut toy = Toy::new(&[mapped], random_touches(&[hot_range], 200_000, 3));
    let seconds = Duration::from_millis(200 * u64::from(windows) + 1).as_secs_f64();
    let (_, kept) = run(&mut toy, &mut *make(config), seconds);
    let truth: RangeSet = [hot_range].into_iter().collect();
    let last = kept.snapshots.last().unwrap();
    let accuracy = Accuracy::of(&hot(last, HOT_FREQUENCY), &truth);
    let watched = last.regions.iter().filter(|r| r.samples > 0).map(|r| r.range.bytes()).sum();
    (accuracy.precision().unwrap_or(0.0), accuracy.recall().unwrap_or(0.0), watched)
}

// Every request counts: after one window every block of the hot 512 MiB is known, with 156 requests
// each.
#[test]
fn a_small_target_is_covered_in_the_first_window() {
    let space = Range::new(SpaceId(0), 0, 64 * GIB);
    let hot = Range::new(SpaceId(0), 40 * GIB, 40 * GIB + 512 * MIB);
    assert_eq!(after(1, Config::default(), space, hot), (1.0, 1.0, 64 * GIB));
}

// One pipeline watches 16 GiB: 64 GiB take four windows, and the hot blocks are in the third
// quarter.
#[test]
fn one_pipeline_sweeps_over_a_quarter_at_a_time() {
    let space = Range::new(SpaceId(0), 0, 64 * GIB);
    let hot = Range::new(SpaceId(0), 40 * GIB, 40 * GIB + 512 * MIB);
    let of = |windows| {
        let config = Config { pipelines: 1, ..Config::default() };
        let (_, recall, watched) = after(windows, config, space, hot);
        (recall, watched / GIB)
    };
    assert_eq!([of(1), of(2)], [(0.0, 16), (0.0, 32)]);
    assert_eq!([of(3), of(4), of(5)], [(1.0, 48), (1.0, 64), (1.0, 64)]);
}

// 128 KiB are hot, in a block of 2 MiB: only pages of 4 KiB resolve them.
#[test]
fn pages_are_resolved_within_a_block() {
    let space = Range::new(SpaceId(0), 0, 64 * MIB);
    let hot = Range::new(SpaceId(0), 33 * MIB, 33 * MIB + (128 << 10));
    let pages = Config { granularity: 4096, ..Config::default() };
    assert_eq!(after(2, pages, space, hot), (1.0, 1.0, 64 * MIB));
    let (precision, recall, _) = after(2, Config::default(), space, hot);
    assert_eq!((precision, recall), (1.0 / 16.0, 1.0));
}
