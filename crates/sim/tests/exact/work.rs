//! The machine from outside: processes, policies and telemetry.

use std::time::Duration;

use tierscope_core::{
    Action, ActionId, ActionKind, Addr, Budget, BusObserver, BusRecord, Clock, Failure, HintFault,
    HintFaults, Level, Mover as _, Outcome, PageEvent, PageEventKind, PlacementView, Ports, Probe,
    Range, Sample, SpaceId, State, Target, Tier, Time, Wake,
};
use tierscope_hw::PageSize;
use tierscope_sim::config::{Event, Period, Sampling};
use tierscope_sim::exact::{Denied, Machine, Map, Placement, Process, Setup};
use tierscope_workloads::{Workload, generate};

use crate::stage::setup;

const MIB: u64 = 1 << 20;
const FAST: Tier = Tier(0);
const SLOW: Tier = Tier(1);

fn workload(spec: &str) -> Workload {
    generate::from_spec(spec).expect("it makes sense")
}

/// A machine of two tiers with a space that has one mapping.
fn mapped(mib: [u64; 2], map: &Map) -> (Machine, Range) {
    let mut machine = Machine::new(&setup(mib)).expect("it is possible");
    let space = machine.spawn("test", false).expect("the first");
    let range = machine.map(space, map).expect("there is room");
    (machine, range)
}

fn probe(machine: &mut Machine, at: Addr, level: Level) -> State {
    let mut probe = Probe::test(at, level);
    let port = machine.access_bits().expect("it has them");
    port.probe(std::slice::from_mut(&mut probe)).expect("it answers");
    probe.answer.state
}

#[test]
fn a_first_touch_makes_a_page_and_a_store_to_read_only_memory_is_denied() {
    let (mut machine, range) = mapped([64, 64], &Map::anonymous(4 * MIB));
    assert_eq!(probe(&mut machine, range.at(0), Level::PTE), State::Absent);
    let physical = machine.access(0, range.at(123), true).expect("it is mapped");
    assert_eq!(physical % 4096, 123);
    assert_eq!(machine.access(0, range.at(200), false), Ok(physical + 77));
    assert_eq!(probe(&mut machine, range.at(0), Level::PTE), State::Young);
    machine.protect(range, false).expect("it is alive");
    assert_eq!(machine.access(0, range.at(0), true), Err(Denied::ReadOnly));
    assert_eq!(machine.access(0, range.at(0), false), Ok(physical - 123));
    machine.unmap(range).expect("it is alive");
    assert_eq!(machine.access(0, range.at(0), false), Err(Denied::Unmapped));
    assert_eq!(machine.account().counts.first_touches, [1, 0, 0]);
}

#[test]
fn a_tlb_hides_accesses_until_it_is_flushed() {
    let (mut machine, range) = mapped([64, 64], &Map::anonymous(4 * MIB));
    machine.access(0, range.at(0), false).expect("it is mapped");
    let mut clear = [Probe::test_and_clear(range.at(0), Level::PTE)];
    machine.access_bits().expect("it has them").probe(&mut clear).expect("it answers");
    machine.access(0, range.at(0), false).expect("it is mapped");
    assert_eq!(probe(&mut machine, range.at(0), Level::PTE), State::Old, "no walk, no flag");
    machine.flush(0, range.space);
    machine.access(0, range.at(0), false).expect("it is mapped");
    assert_eq!(probe(&mut machine, range.at(0), Level::PTE), State::Young);
}

