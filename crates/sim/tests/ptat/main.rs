//! TLB misses seen by a monitor on the memory bus, compared with the simulated machine's own count:
//! equal for every block of entries, for every program and during changes of mappings.

mod other_counts;

use std::collections::BTreeMap;

use tierscope_core::{Clock, Level, Range, Tier, Time};
use tierscope_hw::{Machine as Hardware, PageSize};
use tierscope_sim::config::Costs;
use tierscope_sim::exact::{Machine, Map, Process, Setup};
use tierscope_tlb::ptat::{BoardReader, Boards, Capture, DumpHeader, DumpReader, Misses, Monitor};
use tierscope_workloads::masim::{self, Mode};
use tierscope_workloads::work;

const MIB: u64 = 1 << 20;

type Watched = Machine<Monitor<Vec<u8>>>;

/// The paper's processor with two small tiers, and room for `tables` uncached tables.
fn setup(tables: u32, cpus: u32) -> Setup {
    let mut hardware = Hardware::ready_made("xeon-e5-2620v2").expect("it is there");
    hardware.tiers.truncate(1);
    hardware.tiers[0].mib = 512;
    let mut slow = hardware.tiers[0].clone();
    slow.name = "slow".into();
    hardware.tiers.push(slow);
    let costs = Costs::ready_made("linux").expect("they are there");
    Setup { uncached_tables: tables, watch_tables: true, cpus, ..Setup::new(hardware, costs) }
}

fn machine(setup: &Setup, boards: Boards) -> Watched {
    let (region, tags) = setup.watched();
    let header = DumpHeader { record: 13, region, tags };
    let open = |board: Option<u8>| Ok((format!("{board:?}"), Vec::new()));
    let monitor = Monitor::new(boards, header, open).expect("memory");
    Machine::observed(setup, monitor).expect("it is possible")
}

fn run_to(machine: &mut Watched, nanos: u64) {
    while machine.now() < Time(nanos) {
        machine.wait(Time(nanos));
    }
}

/// Ends the machine; returns the parser's result, and the machine's own count by block.
fn end(mut machine: Watched, boards: Boards) -> (Misses, BTreeMap<(u32, Level, u64), u64>) {
    let mut events = Vec::new();
    let lost = machine.kernel_events(&mut events);
    let entries = (1u64 << boards.grain) / 8;
    let mut own = BTreeMap::new();
    for ((space, level, page), walks) in machine.walks() {
        let block = (page >> (9 * (level.number() - 1))) / entries;
        *own.entry((space.0 + 1, level, block)).or_default() += walks;
    }
    let mut monitor = machine.into_observer();
    monitor.record(&events, lost.0).expect("memory");
    let (streams, dump) = monitor.finish().expect("memory");
    let streams = streams.iter().map(|bytes| BoardReader::new("board", &bytes[..]).expect("ours"));
    let dump = DumpReader::new("dump", &dump[..]).expect("ours");
    let mut capture = Capture::of(streams.collect(), dump).expect("one machine");
    while capture.step(&mut ()) {}
    let (misses, damage) = capture.finish();
    assert_eq!(damage.count, 0, "{:?}", damage.first);
    (misses, own)
}

/// Asserts that both counts are equal, with at least `at_least` misses.
fn exact(machine: Watched, boards: Boards, at_least: u64) -> Misses {
    let (misses, own) = end(machine, boards);
    let total: u64 = own.values().sum();
    println!("{total} misses in {} blocks, {} announced", own.len(), misses.announced);
    assert!(misses.is_exact(), "{:?} tags {:?}", misses.boards, misses.tags);
    assert!(total >= at_least, "{total}");
    assert!(misses.blocks() == own, "{:?}", difference(&misses.blocks(), &own));
    assert_eq!(misses.total(), total);
    misses
}

type Blocks = BTreeMap<(u32, Level, u64), u64>;

fn difference(found: &Blocks, own: &Blocks) -> Vec<((u32, Level, u64), u64, u64)> {
    let keys = found.keys().chain(own.keys());
    let value = |blocks: &Blocks, key| blocks.get(key).copied().unwrap_or(0);
    let both = keys.map(|key| (*key, value(found, key), value(own, key)));
    both.filter(|(_, found, own)| found != own).take(8).collect()
}

