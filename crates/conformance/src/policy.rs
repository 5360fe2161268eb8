//! Requirements on every policy, on any evidence.

use std::time::Duration;

use tierscope_core::drive::{Course, tier};
use tierscope_core::{
    Access, AccessedSet, Action, ActionId, ActionKind, Addr, Budget, Evidence, Failure, HintFault,
    Level, Mapping, Mappings, Orders, Outcome, PageEvent, PageEventKind, PageId, PlacementView,
    Policy, Pressure, Probe, Range, Region, Rng, RuleId, Sample, ScanOrder, ScanStats, Snapshot,
    Space, SpaceId, State, Tier, TierPressure, TierReads, TierUse, Time, Unknown,
};

use crate::tiers::{Size, Tiered, Trouble};
use crate::toy::{Workload, idle, random_touches};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Properties in which policies legitimately differ.
#[derive(Clone, Copy, Debug)]
pub struct Traits {
    /// Seconds after which half of a hot set in the slow tier has been promoted, with room in the
    /// fast tier; `None` for a policy that does not promote.
    pub promotes: Option<f64>,
    /// Bytes of the mapping used by the suite.
    pub mapped: u64,
    /// Whether the mapping has huge pages.
    pub huge: bool,
    /// Seconds after which idle memory has been reclaimed; `None` for a policy that does not
    /// reclaim.
    pub reclaims: Option<f64>,
}

/// Promotes half within ten seconds; 64 MiB of small pages.
impl Default for Traits {
    fn default() -> Self {
        Self { promotes: Some(10.0), mapped: 64 * MIB, huge: false, reclaims: None }
    }
}

/// Runs the whole suite. `make` builds a new policy, with the same seed each time.
///
/// # Panics
/// If a requirement is violated; the message names it.
pub fn conforms(make: &dyn Fn() -> Box<dyn Policy>, traits: &Traits) {
    match traits.reclaims {
        None => an_idle_workload_moves_nothing(make, traits),
        Some(seconds) => what_is_cold_goes(make, traits, seconds),
    }
    every_order_makes_sense(make, traits);
    same_seed_same_orders(make, traits);
    work_is_charged(make, traits);
    what_is_hot_comes_over(make, traits);
    survives_failures(make, traits);
    survives_changes_of_layout(make, traits);
    survives_any_evidence(make);
    what_is_unknown_moves_nothing(make, traits);
}

/// Drives a policy on a machine for `seconds` of virtual time.
///
/// # Panics
/// If the drive loop fails.
pub fn run(machine: &mut Tiered, policy: &mut dyn Policy, trouble: Trouble, seconds: f64) {
    let (mut mover, mut oracle) = (machine.mover(trouble), machine.oracle());
    let until = Time(0) + Duration::from_secs_f64(seconds);
    let budget = Budget { bytes: u64::MAX };
    let course = Course::until(until);
    tier(machine, &mut oracle, policy, &mut mover, budget, &course, &mut ())
        .expect("the policy runs");
}

fn mapped(traits: &Traits) -> Range {
    Range::new(SpaceId(0), GIB, GIB + traits.mapped)
}

/// The hot set: a sixteenth of the mapping, starting at its middle.
fn hot(traits: &Traits) -> Range {
    let range = mapped(traits);
    let start = range.start + range.bytes() / 2;
    Range { start, end: start + range.bytes() / 16, ..range }
}

/// Touches per second: 40 per hot page, capped to bound the time of the test.
fn rate(traits: &Traits) -> u64 {
    (hot(traits).bytes() / 4096 * 40).min(30_000)
}

/// Tier sizes: a quarter of the mapping in the first tier, and more than all of it in each other
/// tier.
fn sizes(traits: &Traits, tiers: usize) -> Vec<Size> {
    let pages = traits.mapped / 4096;
    (0..tiers).map(|tier| Size::of(if tier == 0 { pages / 4 } else { pages + pages / 8 })).collect()
}

/// A machine whose memory is filled in order of address.
fn filled(traits: &Traits, tiers: usize, workload: Workload) -> Tiered {
    let range = mapped(traits);
    let mut machine = Tiered::new(&sizes(traits, tiers), &[range], traits.huge, workload);
    machine.fill(&range);
    machine
}

