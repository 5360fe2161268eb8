//! Instruments on running processes.

use std::time::Duration;

use tierscope_conformance::instrument::run;
use tierscope_core::metrics::{Accuracy, HOT_FREQUENCY, hot};
use tierscope_core::{RangeSet, Target};
use tierscope_instruments::registry::{Common, make};
use tierscope_sim::exact::{Machine, Process};
use tierscope_workloads::generate;

use crate::stage::setup;

// 12 GiB of 64 GiB take a million accesses a second. The TLBs reach 6 MiB, so nearly every access
// walks; and after each timer tick the walks pass through the upper levels again.
#[test]
fn rates_find_the_memory_of_a_process() {
    let mut workload =
        generate::from_spec("contiguous:space=64GiB,hot=12GiB,at=24GiB").expect("it makes sense");
    workload.phases[0].rate = Some(1_000_000);
    let mut machine = Machine::new(&setup([131_072, 1024])).expect("it is possible");
    let space = machine.start(&Process { populate: true, ..Process::new(workload.clone()) });
    let mapped = machine.mappings(Duration::ZERO).expect("they are known").mappings[0].range;
    let segment = workload.segment_at(Duration::ZERO);
    let truth: RangeSet = workload.hot_at(&segment, &[mapped.start], space.expect("it fits"));
    let mut rates = make("rates", None, &Common::default()).expect("it is listed");
    let (_, kept) = run(&mut machine, &mut *rates, 3.0);
    let last = kept.snapshots.last().expect("three seconds give windows");
    let accuracy = Accuracy::of(&hot(last, HOT_FREQUENCY), &truth);
    assert!(accuracy.precision() >= Some(0.9), "{accuracy:?}");
    assert!(accuracy.recall() >= Some(0.9), "{accuracy:?}");
    let spent = machine.account().spent;
    let share = spent.telemetry.as_secs_f64() / 3.0;
    assert!(share > 0.0 && share < 0.1, "{share} of a CPU");
}
