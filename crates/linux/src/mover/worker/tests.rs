use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Duration;

use proptest::prelude::*;
use tierscope_core::ActionId;

use super::super::fake::{Fake, page, sharing};
use super::*;

/// A worker on the fake kernel: node 0 is fast, node 1 slow.
struct Bench {
    worker: Worker<Fake>,
    queue: RefCell<Queue>,
    actions: u64,
}

impl Bench {
    fn new(fake: Fake, limits: Limits) -> Self {
        let tiers = vec![vec![(Node(0), 0)], vec![(Node(1), 0)]];
        let worker = Worker::new(fake, Layout { tiers }, limits.clone());
        let queue = RefCell::new(Queue { limits, budget: u64::MAX, ..Queue::default() });
        Self { worker, queue, actions: 0 }
    }

    fn order_bytes(&mut self, start: u64, end: u64, kind: ActionKind) {
        self.order_range(Range::new(SpaceId(0), start, end), kind);
    }

    fn order_range(&mut self, range: Range, kind: ActionKind) {
        let id = ActionId(self.actions);
        self.actions += 1;
        let now = self.worker.kernel.now();
        self.queue.get_mut().order(&[Action { id, after: None, range, kind }], now);
    }

    fn order(&mut self, pages: std::ops::Range<u64>, tier: u8) {
        self.order_bytes(page(pages.start), page(pages.end), ActionKind::Move(Tier(tier)));
    }

    fn step(&mut self) -> Next {
        let queue = &self.queue;
        let next = self.worker.step(&|with| with(&mut queue.borrow_mut()));
        let account = &self.queue.borrow().account;
        assert!(account.adds_up(), "{account:?}");
        next
    }

    /// Steps until there is nothing to do, and advances time as requested.
    fn run(&mut self) -> Account {
        for _ in 0..100_000 {
            match self.step() {
                Next::Go => {}
                Next::At(Time::NEVER) => panic!("it would never go on"),
                Next::At(time) => self.worker.kernel.now = self.worker.kernel.now.max(time.0),
                Next::Idle | Next::Done => return self.account(),
            }
        }
        panic!("it never ends");
    }

    /// Steps until no action is left; `run` would not end, since the refault sweep continues.
    fn carry_out(&mut self) {
        for _ in 0..100_000 {
            if self.worker.job.is_none() && self.queue.borrow().waiting.is_empty() {
                return;
            }
            if let Next::At(time) = self.step() {
                self.worker.kernel.now = self.worker.kernel.now.max(time.0);
            }
        }
        panic!("it never ends");
    }

    fn account(&self) -> Account {
        self.queue.borrow().account.clone()
    }

    fn outcomes(&mut self) -> Vec<(u64, u64, Option<Failure>)> {
        let outcomes = std::mem::take(&mut self.queue.get_mut().outcomes);
        outcomes.iter().map(|o| (o.done >> 12, o.failed >> 12, o.why)).collect()
    }
}

fn pages_of(bytes: u64) -> u64 {
    bytes >> 12
}

// Ten pages on the slow node: four are promoted, then six demoted, of which two are there already.
#[test]
fn ordered_bytes_are_moved_and_accounted_for() {
    let mut bench = Bench::new(Fake::with_pages(10, 1), Limits::default());
    bench.order(0..4, 0);
    bench.run();
    bench.order(0..6, 1);
    let account = bench.run();
    assert_eq!([account.promoted, account.demoted, account.already].map(pages_of), [4, 4, 2]);
    assert_eq!([account.ping_pong, account.returned].map(pages_of), [4, 4]);
    assert_eq!(bench.outcomes(), [(4, 0, None), (4, 0, None)]);
    assert_eq!(bench.worker.kernel.on(1), 10);
    assert_eq!(account.actions, 2);
}

