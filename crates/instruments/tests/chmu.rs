//! Hot lists on the toy machine: the conformance suite, and sizes of units.

use std::time::Duration;

use tierscope_conformance::instrument::{conforms, run};
use tierscope_conformance::toy::{Toy, random_touches};
use tierscope_core::metrics::{Accuracy, HOT_FREQUENCY, hot};
use tierscope_core::{Instrument, Range, RangeSet, SpaceId};
use tierscope_instruments::chmu::{Chmu, Config};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn make(config: Config) -> Box<dyn Instrument> {
    Box::new(Chmu::new(config).unwrap())
}

#[test]
fn conforms_to_the_suite() {
    conforms(&|| make(Config::default()));
}

#[test]
fn always_on_conforms_to_the_suite() {
    conforms(&|| make(Config { always_on: true, threshold: 256, ..Config::default() }));
}

#[test]
fn pages_conform_to_the_suite() {
    conforms(&|| make(Config { granularity: 4096, ..Config::default() }));
}

/// Precision and recall after `windows` windows of 200 ms.
fn after(windows: u32, config: Config, mapped: Range, hot_range: Range) -> (f64, f64) {
    let mut toy = Toy::new(&[mapped], random_touches(&[hot_range], 200_000, 3));
    let seconds = Duration::from_millis(200 * u64::from(windows) + 1).as_secs_f64();
    let (_, kept) = run(&mut toy, &mut *make(config), seconds);
    let truth: RangeSet = [hot_range].into_iter().collect();
    let accuracy = Accuracy::of(&hot(kept.snapshots.last().unwrap(), HOT_FREQUENCY), &truth);
    (accuracy.precision().unwrap_or(0.0), accuracy.recall().unwrap_or(0.0))
}

// 512 MiB of 64 GiB: 156 requests to each unit in a window, and none to others.
#[test]
fn all_hot_units_are_on_the_list_of_the_first_epoch() {
    let space = Range::new(SpaceId(0), 0, 64 * GIB);
    let hot = Range::new(SpaceId(0), 40 * GIB, 40 * GIB + 512 * MIB);
    assert_eq!(after(1, Config::default(), space, hot), (1.0, 1.0));
}

// 128 KiB are hot, in a unit of 2 MiB: only units of 4 KiB resolve them.
#[test]
fn small_units_resolve_pages() {
    let space = Range::new(SpaceId(0), 0, 64 * MIB);
    let hot = Range::new(SpaceId(0), 33 * MIB, 33 * MIB + (128 << 10));
    let pages = Config { granularity: 4096, ..Config::default() };
    assert_eq!(after(2, pages, space, hot), (1.0, 1.0));
    assert_eq!(after(2, Config::default(), space, hot), (1.0 / 16.0, 1.0));
}