// A page held by a TLB: without a flush its bit, once cleared, stays clear; with one after half a
// millisecond and then every millisecond, the next access walks.
#[test]
fn a_flusher_empties_tlbs() {
    let state = |flush: Option<Duration>| {
        let parts = Setup { flush, tick: None, ..setup([64, 64]) };
        let mut machine = Machine::new(&parts).expect("it is possible");
        let work = workload("contiguous:space=4KiB,hot=4KiB");
        let process = Process { populate: true, ..Process::new(work) };
        machine.start(&process).expect("it fits");
        let page = machine.mappings(Duration::ZERO).expect("they are known").mappings[0].range;
        run_to(&mut machine, 3_600_000);
        let mut clear = [Probe::test_and_clear(page.at(0), Level::PTE)];
        machine.access_bits().expect("it has them").probe(&mut clear).expect("it answers");
        assert_eq!(clear[0].answer.state, State::Young);
        run_to(&mut machine, 4_400_000);
        let before = probe(&mut machine, page.at(0), Level::PTE);
        run_to(&mut machine, 4_600_000);
        (before, probe(&mut machine, page.at(0), Level::PTE))
    };
    assert_eq!(state(Some(Duration::from_millis(1))), (State::Old, State::Young));
    assert_eq!(state(None), (State::Old, State::Old));
}

fn run_to(machine: &mut Machine, nanos: u64) {
    while machine.now() < Time(nanos) {
        machine.wait(Time(nanos));
    }
}

#[test]
fn huge_pages_are_split_and_collapsed() {
    let map = Map { pages: PageSize::M2, ..Map::anonymous(4 * MIB) };
    let (mut machine, range) = mapped([64, 64], &map);
    let physical = machine.access(0, range.at(5000), true).expect("it is mapped");
    assert_eq!(physical % (2 * MIB), 5000);
    let page = machine.page_at(&range).expect("it is resident");
    assert_eq!(machine.range_of(page), Some(Range { end: range.start + 2 * MIB, ..range }));
    assert_eq!(machine.split(range).expect("the host has memory"), 1);
    assert_eq!(machine.access(0, range.at(5000), false), Ok(physical), "it lies where it lay");
    assert_eq!(machine.range_of(page), Some(Range { end: range.start + 4096, ..range }));
    assert_eq!(machine.collapse(range), 1, "the other half has no table");
    let moved = machine.access(0, range.at(5000), false).expect("it is mapped");
    assert_eq!(moved % (2 * MIB), 5000);
    assert_eq!(probe(&mut machine, range.at(MIB), Level::PTE), State::Young, "for the whole page");
}

#[test]
fn memory_comes_from_the_tier_of_its_placement() {
    let all = Placement::Interleave(vec![FAST, SLOW]);
    for (placement, fast, slow) in
        [(Placement::FirstTouch, 8, 0), (all, 4, 4), (Placement::Bind(SLOW), 0, 8)]
    {
        let map = Map { placement, ..Map::anonymous(8 * MIB) };
        let (mut machine, range) = mapped([64, 64], &map);
        machine.populate(range).expect("there is memory");
        let resident = |tier| machine.resident(&range, tier) / MIB;
        assert_eq!((resident(FAST), resident(SLOW)), (fast, slow));
        let residence = machine.residence().expect("it is known");
        let of = &residence.spaces[0];
        let placed = of.placed.as_ref().expect("it is known");
        let nodes: Vec<_> = placed.nodes.iter().map(|on| (on.node.0, on.bytes / MIB)).collect();
        assert_eq!((of.bytes / MIB, nodes), (8, vec![(0, fast), (1, slow)]));
        assert_eq!(residence.tiers.len(), 2);
        let half = Range { end: range.start + 4 * MIB, ..range };
        assert_eq!(machine.resident(&half, FAST) / MIB, fast / 2, "counted page by page");
    }
}

// 64 MiB: the kernel reserves 1 MiB and keeps 1.25 MiB free, and page tables take a little.
#[test]
fn a_full_tier_overflows_to_the_next_at_its_low_watermark() {
    let (mut machine, range) = mapped([64, 64], &Map::anonymous(80 * MIB));
    machine.populate(range).expect("there is memory");
    let fast = machine.resident(&range, FAST) / MIB;
    assert!((58..=62).contains(&fast), "{fast} MiB");
    let pressure = machine.pressure().expect("it is known").tiers[0];
    assert!(
        pressure.free >= pressure.low && pressure.free < pressure.low + 4 * MIB,
        "{pressure:?}"
    );
}

