//! Captures of a bus monitor, from simulated events to misses by page.

#[path = "../../../../fuzz/verdict.rs"]
mod verdict;

mod corpus;
mod damage;
mod saved;
mod stage;
mod walks;

use proptest::prelude::*;
use tierscope_core::Level;
use tierscope_tlb::ptat::{Block, Misses, Page, SHARE, Sink, Stage, What};

use stage::{Monitor, REGION, change, open, parse, random, touch_data};

fn page(misses: &Misses, pid: u32, number: u64) -> (u64, u64) {
    let misses = misses.pages[&Page { pid, level: Level::PTE, number }];
    (misses.exact, misses.shared)
}

//   entry    8      9        one block of eight entries
//   maps     40     –        three walks: exactly those of page 40
//   maps     40     41       four walks: two for each, as a mean
//   maps     –      41       one walk: exactly that of page 41
#[test]
fn misses_go_to_the_pages_of_their_block() {
    let mut monitor = Monitor::new(2, 6, 13);
    monitor.process(7, Stage::Announced);
    let walk = |monitor: &mut Monitor, times: u64| {
        (0..times).for_each(|_| {
            monitor.ticks += 1;
            monitor.request(REGION.start + 64, false);
        });
    };
    // The walk that faults, and a read by the kernel: neither is a miss.
    walk(&mut monitor, 2);
    monitor.tell(&[change(What::Map, 7, 8, 40, 2)]);
    monitor.request(REGION.start + 64, true);
    walk(&mut monitor, 3);
    walk(&mut monitor, 1);
    monitor.tell(&[change(What::Map, 7, 9, 41, 1)]);
    walk(&mut monitor, 4);
    walk(&mut monitor, 1);
    monitor.tell(&[change(What::Unmap, 7, 8, 40, 1)]);
    walk(&mut monitor, 1);
    let (misses, damage) = parse(&monitor.finish());
    assert_eq!(damage.count, 0, "{:?}", damage.first);
    assert_eq!(page(&misses, 7, 40), (3, 2 * SHARE));
    assert_eq!(page(&misses, 7, 41), (1, 2 * SHARE));
    assert_eq!((misses.total(), misses.announced, misses.writes), (8, 4, 1));
    assert!(misses.is_exact());
}

// A block of a level-2 table: one entry maps 2 MiB, another points to a table. Reads of the two are
// indistinguishable.
#[test]
fn tables_among_huge_pages_are_reported() {
    let mut monitor = Monitor::new(1, 5, 14);
    let huge = |what| {
        let change = change(what, 1, 4, 3 << 9, 0);
        tierscope_tlb::ptat::Change { level: Level::PMD, ..change }
    };
    monitor.tell(&[huge(What::Map)]);
    monitor.request(REGION.start + 32, false);
    monitor.tell(&[change(What::Table, 1, 5, 4 << 9, 0)]);
    monitor.request(REGION.start + 32, false);
    monitor.tell(&[huge(What::Unmap)]);
    monitor.request(REGION.start + 32, false);
    let (misses, damage) = parse(&monitor.finish());
    assert_eq!(damage.count, 0);
    let of = misses.pages[&Page { pid: 1, level: Level::PMD, number: 3 << 9 }];
    assert_eq!((of.exact, of.mixed, misses.upper), (1, SHARE, 1));
    assert!(!misses.is_exact(), "one of them may have been a step of a walk");
}

// A page whose table lies outside of the region: its misses are invisible, and it is counted.
#[test]
fn entries_outside_of_the_region_are_counted() {
    let mut monitor = Monitor::new(1, 6, 13);
    let mut outside = change(What::Map, 1, 0, 5, 0);
    outside.entry = 1 << 20;
    monitor.tell(&[outside]);
    monitor.request(1 << 20, false);
    let (misses, _) = parse(&monitor.finish());
    assert_eq!((misses.outside, misses.total(), misses.boards[0].reads), (1, 0, 2));
}

/// Counts the misses that it receives.
#[derive(Default)]
struct Ears(u64);

impl Sink for Ears {
    fn miss(&mut self, _: u64, block: &Block) {
        assert!(block.pages().count() > 0);
        self.0 += 1;
    }
}

// A page of a watched structure lies in page 200 of the region: reads and writes there are the
// program's until it leaves, and no misses; earlier ones do not count.
#[test]
fn accesses_to_chosen_data_are_counted_by_page() {
    let mut monitor = Monitor::new(2, 6, 13);
    let data = |what, pid, page| {
        let change = change(what, pid, 9, page, 0);
        tierscope_tlb::ptat::Change { frame: 200, ..change }
    };
    let map = |what, pid, page| change(what, pid, 9, page, 0);
    (0..64).for_each(|at| touch_data(&mut monitor, 200, at));
    monitor.tell(&[map(What::Map, 3, 0x777), data(What::Place, 3, 0x777)]);
    (0..30).for_each(|at| touch_data(&mut monitor, 200, at));
    monitor.tell(&[map(What::Unmap, 3, 0x777), data(What::Leave, 3, 0x777)]);
    touch_data(&mut monitor, 200, 1);
    monitor.tell(&[map(What::Map, 4, 0x888), data(What::Place, 4, 0x888)]);
    (0..3).for_each(|at| touch_data(&mut monitor, 200, at));
    let (misses, damage) = parse(&monitor.finish());
    assert_eq!((misses.total(), damage.count, misses.conflicts), (0, 0, 0));
    let found: Vec<_> = misses
        .watched
        .iter()
        .map(|(page, of)| (page.pid, page.number, of.reads, of.writes))
        .collect();
    assert_eq!(found, [(3, 0x777, 20, 10), (4, 0x888, 2, 1)]);
    // Before the first page was placed: 22 writes of 64 requests. Between the two pages: a read.
    assert_eq!((misses.writes, misses.idle), (22, 42 + 1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn parsing_matches_a_naive_observer(
        seed: u64, boards in 1u8..=4, fine: bool, long: bool, steps in 1u64..3000,
    ) {
        let (grain, entries) = if fine { (5, 4) } else { (6, 8) };
        let mut monitor = Monitor::new(boards, grain, if long { 14 } else { 13 });
        let naive = random(&mut monitor, seed, steps, entries);
        let bytes = monitor.finish();
        let mut capture = open(&bytes).unwrap();
        let mut ears = Ears::default();
        while capture.step(&mut ears) {}
        let (misses, damage) = capture.finish();
        prop_assert!(damage.count == 0, "{:?}", damage.first);
        prop_assert_eq!(misses.blocks(), naive.blocks);
        prop_assert_eq!((misses.writes, misses.announced), (naive.writes, naive.announced));
        prop_assert_eq!(misses.idle, naive.idle);
        prop_assert!(misses.is_exact());
        // Includes announced reads that occurred while other pages of the block were mapped.
        prop_assert!((misses.total()..=misses.total() + misses.announced).contains(&ears.0));
    }
}
