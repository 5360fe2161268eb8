//! Requirements on ACCESSED bits under a continuously running workload: background accesses to all
//! memory, and a hot page whose translation stays resident until a flush.

use std::time::Duration;

use tierscope_core::{AccessedSet, Addr, Level, Ports, Probe, Range, ScanMode};

/// Time to run before the first probe, and from a clear to the next look.
const WARM: Duration = Duration::from_millis(50);
const LOOK: Duration = Duration::from_millis(20);

fn pass(machine: &mut dyn Ports, time: Duration) {
    let until = machine.now() + time;
    while machine.now() < until {
        machine.wait(until);
    }
}

fn clear(machine: &mut dyn Ports, page: Addr, levels: &[Level]) {
    let mut probes: Vec<Probe> = levels.iter().map(|level| Probe::clear(page, *level)).collect();
    machine.access_bits().expect("access bits").probe(&mut probes).expect("a probe succeeds");
}

fn young(machine: &mut dyn Ports, page: Addr, levels: &[Level]) -> Vec<bool> {
    let mut probes: Vec<Probe> = levels.iter().map(|level| Probe::test(page, *level)).collect();
    machine.access_bits().expect("access bits").probe(&mut probes).expect("a probe succeeds");
    probes.iter().map(Probe::is_young).collect()
}

/// A page that is accessed thousands of times a second, by itself. On a machine that models
/// translation caches (`hides`) its entry stays old once it was cleared; a flush alone sets no bits
/// of pages without accesses (`idle`, a mapped page), and the first access after the flush sets the
/// entries of all proven levels. On any other machine every look finds them young.
///
/// # Panics
/// If a requirement is violated; the message names it.
pub fn a_flush_uncovers_a_resident_page(
    machine: &mut dyn Ports,
    hot: Addr,
    idle: Addr,
    hides: bool,
) {
    let levels: Vec<Level> = {
        let access = machine.access_bits().expect("access bits");
        access.radix().proven.highest_first().collect()
    };
    let leaf = [Level::PTE];
    pass(machine, WARM);
    clear(machine, idle, &leaf);
    for round in 0..3 {
        clear(machine, hot, &levels);
        pass(machine, LOOK);
        let found = young(machine, hot, &leaf);
        assert_eq!(found, [!hides], "round {round}: the leaf of a hot page before a flush");
        clear(machine, hot, &levels);
        let flushed = machine.access_bits().expect("access bits").flush().expect("it can flush");
        assert!(flushed.cpus >= 1, "round {round}: a CPU runs the target: {flushed:?}");
        pass(machine, LOOK);
        let found = young(machine, hot, &levels);
        assert!(found.iter().all(|young| *young), "round {round}: after a flush: {found:?}");
        assert_eq!(
            young(machine, idle, &leaf),
            [false],
            "round {round}: the idle page was not accessed"
        );
    }
}

/// Random accesses to all of `cold` at `rate` per second and page: after time t the share of young
/// leaves is `1 - exp(-rate t)`. The measured shares are printed; the tolerance is four sigma plus
/// 0.01, the latter for translations of pages that were accessed right before the clear and stay in
/// TLBs.
///
/// # Panics
/// If a requirement is violated; the message names it.
pub fn background_sets_leaves_at_its_rate(machine: &mut dyn Ports, cold: Range, rate: f64) {
    pass(machine, WARM);
    let mut set = AccessedSet::default();
    for milliseconds in [5, 20, 80] {
        let mut scan = |machine: &mut dyn Ports, level: Level, clear: bool| {
            let mode = ScanMode { clear, ..ScanMode::default() };
            let access = machine.access_bits().expect("access bits");
            access.scan(&cold, level, mode, &mut set).expect("a scan succeeds");
            set.clone()
        };
        let _ = scan(machine, Level::PTE, true);
        let from = machine.now();
        pass(machine, Duration::from_millis(milliseconds));
        let time = (machine.now() - from).as_secs_f64();
        let leaves = scan(machine, Level::PTE, false);
        let pages = leaves.entries() as f64;
        let (share, expected) = (leaves.young_count() as f64 / pages, -(-rate * time).exp_m1());
        let sigma = (expected * (1.0 - expected) / pages).sqrt();
        println!("after {time:.4} s {share:.4} are young, of {expected:.4} +- {sigma:.4}");
        assert!(
            (share - expected).abs() < 4.0 * sigma + 0.01,
            "after {time} s: {share}, not {expected}"
        );
    }
}