#[test]
fn too_large_a_workload_is_refused_before_anything_runs() {
    let mut machine = Machine::new(&setup([64, 64])).expect("it is possible");
    let process = Process::new(workload("contiguous:space=1GiB,hot=1MiB"));
    let error = machine.start(&process).expect_err("it does not fit").to_string();
    assert!(error.contains("1024 MiB are mapped in 128 MiB of memory"), "{error}");
    assert!(machine.mappings(Duration::ZERO).expect("they are known").spaces.is_empty());
}

#[test]
fn a_process_runs_and_exits() {
    let mut machine = Machine::new(&setup([64, 64])).expect("it is possible");
    let work = workload("contiguous:space=8MiB,hot=8MiB,time=3ms");
    let process = Process { repeats: false, ..Process::new(work) };
    machine.start(&process).expect("it fits");
    assert_eq!(machine.wait(Time(1_000_000)), Wake::TargetChanged, "it was started");
    assert_eq!(machine.wait(Time(1_000_000)), Wake::Deadline);
    let account = machine.account();
    let busy = account.spent.target;
    // The process finishes an operation in progress, such as a first touch of half a microsecond.
    assert!((1_000_000..1_003_000).contains(&busy.as_nanos()), "busy all the time: {busy:?}");
    assert!(account.counts.first_touches[0] > 100);
    assert_eq!(machine.wait(Time(1_000_000_000)), Wake::Gone);
    assert!(machine.now() < Time(3_100_000), "{}", machine.now());
    let tiers = machine.pressure().expect("it is known").tiers;
    assert!(tiers[0].free > 60 * MIB, "its memory is free again");
}

#[test]
fn a_rate_is_kept() {
    let mut machine = Machine::new(&setup([64, 64])).expect("it is possible");
    let mut work = workload("contiguous:space=8MiB,hot=8MiB,time=1s");
    work.phases[0].rate = Some(1_000_000);
    machine.start(&Process { threads: 2, ..Process::new(work) }).expect("it fits");
    while machine.now() < Time(50_000_000) {
        machine.wait(Time(50_000_000));
    }
    let accesses = machine.account().counts.accesses;
    assert!(accesses.abs_diff(50_000) < 100, "{accesses}");
}

fn run(setup: &Setup, process: &Process, until: Time) -> Machine {
    let mut machine = Machine::new(setup).expect("it is possible");
    machine.start(process).expect("it fits");
    while machine.now() < until {
        machine.wait(until);
    }
    machine
}

#[test]
fn same_seed_same_run() {
    let mut setup = setup([64, 64]);
    setup.cpus = 3;
    let process = |seed| Process {
        threads: 3,
        seed,
        ..Process::new(workload("contiguous:space=32MiB,hot=4MiB,share=0.9,writes=0.3"))
    };
    let account = |seed| run(&setup, &process(seed), Time(3_000_000)).account();
    assert_eq!(account(1), account(1));
    assert_ne!(account(1), account(2));
}

#[test]
fn samples_come_with_time_and_tier() {
    let mut setup = setup([64, 64]);
    let mut sampling = Sampling::loads_and_stores(Period::Every(2000));
    sampling.events = vec![Event::Loads, Event::LoadMisses];
    setup.sampling = Some(sampling);
    let process = Process::new(workload("contiguous:space=32MiB,hot=32MiB"));
    let mut machine = run(&setup, &process, Time(10_000_000));
    let account = machine.account();
    let counts = &account.counts;
    let mut samples: Vec<Sample> = Vec::new();
    let lost = machine.samples().expect("it samples").drain(&mut samples);
    assert_eq!(lost.0, 0);
    let expected = counts.accesses / 2000 + counts.llc_misses() / 2000;
    assert!(expected > 20 && (samples.len() as u64).abs_diff(expected) <= 1);
    assert!(samples.windows(2).all(|pair| pair[0].time <= pair[1].time));
    assert!(samples.iter().any(|sample| sample.tier == Some(FAST)));
    // Reading samples takes time, during which more are taken.
    assert_eq!(account.spent.interrupts, Duration::from_nanos(1950) * samples.len() as u32);
}

