//! Reclaim and refaults; and every policy that reclaims pages.

use tierscope_core::drive::{Course, tier};
use tierscope_core::{
    Action, ActionId, ActionKind, Budget, Mover as _, Outcome, PlacementView, Tier,
};
use tierscope_instruments::metronome::Metronome;
use tierscope_instruments::registry::{self, Common};
use tierscope_policies::{all, make};
use tierscope_sim::density::Swap;

use super::*;

const ALL: Budget = Budget { bytes: 1 << 50 };

/// Two GiB, of which 128 MiB from 1 GiB on are accessed a million times a second.
fn swapping(swap: Swap) -> Machine {
    swapping_from(swap, Start::Cleared)
}

fn swapping_from(swap: Swap, start: Start) -> Machine {
    let config = Config { swap: Some(swap), rate: Some(1e6), start, ..config() };
    machine(config, "contiguous:space=2GiB,hot=128MiB,at=1GiB")
}

fn give_back(machine: &Machine, range: Range) {
    let order = Action { id: ActionId(0), after: None, range, kind: ActionKind::Reclaim };
    machine.mover().submit(&[order], ALL).unwrap();
}

fn outcomes(machine: &Machine) -> Vec<Outcome> {
    let mut out = Vec::new();
    machine.mover().poll(&mut out).unwrap();
    out
}

// The first half GiB, cold: 131,072 pages of 10 us and a 32nd of a shootdown each: 1.4 s; a third
// of them stays in memory, compressed by zswap.
#[test]
fn reclaimed_pages_leave_memory_and_are_not_present() {
    let mut machine = swapping(Swap::Zswap);
    let whole = area(&mut machine);
    let cold = Range { end: whole.start + GIB / 2, ..whole };
    let before = machine.placement().unwrap().tiers()[0].used;
    give_back(&machine, cold);
    pass(&mut machine, SECOND / 2);
    let some = machine.swap_use().out;
    assert!(some > GIB / 8 && some < GIB / 3, "{some}");
    pass(&mut machine, 3 * SECOND);
    assert_eq!(
        outcomes(&machine).iter().map(|o| (o.done, o.failed)).collect::<Vec<_>>(),
        [(GIB / 2, 0)]
    );
    let used = machine.swap_use();
    assert_eq!((used.out, used.resident, used.refaulted), (GIB / 2, 3 * GIB / 2, 0));
    assert_eq!(used.pool, (GIB / 2 / 4096).div_ceil(3) * 4096);
    let after = machine.placement().unwrap().tiers()[0].used;
    assert_eq!(before - after, used.out - used.pool);
    assert_eq!(machine.resident(&cold, Tier(0)), 0);
    let mut set = AccessedSet::default();
    let mode = ScanMode { present: true, ..Default::default() };
    let stats = machine.scan(&whole, Level::PTE, mode, &mut set).unwrap();
    assert_eq!(stats.present << 12, used.resident);
    assert_eq!(set.present.iter().map(|w| u64::from(w.count_ones())).sum::<u64>(), stats.present);
    assert_eq!(machine.moved().reclaimed, GIB / 2);
}

// Four reclaim four times as much in a time, and take four CPUs for it.
#[test]
fn reclaimers_share_the_work() {
    let reclaimed = |reclaimers: u32| {
        let config = Config { swap: Some(Swap::Zswap), rate: Some(1e6), reclaimers, ..config() };
        let mut machine = machine(config, "contiguous:space=2GiB,hot=128MiB,at=1GiB");
        let whole = area(&mut machine);
        give_back(&machine, Range { end: whole.start + GIB, ..whole });
        pass(&mut machine, SECOND / 4);
        (machine.swap_use().out as f64, machine.account().spent.mover.as_secs_f64())
    };
    let (one, four) = (reclaimed(1), reclaimed(4));
    let times = [four.0 / one.0, four.1 / one.1];
    assert!(times.iter().all(|times| (times - 4.0).abs() < 0.1), "{times:?}");
}

