//! Sampled accesses on the toy machine: the conformance suite, and the effect of the sampling rate.

use std::time::Duration;

use tierscope_conformance::instrument::{conforms, run};
use tierscope_conformance::toy::{Toy, random_touches};
use tierscope_core::metrics::{Accuracy, HOT_FREQUENCY, hot};
use tierscope_core::{Instrument, Range, RangeSet, SpaceId};
use tierscope_instruments::pebs::{Config, Pebs};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn make(config: Config) -> Box<dyn Instrument> {
    Box::new(Pebs::new(config).unwrap())
}

#[test]
fn conforms_to_the_suite() {
    conforms(&|| make(Config::default()));
}

/// Recall in the last window.
fn recall(hot_range: Range, config: Config, seconds: f64) -> f64 {
    let space = Range::new(SpaceId(0), 0, 64 * GIB);
    let mut toy = Toy::new(&[space], random_touches(&[hot_range], 500_000, 3));
    let (_, kept) = run(&mut toy, &mut *make(config), seconds);
    let truth: RangeSet = [hot_range].into_iter().collect();
    let last = kept.snapshots.last().unwrap();
    Accuracy::of(&hot(last, HOT_FREQUENCY), &truth).recall().unwrap()
}

// The toy samples 5000 of 500,000 touches per second. 64 MiB are 32 blocks: 156 samples each, all
// hot. 8 GiB are 4096 blocks: 1.2 each, P(Poisson(1.2) >= 5) = 0.008. Over 20 s they have 24 each.
#[test]
fn a_large_set_needs_patience() {
    let of = |bytes| Range::new(SpaceId(0), GIB, GIB + bytes);
    assert_eq!(recall(of(64 * MIB), Config::default(), 2.0), 1.0);
    assert!(recall(of(8 * GIB), Config::default(), 2.0) < 0.05);
    let patient = Config { history: Duration::from_secs(20), ..Default::default() };
    assert!(recall(of(8 * GIB), patient, 20.0) > 0.99);
}