// Ten pages, of which one is pinned and one was never mapped; two are refaulted, and swap becomes
// full.
#[test]
fn reclaimed_bytes_are_accounted_for() {
    let mut fake = Fake::with_pages(10, 0);
    fake.swap(9);
    fake.pin(2);
    fake.free_page(3);
    let mut bench = Bench::new(fake, Limits::default());
    bench.order_bytes(page(0), page(6), ActionKind::Reclaim);
    bench.carry_out();
    let account = bench.account();
    assert_eq!([account.reclaimed, account.absent, account.failures()].map(pages_of), [4, 1, 1]);
    assert_eq!(account.failed[&Cause::Busy], 4096);
    assert_eq!(bench.outcomes(), [(4, 1, Some(Failure::Busy))]);
    bench.worker.kernel.swap_in(0);
    bench.worker.kernel.swap_in(5);
    bench.worker.kernel.now += 2_000_000_000;
    bench.step();
    assert_eq!(pages_of(bench.account().refaulted), 2);
    bench.worker.kernel.swap(1);
    bench.order_bytes(page(0), page(10), ActionKind::Reclaim);
    bench.carry_out();
    let account = bench.account();
    assert_eq!([account.reclaimed, account.already].map(pages_of), [5, 2]);
    assert_eq!(pages_of(account.failed[&Cause::NoSwap]), 6, "the pinned page is not distinguished");
    // At the end all blocks are checked once more, even if the sweep is not due.
    bench.worker.kernel.swap_in(1);
    bench.queue.get_mut().stop = true;
    assert_eq!(bench.step(), Next::Done);
    assert_eq!(pages_of(bench.account().refaulted), 3);
}

#[test]
fn reclaim_pauses_while_too_many_pages_refault() {
    let mut fake = Fake::with_pages(600, 0);
    fake.swap(1000);
    let mut bench = Bench::new(fake, Limits::default());
    bench.order_bytes(page(0), page(400), ActionKind::Reclaim);
    bench.carry_out();
    (0..40).for_each(|number| bench.worker.kernel.swap_in(number));
    bench.worker.kernel.now += 2_000_000_000;
    bench.order_bytes(page(400), page(600), ActionKind::Reclaim);
    let Next::At(until) = bench.step() else { panic!("it goes on") };
    assert_eq!((pages_of(bench.account().refaulted), bench.worker.kernel.on(0)), (40, 240));
    bench.worker.kernel.now = until.0;
    bench.carry_out();
    assert_eq!(pages_of(bench.account().reclaimed), 600);
}

#[test]
fn a_dry_run_reclaims_nothing_and_accounts_for_it() {
    let mut fake = Fake::with_pages(8, 0);
    fake.swap(8);
    let mut bench = Bench::new(fake, Limits { dry_run: true, ..Limits::default() });
    bench.order_bytes(page(0), page(8), ActionKind::Reclaim);
    let account = bench.run();
    assert_eq!(pages_of(account.failed[&Cause::DryRun]), 8);
    assert_eq!((account.calls, bench.worker.kernel.on(0)), (0, 8));
}

#[test]
fn every_cause_is_reported() {
    let mut fake = Fake::with_pages(8, 1);
    fake.pin(0);
    fake.share(1);
    fake.share(2);
    fake.free_page(3);
    let mut bench = Bench::new(fake, Limits::default());
    bench.order(0..8, 0);
    let account = bench.run();
    let expected = [(Cause::Shared, 2 << 12), (Cause::Busy, 1 << 12)];
    assert_eq!(account.failed, expected.into());
    assert_eq!((pages_of(account.promoted), pages_of(account.absent)), (4, 1));
    assert_eq!(bench.outcomes(), [(4, 3, Some(Failure::Shared))]);
    // An order for pages that are not mapped.
    bench.order(100..103, 0);
    bench.run();
    assert_eq!(bench.outcomes(), [(0, 0, Some(Failure::Unmapped))]);
    bench.order_bytes(page(4), page(5), ActionKind::Split);
    bench.run();
    assert_eq!(bench.outcomes(), [(0, 1, Some(Failure::Unsupported))]);
}

// The target exits after 512 of 2048 pages: those are counted as moved, the others as failed.
#[test]
fn a_target_that_exits_during_a_move_leaves_an_exact_account() {
    let mut fake = Fake::with_pages(2048, 1);
    fake.dies_after = Some(512);
    let mut bench = Bench::new(fake, Limits::default());
    bench.order(0..1024, 0);
    bench.order(1024..2048, 0);
    let account = bench.run();
    assert_eq!(pages_of(account.promoted), 512);
    assert_eq!(account.failed, [(Cause::Gone, 1536 << 12)].into());
    assert_eq!(bench.outcomes(), [(512, 512, Some(Failure::Gone)), (0, 1024, Some(Failure::Gone))]);
}

#[test]
fn a_node_going_offline_fails_the_rest() {
    let mut bench = Bench::new(Fake::with_pages(1024, 1), Limits::default());
    bench.order(0..1024, 0);
    assert_eq!(bench.step(), Next::Go);
    bench.worker.kernel.offline = Some(0);
    let account = bench.run();
    assert_eq!((pages_of(account.promoted), account.failed[&Cause::Offline]), (512, 512 << 12));
}