fn busy(traits: &Traits, tiers: usize) -> Tiered {
    let rate = rate(traits);
    filled(traits, tiers, random_touches(&[hot(traits)], rate, 11))
}

fn assert_sound(machine: &Tiered) {
    let faults = machine.faults();
    assert!(faults.is_empty(), "{} faults, first: {}", faults.len(), faults[0]);
}

/// Nothing is accessed after filling, and every tier is above its low watermark: no orders.
fn an_idle_workload_moves_nothing(make: &dyn Fn() -> Box<dyn Policy>, traits: &Traits) {
    let range = mapped(traits);
    let half = Range { end: range.start + range.bytes() / 8, ..range };
    let rest = Range { start: range.start + range.bytes() / 2, ..range };
    let mut machine = Tiered::new(&sizes(traits, 2), &[range], traits.huge, idle());
    machine.fill(&half);
    machine.fill(&rest);
    machine.place(&rest, Tier(1));
    run(&mut machine, &mut *make(), Trouble::default(), 20.0);
    assert_eq!(machine.actions(), [], "nothing was touched");
    assert_sound(&machine);
}

/// Idle memory is reclaimed, accessed memory stays.
fn what_is_cold_goes(make: &dyn Fn() -> Box<dyn Policy>, traits: &Traits, seconds: f64) {
    let mut machine = busy(traits, 2);
    run(&mut machine, &mut *make(), Trouble::default(), seconds);
    assert_sound(&machine);
    let resident = |range: &Range| -> f64 {
        let of = |tier| PlacementView::resident(&machine, range, Tier(tier));
        (0..2).map(of).sum::<u64>() as f64 / range.bytes() as f64
    };
    let (all, hot) = (resident(&mapped(traits)), resident(&hot(traits)));
    assert!(hot > 0.9, "{hot:.3} of the hot memory is still there after {seconds} s");
    assert!(all < 0.2, "{all:.3} of all memory is still there after {seconds} s");
    let kinds = machine.actions();
    assert!(kinds.iter().all(|action| action.kind == ActionKind::Reclaim), "it moves nothing");
}

fn every_order_makes_sense(make: &dyn Fn() -> Box<dyn Policy>, traits: &Traits) {
    for tiers in [2, 3] {
        let mut machine = busy(traits, tiers);
        run(&mut machine, &mut *make(), Trouble::default(), 8.0);
        assert_sound(&machine);
        let used: u64 = machine.used().iter().sum();
        let kept = used == traits.mapped / 4096;
        assert!(kept || traits.reclaims.is_some(), "only a reclaim policy unmaps pages");
    }
}

fn same_seed_same_orders(make: &dyn Fn() -> Box<dyn Policy>, traits: &Traits) {
    let once = || {
        let mut machine = busy(traits, 2);
        run(&mut machine, &mut *make(), Trouble::default(), 6.0);
        (machine.actions(), machine.work())
    };
    assert_eq!(once(), once());
}

fn work_is_charged(make: &dyn Fn() -> Box<dyn Policy>, traits: &Traits) {
    let mut machine = busy(traits, 2);
    run(&mut machine, &mut *make(), Trouble::default(), 6.0);
    let free = traits.promotes.is_none() && machine.actions().is_empty();
    assert!(free || machine.work() > Duration::ZERO, "nothing is free");
}

/// A sixteenth of the memory is hot and in the slow tier, and the fast tier has room for it: at
/// least half is promoted.
fn what_is_hot_comes_over(make: &dyn Fn() -> Box<dyn Policy>, traits: &Traits) {
    let Some(seconds) = traits.promotes else { return };
    let range = mapped(traits);
    let rate = rate(traits);
    let workload = random_touches(&[hot(traits)], rate, 11);
    let mut machine = Tiered::new(&sizes(traits, 2), &[range], traits.huge, workload);
    let rest = Range { start: range.start + range.bytes() / 8, ..range };
    machine.fill(&rest);
    machine.place(&rest, Tier(1));
    run(&mut machine, &mut *make(), Trouble::default(), seconds);
    assert_sound(&machine);
    let there = tierscope_core::PlacementView::resident(&machine, &hot(traits), Tier(0));
    let share = there as f64 / hot(traits).bytes() as f64;
    assert!(share >= 0.5, "{share:.3} of the hot set is in the fast tier after {seconds} s");
}