fn process(line: &str, pages: PageSize, populate: bool) -> Process {
    let work = work::load(line, Mode::Correct).expect("it makes sense");
    Process { pages, populate, uncached_tables: true, ..Process::new(work) }
}

// Section 5.2: each page of a region once, in order. The monitor sees one read an entry in the
// region, one after another.
#[test]
fn a_walk_a_page_in_order() {
    for (pages, count) in [(PageSize::K4, 4096), (PageSize::M2, 128)] {
        let mut machine = machine(&setup(64, 1), Boards::default());
        let map = Map { pages, ..Map::anonymous(count * pages.bytes()) };
        let space = machine.spawn_uncached("toy", pages).expect("there is room");
        let range = machine.map(space, &map).expect("there is room");
        machine.populate(range).expect("there is room");
        for page in 0..count {
            machine.access(0, range.at(page * pages.bytes()), false).expect("it is mapped");
        }
        let misses = exact(machine, Boards::default(), count);
        let own = misses
            .pages
            .iter()
            .filter(|(page, _)| (range.start..range.end).contains(&page.start()));
        let each: Vec<u64> = own.map(|(_, misses)| misses.shares()).collect();
        assert_eq!(each, vec![840; count as usize], "one miss a page");
    }
}

#[test]
fn programs_and_descriptions_of_both_page_sizes() {
    let lines = [
        "contiguous:space=64MiB,hot=64MiB",
        "contiguous:space=64MiB,hot=8MiB,share=0.9,writes=0.3",
        "gups:table=64MiB",
        "bfs:scale=14",
    ];
    for line in lines {
        for (pages, populate) in
            [(PageSize::K4, true), (PageSize::K4, false), (PageSize::M2, false)]
        {
            for grain in [5, 6] {
                let boards = Boards { grain, count: 1 + grain % 2, ..Boards::default() };
                let mut machine = machine(&setup(256, 1), boards);
                machine.start(&process(line, pages, populate)).expect("it fits");
                run_to(&mut machine, 2_000_000);
                println!("{line}, {pages:?}, populated {populate}, 2^{grain}:");
                exact(machine, boards, 0);
            }
        }
    }
}

// Two threads of one process on two cores, a second process with large pages, and a third that is
// not watched.
#[test]
fn several_processes_and_threads() {
    let mut machine = machine(&setup(256, 4), Boards::default());
    let two = process("contiguous:space=48MiB,hot=48MiB,writes=0.5", PageSize::K4, false);
    machine.start(&Process { threads: 2, ..two }).expect("it fits");
    let huge = process("contiguous:space=96MiB,hot=96MiB", PageSize::M2, false);
    machine.start(&Process { first_cpu: 1, ..huge }).expect("it fits");
    let other = process("contiguous:space=32MiB,hot=32MiB", PageSize::K4, false);
    let other = Process { uncached_tables: false, first_cpu: 2, ..other };
    let unseen = machine.start(&other).expect("it fits");
    run_to(&mut machine, 12_000_000);
    let (misses, mut own) = end(machine, Boards::default());
    own.retain(|(pid, ..), _| *pid != unseen.0 + 1);
    assert!(own.values().sum::<u64>() > 10_000);
    assert!(misses.is_exact());
    assert!(misses.blocks() == own, "{:?}", difference(&misses.blocks(), &own));
}

/// Random changes of mappings by the kernel while two processes run.
fn stirred(seed: u64) -> (Misses, BTreeMap<(u32, Level, u64), u64>) {
    let mut rng = tierscope_core::Rng::seeded(seed);
    let mut machine = machine(&setup(256, 2), Boards { count: 3, ..Boards::default() });
    let spaces = ["one", "two"].map(|name| machine.spawn(name, true).expect("there is room"));
    let mut ranges: Vec<Range> = Vec::new();
    for _ in 0..6000 {
        match rng.below(40) {
            0 if ranges.len() < 12 => {
                let space = spaces[rng.below(2) as usize];
                let map = Map::anonymous((1 + rng.below(8)) * MIB);
                ranges.push(machine.map(space, &map).expect("there is room"));
            }
            1 if ranges.len() > 3 => {
                let range = ranges.swap_remove(rng.below(ranges.len() as u64) as usize);
                machine.unmap(range).expect("it was mapped");
            }
            what if !ranges.is_empty() => {
                let range = ranges[rng.below(ranges.len() as u64) as usize];
                stir(&mut machine, &mut rng, range, what);
            }
            _ => {}
        }
    }
    end(machine, Boards { count: 3, ..Boards::default() })
}

