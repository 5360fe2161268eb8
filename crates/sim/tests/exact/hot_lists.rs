//! A hotness monitoring unit behind the cache of a simulated machine.

use std::collections::BTreeMap;
use std::time::Duration;

use tierscope_chmu::{Capabilities, Monitors};
use tierscope_core::{
    BusObserver, BusRecord, Clock, HotLists, HotProgram, HotUnit, Ports, RegisterWork, Reporting,
    RequestKind, Time, Wake,
};
use tierscope_sim::exact::{Machine, Process};
use tierscope_workloads::generate::from_spec;

use crate::stage::setup;

const MIB: u64 = 1 << 20;
/// Bytes of both tiers of the machine.
const ALL: u64 = 192 * MIB;

/// A unit, and the requests that it should see.
struct Both {
    unit: Monitors,
    seen: Vec<BusRecord>,
}

impl BusObserver for Both {
    fn observe(&mut self, batch: &[BusRecord]) {
        self.unit.observe(batch);
        self.seen.extend_from_slice(batch);
    }

    fn hot_lists(&mut self, now: Time) -> Option<&mut dyn HotLists> {
        self.unit.hot_lists(now)
    }

    fn interrupt(&mut self, now: Time) -> Option<bool> {
        self.unit.interrupt(now)
    }

    fn take_work(&mut self) -> RegisterWork {
        self.unit.take_work()
    }
}

fn machine(capabilities: &Capabilities) -> Machine<Both> {
    let mut setup = setup([128, 64]);
    setup.hardware.llc.as_mut().expect("it has one").slices = 1;
    let unit = Monitors::new(capabilities, &[(0, ALL)]).expect("it is possible");
    let both = Both { unit, seen: Vec::new() };
    let mut machine = Machine::observed(&setup, both).expect("it is possible");
    let workload = from_spec("contiguous:space=64MiB,hot=48MiB,at=16MiB,writes=0.5");
    let process = Process { populate: true, ..Process::new(workload.expect("it is one")) };
    machine.start(&process).expect("it fits");
    machine.wait(Time(0));
    machine
}

fn program() -> HotProgram {
    HotProgram {
        unit_shift: 21,
        reporting: Reporting::Epoch(Duration::from_millis(1)),
        threshold: 20,
        downsampling: 0,
        requests: RequestKind::All,
        interrupts: false,
    }
}

fn drain(machine: &mut Machine<Both>) -> Vec<HotUnit> {
    let mut units = Vec::new();
    let lists = machine.hot_lists().expect("a unit listens");
    lists.drain(usize::MAX, &mut units).expect("it is well");
    units
}

/// Requests to the memory of the unit by epoch of a millisecond and by 2 MiB, after a time.
fn naive(seen: &[BusRecord], start: Time) -> BTreeMap<(u64, u64), u64> {
    let mut counts = BTreeMap::new();
    let is_seen = |record: &&BusRecord| record.time() > start && record.address() < ALL;
    for record in seen.iter().filter(is_seen) {
        let epoch = (record.time().0 - start.0) / 1_000_000;
        *counts.entry((epoch, record.address() >> 21)).or_default() += 1;
    }
    counts
}

// Programming the unit takes time; its first epoch begins then. What the machine did before, of
// which some requests end later, the unit has not seen.
#[test]
fn an_epoch_lists_the_units_that_a_naive_count_finds() {
    let mut machine = machine(&Capabilities::default());
    let before = machine.observer().seen.len();
    machine.hot_lists().expect("a unit listens").enable(&program()).expect("it can hold that");
    let start = machine.now();
    machine.wait(Time(start.0 + 4_000_000));
    let mut listed: Vec<(u64, u64)> =
        drain(&mut machine).iter().map(|unit| (unit.address >> 21, unit.count)).collect();
    listed.sort_unstable();
    let counts = naive(&machine.observer().seen[before..], start);
    let mut expected: Vec<(u64, u64)> = counts
        .iter()
        .filter(|((epoch, _), count)| *epoch < 4 && **count >= 20)
        .map(|((_, unit), count)| (*unit, *count))
        .collect();
    expected.sort_unstable();
    assert_eq!(listed, expected, "since {start:?}");
    assert!(listed.len() > 20, "{listed:?}");
}

#[test]
fn a_list_that_is_half_full_wakes_its_reader() {
    let small = Capabilities { hot_list: 16, ..Capabilities::default() };
    let mut machine = machine(&small);
    let always = Reporting::AlwaysOn;
    let woken = HotProgram { interrupts: true, reporting: always, ..program() };
    machine.hot_lists().expect("a unit listens").enable(&woken).expect("it can hold that");
    assert_eq!(machine.wait(Time(20_000_000)), Wake::Event);
    assert!(machine.now() < Time(20_000_000));
    assert!(drain(&mut machine).len() >= 8);
}

#[test]
fn the_reader_is_charged_and_the_program_is_not() {
    let (mut watched, mut idle) =
        (machine(&Capabilities::default()), machine(&Capabilities::default()));
    watched.hot_lists().expect("a unit listens").enable(&program()).expect("it can hold that");
    for end in [1_000_000, 2_000_000, 3_000_000, 4_000_000] {
        watched.wait(Time(end));
        idle.wait(Time(end));
        drain(&mut watched);
    }
    watched.wait(Time(5_000_000));
    idle.wait(Time(5_000_000));
    let (watched, idle) = (watched.account(), idle.account());
    assert!(watched.registers.reads > 40, "{:?}", watched.registers);
    assert!(watched.spent.telemetry > idle.spent.telemetry, "{:?}", watched.spent);
    assert_eq!(watched.counts.accesses, idle.counts.accesses, "no access takes longer");
}

#[test]
fn a_machine_without_a_unit_says_so() {
    let mut machine = Machine::new(&setup([128, 64])).expect("it is possible");
    let missing = machine.hot_lists().map(|_| ()).expect_err("no observer is attached");
    assert!(missing.cause.contains("memory bus"), "{missing:?}");
}