/// Actions that fail, each for a different reason, and outcomes that arrive late and out of order.
fn survives_failures(make: &dyn Fn() -> Box<dyn Policy>, traits: &Traits) {
    for trouble in [
        Trouble { every: 3, ..Trouble::default() },
        Trouble { every: 1, ..Trouble::default() },
        Trouble { late: 40, ..Trouble::default() },
        Trouble { every: 2, late: 17, ..Trouble::default() },
    ] {
        let mut machine = busy(traits, 2);
        run(&mut machine, &mut *make(), trouble, 5.0);
        assert_sound(&machine);
    }
}

/// Mappings disappear, new ones appear, and old addresses are reused.
fn survives_changes_of_layout(make: &dyn Fn() -> Box<dyn Policy>, traits: &Traits) {
    let before = mapped(traits);
    let next = Range::new(SpaceId(0), before.end + GIB, before.end + GIB + traits.mapped / 4);
    let other = Range::new(SpaceId(1), GIB, GIB + traits.mapped / 4);
    let second = |n: u64| Time(n * 1_000_000_000);
    let workload = random_touches(&[hot(traits), next, other], 30_000, 5);
    let mut machine = Tiered::new(&sizes(traits, 2), &[before], traits.huge, workload)
        .with_layout(second(3), vec![before, next])
        .with_layout(second(5), vec![next, other])
        .with_layout(second(7), vec![before, other]);
    machine.fill(&before);
    let page = Range { end: before.start + 2 * MIB, ..before };
    machine.page_event(page, PageEventKind::Locked);
    machine.page_event(page, PageEventKind::FileAccess(Access::Store));
    let others = Trouble { others: true, ..Trouble::default() };
    run(&mut machine, &mut *make(), others, 10.0);
    assert_sound(&machine);
}

/// Evidence by regions in a run, the same in every window.
#[derive(Clone, Copy, Debug)]
enum RegionEvidence {
    Nothing,
    /// Regions that all have this many hits of 40, and are unknown or not.
    Regions {
        hits: f32,
        unknown: bool,
    },
}

/// Hits of 40 samples: always accessed, never accessed.
const HITS: [f32; 2] = [40.0, 0.0];

/// Regions that are all unknown cause no actions, whatever their hits: neither by themselves, nor
/// where the policy's own probes find nothing accessed either. A policy that acts on such probes
/// alone, without any regions, is exempt.
fn what_is_unknown_moves_nothing(make: &dyn Fn() -> Box<dyn Policy>, traits: &Traits) {
    for answers in [false, true] {
        if !actions_on(&mut *make(), traits, RegionEvidence::Nothing, answers).is_empty() {
            continue;
        }
        for hits in HITS {
            let found = RegionEvidence::Regions { hits, unknown: true };
            let actions = actions_on(&mut *make(), traits, found, answers);
            assert_eq!(actions, [], "{found:?}, probes answered: {answers}");
        }
    }
}

/// Whether the policy acts on regions known to be hot, and on regions known to be cold, while its
/// own probes find nothing accessed: shows that the suite's regions would matter if they were not
/// unknown.
#[must_use]
pub fn acts_on_regions(make: &dyn Fn() -> Box<dyn Policy>, traits: &Traits) -> [bool; 2] {
    HITS.map(|hits| {
        let found = RegionEvidence::Regions { hits, unknown: false };
        !actions_on(&mut *make(), traits, found, true).is_empty()
    })
}

/// A placement view: one half of the mapping in each tier, and room for all of it in the fast tier.
struct Halves(Range, [TierUse; 2]);

impl Halves {
    fn of(range: Range) -> Self {
        let half = range.bytes() / 2;
        let tier = |n| TierUse { tier: Tier(n), capacity: 2 * range.bytes(), used: half };
        Self(range, [tier(0), tier(1)])
    }

    fn part(&self, tier: Tier) -> Range {
        let middle = self.0.start + self.0.bytes() / 2;
        match tier {
            Tier(0) => Range { end: middle, ..self.0 },
            _ => Range { start: middle, ..self.0 },
        }
    }
}

impl PlacementView for Halves {
    fn tiers(&self) -> &[TierUse] {
        &self.1
    }