fn stir(machine: &mut Watched, rng: &mut tierscope_core::Rng, range: Range, what: u64) {
    let at = range.at(rng.below(range.bytes()));
    match what {
        2 => machine.populate(range).expect("there is room"),
        3 => machine.protect(range, false).expect("it is mapped"),
        4 => machine.protect(range, true).expect("it is mapped"),
        5 => _ = machine.migrate(range, Tier(rng.below(2) as u8)),
        6 => machine.flush(rng.below(2) as usize, range.space),
        _ => {
            let store = rng.below(3) == 0;
            // A store may be denied.
            let _ = machine.access(rng.below(2) as usize, at, store);
        }
    }
}

#[test]
fn mappings_that_change() {
    for seed in 0..6 {
        let (misses, own) = stirred(seed);
        let total: u64 = own.values().sum();
        println!("seed {seed}: {total} misses, {} announced", misses.announced);
        assert!(total > 1000 && misses.announced > 1000);
        assert!(misses.is_exact(), "seed {seed}");
        assert!(misses.blocks() == own, "seed {seed}: {:?}", difference(&misses.blocks(), &own));
    }
}

// 2 MiB pages are split and collapsed while they are in use: blocks of level 2 alternately contain
// pages and tables, and the report notes that reads of the latter may be counted as misses; blocks
// of level 1 are exact.
#[test]
fn transparent_huge_pages_come_and_go() {
    let mut machine = machine(&setup(256, 1), Boards::default());
    let space = machine.spawn_uncached("toy", PageSize::M2).expect("there is room");
    let map = Map { pages: PageSize::M2, ..Map::anonymous(64 * MIB) };
    let range = machine.map(space, &map).expect("there is room");
    let mut rng = tierscope_core::Rng::seeded(9);
    for round in 0..6000 {
        let at = range.at(rng.below(range.bytes()));
        let block = Range::new(space, at.at & !(2 * MIB - 1), (at.at & !(2 * MIB - 1)) + 2 * MIB);
        match round % 50 {
            48 => _ = machine.split(block).expect("the host has memory"),
            49 => _ = machine.collapse(block),
            _ => _ = machine.access(0, at, false).expect("it is mapped"),
        }
    }
    let (misses, own) = end(machine, Boards::default());
    let of = |blocks: &Blocks, level| -> Blocks {
        blocks.clone().into_iter().filter(|((_, l, _), _)| *l == level).collect()
    };
    let small = of(&own, Level::PTE);
    assert!(small.values().sum::<u64>() > 500, "{small:?}");
    assert_eq!(of(&misses.blocks(), Level::PTE), small);
    let mixed: u64 = misses.pages.values().map(|misses| misses.mixed).sum();
    assert!(mixed > 0 && !misses.is_exact());
    let (found, huge) = (of(&misses.blocks(), Level::PMD), of(&own, Level::PMD));
    for (block, walks) in &huge {
        assert!(found[block] >= *walks, "{block:?}: an upper bound");
    }
}

// Room for eight tables: all others of 64 MiB are outside the region, where misses are not seen,
// and the report gives the number of these pages.
#[test]
fn a_region_that_is_full() {
    let mut machine = machine(&setup(8, 1), Boards::default());
    machine
        .start(&process("contiguous:space=64MiB,hot=64MiB", PageSize::K4, true))
        .expect("it fits");
    run_to(&mut machine, 1_000_000);
    assert_eq!(machine.account().uncached_overflows, 24);
    let (misses, own) = end(machine, Boards::default());
    let inside = own.iter().filter(|(block, _)| misses.blocks().contains_key(block));
    let seen: BTreeMap<_, _> = inside.map(|(block, walks)| (*block, *walks)).collect();
    assert_eq!(misses.blocks(), seen);
    assert!(misses.total() > 100 && misses.total() < own.values().sum::<u64>() / 2);
}

