//! Placement of memory, moves, and the resulting speed of the target.

use tierscope_core::drive::{Course, tier};
use tierscope_core::{
    Action, ActionId, ActionKind, Budget, Clock, Evidence, Failure, Mover as _, Orders, Outcome,
    PageId, PlacementView, Policy, RangeSet, Setting, Tier, metrics,
};
use tierscope_instruments::registry::{self, Common};
use tierscope_sim::density::Placement;

use super::*;

const FAST: Tier = Tier(0);
const SLOW: Tier = Tier(1);
const ALL: Budget = Budget { bytes: 1 << 50 };

/// A terabyte in Optane, a hundredth of it accessed by 16 threads as fast as they can.
fn busy() -> Machine {
    let (placement, overlap) = (Placement::Bind(SLOW), Some(4));
    let config = Config { placement, overlap, rate: None, cores: 16, ..config() };
    machine(config, "contiguous:space=1TiB,hot=10GiB,at=100GiB")
}

fn order(id: u64, range: Range, kind: ActionKind) -> Action {
    Action { id: ActionId(id), after: None, range, kind }
}

fn outcomes(machine: &Machine) -> Vec<Outcome> {
    let mut out = Vec::new();
    machine.mover().poll(&mut out).unwrap();
    out
}

// DRAM is three times as fast, but walks read page tables that are in DRAM anyway, and with more
// than four lines at a time they are the limit: the hot memory is moved there within seconds, and
// the target speeds up.
#[test]
fn hot_memory_moves_and_the_target_speeds_up() {
    let mut machine = busy();
    let hot = machine.hot_at(Time(0)).as_slice()[0];
    pass(&mut machine, SECOND);
    let before = machine.flow(0.0);
    assert_eq!(before.fast_tier_share(), Some(0.0));
    machine.mover().submit(&[order(3, hot, ActionKind::Move(FAST))], ALL).unwrap();
    pass(&mut machine, SECOND);
    let there = machine.resident(&hot, FAST);
    // A page takes 2.5 us plus the copy plus a 32nd of a shootdown of 16 cores: 3.1 us, 1.2 GiB a
    // second.
    assert!(there > GIB && there < 2 * GIB, "{there}");
    let while_moving = machine.flow(0.0);
    assert!(while_moving.tiers[1].read_bytes > before.tiers[1].read_bytes * 0.5);
    pass(&mut machine, 20 * SECOND);
    let ended = outcomes(&machine);
    assert_eq!((ended[0].id, ended[0].done, ended[0].failed), (ActionId(3), 10 * GIB, 0));
    let after = machine.flow(0.0);
    assert_eq!(after.fast_tier_share(), Some(1.0));
    assert!(after.rate > 1.2 * before.rate, "{} {}", after.rate, before.rate);
    let account = machine.account();
    assert!(account.spent.mover > Duration::from_secs(7), "{:?}", account.spent);
    assert_eq!(account.counts.shootdowns, 16 * (10 << 18) / 32);
    assert!(account.counts.served[0] > 0 && account.counts.served[1] > 0);
    // Bits are drawn at the new rate from then on.
    let mut set = AccessedSet::default();
    let mode = ScanMode { clear: true, ..Default::default() };
    machine.scan(&hot, Level::PTE, mode, &mut set).unwrap();
    pass(&mut machine, SECOND / 100);
    let young = machine.scan(&hot, Level::PTE, ScanMode::default(), &mut set).unwrap().young;
    let expected = after.rate / 100.0;
    assert!(young as f64 > 0.5 * expected.min(2e6), "{young} of {expected}");
}

#[test]
fn a_budget_is_kept_and_impossible_moves_are_reported() {
    let mut machine = busy();
    let hot = machine.hot_at(Time(0)).as_slice()[0];
    let mut mover = machine.mover();
    let orders = [
        order(0, hot, ActionKind::Move(FAST)),
        order(1, hot, ActionKind::Reclaim),
        order(2, hot, ActionKind::Split),
        order(3, hot, ActionKind::Move(Tier(7))),
        order(4, Range { space: SpaceId(9), ..hot }, ActionKind::Move(FAST)),
    ];
    mover.submit(&orders, Budget { bytes: GIB }).unwrap();
    pass(&mut machine, 60 * SECOND);
    assert_eq!(outcomes(&machine), []);
    assert_eq!(machine.resident(&hot, FAST), GIB);
    mover.submit(&[], ALL).unwrap();
    pass(&mut machine, 60 * SECOND);
    let ended = outcomes(&machine);
    assert_eq!((ended[0].done, ended[0].why), (10 * GIB, None));
    let why: Vec<_> = ended[1..].iter().map(|outcome| outcome.why.unwrap()).collect();
    use Failure::{Gone, NoRoom, Unmapped, Unsupported};
    assert_eq!(why, [Unsupported, Unmapped, NoRoom, Gone]);
}