// Each of 32,768 hot pages, accessed 10^6 times a second together, refaults within a fraction of a
// second, once.
#[test]
fn refaulted_pages_return_and_cost_their_thread_time() {
    for swap in [Swap::Zswap, Swap::Device] {
        let mut machine = swapping(swap);
        let hot = machine.hot_at(Time(0)).as_slice()[0];
        pass(&mut machine, SECOND);
        give_back(&machine, hot);
        pass(&mut machine, 4 * SECOND);
        let used = machine.swap_use();
        assert!(used.out < MIB, "{swap:?}: {used:?}");
        assert!(used.refaulted >= 128 * MIB - used.out, "{swap:?}: {used:?}");
        // Pages that refaulted during the reclaim are not reclaimed again.
        assert_eq!(used.refaulted + used.out, machine.moved().reclaimed, "{swap:?}");
        assert_eq!(machine.account().counts.swap_ins << 12, used.refaulted);
    }
}

fn run(line: &str, seconds: u64) -> Machine {
    run_from(line, seconds, Start::Cleared)
}

fn run_from(line: &str, seconds: u64, start: Start) -> Machine {
    let mut machine = swapping_from(Swap::Zswap, start);
    let mut policy = make(line).unwrap();
    let name = line.split(':').next().unwrap();
    let needs = all().iter().find(|entry| entry.name == name).unwrap().needs;
    let mut mover = machine.mover();
    let course = Course::until(Time(seconds * SECOND));
    let mut clock: Box<dyn tierscope_core::Instrument> =
        match needs.contains(&tierscope_policies::registry::Need::Regions) {
            true => registry::make("rates", None, &Common::default()).unwrap(),
            false => Box::new(Metronome::new(Duration::from_millis(200))),
        };
    tier(&mut machine, &mut *clock, &mut *policy, &mut mover, ALL, &course, &mut ()).unwrap();
    machine
}

#[test]
fn every_policy_reclaims_cold_pages_and_keeps_hot_ones() {
    let lines = ["mglru", "mglru-linear", "mglru-telescope", "cold-regions:cold=2s"];
    for entry in all().iter().filter(|entry| entry.reclaims) {
        let line = lines.iter().find(|line| line.split(':').next() == Some(entry.name));
        let line = line.unwrap_or_else(|| panic!("{} is not tested here", entry.name));
        let mut machine = run(line, 40);
        let hot = machine.hot_at(Time(0)).as_slice()[0];
        let used = machine.swap_use();
        let there = machine.resident(&hot, Tier(0)) as f64 / hot.bytes() as f64;
        println!("{line}: {used:?}, {there:.4} of the hot set, {:?}", machine.account().spent);
        assert!(there > 0.99, "{line}: {there}");
        assert!(used.resident < GIB / 2, "{line}: {used:?}");
        assert!(used.refaulted < hot.bytes() / 100, "{line}: {used:?}");
        let whole = area(&mut machine);
        assert_eq!(machine.resident(&whole, Tier(0)), used.resident, "{line}");
        assert_eq!(run(line, 8).swap_use(), run(line, 8).swap_use(), "{line}: the same seed");
    }
}

// The hot part is a sixteenth: a walk from the top costs a fraction of a walk over all of it.
// Memory was populated, so MGLRU's filter knows the dense parts from its first walk.
#[test]
fn a_scan_from_upper_levels_costs_less() {
    let spent = |line: &str| {
        let line = format!("{line}:share=0");
        run_from(&line, 30, Start::Young).account().spent.telemetry
    };
    let [linear, kernels, above] = ["mglru-linear", "mglru", "mglru-telescope"].map(spent);
    println!("linear {linear:?}, mglru {kernels:?}, telescope {above:?}");
    assert!(above * 2 < linear && above <= kernels, "{linear:?} {kernels:?} {above:?}");
}