// Boards that buffer four requests and deliver one every 200 ns lose some, and report the number.
#[test]
fn overruns_are_reported() {
    let boards = Boards { buffer: Some((4, 200)), ..Boards::default() };
    let mut machine = machine(&setup(64, 1), boards);
    machine
        .start(&process("contiguous:space=64MiB,hot=64MiB", PageSize::K4, true))
        .expect("it fits");
    run_to(&mut machine, 1_000_000);
    let (misses, _) = end(machine, boards);
    let lost: u64 = misses.boards.iter().map(|board| board.overruns).sum();
    assert!(lost > 100, "{lost}");
    assert!(!misses.is_exact());
}

// Two areas, one of them chosen: every access to it is on the bus, no access to the other is
// mistaken for one, and misses of both remain exact.
#[test]
fn every_access_to_a_chosen_area_is_seen() {
    let text = "chosen, 1048576\nother, 4194304\n\nboth\n100\nchosen, 1, 64, 50, rw\nother, 1, 64, 50, ro\n";
    let workload = masim::parse("toy", text, Mode::Correct).expect("it makes sense");
    for grain in [6, 5] {
        let boards = Boards { grain, ..Boards::default() };
        let mut machine = machine(&setup(1024, 1), boards);
        let watched = vec!["chosen".to_owned()];
        let process =
            Process { uncached_tables: true, populate: true, ..Process::new(workload.clone()) };
        let strange = Process { watched: vec!["else".into()], ..process.clone() };
        assert!(machine.start(&strange).is_err());
        machine.start(&Process { watched, ..process }).expect("it fits");
        // Turns of 131,072 accesses: one of the chosen area takes 11 ms.
        run_to(&mut machine, 60_000_000);
        let accesses = machine.account().counts.accesses;
        let served: u64 = machine.account().counts.served.iter().sum();
        let misses = exact(machine, boards, 10);
        let seen: u64 = misses.watched.values().map(|page| page.reads + page.writes).sum();
        let writes: u64 = misses.watched.values().map(|page| page.writes).sum();
        println!("{seen} of {accesses} accesses seen, {writes} writes, {served} from memory");
        assert_eq!(misses.watched.len(), 256, "1 MiB in pages of 4 KiB");
        assert!(seen * 5 > accesses && seen < accesses && seen <= served);
        assert!(writes > 0);
    }
}

// All accesses of the program go to the chosen area: as many requests as accesses.
#[test]
fn accesses_to_a_chosen_area_are_counted_to_the_last() {
    let text = "a, 262144\n\nx\n100\na, 1, 64, 100, rw\n";
    let workload = masim::parse("toy", text, Mode::Correct);
    let mut machine = machine(&setup(256, 1), Boards::default());
    let process = Process::new(workload.expect("it makes sense"));
    let watched = vec!["a".to_owned()];
    machine
        .start(&Process { uncached_tables: true, populate: true, watched, ..process })
        .expect("it fits");
    run_to(&mut machine, 1_000_000);
    let accesses = machine.account().counts.accesses;
    let misses = exact(machine, Boards::default(), 10);
    let seen: u64 = misses.watched.values().map(|page| page.reads + page.writes).sum();
    assert!(accesses > 1000);
    assert_eq!(seen, accesses);
}

// Kernel events match the operations: a page is mapped and unmapped with its process.
#[test]
fn kernel_events_are_in_order() {
    let mut machine = Machine::new(&setup(4, 1)).expect("it is possible");
    let space = machine.spawn("toy", true).expect("there is room");
    let range = machine.map(space, &Map::anonymous(MIB)).expect("there is room");
    machine.access(0, range.at(4096 * 3), true).expect("it is mapped");
    machine.exit(space).expect("it is alive");
    let mut events = Vec::new();
    assert_eq!(machine.kernel_events(&mut events).0, 0);
    use tierscope_tlb::ptat::KernelEvent;
    let words: Vec<String> = events
        .iter()
        .map(|event| match event {
            KernelEvent::Change(change) => {
                assert_eq!((change.pid, change.level), (1, Level::PTE));
                assert_eq!(change.page, (range.start >> 12) + 3);
                format!("{:?} {}", change.what, change.reads)
            }
            KernelEvent::Process { pid: 1, stage } => format!("{stage:?}"),
            KernelEvent::Process { .. } => panic!("there is no other"),
            KernelEvent::Tag(number) => format!("tag {number}"),
        })
        .collect();
    let expected =
        ["Announced", "tag 0", "Map 1", "tag 1", "Unmap 1", "Exited", "tag 2"].map(str::to_owned);
    assert_eq!(words, expected);
}