// A sweep line by line: three of a page's 64 lines are missed before the prefetcher has a
// direction, and it fetches the others ahead. Stores that bypass the caches do not count as misses.
// Memory serves all of both.
#[test]
fn sampled_misses_exclude_prefetches_and_bypassing_stores() {
    let sampled = |spec: &str, non_temporal| {
        let mut setup = setup([128, 64]);
        let mut sampling = Sampling::loads_and_stores(Period::Every(1));
        sampling.events = vec![Event::LoadMisses];
        setup.sampling = Some(sampling);
        let process = Process { populate: true, non_temporal, ..Process::new(workload(spec)) };
        let mut machine = run(&setup, &process, Time(2_000_000));
        let mut samples: Vec<Sample> = Vec::new();
        let lost = machine.samples().expect("it samples").drain(&mut samples);
        let account = machine.account();
        let each = |count: u64| count as f64 / account.counts.accesses as f64;
        let [read, written] = [account.lines_read, account.lines_written].map(|lines| lines[0]);
        [each(samples.len() as u64 + lost.0), each(read), each(written)]
    };
    let [misses, read, _] = sampled("contiguous:space=64MiB,hot=64MiB,stride=64B", false);
    assert!((misses - 3.0 / 64.0).abs() < 0.005 && (read - 1.0).abs() < 0.03, "{misses} {read}");
    let spec = "contiguous:space=64MiB,hot=64MiB,stride=64B,writes=1";
    let [misses, _, written] = sampled(spec, true);
    assert!(misses == 0.0 && (written - 1.0).abs() < 0.03, "{misses} {written}");
}

#[test]
fn an_armed_page_faults_once_with_its_time_of_arming() {
    let (mut machine, range) = mapped([64, 64], &Map::anonymous(4 * MIB));
    machine.populate(range).expect("there is memory");
    machine.access(0, range.at(0), false).expect("it is mapped");
    assert_eq!([(); 2].map(|()| machine.wait(Time(1000))), [Wake::TargetChanged, Wake::Deadline]);
    let half = Range { end: range.start + 2 * MIB, ..range };
    machine.hint_faults().expect("it has them").arm(&[half]).expect("it arms");
    for offset in [4096, 4096, 0, 3 * MIB] {
        machine.access(0, range.at(offset), offset == 0).expect("it is mapped");
    }
    let mut faults: Vec<HintFault> = Vec::new();
    HintFaults::drain(&mut machine, &mut faults);
    let seen: Vec<_> = faults.iter().map(|f| (f.at.at - range.start, f.armed)).collect();
    assert_eq!(seen, [(4096, Time(1000)), (0, Time(1000))]);
    assert_eq!(machine.account().counts.hint_faults, 2);
}

#[test]
fn page_events_report_allocated_and_freed_pages() {
    let (mut machine, range) = mapped([64, 64], &Map::anonymous(4 * MIB));
    machine.access(0, range.at(8192), false).expect("it is mapped");
    machine.unmap(range).expect("it is alive");
    let mut events: Vec<PageEvent> = Vec::new();
    machine.page_events().expect("it has them").drain(&mut events);
    let page = Range::new(range.space, range.start + 8192, range.start + 12_288);
    let kinds: Vec<_> = events.iter().map(|event| (event.range, event.kind)).collect();
    assert_eq!(kinds, [(page, PageEventKind::Allocated(FAST)), (range, PageEventKind::Freed)]);
}

fn action(id: u64, range: Range, kind: ActionKind) -> Action {
    Action { id: ActionId(id), after: None, range, kind }
}

fn outcomes(machine: &mut Machine, until: Time) -> Vec<Outcome> {
    machine.wait(until);
    machine.wait(until);
    let mut out = Vec::new();
    machine.mover().poll(&mut out).expect("it can");
    out
}

