//! Hint faults on the toy machine: the conformance suite, and the speed of the hand.

use tierscope_conformance::instrument::{conforms, run};
use tierscope_conformance::toy::{Toy, random_touches};
use tierscope_core::{Instrument, Range, SpaceId};
use tierscope_instruments::hint_fault::{Config, HintFaulting};

const GIB: u64 = 1 << 30;

fn make() -> Box<dyn Instrument> {
    Box::new(HintFaulting::new(Config::default()).unwrap())
}

#[test]
fn conforms_to_the_suite() {
    conforms(&make);
}

// 256 MiB per second: after four seconds, of which the pages of the last one are not judged yet,
// three quarters of a GiB are judged, and nothing beyond.
#[test]
fn the_hand_judges_a_quarter_of_a_gibibyte_a_second() {
    let space = Range::new(SpaceId(0), 0, 64 * GIB);
    let mut toy = Toy::new(&[space], random_touches(&[space], 100_000, 3));
    let (_, kept) = run(&mut toy, &mut *make(), 4.1);
    let last = kept.snapshots.last().unwrap();
    let judged: u64 = last.regions.iter().filter(|r| r.samples > 0).map(|r| r.range.bytes()).sum();
    assert!(judged.abs_diff(3 * GIB / 4) <= GIB / 10, "{judged}");
    let beyond = last.regions.iter().filter(|r| r.samples > 0).map(|r| r.range.end).max();
    assert_eq!(beyond, Some(judged));
}
