//! One consistent world, independent of the order of probes.

use proptest::prelude::*;
use tierscope_core::{AccessBits, AccessedSet, Addr, Level, Probe, Range, ScanMode};
use tierscope_sim::density::{Config, Machine};

use super::*;

fn young(machine: &mut Machine, at: Addr, level: Level) -> bool {
    let mut probe = [Probe::test(at, level)];
    machine.probe(&mut probe).unwrap();
    probe[0].is_young()
}

fn clear(machine: &mut Machine, at: Addr, level: Level) {
    machine.probe(&mut [Probe::test_and_clear(at, level)]).unwrap();
}

/// Workloads of all kinds of density on 4 GiB: from a page that is always busy to background noise.
fn specs() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "contiguous:space=4GiB,hot=256MiB,at=1GiB,rate=3000000",
        "contiguous:space=4GiB,hot=256MiB,at=1GiB,share=0.9,rate=200000",
        "needle:space=4GiB,hot=4KiB,rate=3000000",
        "scattered:space=4GiB,ranges=200,range=64KiB,rate=100000",
        "zipf:space=4GiB,item=1MiB,rate=1000000",
        "stairs:space=4GiB,hot=64MiB,steps=4,every=300ms,rate=300000",
        "drift:space=4GiB,window=16MiB,step=8MiB,every=10ms,rate=100000",
        "contiguous:space=4GiB,hot=4GiB,rate=50",
    ])
}

/// Offsets that are often in the hot part.
fn offsets() -> impl Strategy<Value = u64> {
    prop_oneof![0..4 * GIB, GIB..GIB + 300 * MIB, 2 * GIB - 8192..2 * GIB + 8192]
}

fn free() -> Config {
    // Probes that take no time: their order cannot shift the clock.
    let mut config = config();
    config.costs.access_bits.call_ns = 0;
    config.costs.access_bits.probe_ns = 0;
    config.costs.access_bits.reads = false;
    config.costs.access_bits.entry_ns = 0;
    config.costs.access_bits.clear_ns = 0;
    config.costs.shootdown.initiator_ns = 0;
    config.costs.shootdown.each_core_ns = 0;
    config
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    // Probes at one time, in two orders, with other probes between them.
    #[test]
    fn the_order_of_probes_does_not_matter(
        spec in specs(),
        asked in prop::collection::vec((offsets(), 1u8..=4), 1..40),
        waits in prop::collection::vec((0u64..50_000_000, any::<bool>()), 1..4),
    ) {
        let (mut there, mut back) = (machine(free(), spec), machine(free(), spec));
        let base = area(&mut there).start;
        let at = |offset: u64| Addr { space: SpaceId(0), at: base + offset };
        for (wait, flushes) in waits {
            pass(&mut there, wait);
            pass(&mut back, wait);
            if flushes {
                there.flush().unwrap();
            }
            let one: Vec<bool> = asked.iter().map(|(o, l)| young(&mut there, at(*o), Level::new(*l).unwrap())).collect();
            let mut other: Vec<bool> = asked.iter().rev().map(|(o, l)| young(&mut back, at(*o), Level::new(*l).unwrap())).collect();
            other.reverse();
            prop_assert_eq!(one, other);
            if flushes {
                // A flush after the probes, at the same time, does not matter either.
                back.flush().unwrap();
            }
            for (offset, level) in asked.iter().step_by(2) {
                clear(&mut there, at(*offset), Level::new(*level).unwrap());
                clear(&mut back, at(*offset), Level::new(*level).unwrap());
            }
        }
    }

    #[test]
    fn a_young_entry_stays_young_until_it_is_cleared(spec in specs(), offset in offsets(), level in 1u8..=4, waits in prop::collection::vec((0u64..20_000_000, any::<bool>()), 1..20)) {
        let mut machine = machine(config(), spec);
        let at = Addr { space: SpaceId(0), at: area(&mut machine).start + offset };
        let level = Level::new(level).unwrap();
        clear(&mut machine, at, level);
        let mut was = false;
        for (wait, flushes) in waits {
            pass(&mut machine, wait);
            if flushes {
                machine.flush().unwrap();
            }
            let is = young(&mut machine, at, level);
            prop_assert!(is || !was);
            was = is;
        }
        clear(&mut machine, at, level);
    }

    // Without paging-structure caches, but with the TLB and its flushes. Not from the beginning:
    // the filling of an empty TLB is modelled for leaves only (density/mod.rs).
    #[test]
    fn a_parent_not_cleared_after_its_child_is_young_if_the_child_is(
        spec in specs(),
        offset in offsets(),
        steps in prop::collection::vec((0u64..20_000_000, any::<bool>()), 1..20),
    ) {
        let mut machine = machine(Config { upper_entries: [0; 6], ..config() }, spec);
        pass(&mut machine, 10_000_000);
        let at = Addr { space: SpaceId(0), at: area(&mut machine).start + offset };
        for (wait, all) in steps {
            if all {
                // Parents first: none is cleared after its child.
                for level in (1..=4).rev().filter_map(Level::new) {
                    clear(&mut machine, at, level);
                }
            } else {
                clear(&mut machine, at, Level::PTE);
            }
            pass(&mut machine, wait);
            let answers: Vec<bool> = (1..=4).filter_map(Level::new).map(|level| young(&mut machine, at, level)).collect();
            prop_assert!(answers.windows(2).all(|pair| !pair[0] || pair[1]), "{:?}", answers);
        }
    }

    // A scan reports each entry as a probe does, and clears the same entries.
    #[test]
    fn scans_equal_probes(
        spec in specs(),
        offset in offsets(),
        level in 1u8..=3,
        entries in 1u64..1500,
        waits in prop::collection::vec((0u64..100_000_000, any::<bool>()), 1..4),
    ) {
        let level = Level::new(level).unwrap();
        let (mut scanned, mut probed) = (machine(free(), spec), machine(free(), spec));
        let whole = area(&mut scanned);
        let start = whole.start + offset;
        let range = Range::new(whole.space, start, (start + entries * level.entry_bytes()).min(whole.end));
        let mut set = AccessedSet::default();
        for (wait, clears) in waits {
            pass(&mut scanned, wait);
            pass(&mut probed, wait);
            let mode = ScanMode { clear: clears, ..Default::default() };
            let stats = scanned.scan(&range, level, mode, &mut set).unwrap();
            prop_assert_eq!(stats.young, set.young_count());
            prop_assert_eq!(stats.visited, set.entries());
            for index in 0..set.entries() {
                // The first entry may begin before the mapping.
                let start = set.range.start + (index << level.shift());
                let at = Addr { space: whole.space, at: start.max(whole.start) };
                prop_assert_eq!(set.is_young(index), young(&mut probed, at, level), "entry {}", index);
                if clears {
                    clear(&mut probed, at, level);
                }
            }
        }
    }

    // Entries below an old parent are not visited: a pruned scan equals a plain one where every
    // upper entry is young.
    #[test]
    fn a_pruned_scan_sees_entries_below_young_parents(spec in specs(), wait in 0u64..1_000_000_000) {
        let bare = Config { upper_entries: [0; 6], ..free() };
        let (mut plain, mut pruned) = (machine(bare.clone(), spec), machine(bare, spec));
        let whole = area(&mut plain);
        pass(&mut plain, wait);
        pass(&mut pruned, wait);
        let (mut one, mut other) = (AccessedSet::default(), AccessedSet::default());
        plain.scan(&whole, Level::PMD, ScanMode::default(), &mut one).unwrap();
        let mode = ScanMode { prune: true, clear: true, present: false };
        let stats = pruned.scan(&whole, Level::PMD, mode, &mut other).unwrap();
        prop_assert_eq!(&one.young, &other.young);
        prop_assert!(stats.visited <= 2 + 5 + 5 * 512);
        // All young entries were cleared.
        let stats = pruned.scan(&whole, Level::PMD, mode, &mut other).unwrap();
        prop_assert_eq!(stats.young, 0);
    }
}

