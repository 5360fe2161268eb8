//! The conformance suites on the exact machine.

use std::time::Duration;

use tierscope_conformance::instrument::{Traits, conforms_on};
use tierscope_conformance::toy::idle;
use tierscope_conformance::{access_bits, residency};
use tierscope_core::{Clock, Need, Range, SpaceId, Target, Time};
use tierscope_instruments::registry::{Common, list, make};

use tierscope_sim::exact::{Machine, Process};
use tierscope_workloads::generate::from_spec;

use crate::stage::{Counted, Driven, Exact, Monitored, setup};

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

/// The techniques that need only ACCESSED bits, each in its default variant.
#[test]
fn instruments_conform() {
    let tracks_bits = list().iter().filter(|entry| entry.needs(Need::AccessBits));
    // DAMON would update its regions to mappings only once a minute.
    let common = Common { update: Some(Duration::from_secs(1)), ..Common::default() };
    for entry in tracks_bits {
        let make = || make(entry.name, None, &common).expect("its defaults do");
        conforms_on(&Exact, &make, &Traits::default());
    }
}

/// Counters in the memory controller: blocks and pages.
#[test]
fn counters_conform() {
    let entry = list().iter().find(|entry| entry.name == "nemo").expect("it is one");
    for variant in entry.variants {
        let make = || make("nemo", Some(variant.name), &Common::default()).expect("defaults do");
        conforms_on(&Counted, &make, &Traits::default());
    }
}

/// Hot lists of a monitoring unit, with epochs and without.
#[test]
fn hot_lists_conform() {
    let entry = list().iter().find(|entry| entry.name == "chmu").expect("it is one");
    for variant in entry.variants {
        let make = || make("chmu", Some(variant.name), &Common::default()).expect("defaults do");
        conforms_on(&Monitored, &make, &Traits::default());
    }
}

/// A process that runs a workload, with all pages present.
fn running(spec: &str) -> (Machine, Range) {
    let mut machine = Machine::new(&setup([1024; 2])).expect("it is possible");
    let workload = from_spec(spec).expect("it is possible");
    let process = Process { populate: true, ..Process::new(workload) };
    machine.start(&process).expect("there is memory");
    machine.wait(Time(0));
    let range = machine.mappings(Duration::ZERO).expect("they are known").mappings[0].range;
    (machine, range)
}

#[test]
fn a_resident_page_is_hidden_until_a_flush() {
    let (mut machine, area) = running("needle:space=64MiB,hot=4KiB,at=0B,rate=100000");
    let (hot, idle) = (area.at(0), area.at(32 * MIB));
    residency::a_flush_uncovers_a_resident_page(&mut machine, hot, idle, true);
}

// 2 MiB take 9 of 10 accesses, and stay in the TLBs; 16,384 pages share 100,000 a second evenly.
#[test]
fn background_is_seen_next_to_a_hot_set() {
    let spec = "contiguous:space=64MiB,hot=2MiB,at=0B,share=0.9,rate=1000000,burst=1";
    let (mut machine, area) = running(spec);
    let cold = Range { start: area.start + 2 * MIB, ..area };
    residency::background_sets_leaves_at_its_rate(&mut machine, cold, 100_000.0 / 16_384.0);
}
