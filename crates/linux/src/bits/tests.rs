use std::sync::Arc;

use tierscope_core::{AccessBits as _, Addr, Mappings, SharedView};

use super::*;
use crate::shared_memory::tests::one_object;
use fake::Fake;

#[path = "../../tests/fake/mod.rs"]
mod fake;

const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Two processes, spaces 0 and 1, that map one object at different addresses.
struct Bench {
    fake: Fake,
    bits: Bits,
    pids: [u32; 2],
    memory: Range,
    addresses: [u64; 2],
}

impl Bench {
    fn new(bytes: u64, addresses: [u64; 2]) -> Self {
        let (fake, mappings) = (Fake::default(), one_object(bytes, &addresses));
        let mut bits = Bits::new(fake.module().unwrap());
        // SAFETY: getppid cannot fail.
        let pids = [std::process::id(), unsafe { libc::getppid() } as u32];
        for (space, pid) in (0..).zip(pids) {
            bits.attach(SpaceId(space), pid, &PidFd::open(pid).unwrap()).unwrap();
        }
        bits.share(Arc::new(Translation::of(&mappings)));
        let memory = shared_range(&mappings);
        Self { fake, bits, pids, memory, addresses }
    }

    /// A process accesses the object at an offset.
    fn touch(&self, process: usize, offset: u64) {
        let at = self.addresses[process] + offset;
        self.fake.0.borrow_mut().touch(self.pids[process], at);
    }

    fn probe(&self, level: Level, offset: u64) -> Probe {
        Probe::test_and_clear(self.memory.at(offset), level)
    }

    fn states(&mut self, mut batch: Vec<Probe>) -> Vec<State> {
        self.bits.probe(&mut batch).unwrap();
        batch.iter().map(|probe| probe.answer.state).collect()
    }

    /// Young entries of the object, by number from the first one on.
    fn scan(&mut self, range: &Range, level: Level) -> (Vec<u64>, ScanStats) {
        let mut set = AccessedSet::default();
        let mode = ScanMode { clear: true, present: true, prune: false };
        let stats = self.bits.scan(range, level, mode, &mut set).unwrap();
        ((0..set.entries()).filter(|entry| set.is_young(*entry)).collect(), stats)
    }
}

fn shared_range(mappings: &Mappings) -> Range {
    mappings.mappings.iter().find(|of| Some(of.range.space) == mappings.shared).unwrap().range
}

// Page 0 is accessed by the first process, page 1 by the second, page 2 by both.
#[test]
fn memory_is_young_if_any_process_accessed_it() {
    let mut bench = Bench::new(8 * PAGE, [GIB, 5 * GIB + 3 * PAGE]);
    for (process, page) in [(0, 0), (1, 1), (0, 2), (1, 2)] {
        bench.touch(process, page * PAGE);
    }
    let batch: Vec<Probe> = (0..4).map(|page| bench.probe(Level::PTE, page * PAGE)).collect();
    let (young, old) = (State::Young, State::Old);
    assert_eq!(bench.states(batch.clone()), [young, young, young, State::Absent]);
    assert_eq!(bench.states(batch), [old, old, old, State::Absent]);
}

// The first process has mapped the page, and the second has not: old, not absent.
#[test]
fn a_process_without_the_page_does_not_hide_it() {
    let mut bench = Bench::new(8 * PAGE, [GIB, 5 * GIB]);
    bench.touch(0, 0);
    let probe = bench.probe(Level::PTE, 0);
    bench.states(vec![probe]);
    assert_eq!(bench.states(vec![probe]), [State::Old]);
    // Behind the object's end nothing is mapped.
    let behind = Addr { at: bench.memory.end, ..bench.memory.at(0) };
    assert_eq!(bench.states(vec![Probe::test(behind, Level::PTE)]), [State::Unmapped]);
}

#[test]
fn memory_is_gone_with_its_last_user() {
    let mut bench = Bench::new(8 * PAGE, [GIB, 5 * GIB]);
    bench.touch(1, 0);
    let probe = bench.probe(Level::PTE, 0);
    bench.fake.0.borrow_mut().end(bench.pids[0]);
    assert_eq!(bench.states(vec![probe]), [State::Young]);
    assert!(bench.bits.take_gone());
    bench.fake.0.borrow_mut().end(bench.pids[1]);
    assert_eq!(bench.states(vec![probe]), [State::Gone]);
}

// The second process maps the object 1 MiB off: an entry of 2 MiB of the memory overlaps two of its
// entries, and only the accesses in one of them are seen in the second entry of the memory.
#[test]
fn both_entries_of_a_process_with_other_borders_are_asked() {
    let mut bench = Bench::new(8 * MIB, [GIB, 5 * GIB + MIB]);
    let entries = || (0..4).map(|entry| bench.probe(Level::PMD, 2 * entry * MIB));
    let batch: Vec<Probe> = entries().collect();
    bench.touch(1, 5 * MIB + MIB / 2);
    // Offset 5.5 MiB is in the process's entry from 5 to 7 MiB: in entries 2 and 3 of the memory.
    assert_eq!(bench.states(batch.clone())[2..], [State::Young, State::Young]);
    assert_eq!(bench.states(batch.clone())[2..], [State::Old, State::Old]);
    bench.touch(1, 5 * MIB + MIB / 2);
    let memory = bench.memory;
    assert_eq!(bench.scan(&memory, Level::PMD).0, [2, 3]);
    assert_eq!(bench.scan(&memory, Level::PMD).0, []);
}

