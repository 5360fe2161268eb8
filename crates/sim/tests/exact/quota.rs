//! A process with a CPU quota (`cpu.max`) next to one without.

use std::time::Duration;

use tierscope_core::{Clock, SpaceId, Time};
use tierscope_sim::exact::{Machine, Process};
use tierscope_workloads::generate;

use crate::stage::setup;

const MS: u64 = 1_000_000;

/// Two processes that sweep memory, on a core each.
fn machine() -> (Machine, SpaceId) {
    let mut setup = setup([64, 64]);
    setup.cpus = 2;
    let mut machine = Machine::new(&setup).expect("it is possible");
    let work = || generate::from_spec("neighbour:space=8MiB,off=0s").expect("it is one");
    let mut start = |first_cpu| {
        let process = Process { populate: true, first_cpu, ..Process::new(work()) };
        machine.start(&process).expect("it fits")
    };
    let (held, _) = (start(0), start(1));
    machine.wait(Time(0));
    (machine, held)
}

/// Stores of each process until `until`, in millions.
fn stores(machine: &mut Machine, until: u64) -> [f64; 2] {
    machine.wait(Time(until));
    let done = machine.account().done;
    [0, 1].map(|process| done[process].operations as f64 / 1e6)
}

// 20 of 100 ms, three times.
#[test]
fn a_process_gets_its_quota_and_others_all() {
    let (mut machine, held) = machine();
    machine.limit(held, Duration::from_millis(20), Duration::from_millis(100));
    let [held, free] = stores(&mut machine, 300 * MS);
    assert!((held / free - 0.2).abs() < 0.01, "{held} M of {free} M");
}

// It has used its 20 ms after 30 ms, and gets 50 more at once: 70 of the first 100 ms, and 50 of
// the second.
#[test]
fn a_new_quota_takes_effect_at_once() {
    let (mut machine, held) = machine();
    let period = Duration::from_millis(100);
    machine.limit(held, Duration::from_millis(20), period);
    let [early, free] = stores(&mut machine, 30 * MS);
    assert!((early / free - 20.0 / 30.0).abs() < 0.02, "{early} M of {free} M");
    machine.limit(held, Duration::from_millis(50), period);
    let [late, free] = stores(&mut machine, 200 * MS);
    assert!((late / free - 120.0 / 200.0).abs() < 0.02, "{late} M of {free} M");
}
