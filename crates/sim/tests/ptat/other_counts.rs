//! Other counters of TLB misses compared with the monitor: traps on reserved bits, and performance
//! counters.

use tierscope_core::{Range, SpaceId};
use tierscope_hw::PageSize;
use tierscope_sim::exact::{Machine, Map, Process};
use tierscope_tlb::ptat::Boards;

use super::{MIB, exact, machine, process, run_to, setup};

/// Runs a program to its end: the machine's account, its trapped walks, and its counted walks.
fn ended(trapped: bool) -> (tierscope_sim::exact::Account, u64, u64) {
    let mut machine = Machine::new(&setup(0, 1).unwatched()).expect("it is possible");
    let work = process("gups:table=16MiB,updates=1", PageSize::K4, true);
    let process = Process { uncached_tables: false, trapped, repeats: false, ..work };
    let space = machine.start(&process).expect("it fits");
    use tierscope_core::{Clock, Time};
    while !matches!(machine.wait(Time(1 << 40)), tierscope_core::Wake::Gone) {
        assert!(machine.now() < Time(1 << 40));
    }
    let counted = machine.trapped().get(&space).copied().unwrap_or(0);
    (machine.account(), counted, machine.counted_walks(0))
}

trait Unwatched {
    fn unwatched(self) -> Self;
}

impl Unwatched for tierscope_sim::exact::Setup {
    fn unwatched(self) -> Self {
        Self { watch_tables: false, uncached_tables: 0, ..self }
    }
}

// A trap loads the translation that the walk would have loaded: TLBs miss as often as without, each
// miss costs 620 ns, and no other time changes.
#[test]
fn traps_count_every_miss_and_cost_their_time() {
    let ((plain, none, counters), (account, trapped, trapped_counters)) =
        (ended(false), ended(true));
    println!("{} walks, {trapped} trapped, counters {counters}", plain.counts.walks);
    assert_eq!(none, 0);
    assert!(trapped > 1_000_000, "{trapped}");
    assert_eq!((trapped, trapped_counters), (account.counts.walks, counters));
    assert_eq!(account.counts.walks, plain.counts.walks);
    let cost = std::time::Duration::from_nanos(620 * trapped);
    assert_eq!(account.spent.interrupts - plain.spent.interrupts, cost);
}

// The monitor attributes misses to processes; a core's counters do not: they include all processes
// that ran there, and walks that ended in page faults.
#[test]
fn counters_hold_more_than_the_misses_of_a_process() {
    let mut machine = machine(&setup(256, 1), Boards::default());
    let one = process("contiguous:space=32MiB,hot=32MiB", PageSize::K4, false);
    machine.start(&one).expect("it fits");
    let other = Process { uncached_tables: false, ..one.clone() };
    let unseen = machine.start(&other).expect("it fits");
    run_to(&mut machine, 20_000_000);
    let own: u64 =
        machine.walks().iter().filter(|((s, ..), _)| *s != unseen).map(|(_, n)| *n).sum();
    let all: u64 = machine.walks().values().sum();
    let faults: u64 = machine.account().counts.first_touches.iter().sum();
    let counted = machine.counted_walks(0);
    println!("{own} own, {all} with the other, {faults} faults, {counted} counted");
    assert!(own > 1000 && all > own && faults > 1000);
    assert_eq!(counted, all + faults);
    assert!(machine.trapped().is_empty());
}

// One object in 2 MiB pages, the others in 4 KiB pages: both kinds of entries are in the region, in
// separate tables, and all misses are seen, exactly.
#[test]
fn one_object_in_larger_pages() {
    let mut machine = machine(&setup(256, 1), Boards::default());
    let search = process("graph500:scale=17,keys=2,load=false", PageSize::K4, true);
    let area_pages = vec![("column".into(), PageSize::M2)];
    let space = machine.start(&Process { area_pages, ..search }).expect("it fits");
    assert_eq!(space, SpaceId(0));
    run_to(&mut machine, 20_000_000);
    let misses = exact(machine, Boards::default(), 500);
    let of = |bytes: u64| misses.pages.iter().filter(move |(page, _)| page.bytes() == bytes);
    let huge: u64 = of(2 * MIB).map(|(_, misses)| misses.shares()).sum();
    let small: u64 = of(4096).map(|(_, misses)| misses.shares()).sum();
    println!("{} pages of 2 MiB: {huge} of {}", of(2 * MIB).count(), huge + small);
    assert!(of(2 * MIB).count() >= 2 && huge > 0 && small > 0);
}

#[test]
fn an_unknown_area_is_refused() {
    let mut machine = machine(&setup(8, 1), Boards::default());
    let area_pages = vec![("table ".into(), PageSize::M2)];
    let wrong = Process { area_pages, ..process("gups:table=1MiB", PageSize::K4, true) };
    let error = machine.start(&wrong).expect_err("there is none").to_string();
    assert!(
        error.contains("it has no area `table `") && error.contains("choose from table"),
        "{error}"
    );
}

// Changes of permission are reported page by page, and no miss is attributed to another page
// because of them.
#[test]
fn changes_of_permission_are_reported_by_page() {
    let mut machine = machine(&setup(64, 1), Boards::default());
    let space = machine.spawn_uncached("toy", PageSize::K4).expect("there is room");
    let range = machine.map(space, &Map::anonymous(64 << 12)).expect("there is room");
    machine.populate(range).expect("there is room");
    let pages = |from: u64, to: u64| {
        Range::new(space, range.start + (from << 12), range.start + (to << 12))
    };
    machine.protect(pages(8, 24), false).expect("it is mapped");
    machine.protect(pages(16, 24), true).expect("it is mapped");
    machine.access(0, range.at(9 << 12), false).expect("it is mapped");
    let misses = exact(machine, Boards::default(), 1);
    let counted: Vec<(u64, [u64; 2])> = misses
        .permissions
        .iter()
        .map(|(page, counts)| (page.number - (range.start >> 12), *counts))
        .collect();
    let expected: Vec<(u64, [u64; 2])> =
        (8..24).map(|page| (page, [u64::from(page >= 16), 1])).collect();
    assert_eq!(counted, expected);
}

// Initialised memory is dirty: a store that misses walks once, and needs no second walk to set
// DIRTY.
#[test]
fn memory_that_was_written_takes_one_walk_an_update() {
    let walks = |written| {
        let mut machine = machine(&setup(64, 1), Boards::default());
        let updates = process("gups:table=64MiB,updates=1", PageSize::K4, true);
        machine.start(&Process { written, ..updates }).expect("it fits");
        run_to(&mut machine, 400_000);
        let done = machine.account().done[0].operations;
        (exact(machine, Boards::default(), 100).total(), done)
    };
    let ((clean, of), (dirty, done)) = (walks(false), walks(true));
    println!("{clean} misses of {of} updates, {dirty} of {done} where all was written");
    assert!(dirty <= done && clean as f64 / of as f64 > 1.2 * dirty as f64 / done as f64);
}
