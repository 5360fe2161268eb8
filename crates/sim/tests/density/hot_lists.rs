//! Hot lists of the density machine: the unit sees the requests that cross the bus.

use tierscope_chmu::{Allocation, Capabilities, Monitors};
use tierscope_core::{Clock, HotProgram, HotUnit, Reporting, RequestKind};

use super::*;

/// A machine with a monitoring unit in front of each tier.
pub(crate) fn monitored(config: Config, spec: &str, capabilities: &Capabilities) -> Machine {
    let machine = machine(config, spec);
    let unit = Monitors::new(capabilities, &machine.physical()).unwrap();
    machine.with_monitors(Box::new(unit)).unwrap()
}

fn program() -> HotProgram {
    HotProgram {
        unit_shift: 21,
        reporting: Reporting::Epoch(Duration::from_millis(100)),
        threshold: 1,
        downsampling: 0,
        requests: RequestKind::All,
        interrupts: false,
    }
}

/// Enables the unit, and reads its list at these times, in ms.
fn listed(machine: &mut Machine, program: &HotProgram, at: &[u64]) -> Vec<HotUnit> {
    let mut units = Vec::new();
    machine.hot_lists().unwrap().enable(program).unwrap();
    for millis in at {
        machine.wait(Time(millis * 1_000_000));
        machine.hot_lists().unwrap().drain(usize::MAX, &mut units).unwrap();
    }
    units
}

// 64 MiB hot of 256, half of the accesses stores: the counts of ten epochs are the lines read and
// written, within 1 %; all units are of the hot range, and two reads a second are as good as ten.
#[test]
fn a_unit_counts_the_requests_on_the_bus() {
    let spec = "contiguous:space=256MiB,hot=64MiB,at=64MiB,writes=0.5";
    let mut machine = monitored(config(), spec, &Capabilities::default());
    let before = machine.account();
    let all: Vec<u64> = (1..=10).map(|tenth| tenth * 100 + 1).collect();
    let units = listed(&mut machine, &program(), &all);
    let after = machine.account();
    let crossed = after.lines_read[0] + after.lines_written[0]
        - before.lines_read[0]
        - before.lines_written[0];
    let counted: u64 = units.iter().map(|unit| unit.count).sum();
    println!("counted {counted}, crossed {crossed}");
    assert!((counted as f64 / crossed as f64 - 1.0).abs() < 0.01, "{counted} {crossed}");
    let first = machine.physical()[0].0;
    assert!(units.iter().all(|unit| (32..64).contains(&((unit.address - first) >> 21))));
    let mut twice = monitored(config(), spec, &Capabilities::default());
    let seldom = listed(&mut twice, &program(), &[501, 1001]);
    let sum: u64 = seldom.iter().map(|unit| unit.count).sum();
    assert!((sum as f64 / counted as f64 - 1.0).abs() < 0.01, "{sum} {counted}");
}

#[test]
fn the_same_seed_gives_the_same_lists() {
    let once = |seed| {
        let spec = "contiguous:space=1GiB,hot=64MiB,at=64MiB,rate=1000000";
        let mut machine = monitored(Config { seed, ..config() }, spec, &Capabilities::default());
        listed(&mut machine, &program(), &[101, 201])
    };
    assert_eq!(once(1), once(1));
    assert_ne!(once(1), once(2));
}

// 512 MiB are hot, 256 units, and 10 % of the accesses go anywhere in 64 GiB. Of 64 counters, space
// saving keeps those of hot units; by first touch the background takes its share of them.
#[test]
fn space_saving_holds_out_against_background() {
    let hot_counters = |allocation| {
        let capabilities = Capabilities { counters: 64, allocation, ..Capabilities::default() };
        let spec = "contiguous:space=64GiB,hot=512MiB,at=0,share=0.5,rate=1000000";
        let mut config = roomy(1);
        config.hardware.llc = None;
        let mut machine = monitored(config, spec, &capabilities);
        let units = listed(&mut machine, &program(), &[101, 201, 301, 401]);
        let first = machine.physical()[0].0;
        let hot = units.iter().filter(|unit| (unit.address - first) >> 21 < 256).count();
        (hot as f64 / units.len() as f64, units.len())
    };
    let (touched, _) = hot_counters(Allocation::FirstTouch);
    let (saved, all) = hot_counters(Allocation::SpaceSaving);
    println!("first touch {touched}, space saving {saved}");
    assert!(all == 4 * 64 && saved > touched, "{saved} {touched}");
}