// One page, accessed all the time, alone in every cache: its leaf is set after each flush. Without
// flushes no entry is ever set again.
#[test]
fn entries_held_by_the_tlb_are_set_after_flushes_only() {
    let spec = "needle:space=1GiB,hot=4KiB,rate=3000000";
    for (flush, sets) in [(Some(Duration::from_millis(5)), true), (None, false)] {
        let mut machine = machine(Config { flush, ..config() }, spec);
        let at = machine.hot_at(Time(0)).as_slice()[0].at(0);
        pass(&mut machine, SECOND);
        for level in (1..=4).filter_map(Level::new) {
            clear(&mut machine, at, level);
            pass(&mut machine, 6_000_000);
            assert_eq!(young(&mut machine, at, level), sets, "{level} with {flush:?}");
        }
    }
}

// The same page without a flusher: no entry is set until a requested flush, and then all are, once.
#[test]
fn entries_held_by_the_tlb_are_set_after_a_requested_flush() {
    let spec = "needle:space=1GiB,hot=4KiB,rate=3000000";
    let mut machine = machine(Config { flush: None, tick: None, ..config() }, spec);
    let at = machine.hot_at(Time(0)).as_slice()[0].at(0);
    pass(&mut machine, SECOND);
    for (asked, level) in (1..=4).filter_map(Level::new).enumerate() {
        clear(&mut machine, at, level);
        pass(&mut machine, 50_000_000);
        assert!(!young(&mut machine, at, level), "{level} before a flush");
        let before = machine.account();
        assert_eq!(machine.flush().unwrap().cpus, 1);
        pass(&mut machine, 1_000_000);
        assert!(young(&mut machine, at, level), "{level} after a flush");
        clear(&mut machine, at, level);
        pass(&mut machine, 50_000_000);
        assert!(!young(&mut machine, at, level), "{level} long after a flush");
        let after = machine.account();
        assert_eq!((before.flushes, after.flushes), (asked as u64, asked as u64 + 1));
        assert_eq!(after.counts.shootdowns, asked as u64 + 1);
    }
}