#[test]
fn the_mover_moves_in_its_own_time_and_within_its_budget() {
    let (mut machine, range) = mapped([64, 64], &Map::anonymous(8 * MIB));
    machine.populate(range).expect("there is memory");
    machine.access(0, range.at(0), true).expect("it is mapped");
    let mut mover = machine.mover();
    let down = action(7, range, ActionKind::Move(SLOW));
    mover.submit(&[down], Budget { bytes: 4 * MIB }).expect("it can");
    assert_eq!(outcomes(&mut machine, Time(1_000_000_000)), []);
    assert_eq!(machine.resident(&range, SLOW), 4 * MIB);
    mover.submit(&[], Budget { bytes: 64 * MIB }).expect("it can");
    let ended = outcomes(&mut machine, Time(2_000_000_000));
    assert_eq!((ended.len(), ended[0].done, ended[0].failed), (1, 8 * MIB, 0));
    assert_eq!(machine.resident(&range, SLOW), 8 * MIB);
    // 2048 pages of 2.5 us, plus the copies of 4 KiB at the speed of the slow tier or the CPU.
    let spent = machine.account().spent.mover;
    assert!(spent > Duration::from_micros(2048 * 5 / 2), "{spent:?}");
    let shootdowns = machine.account().counts.shootdowns;
    assert_eq!(shootdowns, 2048 / 32, "one a batch");
}

#[test]
fn unmovable_pages_are_accounted_for() {
    let (mut machine, range) = mapped([64, 16], &Map::anonymous(32 * MIB));
    machine.populate(range).expect("there is memory");
    let gone = Range::new(SpaceId(9), 0, 4096);
    let nothing = Range::new(range.space, 0, 4096);
    let actions = [
        action(0, range, ActionKind::Move(SLOW)),
        action(1, gone, ActionKind::Move(SLOW)),
        action(2, nothing, ActionKind::Move(SLOW)),
        action(3, range, ActionKind::Reclaim),
    ];
    machine.mover().submit(&actions, Budget { bytes: 1 << 40 }).expect("it can");
    let ended = outcomes(&mut machine, Time(1_000_000_000));
    assert_eq!(
        (ended[0].done, ended[0].failed, ended[0].why),
        (16 * MIB, 16 * MIB, Some(Failure::NoRoom))
    );
    let why: Vec<_> = ended[1..3].iter().map(|outcome| outcome.why).collect();
    assert_eq!(why, [Some(Failure::Gone), Some(Failure::Unmapped)]);
    assert_eq!((ended[3].done, ended[3].failed, ended[3].why), (32 * MIB, 0, None));
    assert_eq!([FAST, SLOW].map(|tier| machine.resident(&range, tier)), [0, 0]);
    let moved = machine.moved();
    let failed: u64 = 16 * MIB + 4096;
    assert_eq!(moved.all_failed(), failed, "{:?}", moved.failed);
    assert_eq!((moved.demoted, moved.reclaimed), (16 * MIB, 32 * MIB));
}

// Two pages are reclaimed: 20 us each, plus 3.9 us for 4 KiB at 1001 MiB/s. One is swapped in, 85
// us and 1.3 us; the second access finds it resident.
#[test]
fn reclaimed_pages_are_read_again_once() {
    let (mut machine, range) = mapped([64, 16], &Map::anonymous(4 * MIB));
    machine.populate(range).expect("there is memory");
    let two = Range { end: range.start + 8192, ..range };
    let actions = [action(0, two, ActionKind::Reclaim)];
    machine.mover().submit(&actions, Budget { bytes: 1 << 40 }).expect("it can");
    let ended = outcomes(&mut machine, Time(1_000_000));
    assert_eq!((ended[0].done, ended[0].why), (8192, None));
    assert_eq!(machine.resident(&range, FAST), 4 * MIB - 8192);
    let took = machine.account().spent.mover;
    let each = Duration::from_nanos(2500 + 20_000 + 3902);
    assert!(took >= 2 * each && took < 3 * each, "{took:?}");
    let at = tierscope_core::Addr { space: range.space, at: range.start };
    let before = machine.account().spent.target;
    machine.access(0, at, false).expect("it is mapped");
    let read = machine.account().spent.target - before;
    assert!((86_000..90_000).contains(&(read.as_nanos() as u64)), "{read:?}");
    machine.access(0, at, false).expect("it is mapped");
    assert_eq!(machine.account().counts.swap_ins, 1);
    assert_eq!(machine.resident(&range, FAST), 4 * MIB - 4096);
    // Unmapping drops swapped-out pages.
    machine.unmap(range).expect("it was mapped");
}

