//! Key-value stores and their noisy neighbour, on the exact machine.

use std::time::Duration;

use tierscope_core::{Clock, Time};
use tierscope_sim::exact::{Machine, Process};
use tierscope_workloads::{generate, programs};

use crate::stage::setup;

/// Serves 2000 requests on a core; returns the time that takes, and the lines written.
fn serve(neighbour: Option<&str>) -> (f64, f64) {
    let mut setup = setup([64, 64]);
    setup.cpus = 2;
    let mut machine: Machine = Machine::new(&setup).expect("it is possible");
    let app =
        programs::from_spec("redis:keys=2000,value=1024,requests=2000").expect("it is a store");
    machine.start(&Process { repeats: false, ..Process::new(app) }).expect("it fits");
    if let Some(line) = neighbour {
        let workload = generate::from_spec(line).expect("it is a neighbour");
        let process = Process { first_cpu: 1, ..Process::new(workload) };
        assert!(process.non_temporal);
        machine.start(&process).expect("it fits");
    }
    while machine.account().done[0].operations < 2000 {
        let now = machine.now();
        machine.wait(now + Duration::from_micros(10));
        assert!(machine.now() < Time(1_000_000_000), "it never ends");
    }
    let account = machine.account();
    assert_eq!((account.done[0].unit, account.done[0].operations), ("requests", 2000));
    (machine.now().0 as f64 / 1e9, account.lines_written.iter().sum::<u64>() as f64)
}

// 1 GiB/s is 16.8 M lines a second, and all of them reach memory.
#[test]
fn stores_of_a_neighbour_bypass_the_caches() {
    let (alone, quiet) = serve(None);
    let (together, noisy) = serve(Some("neighbour:space=1MiB,bandwidth=1GiB,off=0s"));
    let lines = (noisy - quiet) / (together * 1024.0 * 1024.0 * 1024.0 / 64.0);
    assert!((lines - 1.0).abs() < 0.1, "{lines} of the lines that were to be written");
    assert!(together >= alone, "{together} s next to it, {alone} s alone");
}
