//! Requirements on the ACCESSED bits of every machine.

use tierscope_core::{AccessedSet, Addr, LeafKind, Level, Ports, Probe, Range, ScanMode, State};

/// A machine on which a test can cause an access. No other accesses may happen during the suite.
pub trait Touchable: Ports {
    /// Accesses `addr` once, in a way that no cached translation can hide.
    fn touch(&mut self, addr: Addr);
}

impl Touchable for crate::toy::Toy {
    fn touch(&mut self, addr: Addr) {
        crate::toy::Toy::touch(self, addr);
    }
}

/// Runs the whole suite. `area` is mapped and present with 4 KiB pages, aligned to 2 MiB, at least
/// 4 MiB long, and accessed by the suite only.
///
/// # Panics
/// If a requirement is violated; the message names it.
pub fn conforms(machine: &mut dyn Touchable, area: Range) {
    assert!(area.start.is_multiple_of(2 << 20) && area.bytes() >= 4 << 20, "area: {area}");
    clearing_makes_old_until_the_next_touch(machine, area);
    every_proven_level_sees_a_touch(machine, area);
    testing_changes_nothing(machine, area);
    a_batch_is_judged_in_order(machine, area);
    scans_equal_probes(machine, area);
    pruned_scans_miss_nothing(machine, area);
}

/// Two mappings beneath one level-2 entry, each with an accessed page: a pruned clearing scan must
/// judge the entry once and report both pages. A second look at the entry would find it old, and
/// miss the second page.
///
/// # Panics
/// If a requirement is violated; the message names it.
pub fn a_shared_upper_entry_is_judged_once(machine: &mut dyn Touchable, pages: [Addr; 2]) {
    let entry = Level::PMD.entry_of(pages[0]);
    assert!(entry.contains(pages[1]), "both pages lie beneath one entry");
    clear_all(machine, entry);
    pages.iter().for_each(|page| machine.touch(*page));
    let mode = ScanMode { clear: true, prune: true, present: false };
    let seen = scan(machine, entry, Level::PTE, mode);
    for page in pages {
        let index = (page.at - entry.start) / 4096;
        assert!(seen.is_young(index), "page {index} of a shared entry");
    }
    assert_eq!(seen.young_count(), 2, "and no other");
}

fn judge(machine: &mut dyn Touchable, mut probe: Probe) -> Probe {
    let access = machine.access_bits().expect("the suite needs access bits");
    access.probe(std::slice::from_mut(&mut probe)).expect("a probe succeeds");
    probe
}

fn clear_all(machine: &mut dyn Touchable, area: Range) {
    for level in proven(machine) {
        scan(machine, area, level, ScanMode { clear: true, ..Default::default() });
    }
}

fn proven(machine: &mut dyn Touchable) -> Vec<Level> {
    machine.access_bits().expect("access bits").radix().proven.highest_first().collect()
}

fn scan(machine: &mut dyn Touchable, area: Range, level: Level, mode: ScanMode) -> AccessedSet {
    let mut set = AccessedSet::default();
    let access = machine.access_bits().expect("the suite needs access bits");
    let stats = access.scan(&area, level, mode, &mut set).expect("a scan succeeds");
    assert_eq!(stats.young, set.young_count(), "a scan counts what it reports");
    set
}

fn clearing_makes_old_until_the_next_touch(machine: &mut dyn Touchable, area: Range) {
    let at = area.at(5 * 4096);
    machine.touch(at);
    assert!(judge(machine, Probe::test_and_clear(at, Level::PTE)).is_young(), "after a touch");
    let probe = judge(machine, Probe::test(at, Level::PTE));
    assert_eq!(probe.answer.state, State::Old, "after a clear");
    assert_eq!((probe.answer.reached, probe.answer.kind), (Some(Level::PTE), LeafKind::Page));
    machine.touch(at);
    assert!(judge(machine, Probe::test(at, Level::PTE)).is_young(), "after another touch");
}

fn every_proven_level_sees_a_touch(machine: &mut dyn Touchable, area: Range) {
    let at = area.at((2 << 20) + 4096);
    for level in proven(machine) {
        judge(machine, Probe::test_and_clear(at, level));
        machine.touch(at);
        let probe = judge(machine, Probe::test(at, level));
        assert!(probe.is_young(), "{level} after a touch");
        assert_eq!(probe.answer.reached, Some(level));
    }
}

fn testing_changes_nothing(machine: &mut dyn Touchable, area: Range) {
    let at = area.at(0);
    machine.touch(at);
    for _ in 0..3 {
        assert!(judge(machine, Probe::test(at, Level::PTE)).is_young());
    }
}

fn a_batch_is_judged_in_order(machine: &mut dyn Touchable, area: Range) {
    let at = area.at(4096);
    machine.touch(at);
    let mut batch = [
        Probe::test(at, Level::PTE),
        Probe::test_and_clear(at, Level::PTE),
        Probe::test(at, Level::PTE),
    ];
    machine.access_bits().expect("access bits").probe(&mut batch).expect("a batch succeeds");
    assert_eq!(batch.map(|probe| probe.is_young()), [true, true, false]);
}

fn scans_equal_probes(machine: &mut dyn Touchable, area: Range) {
    clear_all(machine, area);
    let pages = area.bytes() / 4096;
    let touched = [0, 1, 63, 64, 511, 512, pages - 1];
    touched.iter().for_each(|page| machine.touch(area.at(page * 4096)));
    let mode = ScanMode { present: true, ..Default::default() };
    let set = scan(machine, area, Level::PTE, mode);
    for page in 0..pages {
        assert_eq!(set.is_young(page), touched.contains(&page), "page {page} in a scan");
        let present = set.present[(page / 64) as usize] >> (page % 64) & 1;
        assert_eq!(present, 1, "page {page} is present");
        let probe = judge(machine, Probe::test(area.at(page * 4096), Level::PTE));
        assert_eq!(probe.is_young(), set.is_young(page), "page {page} by a probe");
    }
}

fn pruned_scans_miss_nothing(machine: &mut dyn Touchable, area: Range) {
    clear_all(machine, area);
    let at = area.at((2 << 20) + 7 * 4096);
    machine.touch(at);
    let mode = ScanMode { clear: true, prune: true, present: false };
    let runs: Vec<Range> = scan(machine, area, Level::PTE, mode).young_runs().collect();
    assert_eq!(runs, [Range::new(area.space, at.at, at.at + 4096)], "the one page touched");
    let runs: Vec<Range> = scan(machine, area, Level::PTE, mode).young_runs().collect();
    assert_eq!(runs, [], "nothing was touched since");
}