// 512 pages at 3:1 take 171 pages of the fast tier; after all have been swapped in, none. A page is
// never in memory and in zswap at once.
#[test]
fn zswap_takes_memory_of_the_fastest_tier() {
    let mut setup = setup([64, 16]);
    setup.costs = setup.costs.compressing();
    let mut machine = Machine::new(&setup).expect("it is possible");
    let space = machine.spawn("test", false).expect("the first");
    let range = machine.map(space, &Map::anonymous(2 * MIB)).expect("there is room");
    machine.populate(range).expect("there is memory");
    let used = |machine: &mut Machine| {
        machine.placement().expect("it has tiers").tiers().iter().map(|tier| tier.used).sum::<u64>()
    };
    let before = used(&mut machine);
    let action = action(0, range, ActionKind::Reclaim);
    machine.mover().submit(&[action], Budget { bytes: 1 << 40 }).expect("it can");
    assert_eq!(outcomes(&mut machine, Time(1_000_000_000))[0].done, 2 * MIB);
    assert_eq!(used(&mut machine), before - 2 * MIB + 171 * 4096);
    machine.populate(range).expect("there is memory");
    assert_eq!(used(&mut machine), before);
}

/// Keeps every record.
#[derive(Default)]
struct Ear(Vec<BusRecord>);

impl BusObserver for Ear {
    fn observe(&mut self, batch: &[BusRecord]) {
        self.0.extend_from_slice(batch);
    }
}

#[test]
fn the_bus_carries_every_line_in_order() {
    let work = workload("contiguous:space=64MiB,hot=64MiB,writes=0.5");
    let process = Process { populate: true, ..Process::new(work) };
    let mut setup = setup([128, 64]);
    setup.hardware.llc.as_mut().expect("it has one").slices = 1;
    let mut machine = Machine::observed(&setup, Ear::default()).expect("it is possible");
    machine.start(&process).expect("it fits");
    machine.wait(Time(0));
    machine.wait(Time(4_000_000));
    let account = machine.account();
    let heard = &machine.observer().0;
    assert!(heard.windows(2).all(|pair| pair[0].time() <= pair[1].time()));
    let writes = heard.iter().filter(|record| record.is_write()).count() as u64;
    assert_eq!(writes, account.lines_written.iter().sum::<u64>());
    assert_eq!(heard.len() as u64 - writes, account.lines_read.iter().sum::<u64>());
    assert!(writes > 100);
}

#[test]
fn every_walk_to_uncached_tables_is_on_the_bus() {
    let mut setup = setup([128, 64]);
    setup.uncached_tables = 1000;
    let work = workload("contiguous:space=64MiB,hot=64MiB");
    let process = Process { uncached_tables: true, populate: true, ..Process::new(work) };
    let mut machine = Machine::observed(&setup, Ear::default()).expect("it is possible");
    machine.start(&process).expect("it fits");
    machine.wait(Time(0));
    machine.wait(Time(1_000_000));
    let walks = machine.account().counts.walks;
    let tables = 1 << 45;
    let of_tables = |record: &&BusRecord| record.address() >= tables;
    let heard = &machine.observer().0;
    let reads = heard.iter().filter(of_tables).filter(|record| !record.is_write()).count() as u64;
    // Every walk reads one entry of level 1; few reads of upper levels miss the cache.
    assert!(walks > 1000 && (walks..walks + 50).contains(&reads), "{reads} reads, {walks} walks");
    let flags = heard.iter().filter(of_tables).filter(|record| record.is_write()).count() as u64;
    assert!(flags > 1000, "each page's first walk sets its flag: {flags}");
}