    fn tier_of(&self, page: PageId) -> Option<Tier> {
        let here = self.range_of(page)?;
        (0..2).map(Tier).find(|tier| self.part(*tier).intersect(&here).is_some())
    }

    fn page_at(&self, range: &Range) -> Option<PageId> {
        let here = self.0.intersect(range)?;
        Some(PageId(((here.start - self.0.start) >> 12) as u32))
    }

    fn range_of(&self, page: PageId) -> Option<Range> {
        let start = self.0.start + (u64::from(page.0) << 12);
        (start < self.0.end).then_some(Range { start, end: start + 4096, ..self.0 })
    }

    fn resident(&self, range: &Range, tier: Tier) -> u64 {
        self.part(tier).intersect(range).map_or(0, |common| common.bytes())
    }
}

/// Actions of a policy over twenty seconds in windows of 200 ms. Its own probes and scans find
/// every page present and old, or are not answered at all.
fn actions_on(
    policy: &mut dyn Policy,
    traits: &Traits,
    regions: RegionEvidence,
    answers: bool,
) -> Vec<Action> {
    let (range, view) = (mapped(traits), Halves::of(mapped(traits)));
    let mut orders = Orders::default();
    let mut actions = Vec::new();
    let mut due = Time(0);
    policy.observe(Evidence::Mappings(&one_mapping(range)), &mut orders);
    for window in 0..100 {
        let (start, end) = (Time(window * 200_000_000), Time((window + 1) * 200_000_000));
        if let RegionEvidence::Regions { hits, unknown } = regions {
            let regions = regions_of(&range, hits, unknown);
            let snapshot = Snapshot { start, end, samples: 40, regions };
            policy.observe(Evidence::Regions(&snapshot), &mut orders);
        }
        // Within a window the policy ticks as often as it requests, at most 20 times.
        for _ in 0..20 {
            if due > end {
                break;
            }
            let now = due.max(start);
            due = policy.tick(now, &view, &mut orders).max(now + Duration::from_millis(10));
            actions.append(&mut orders.actions);
            let (probes, scans) =
                (std::mem::take(&mut orders.probes), std::mem::take(&mut orders.scans));
            orders.clear();
            if answers {
                find_nothing_accessed(probes, &scans, policy, &mut orders);
            }
        }
        actions.append(&mut orders.actions);
    }
    actions
}

fn one_mapping(range: Range) -> Mappings {
    let name: std::sync::Arc<str> = "".into();
    let backing = tierscope_core::Backing::Anonymous;
    let mapping = Mapping { range, backing, name: name.clone(), writable: true, object: None };
    let spaces = vec![Space { id: range.space, name }];
    Mappings { taken: Time(0), spaces, mappings: vec![mapping], ..Mappings::default() }
}

/// Sixteen regions that tile the range.
fn regions_of(range: &Range, hits: f32, unknown: bool) -> Vec<Region> {
    let size = range.bytes() / 16;
    let region = |index: u64| {
        let start = range.start + index * size;
        Region {
            range: Range { start, end: start + size, ..*range },
            hits,
            samples: 40,
            age: 100,
            level: Some(Level::PMD),
            confidence: 1.0,
            rate: None,
            unknown: unknown.then_some(Unknown::Evidence),
            resident: None,
        }
    };
    (0..16).map(region).collect()
}

fn find_nothing_accessed(
    mut probes: Vec<Probe>,
    scans: &[ScanOrder],
    policy: &mut dyn Policy,
    orders: &mut Orders,
) {
    probes.iter_mut().for_each(|probe| probe.answer.state = State::Old);
    policy.observe(Evidence::Bits(&probes), orders);
    for order in scans.iter().flat_map(|scan| scan.parts()) {
        let mut set = AccessedSet::default();
        set.reset(&order.range, order.level, order.mode.present);
        set.present.iter_mut().for_each(|word| *word = u64::MAX);
        policy.observe(Evidence::Scanned(&set, &ScanStats::default()), orders);
    }
}

/// A placement view with random answers.
struct Liar(Vec<TierUse>, u64);

impl Liar {
    fn draw(&self, salt: u64, bound: u64) -> u64 {
        Rng::seeded(self.1 ^ salt.wrapping_mul(0x9e37_79b9)).below(bound)
    }
}

