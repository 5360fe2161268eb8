//! Programmable telemetry behind the cache of a simulated machine (NEMO, section 3).

use proptest::prelude::*;
use tierscope_core::{
    BusObserver, BusRecord, Clock, Counters, Filter, Key, Operand, Operator, Ports, ReadEffect,
    RegisterWork, RequestKind, Rule, RuleId, Time,
};
use tierscope_nemo::{Driver, Functional, Memory};
use tierscope_sim::exact::{Machine, Process};
use tierscope_workloads::{Workload, generate};

use crate::stage::setup;

const MIB: u64 = 1 << 20;
/// Bytes of both tiers of the machine.
const ALL: u64 = 192 * MIB;

/// Telemetry, and a reference count of the requests that it should see, by 2 MiB.
struct Both {
    driver: Driver<Functional>,
    seen: Vec<u64>,
}

impl Both {
    fn new() -> Self {
        let memory = Memory::single(ALL, 2).expect("it is possible");
        let engine = Functional::new(memory, 8, 64).expect("it is possible");
        Self { driver: Driver::new(engine), seen: vec![0; (ALL >> 21) as usize] }
    }
}

impl BusObserver for Both {
    fn observe(&mut self, batch: &[BusRecord]) {
        self.driver.observe(batch);
        let places = batch.iter().map(|record| (record.address() >> 21) as usize);
        places.for_each(|place| self.seen.get_mut(place).map_or((), |count| *count += 1));
    }

    fn counters(&mut self) -> Option<&mut dyn Counters> {
        self.driver.counters()
    }

    fn take_work(&mut self) -> RegisterWork {
        self.driver.take_work()
    }
}

fn workload() -> Workload {
    generate::from_spec("contiguous:space=64MiB,hot=48MiB,at=16MiB,writes=0.5").expect("it is one")
}

fn machine() -> Machine<Both> {
    let mut setup = setup([128, 64]);
    setup.hardware.llc.as_mut().expect("it has one").slices = 1;
    let mut machine = Machine::observed(&setup, Both::new()).expect("it is possible");
    let process = Process { populate: true, ..Process::new(workload()) };
    machine.start(&process).expect("it fits");
    machine.wait(Time(0));
    machine
}

fn by_huge_page() -> Rule {
    Rule {
        filter: Filter { kind: RequestKind::All, start: 0, end: ALL },
        key: Key { mask: Key::ALL_MEMORY, shift: 21 },
        offset: Key::NONE,
        update: (Operator::Add, Operand::Constant(1)),
        notify: None,
        on_read: ReadEffect::Reset(0),
    }
}

#[test]
fn counters_hold_every_request_since_they_were_programmed() {
    let mut machine = machine();
    let counters = machine.counters().expect("telemetry listens");
    let rule = counters.register(&by_huge_page()).expect("there is room");
    for key in 0..ALL >> 21 {
        counters.translate(rule, key, Some(key as u32)).expect("it is ours");
    }
    machine.observer().seen.fill(0);
    machine.wait(Time(3_000_000));
    let mut counted = vec![0; (ALL >> 21) as usize];
    machine.counters().expect("still").read(rule, &mut counted).expect("it is there");
    let seen = machine.observer().seen.clone();
    assert_eq!(counted, seen);
    assert!(
        seen.iter().sum::<u64>() > 1000 && seen.iter().filter(|count| **count > 0).count() > 20
    );
}

#[test]
fn the_driver_is_charged_and_the_program_is_not() {
    let (mut watched, mut idle) = (machine(), machine());
    let counters = watched.counters().expect("telemetry listens");
    let rule = counters.register(&by_huge_page()).expect("there is room");
    for end in [1_000_000, 2_000_000, 3_000_000] {
        watched.wait(Time(end));
        idle.wait(Time(end));
        let mut counted = [0; 8];
        let counters = watched.counters().expect("telemetry listens");
        counters.read(rule, &mut counted).expect("it is there");
    }
    watched.wait(Time(4_000_000));
    idle.wait(Time(4_000_000));
    let (watched, idle) = (watched.account(), idle.account());
    assert!(watched.spent.telemetry > idle.spent.telemetry, "{:?}", watched.spent);
    assert_eq!(watched.counts.accesses, idle.counts.accesses, "no access takes longer");
}

#[test]
fn a_machine_without_telemetry_says_so() {
    let mut machine = Machine::new(&setup([128, 64])).expect("it is possible");
    let missing = machine.counters().map(|_| ()).expect_err("no observer is attached");
    assert!(missing.cause.contains("memory bus"), "{missing:?}");
}

/// Rules of every operator, with and without notifications.
const RULES: [&str; 4] = [
    "key all >> 21; update + 1; on_read reset 0",
    "filter write; key all >> 21; offset 0x1fffff >> 12; update + 1",
    "key all >> 24; update ^ address",
    "filter read; key all >> 20; update + length; notify >= 1000",
];

/// Performs a random operation of software on the counters.
fn meddle(machine: &mut Machine<Both>, rules: &mut Vec<RuleId>, what: u8, value: u64) {
    let counters = machine.counters().expect("telemetry listens");
    let rule = rules.get(value as usize % rules.len().max(1)).copied();
    // A refused operation has no effect either.
    let _ = match (what, rule) {
        (0, _) => {
            let rule: Rule = RULES[value as usize % RULES.len()].parse().expect("they are rules");
            counters.register_states(&rule, 1024).map(|id| rules.push(id))
        }
        (1, Some(rule)) => counters.translate(rule, value % 96, Some(value as u32 % 2 * 512)),
        (2, Some(rule)) => counters.read(rule, &mut [0; 64]),
        (3, Some(rule)) => {
            rules.retain(|known| *known != rule);
            counters.unregister(rule)
        }
        _ => {
            counters.notifications(&mut Vec::new());
            Ok(())
        }
    };
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn no_configuration_delays_an_access(
        steps in prop::collection::vec((0..5u8, any::<u64>()), 1..40),
    ) {
        let (mut watched, mut idle) = (machine(), machine());
        let mut rules = Vec::new();
        for (number, (what, value)) in (1u64..).zip(steps) {
            meddle(&mut watched, &mut rules, what, value);
            for machine in [&mut watched, &mut idle] {
                machine.wait(Time(number * 50_000));
            }
        }
        for machine in [&mut watched, &mut idle] {
            machine.wait(Time(5_000_000));
        }
        let (watched, idle) = (watched.account(), idle.account());
        prop_assert_eq!(watched.counts, idle.counts);
        prop_assert_eq!(watched.lines_read, idle.lines_read);
        prop_assert_eq!(watched.lines_written, idle.lines_written);
        prop_assert_eq!(watched.spent.target, idle.spent.target);
    }
}
