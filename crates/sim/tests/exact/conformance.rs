//! The suites that every machine passes.

use std::time::Duration;

use tierscope_conformance::access_bits;
use tierscope_conformance::instrument::{Traits, conforms_on};
use tierscope_conformance::toy::idle;
use tierscope_core::{Range, SpaceId};
use tierscope_instruments::registry::{Common, list, make};

use crate::stage::{Counted, Driven, Exact};

const MIB: u64 = 1 << 20;

#[test]
fn accessed_bits_conform_at_four_and_five_levels() {
    let area = Range::new(SpaceId(0), 16 * MIB, 24 * MIB);
    for levels in [4, 5] {
        access_bits::conforms(&mut Driven::new(levels, &[area], idle()), area);
    }
}

#[test]
fn two_mappings_beneath_one_entry_are_both_seen() {
    let range = |start, end| Range::new(SpaceId(0), start, end);
    let (first, second) = (range(0, MIB), range(MIB + 4096, 2 * MIB));
    let mut driven = Driven::new(4, &[first, second], idle());
    let pages = [first.at(8192), second.at(8192)];
    access_bits::a_shared_upper_entry_is_judged_once(&mut driven, pages);
}

/// The techniques that work on ACCESSED bits alone, each in its default variant; Telescope's guided
/// one too.
#[test]
fn instruments_conform_on_it() {
    let tracks_bits = list().iter().filter(|entry| entry.tracks == "access bits");
    // DAMON would fit its regions to mappings once a minute.
    let common = Common { update: Some(Duration::from_secs(1)), ..Common::default() };
    for entry in tracks_bits {
        let guided = (entry.name == "telescope").then_some("guided");
        for variant in [Some(entry.variants[0].name), guided].into_iter().flatten() {
            let make = || make(entry.name, Some(variant), &common).expect("its defaults do");
            conforms_on(&Exact, &make, &Traits::default());
        }
    }
}

/// Counters in the memory controller: blocks and pages.
#[test]
fn counters_conform_on_it() {
    let entry = list().iter().find(|entry| entry.name == "nemo").expect("it is one");
    for variant in entry.variants {
        let make = || make("nemo", Some(variant.name), &Common::default()).expect("defaults do");
        conforms_on(&Counted, &make, &Traits::default());
    }
}