impl PlacementView for Liar {
    fn tiers(&self) -> &[TierUse] {
        &self.0
    }

    fn tier_of(&self, page: PageId) -> Option<Tier> {
        let tier = self.draw(page.0.into(), 4);
        (tier < 3).then_some(Tier(tier as u8))
    }

    fn page_at(&self, range: &Range) -> Option<PageId> {
        (self.draw(range.start, 3) > 0).then_some(PageId((range.start >> 12) as u32 % 40_000))
    }

    fn range_of(&self, page: PageId) -> Option<Range> {
        let start = u64::from(page.0) << 12;
        (self.draw(!u64::from(page.0), 5) > 0)
            .then(|| Range::new(SpaceId(page.0 % 2), start, start + 4096))
    }

    fn resident(&self, range: &Range, tier: Tier) -> u64 {
        self.draw(range.start + u64::from(tier.0), range.bytes().max(1))
    }
}

/// Random evidence of all kinds in any order: the policy may decide anything, but must not panic,
/// and its orders must be well-formed.
fn survives_any_evidence(make: &dyn Fn() -> Box<dyn Policy>) {
    for seed in 0..4 {
        let mut rng = Rng::seeded(seed);
        let mut policy = make();
        let mut orders = Orders::default();
        let mut issued = 0;
        for step in 0..400u64 {
            match rng.below(12) {
                0 | 1 => {
                    let tier = |n: u8| TierUse {
                        tier: Tier(n),
                        capacity: (64 * MIB) << n,
                        used: Rng::seeded(seed + u64::from(n)).below(64 * MIB),
                    };
                    let view = Liar((0..3).map(tier).collect(), seed ^ step);
                    let now = Time(step * 100_000_000);
                    let _ = policy.tick(now, &view, &mut orders);
                }
                kind => invent(kind, &mut rng, step, &mut *policy, &mut orders),
            }
            for action in &orders.actions {
                assert_eq!(action.id, ActionId(issued), "numbers are dense");
                assert!(!action.range.is_empty(), "{action:?}");
                issued += 1;
            }
            let mut answers = std::mem::take(&mut orders.probes);
            for probe in &mut answers {
                let states =
                    [State::Young, State::Old, State::Unmapped, State::Gone, State::Absent];
                probe.answer.state = states[rng.below(5) as usize];
            }
            let actions = std::mem::take(&mut orders.actions);
            let scans = std::mem::take(&mut orders.scans);
            orders.clear();
            invent_scans(&scans, &mut rng, &mut *policy, &mut orders);
            // Answers to probes may be lost.
            if rng.below(4) > 0 {
                policy.observe(Evidence::Bits(&answers), &mut orders);
            }
            conclude(&actions, &mut rng, &mut *policy, &mut orders);
            issued_before_next(&mut orders, &mut issued);
        }
    }
}

/// Checks and clears orders that were issued in reaction to answers.
fn issued_before_next(orders: &mut Orders, issued: &mut u64) {
    for action in orders.actions.drain(..) {
        assert_eq!(action.id, ActionId(*issued), "numbers are dense");
        *issued += 1;
    }
    orders.clear();
}

/// Random answers to scans; some are missing.
fn invent_scans(scans: &[ScanOrder], rng: &mut Rng, policy: &mut dyn Policy, orders: &mut Orders) {
    for order in scans.iter().flat_map(|scan| scan.parts()) {
        assert!(!order.range.is_empty(), "{order:?}");
        let mut set = AccessedSet::default();
        set.reset(&order.range, order.level, order.mode.present);
        for words in [&mut set.young, &mut set.present] {
            words.iter_mut().for_each(|word| *word = rng.next_u64());
        }
        let stats = ScanStats { leaves: [0, rng.below(3), 0, 0, 0], ..ScanStats::default() };
        if rng.below(4) > 0 {
            policy.observe(Evidence::Scanned(&set, &stats), orders);
        }
    }
}