#[test]
fn pages_have_numbers_places_and_watermarks() {
    let mut machine = busy();
    let whole = area(&mut machine);
    let at = Range::new(whole.space, whole.start + 5 * 4096 + 7, whole.end);
    assert_eq!(machine.page_at(&at), Some(PageId(5)));
    assert_eq!(
        machine.range_of(PageId(5)),
        Some(Range::new(whole.space, whole.start + 5 * 4096, whole.start + 6 * 4096))
    );
    assert_eq!(machine.tier_of(PageId(5)), Some(SLOW));
    assert_eq!(machine.tier_of(PageId(1 << 28)), None, "a terabyte has 2^28 pages");
    let pressure = machine.pressure().unwrap().tiers;
    assert_eq!(pressure.len(), 2);
    assert!(pressure[0].low > 0 && pressure[0].low < pressure[0].high);
    let tiers = machine.placement().unwrap().tiers().to_vec();
    assert_eq!(tiers[1].used, 1 << 40);
    assert_eq!(tiers[0].used, 1 << 31, "page tables");
}

// One thread that waits for each line: time stolen by telemetry is missing from its progress.
#[test]
fn stolen_time_slows_the_target_down() {
    let rate = |steals: bool| {
        let mut config = Config { rate: None, overlap: Some(1), ..config() };
        config.shared_core = true;
        let mut machine = machine(config, "contiguous:space=10GiB,hot=1GiB");
        let whole = area(&mut machine);
        while machine.now() < Time(SECOND) {
            pass(&mut machine, SECOND / 100);
            if steals {
                let mode = ScanMode::default();
                let part = Range::new(whole.space, whole.start, whole.start + GIB);
                machine.scan(&part, Level::PTE, mode, &mut AccessedSet::default()).unwrap();
            }
        }
        let account = machine.account();
        let stolen = account.spent.telemetry.as_secs_f64() / machine.now().seconds();
        (account.counts.accesses as f64 / machine.now().seconds(), stolen)
    };
    let ((with, stolen), (without, _)) = (rate(true), rate(false));
    assert!(stolen > 0.1 && stolen < 0.2, "{stolen}");
    assert!((with / without - (1.0 - stolen)).abs() < 0.01, "{with} {without} {stolen}");
}

// Cache misses can be sampled: misses of the hot set, which is far larger than the cache, carry the
// tier that served them.
#[test]
fn cache_misses_are_sampled_with_their_tier() {
    use tierscope_core::{Sample, Samples};
    use tierscope_sim::config::{Event, Period, Sampling};
    let mut sampling = Sampling::loads_and_stores(Period::PerSecond(10_000));
    sampling.events = vec![Event::LoadMisses];
    let turns = Placement::Interleave(vec![FAST, SLOW]);
    let config = Config { sampling: Some(sampling), placement: turns, ..config() };
    let spec = "contiguous:space=100GiB,hot=1MiB,at=1GiB,share=0.9,rate=3000000";
    let mut machine = machine(config, spec);
    let hot = machine.hot_at(Time(0)).as_slice()[0];
    pass(&mut machine, SECOND);
    let mut samples: Vec<Sample> = Vec::new();
    Samples::drain(&mut machine, &mut samples);
    assert!(samples.len() > 9_000, "{}", samples.len());
    let inside = samples.iter().filter(|sample| hot.contains(sample.at)).count();
    assert!(inside < samples.len() / 50, "a megabyte lives in the caches: {inside}");
    let fast = samples.iter().filter(|sample| sample.tier == Some(FAST)).count() as f64;
    let share = fast / samples.len() as f64;
    assert!((share - 0.5).abs() < 0.03, "{share}");
}