// Room for 100 pages, of which 40 are kept free: the batch of 50 fits, the next one does not.
#[test]
fn the_reserve_stays_free() {
    let mut fake = Fake::with_pages(100, 1);
    fake.room[0] = 100;
    let mut bench = Bench::new(fake, Limits { keep_free: 40 << 12, ..Limits::default() });
    bench.order(0..50, 0);
    bench.order(50..61, 0);
    bench.order(61..71, 0);
    bench.run();
    assert_eq!(bench.outcomes(), [(50, 0, None), (0, 11, Some(Failure::NoRoom)), (10, 0, None)]);
}

#[test]
fn the_kill_switch_ends_a_move_within_two_mebibytes() {
    let switch = PathBuf::from("/run/stop");
    let limits = Limits { kill_switch: Some(switch.clone()), ..Limits::default() };
    let mut bench = Bench::new(Fake::with_pages(2048, 1), limits);
    bench.order(0..2048, 0);
    assert_eq!(bench.step(), Next::Go);
    bench.worker.kernel.files.insert(switch);
    let account = bench.run();
    assert_eq!((pages_of(account.promoted), account.failed[&Cause::Switched]), (512, 1536 << 12));
}

// It is not known whether the switch is on: nothing more moves, and the account says why.
#[test]
fn a_kill_switch_that_cannot_be_read_ends_moves() {
    let switch = PathBuf::from("/home/ops/hold");
    let limits = Limits { kill_switch: Some(switch.clone()), ..Limits::default() };
    let mut bench = Bench::new(Fake::with_pages(2048, 1), limits);
    bench.order(0..2048, 0);
    assert_eq!(bench.step(), Next::Go);
    bench.worker.kernel.hidden.insert(switch);
    let account = bench.run();
    assert_eq!(pages_of(account.promoted), 512);
    assert_eq!(account.failed, [(Cause::SwitchUnreadable, 1536 << 12)].into());
}

#[test]
fn an_order_to_an_unknown_tier_moves_nothing() {
    let mut bench = Bench::new(Fake::with_pages(8, 1), Limits::default());
    bench.order(0..8, 7);
    assert_eq!(bench.run().failed, [(Cause::UnknownTier, 8 << 12)].into());
    assert_eq!(bench.outcomes(), [(0, 8, Some(Failure::Unsupported))]);
    assert_eq!(bench.worker.kernel.on(1), 8);
}

// A brake holds while a policy orders a page 70,000 times: 65,536 orders wait, the others fail.
#[test]
fn orders_that_pile_up_are_refused() {
    let mut bench = Bench::new(Fake::with_pages(1, 1), Limits::default());
    bench.worker.kernel.stalled = None;
    (0..70_000).for_each(|_| bench.order(0..1, 0));
    let account = bench.account();
    assert_eq!(account.failed, [(Cause::TooMany, (70_000 - 65_536) << 12)].into());
    assert_eq!((account.waiting, account.adds_up()), (65_536 << 12, true));
    assert_eq!(bench.outcomes().len(), 70_000 - 65_536);
}

#[test]
fn stopping_fails_the_rest() {
    let mut bench = Bench::new(Fake::with_pages(2048, 1), Limits::default());
    bench.order(0..1024, 0);
    bench.order(1024..2048, 0);
    bench.step();
    bench.queue.get_mut().stop = true;
    let account = bench.run();
    assert_eq!(account.failed, [(Cause::Stopped, 1536 << 12)].into());
    assert_eq!((account.waiting, bench.step()), (0, Next::Done));
}

#[test]
fn a_dry_run_moves_nothing() {
    let limits = Limits { dry_run: true, ..Limits::default() };
    let mut bench = Bench::new(Fake::with_pages(8, 1), limits);
    bench.worker.kernel.put(0, 0);
    bench.order(0..8, 0);
    let account = bench.run();
    assert_eq!((pages_of(account.already), account.failed[&Cause::DryRun]), (1, 7 << 12));
    assert_eq!((account.calls, bench.worker.kernel.on(1)), (0, 7));
}

#[test]
fn the_mover_waits_under_pressure() {
    let mut bench = Bench::new(Fake::with_pages(8, 1), Limits::default());
    bench.worker.kernel.stalled = Some(0.5);
    bench.order(0..8, 0);
    assert_eq!(bench.step(), Next::At(Time(500_000_000)));
    assert_eq!(bench.account().waiting, 8 << 12);
    bench.worker.kernel.now = 500_000_000;
    bench.worker.kernel.stalled = None;
    assert_eq!(bench.step(), Next::At(Time(1_000_000_000)), "PSI cannot be read any more");
    bench.worker.kernel.now = 1_000_000_000;
    bench.worker.kernel.stalled = Some(0.01);
    assert_eq!(pages_of(bench.run().promoted), 8);
}

