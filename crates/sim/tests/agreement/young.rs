//! Shares of young entries, level by level, in both orders of clearing and probing.

use tierscope_core::{AccessedSet, Addr, Level, Ports, Probe, Range, ScanMode};

use super::*;

fn clear(machine: &mut impl Ports, range: &Range, level: Level) {
    let mode = ScanMode { clear: true, ..ScanMode::default() };
    let access = machine.access_bits().unwrap();
    access.scan(range, level, mode, &mut AccessedSet::default()).unwrap();
}

/// Share of the entries of a level that are young.
fn young(machine: &mut impl Ports, range: &Range, level: Level) -> f64 {
    let mut set = AccessedSet::default();
    let access = machine.access_bits().unwrap();
    access.scan(range, level, ScanMode::default(), &mut set).unwrap();
    set.young_count() as f64 / set.entries() as f64
}

/// Clears all levels from the top down or from the leaves up, waits, and returns the shares of
/// young entries by level.
fn shares(machine: &mut impl Ports, range: &Range, nanos: u64, down: bool) -> [f64; 3] {
    let mut levels: Vec<Level> = (1..=4).filter_map(Level::new).collect();
    if down {
        levels.reverse();
    }
    levels.iter().for_each(|level| clear(machine, range, *level));
    pass(machine, nanos);
    [Level::PTE, Level::PMD, Level::PUD].map(|level| young(machine, range, level))
}

/// Mean shares over `rounds` rounds.
fn mean(machine: &mut impl Ports, range: &Range, nanos: u64, down: bool, rounds: u32) -> [f64; 3] {
    pass(machine, 50 * MILLISECOND);
    let mut sums = [0.0; 3];
    for _ in 0..rounds {
        let found = shares(machine, range, nanos, down);
        sums.iter_mut().zip(found).for_each(|(sum, share)| *sum += share / f64::from(rounds));
    }
    sums
}

/// The hot range of a case, on whole entries of level 2.
fn inside(case: &Case) -> Range {
    let hot = case.hot_at(Time(0)).as_slice()[0];
    let inner = |at: u64| at & !(Level::PMD.entry_bytes() - 1);
    Range::new(hot.space, inner(hot.start), inner(hot.end))
}

/// Prints the shares of both machines; they agree within `by`.
fn agree(name: &str, case: &Case, nanos: u64, rounds: u32, by: f64) {
    let range = inside(case);
    for down in [true, false] {
        let exact = mean(&mut case.exact(), &range, nanos, down, rounds);
        let density = mean(&mut case.density(), &range, nanos, down, rounds);
        let way = if down { "from the top" } else { "from the leaves" };
        println!("{name}, cleared {way}: exact {exact:.4?}  density {density:.4?}");
        for (level, (a, b)) in exact.iter().zip(density).enumerate() {
            let by = if level == 2 { 3.0 * by } else { by };
            assert!((a - b).abs() < by, "{name}, {way}, level {}: {a} {b}", level + 1);
        }
    }
}

// 262,144 leaves, 512 tables, one or two entries above; the number of rounds bounds the error.
// Sigma is below 0.0004 for leaves, below 0.003 for tables, and below 0.05 for the one or two
// entries above where half of them are young.
#[test]
fn entries_are_young_as_often() {
    let spec = |more: &str| format!("contiguous:space=8GiB,hot=1GiB,at=2GiB{more}");
    let case = Case::new(&spec(",rate=1000000"), [16_384, 1024]);
    agree("1 GiB, 5 ms", &case, 5 * MILLISECOND, 40, 0.03);
    agree("1 GiB, 1 ms", &case, MILLISECOND, 60, 0.03);
    let case = Case::new(&spec(",rate=100000"), [16_384, 1024]);
    agree("1 GiB seldom, 20 ms", &case, 20 * MILLISECOND, 20, 0.03);
}

// 4 MiB stay in the TLBs: no leaf is set again in either mode. 32 MiB exceed them, but their
// sixteen tables stay in the paging-structure caches.
#[test]
fn cached_entries_look_old_in_both() {
    let small = Case::new("contiguous:space=8GiB,hot=4MiB,at=2GiB,rate=1000000", [16_384, 1024]);
    agree("4 MiB in the TLBs", &small, 5 * MILLISECOND, 60, 0.05);
    let spec = "contiguous:space=8GiB,hot=32MiB,at=2GiB,rate=1000000";
    let cached = Case::new(spec, [16_384, 1024]);
    agree("32 MiB under cached tables, 1 ms", &cached, MILLISECOND, 150, 0.05);
    agree("32 MiB under cached tables, 5 ms", &cached, 5 * MILLISECOND, 60, 0.05);
}