// Ten thousand flushes, and a page cleared every hundred: most flushes are dropped on the way, but
// each page is young all the same (1 - exp(-20) each). Long after the last flush the TLBs hold all
// of them again.
#[test]
fn many_flushes_are_remembered_where_they_matter() {
    let mut machine = machine(Config { flush: None, tick: None, ..free() }, HOT);
    let hot = machine.hot_at(Time(0)).as_slice()[0];
    let pages = || (0..100u64).map(|page| hot.at(page * 4096));
    for page in pages() {
        clear(&mut machine, page, Level::PTE);
        for _ in 0..100 {
            machine.flush().unwrap();
            pass(&mut machine, 10_000);
        }
    }
    assert_eq!(machine.account().flushes, 10_000);
    pass(&mut machine, 20_000_000);
    for page in pages() {
        assert!(young(&mut machine, page, Level::PTE), "{page:?}");
        clear(&mut machine, page, Level::PTE);
    }
    pass(&mut machine, 20_000_000);
    let again = pages().filter(|page| young(&mut machine, *page, Level::PTE)).count();
    assert_eq!(again, 0);
}

// 100 GiB of pages, each accessed once in nine seconds, below one level-4 entry: leaves are set,
// the top entry is always cached. Cleared together, the parent stays old above its young children.
#[test]
fn a_cached_parent_stays_old_above_young_children() {
    let mut machine = machine(
        Config { flush: None, tick: None, ..config() },
        "contiguous:space=100GiB,hot=100GiB,rate=3000000",
    );
    let whole = area(&mut machine);
    pass(&mut machine, SECOND);
    clear(&mut machine, whole.at(0), Level::P4D);
    let mut set = AccessedSet::default();
    let clears = ScanMode { clear: true, ..Default::default() };
    let leaves = Range::new(whole.space, whole.start, whole.start + GIB);
    machine.scan(&leaves, Level::PTE, clears, &mut set).unwrap();
    pass(&mut machine, SECOND);
    let stats = machine.scan(&leaves, Level::PTE, ScanMode::default(), &mut set).unwrap();
    assert!(stats.young > 20_000, "{stats:?}");
    assert!(!young(&mut machine, whole.at(0), Level::P4D));
}

// 2048 values of 2 MiB, a million lines a second: 0.0149 visits to each. In 30 s 36.1 % of them are
// visited (1 - exp(-0.447)), sigma is 1.06 %; each is visited as a whole.
#[test]
fn whole_values_are_read() {
    let bare =
        Config { tlb_pages: [0; 2], upper_entries: [0; 6], flush: None, tick: None, ..free() };
    let config = Config { visit: Some(2 * MIB), ..bare };
    let mut machine = machine(config, "contiguous:space=4GiB,hot=4GiB,share=1.0,rate=1000000");
    let base = area(&mut machine).start;
    let at = |offset: u64| Addr { space: SpaceId(0), at: base + offset };
    let entries = |value: u64| {
        let start = value * 2 * MIB;
        [(start, Level::PTE), (start + 2 * MIB - 4096, Level::PTE), (start, Level::PMD)]
    };
    // Every entry is old at first.
    pass(&mut machine, 30 * SECOND);
    let mut visited = Vec::new();
    for value in 0..2048 {
        let states = entries(value).map(|(offset, level)| young(&mut machine, at(offset), level));
        assert!(states == [true; 3] || states == [false; 3], "{value}: {states:?}");
        visited.push(states[0]);
    }
    let share = visited.iter().filter(|visited| **visited).count() as f64 / 2048.0;
    assert!((share - 0.361).abs() < 0.043, "{share}");
    // A scan, which visits accesses instead of entries, gives the same result.
    let range = Range::new(SpaceId(0), base, base + 128 * MIB);
    let mut set = AccessedSet::default();
    let stats = machine.scan(&range, Level::PTE, ScanMode::default(), &mut set).unwrap();
    let values = visited[..64].iter().filter(|visited| **visited).count() as u64;
    assert_eq!(stats.young, 512 * values);
}

// Clearing without a test leaves the same world as test-and-clear.
#[test]
fn clearing_does_not_depend_on_looking() {
    let (mut one, mut other) = (machine(free(), HOT), machine(free(), HOT));
    let base = area(&mut one).start;
    for page in 0..200u64 {
        let at = Addr { space: SpaceId(0), at: base + page * 4096 };
        clear(&mut one, at, Level::PTE);
        other.probe(&mut [Probe::clear(at, Level::PTE)]).unwrap();
        pass(&mut one, 100_000);
        pass(&mut other, 100_000);
        assert_eq!(young(&mut one, at, Level::PTE), young(&mut other, at, Level::PTE));
        let before = Addr { space: SpaceId(0), at: base + page / 2 * 4096 };
        assert_eq!(young(&mut one, before, Level::PTE), young(&mut other, before, Level::PTE));
    }
}

const HOT: &str = "contiguous:space=4GiB,hot=4MiB,rate=3000000";