fn conclude(actions: &[Action], rng: &mut Rng, policy: &mut dyn Policy, orders: &mut Orders) {
    let mut outcomes = Vec::new();
    for action in actions {
        let bytes = action.range.bytes();
        let done = [0, bytes, bytes / 2][rng.below(3) as usize];
        let why = (done < bytes && rng.below(2) > 0).then_some(Failure::NoRoom);
        outcomes.push(Outcome { id: action.id, time: Time(0), done, failed: bytes - done, why });
    }
    outcomes.push(Outcome {
        id: ActionId(rng.below(1000)),
        time: Time(0),
        done: 0,
        failed: 1,
        why: Some(Failure::Gone),
    });
    outcomes.reverse();
    policy.observe(Evidence::Outcomes(&outcomes), orders);
}

fn invent(kind: u64, rng: &mut Rng, step: u64, policy: &mut dyn Policy, orders: &mut Orders) {
    let now = Time(step * 100_000_000);
    let space = SpaceId(rng.below(2) as u32);
    let start = rng.below(30_000) << 12;
    let range = Range::new(space, start, start + (rng.below(600) << 12));
    let at = Addr { space, at: start + rng.below(4096) };
    let access = if rng.below(2) > 0 { Access::Load } else { Access::Store };
    match kind {
        2 => {
            let backing = tierscope_core::Backing::Anonymous;
            let name: std::sync::Arc<str> = "".into();
            let range = Range { end: range.start + (8 << 20), ..range };
            let mapping =
                Mapping { range, backing, name: name.clone(), writable: true, object: None };
            let spaces = vec![Space { id: space, name }];
            let mappings =
                Mappings { taken: now, spaces, mappings: vec![mapping], ..Mappings::default() };
            policy.observe(Evidence::Mappings(&mappings), orders);
        }
        3 => {
            let region = Region {
                range,
                hits: rng.below(60) as f32,
                samples: rng.below(50) as u32,
                age: rng.below(9) as u32,
                level: None,
                confidence: rng.below(3) as f32 / 2.0,
                rate: None,
                unknown: (rng.below(3) == 0).then_some(Unknown::Evidence),
                resident: None,
            };
            let regions = if range.is_empty() { vec![] } else { vec![region] };
            let snapshot = Snapshot { start: now, end: now, samples: 40, regions };
            policy.observe(Evidence::Regions(&snapshot), orders);
        }
        4 => {
            let mut probe = Probe::test(at, Level::PTE);
            probe.answer.state = State::Young;
            policy.observe(Evidence::Bits(&[probe, probe]), orders);
        }
        5 => {
            let tier = Some(Tier(rng.below(9) as u8));
            let sample = Sample { time: now, at, access, core: 0, tier };
            policy.observe(Evidence::Samples(&[sample; 3]), orders);
        }
        6 => {
            let armed = Time(rng.below(now.0 + 1));
            let fault = HintFault { time: now, armed, at, access, core: 0 };
            policy.observe(Evidence::Faults(&[fault; 2]), orders);
        }
        7 | 8 => {
            let kinds = [
                PageEventKind::Allocated(Tier(rng.below(3) as u8)),
                PageEventKind::Freed,
                PageEventKind::Locked,
                PageEventKind::Unlocked,
                PageEventKind::FileAccess(access),
            ];
            let kind = kinds[rng.below(5) as usize];
            policy.observe(Evidence::PageEvents(&[PageEvent { time: now, range, kind }]), orders);
        }
        9 => policy.observe(Evidence::Counters(RuleId(rng.below(3) as u32), &[1, 2]), orders),
        10 => {
            let free = rng.below(64 * MIB);
            let served = rng.below(1_000_000);
            let outstanding = Duration::from_nanos(served * rng.below(1000));
            let reads =
                (served > 100).then_some(TierReads { served, outstanding, idle: Duration::ZERO });
            let (low, high) = (4 * MIB, 8 * MIB);
            let tier = |n: u64| TierPressure { tier: Tier(n as u8), free, low, high, reads };
            let tiers = (0..rng.below(4)).map(tier).collect();
            let pressure = Pressure { tiers, stalled: 0.3, cores_stalled: None };
            policy.observe(Evidence::Pressure(&pressure), orders);
        }
        _ => policy.observe(Evidence::Outcomes(&[]), orders),
    }
}

/// Whether an action promotes to the fastest tier.
#[must_use]
pub fn promotes(action: &Action) -> bool {
    action.kind == ActionKind::Move(Tier(0))
}