/// Flushes translations of memory that stays in the TLBs. Returns the shares of young leaves long
/// after a clear without a flush and 5 ms after the flush; and the duration and the profiler's CPU
/// time of the flush, in nanoseconds.
fn flushed(machine: &mut impl Ports, range: &Range) -> ([f64; 2], [u64; 2]) {
    pass(machine, 50 * MILLISECOND);
    clear(machine, range, Level::PTE);
    pass(machine, 20 * MILLISECOND);
    let held = young(machine, range, Level::PTE);
    let before = (machine.now(), machine.cpu_time());
    let flushed = machine.access_bits().unwrap().flush().unwrap();
    let took = machine.now() - before.0;
    let spent = machine.cpu_time().profiler - before.1.profiler;
    pass(machine, 5 * MILLISECOND);
    let uncovered = young(machine, range, Level::PTE);
    assert_eq!(flushed.cpus, 2);
    ([held, uncovered], [took, spent].map(|time| time.as_nanos() as u64))
}

// 1024 pages of 4 MiB, a thousand accesses a second each: they stay in the TLBs of either core, so
// they are old for 20 ms, and young 5 ms after a flush (1 - exp(-5) = 0.993). The caller pays 1000
// ns for the call and 2000 + 150 ns for two cores; each of these pays 1000 ns.
#[test]
fn a_flush_uncovers_entries_held_by_tlbs_in_both() {
    let spec = "contiguous:space=8GiB,hot=4MiB,at=2GiB,rate=1000000";
    let case = Case { threads: 2, ..Case::new(spec, [16_384, 1024]) };
    let range = inside(&case);
    let exact = flushed(&mut case.exact(), &range);
    let density = flushed(&mut case.density(), &range);
    println!("held, flushed: exact {exact:.4?}  density {density:.4?}");
    for ([held, uncovered], [took, spent]) in [exact, density] {
        assert!(held < 0.02 && (uncovered - 0.993).abs() < 0.01, "{held} {uncovered}");
        assert!(took.abs_diff(3150) < 100, "{took}");
        assert!(spent.abs_diff(5150) < 100, "{spent}");
    }
}

// A flush every 5 ms uncovers pages that stay in the TLBs: 3 ms after a clear it has happened or
// not.
#[test]
fn flushes_uncover_as_much() {
    let spec = "contiguous:space=8GiB,hot=4MiB,at=2GiB,rate=1000000";
    let flush = Some(Duration::from_millis(5));
    let case = Case { flush, ..Case::new(spec, [16_384, 1024]) };
    let range = inside(&case);
    let exact = mean(&mut case.exact(), &range, 3 * MILLISECOND, true, 100);
    let density = mean(&mut case.density(), &range, 3 * MILLISECOND, true, 100);
    println!("4 MiB, flushed: exact {exact:.4?}  density {density:.4?}");
    assert!((exact[0] - density[0]).abs() < 0.05, "{exact:?} {density:?}");
    assert!(density[1] >= density[0] && density[1] <= exact[1] + 0.05, "{exact:?} {density:?}");
}

/// Probes parent and child of many addresses right after one another; returns the shares of the
/// four results: neither young, parent only, child only, both.
fn pairs(machine: &mut impl Ports, range: &Range, nanos: u64, parent_first: bool) -> [f64; 4] {
    pass(machine, 50 * MILLISECOND);
    let mut counts = [0.0; 4];
    let tables = range.bytes() / Level::PMD.entry_bytes();
    let at = |table: u64| Addr {
        space: range.space,
        at: range.start + table * Level::PMD.entry_bytes() + table % 512 * 4096,
    };
    let levels = if parent_first { [Level::PMD, Level::PTE] } else { [Level::PTE, Level::PMD] };
    let batch = |make: fn(Addr, Level) -> Probe| -> Vec<Probe> {
        (0..tables).flat_map(|table| levels.map(|level| make(at(table), level))).collect()
    };
    for _ in 0..20 {
        let access = machine.access_bits().unwrap();
        access.probe(&mut batch(Probe::test_and_clear)).unwrap();
        pass(machine, nanos);
        let mut probes = batch(Probe::test);
        machine.access_bits().unwrap().probe(&mut probes).unwrap();
        for pair in probes.chunks(2) {
            let [parent, child] = [Level::PMD, Level::PTE]
                .map(|level| pair.iter().any(|p| p.level == level && p.is_young()));
            counts[usize::from(parent) + 2 * usize::from(child)] += 1.0 / (20.0 * tables as f64);
        }
    }
    counts
}

// 512 pairs, 20 rounds: sigma of a share is 0.005 at most.
#[test]
fn parents_and_children_are_young_together_as_often() {
    let case = Case::new("contiguous:space=8GiB,hot=1GiB,at=2GiB,rate=300000", [16_384, 1024]);
    let range = inside(&case);
    for parent_first in [true, false] {
        let nanos = 2 * MILLISECOND;
        let exact = pairs(&mut case.exact(), &range, nanos, parent_first);
        let density = pairs(&mut case.density(), &range, nanos, parent_first);
        println!("neither, parent, child, both: exact {exact:.4?}  density {density:.4?}");
        for (a, b) in exact.iter().zip(density) {
            assert!((a - b).abs() < 0.03, "parent first: {parent_first}: {exact:?} {density:?}");
        }
    }
}