// Two probes of the shared space, and one of the second process's own, are about one entry: it is
// cleared once, and all three see the access.
#[test]
fn an_entry_is_asked_once_in_a_batch() {
    let mut bench = Bench::new(8 * MIB, [GIB, 5 * GIB + MIB]);
    bench.touch(0, 0);
    bench.touch(1, 2 * MIB);
    let own = Addr { space: SpaceId(1), at: bench.addresses[1] + 2 * MIB };
    let mut batch: Vec<Probe> = (0..2).map(|n| bench.probe(Level::PMD, 2 * n * MIB)).collect();
    batch.push(Probe::test_and_clear(own, Level::PMD));
    bench.fake.0.borrow_mut().batches.clear();
    assert_eq!(bench.states(batch), [State::Young; 3]);
    // Two entries of the first process, three of the second.
    assert_eq!(bench.fake.0.borrow().batches, [2, 3]);
}

#[test]
fn a_scan_unites_the_bits_of_all_processes() {
    let mut bench = Bench::new(300 * PAGE, [GIB + 5 * PAGE, 5 * GIB + 77 * PAGE]);
    for (process, page) in [(0, 0), (0, 64), (1, 64), (1, 130), (1, 299)] {
        bench.touch(process, page * PAGE);
    }
    let memory = bench.memory;
    let (young, stats) = bench.scan(&memory, Level::PTE);
    assert_eq!(young, [0, 64, 130, 299]);
    assert_eq!((stats.young, stats.present, stats.visited), (4, 4, 600));
    let (again, stats) = bench.scan(&memory, Level::PTE);
    assert_eq!((again.len(), stats.present), (0, 4));
}

// A process's own memory around its view: the scan leaves the view's bits to the shared space.
#[test]
fn a_scan_of_a_process_leaves_out_its_views() {
    let mut bench = Bench::new(4 * PAGE, [GIB + 10 * PAGE, 5 * GIB]);
    bench.touch(0, PAGE);
    bench.touch(0, 4 * PAGE);
    let own = Range::new(SpaceId(0), GIB, GIB + 20 * PAGE);
    assert_eq!(bench.scan(&own, Level::PTE).0, [14]);
    let view = Range::new(SpaceId(0), GIB + 10 * PAGE, GIB + 14 * PAGE);
    assert_eq!(bench.scan(&view, Level::PTE).0, []);
    let memory = bench.memory;
    assert_eq!(bench.scan(&memory, Level::PTE).0, [1]);
}

// Of 8 MiB that two processes map, the module refuses the first process's view, and then both; then
// it refuses two probes of each, as if a lock were held for the moment.
#[test]
fn memory_is_hidden_if_the_module_refuses_it_in_all_processes() {
    let (addresses, whole) = ([GIB, 5 * GIB], 8 * MIB);
    let mappings = one_object(whole, &addresses);
    let mut bench = Bench::new(whole, addresses);
    let refuse = |bench: &Bench, process: usize, probes| {
        let (pid, start) = (bench.pids[process], addresses[process]);
        bench.fake.0.borrow_mut().refuse(pid, start, start + whole, probes);
    };
    bench.touch(1, 0);
    assert_eq!(bench.bits.hidden(&mappings).unwrap(), []);
    refuse(&bench, 0, u32::MAX);
    assert_eq!(bench.bits.hidden(&mappings).unwrap(), []);
    refuse(&bench, 1, u32::MAX);
    let hidden = [(bench.memory, tierscope_core::Unknown::Refused)];
    assert_eq!(bench.bits.hidden(&mappings).unwrap(), hidden);
    assert_eq!(bench.states(vec![bench.probe(Level::PMD, 0)]), [State::Refused]);
    (0..2).for_each(|process| refuse(&bench, process, 2));
    assert_eq!(bench.bits.hidden(&mappings).unwrap(), []);
}

// The second process inherited pages 0 to 3 of the first one's eight: accesses of both count in
// the first one's space, at probes and scans, and page 4 is the second process's own.
#[test]
fn inherited_memory_is_young_if_any_process_accessed_it() {
    let mut bench = Bench::new(8 * PAGE, [GIB, GIB]);
    let own = |space, pages: u64| Range::new(SpaceId(space), GIB, GIB + pages * PAGE);
    let view = SharedView { range: own(1, 4), memory: own(0, 4).at(0), name: "".into() };
    let mappings = Mappings { views: vec![view], ..Mappings::default() };
    bench.bits.share(Arc::new(Translation::of(&mappings)));
    for (process, page) in [(0, 0), (1, 1), (0, 2), (1, 2), (0, 4), (1, 4)] {
        bench.touch(process, page * PAGE);
    }
    let whole = own(0, 8);
    let probe = |space, page| Probe::test_and_clear(own(space, 8).at(page * PAGE), Level::PTE);
    let batch: Vec<Probe> = (0..4).map(|page| probe(0, page)).collect();
    let (young, old) = (State::Young, State::Old);
    assert_eq!(bench.states(batch.clone()), [young, young, young, State::Absent]);
    assert_eq!(bench.states(batch), [old, old, old, State::Absent]);
    assert_eq!(bench.states(vec![probe(0, 4), probe(0, 4)]), [young, young]);
    assert_eq!(bench.states(vec![probe(1, 4)]), [young], "a probe of one process asks no other");
    bench.touch(1, PAGE);
    bench.touch(0, 5 * PAGE);
    bench.touch(1, 5 * PAGE);
    assert_eq!(bench.scan(&whole, Level::PTE).0, [1, 5]);
    assert_eq!(bench.scan(&own(1, 8), Level::PTE).0, [5]);
    bench.fake.0.borrow_mut().end(bench.pids[1]);
    bench.touch(0, 0);
    assert_eq!(bench.states(vec![probe(0, 0)]), [young]);
}