#[test]
fn new_limits_hold_from_the_next_batch_on() {
    let mut bench = Bench::new(Fake::with_pages(8, 1), Limits::default());
    bench.order(0..4, 0);
    bench.run();
    let queue = bench.queue.get_mut();
    queue.limits.dry_run = true;
    queue.changed = true;
    bench.order(4..8, 0);
    assert_eq!(bench.run().failed[&Cause::DryRun], 4 << 12);
}

// Promotion, demotion and a second promotion within a minute: the last one is refused, and allowed
// a minute later.
#[test]
fn pages_do_not_ping_pong() {
    let mut bench = Bench::new(Fake::with_pages(4, 1), Limits::default());
    for tier in [0, 1, 0] {
        bench.order(0..4, tier);
        bench.run();
    }
    assert_eq!(bench.account().failed[&Cause::PingPong], 4 << 12);
    bench.worker.kernel.now += 62_000_000_000;
    bench.order(0..4, 0);
    assert_eq!(pages_of(bench.run().promoted), 8);
}

// One page of a huge page is ordered: all of it moves and counts against the rate limit.
#[test]
fn a_huge_page_moves_as_a_whole() {
    let mut fake = Fake::with_pages(1024, 1);
    fake.huge.insert(page(512));
    let limits = Limits { bytes_per_second: 2 << 20, ..Limits::default() };
    let mut bench = Bench::new(fake, limits);
    bench.order(600..601, 0);
    let account = bench.run();
    assert_eq!((pages_of(account.promoted), pages_of(account.carried)), (1, 511));
    assert_eq!(bench.worker.kernel.on(0), 512);
    let before = bench.worker.kernel.now;
    bench.order(0..1, 0);
    bench.run();
    assert!(bench.worker.kernel.now - before >= 900_000_000, "the limit knows of all 2 MiB");
}

#[test]
fn a_budget_that_is_used_up_waits_for_the_next_submission() {
    let mut bench = Bench::new(Fake::with_pages(8, 1), Limits::default());
    bench.queue.get_mut().budget = 3 << 12;
    bench.order(0..8, 0);
    assert_eq!(pages_of(bench.run().promoted), 3);
    bench.queue.get_mut().budget = u64::MAX;
    assert_eq!(pages_of(bench.run().promoted), 8);
}

#[test]
fn parts_of_pages_are_accounted_for_by_the_byte() {
    let mut bench = Bench::new(Fake::with_pages(4, 1), Limits::default());
    bench.order_bytes(page(0) + 100, page(2) + 50, ActionKind::Move(Tier(0)));
    let account = bench.run();
    assert_eq!((account.promoted, bench.worker.kernel.on(0)), (2 * 4096 - 50, 3));
}

/// Upper bound of the bytes moved within any second, if the bytes of each call are moved at the
/// worst moment.
fn most_in_a_second(moves: &[(u64, u64, u64)]) -> u64 {
    let second = 1_000_000_000;
    let in_second = |from: u64| -> u64 {
        let within = moves.iter().filter(|(start, end, _)| *start < from + second && *end >= from);
        within.map(|(.., bytes)| bytes).sum()
    };
    let starts = moves.iter().flat_map(|(start, end, _)| [*start, end.saturating_sub(second - 1)]);
    starts.map(in_second).max().unwrap_or(0)
}

// 64 MiB at 8 MiB per second take seven seconds, and no second exceeds the limit.
#[test]
fn the_limit_is_used_and_never_exceeded() {
    let limits = Limits { bytes_per_second: 8 << 20, ..Limits::default() };
    let mut bench = Bench::new(Fake::with_pages(16384, 1), limits);
    bench.order(0..16384, 0);
    assert_eq!(bench.run().promoted, 64 << 20);
    assert!(most_in_a_second(&bench.worker.kernel.moves) <= 8 << 20);
    let seconds = bench.worker.kernel.now as f64 / 1e9;
    assert!((7.0..9.5).contains(&seconds), "{seconds}");
}

#[derive(Clone, Debug)]
enum Event {
    Order(u64, u64, u8),
    Pin(u64),
    Share(u64),
    Free(u64),
    Gone,
    Offline,
    Limit(u64),
    Pause(u64),
    Steps(u8),
}