// Memory of 400 MiB a second, saturated by a move of 1.2 GiB a second: once it is over, the access
// rate equals the counted rate, and is no lower than before.
#[test]
fn a_finished_move_slows_no_thread_down() {
    use tierscope_core::{Sample, Samples};
    use tierscope_sim::config::{Event, Period, Sampling};
    const EVERY: u64 = 1000;
    let mut sampling = Sampling::loads_and_stores(Period::Every(EVERY));
    sampling.events = vec![Event::LoadMisses];
    let mut config = Config {
        sampling: Some(sampling),
        placement: Placement::Bind(SLOW),
        rate: None,
        cores: 16,
        ..config()
    };
    config.hardware.tiers[1].read_mib_s = 400;
    config.hardware.tiers[1].write_mib_s = 400;
    let mut machine = machine(config, "contiguous:space=10GiB,hot=1GiB,at=1GiB");
    let second = |machine: &mut Machine| {
        let mut samples: Vec<Sample> = Vec::new();
        let missed = machine.account().counts.llc_misses();
        machine.drain(&mut samples);
        samples.clear();
        pass(machine, SECOND);
        machine.drain(&mut samples);
        let missed = machine.account().counts.llc_misses() - missed;
        let sampled = samples.len() as u64 * EVERY;
        assert!(sampled.abs_diff(missed) < missed / 20, "{sampled} of {missed}");
        missed
    };
    let before = second(&mut machine);
    let hot = machine.hot_at(Time(0)).as_slice()[0];
    let some = Range { end: hot.start + 100 * MIB, ..hot };
    machine.mover().submit(&[order(0, some, ActionKind::Move(FAST))], ALL).unwrap();
    pass(&mut machine, SECOND / 20);
    let meanwhile = machine.flow(0.0);
    assert!(meanwhile.tiers[1].utilisation > 0.99, "{meanwhile:?}");
    pass(&mut machine, SECOND);
    assert_eq!(outcomes(&machine)[0].done, 100 * MIB);
    let after = second(&mut machine);
    assert!(after > before, "{after} {before}");
}

/// Moves every hot region to the fast tier, once.
#[derive(Default)]
struct Promote {
    asked: RangeSet,
    next: u64,
}

impl Policy for Promote {
    fn name(&self) -> &'static str {
        "promote"
    }

    fn settings(&self) -> Vec<Setting> {
        Vec::new()
    }

    fn observe(&mut self, evidence: Evidence<'_>, orders: &mut Orders) {
        let Evidence::Regions(snapshot) = evidence else { return };
        let hot = metrics::hot(snapshot, metrics::HOT_FREQUENCY);
        for range in hot.minus(&self.asked).as_slice() {
            orders.actions.push(order(self.next, *range, ActionKind::Move(FAST)));
            self.next += 1;
        }
        self.asked = self.asked.as_slice().iter().chain(hot.as_slice()).copied().collect();
    }

    fn tick(&mut self, now: Time, placement: &dyn PlacementView, _: &mut Orders) -> Time {
        assert_eq!(placement.tiers().len(), 2);
        now + Duration::from_secs(1)
    }
}

// The article's machine: 2 TB in Optane, 4 GB of it hot, 170 threads. Regions that `rates` reports
// as hot move to DRAM, and the target gets faster.
#[test]
fn a_policy_drives_the_machine() {
    let config = Config { placement: Placement::Bind(SLOW), rate: None, cores: 170, ..config() };
    let mut machine = machine(config, "contiguous:space=2TB,hot=4GB,at=700GB");
    let before = machine.flow(0.0);
    let common = Common { window: Some(Duration::from_millis(200)), ..Default::default() };
    let mut rates = registry::make("rates", None, &common).unwrap();
    let mut mover = machine.mover();
    let course = Course::until(Time(8 * SECOND));
    let mut policy = Promote::default();
    tier(&mut machine, &mut *rates, &mut policy, &mut mover, ALL, &course, &mut ()).unwrap();
    let after = machine.flow(0.0);
    let share = after.fast_tier_share().unwrap();
    println!("{share}: {} to {} accesses a second", before.rate, after.rate);
    assert!(share > 0.9, "{share}");
    assert!(after.rate > 1.5 * before.rate, "{} {}", after.rate, before.rate);
    let spent = machine.account().spent;
    assert!(spent.mover > Duration::from_secs(3) && spent.telemetry > Duration::ZERO, "{spent:?}");
}