fn event() -> impl Strategy<Value = Event> {
    let page = 0u64..2000;
    prop_oneof![
        8 => (page.clone(), 1u64..900, 0u8..3).prop_map(|(at, count, tier)| Event::Order(at, count, tier)),
        1 => page.clone().prop_map(Event::Pin),
        1 => page.clone().prop_map(Event::Share),
        1 => page.prop_map(Event::Free),
        1 => Just(Event::Gone),
        1 => Just(Event::Offline),
        1 => (2u64..64).prop_map(|mib| Event::Limit(mib << 20)),
        2 => (1u64..3000).prop_map(Event::Pause),
        8 => (1u8..6).prop_map(Event::Steps),
    ]
}

proptest! {
    // Under random events every submitted byte is accounted for exactly once (checked by each
    // step), the account agrees with the moves, every action has one outcome, and no second exceeds
    // the limit.
    #[test]
    fn nothing_is_lost_or_counted_twice(events in prop::collection::vec(event(), 1..40)) {
        let mut fake = Fake::with_pages(1500, 1);
        fake.huge.insert(page(512));
        let limit = 16 << 20;
        let limits = Limits { bytes_per_second: limit, ping_pong: Duration::from_secs(3), ..Limits::default() };
        let mut bench = Bench::new(fake, limits);
        let mut most = limit;
        for event in events {
            match event {
                Event::Order(at, count, tier) => bench.order(at..at + count, tier),
                Event::Pin(at) => bench.worker.kernel.pin(at),
                Event::Share(at) => bench.worker.kernel.share(at),
                Event::Free(at) => bench.worker.kernel.free_page(at),
                Event::Gone => bench.worker.kernel.gone = true,
                Event::Offline => bench.worker.kernel.offline = Some(0),
                Event::Limit(bytes) => {
                    let queue = bench.queue.get_mut();
                    queue.limits.bytes_per_second = bytes;
                    queue.changed = true;
                    most = most.max(bytes);
                }
                Event::Pause(millis) => bench.worker.kernel.now += millis * 1_000_000,
                Event::Steps(count) => for _ in 0..count {
                    if let Next::At(time) = bench.step() {
                        bench.worker.kernel.now = bench.worker.kernel.now.max(time.0);
                    }
                },
            }
        }
        let account = bench.run();
        prop_assert_eq!(account.waiting, 0);
        prop_assert_eq!(bench.queue.borrow().outcomes.len() as u64, bench.actions);
        let done: u64 = bench.queue.borrow().outcomes.iter().map(|o| o.done).sum();
        prop_assert_eq!(done, account.promoted + account.demoted);
        let failed: u64 = bench.queue.borrow().outcomes.iter().map(|o| o.failed).sum();
        prop_assert_eq!(failed, account.failures());
        let bytes: u64 = bench.worker.kernel.moves.iter().map(|(.., bytes)| bytes).sum();
        prop_assert_eq!(bytes, account.moved());
        prop_assert!(most_in_a_second(&bench.worker.kernel.moves) <= most);
    }
}

// Eight pages of memory that two processes share: the first one has mapped three of them, the
// second one the others, and page 6 is mapped by a third process outside of the target.
#[test]
fn pages_that_processes_share_move_through_the_process_that_has_mapped_them() {
    let mut fake = Fake::with_pages(8, 1);
    let users = sharing(&mut fake, 8, &[3, 4, 5, 6, 7], &[0, 1]);
    fake.share(6);
    let mut bench = Bench::new(fake, Limits::default());
    bench.order_range(users[0].range, ActionKind::Move(Tier(0)));
    let account = bench.run();
    assert_eq!((account.promoted >> 12, bench.worker.kernel.on(0)), (8, 8));
    assert!(account.adds_up() && account.failed.is_empty());
}

// The same, reclaimed: pages that only one process has mapped.
#[test]
fn pages_that_processes_share_are_reclaimed_through_the_process_that_has_mapped_them() {
    let mut fake = Fake::with_pages(8, 1);
    fake.swap(8);
    let users = sharing(&mut fake, 8, &[3, 4, 5, 6, 7], &[0, 1, 2]);
    let mut bench = Bench::new(fake, Limits::default());
    bench.order_range(users[0].range, ActionKind::Reclaim);
    bench.carry_out();
    let account = bench.account();
    assert_eq!((account.reclaimed >> 12, bench.worker.kernel.on(1)), (8, 0));
    assert!(account.adds_up());
}
