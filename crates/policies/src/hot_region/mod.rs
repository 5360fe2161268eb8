//! Promotes hot regions to the fast tier: the data tiering of the Telescope article.
//!
//! Source: the article's section "Setup and Benchmarks": regions and counts every 200 ms from any
//! telemetry; "We considered regions with 5 or more accesses in the last 120 secs as HOT. Hot
//! regions with size 4GB or less were migrated from Optane to DRAM in descending order of access
//! counts. Up to 10GB of data may be migrated in one round." The initial placement (interleaved in
//! the slow tier) is up to the machine.
//!
//! Left open by the article, decided here:
//!
//! - The article leaves hot regions above 4 GB open. They are promoted by parts of
//!   that size, after the others: its own hot sets, of 20 GB in one range, were moved.
//! - A round begins with a window, once all moves of the last round have ended.
//! - The article's fast tier was never full. Here, if the fast tier has no room above its low
//!   watermark, the regions with the fewest accesses are demoted to the next tier first, but never
//!   a region with more than half the accesses of the region promoted for it.
//! - `share`: this share of the resident bytes is kept in the fast tier, neither more nor less, the
//!   hottest first, even if they are not hot.
//! - A region whose instrument reports a confidence below [`tierscope_core::CONFIRMED`] is verified
//!   by probes of single pages before it moves ([`verify`]): one young entry of an upper level says
//!   little about the 512 entries below.
//! - A range whose move failed is skipped for a while.
//!
//! Accesses counted under earlier region bounds keep their addresses: a current region that covers
//! a formerly hot one is hot only there (`history.rs`). The hits of all windows are added up, so
//! windows must not count an access twice. With an instrument that itself counts over the 120 s, as
//! `pebs` in its variant *patient* does, set `history` to one window: then only its latest counts
//! are used.

mod history;
mod parts;
pub mod verify;

use std::time::Duration;

use tierscope_core::{
    Action, ActionId, ActionKind, CONFIRMED, Evidence, Mappings, Need, Orders, Outcome, PAGE_SIZE,
    PlacementView, Policy, Pressure, Range, Region, Setting, Snapshot, Tier, TierUse, Time,
};

use crate::cost::Costs;
use crate::registry::{Entry, keys_of, made};
use crate::settings::{Bytes, Settings, Visit, recorded};
use history::History;
use parts::parts;
use verify::{Verdict, Verifier};

/// The policy `hot-region` in the list.
pub(crate) const ENTRY: Entry = Entry {
    name: "hot-region",
    about: "hot regions of up to 4 GB, the hottest first, 10 GB a round",
    source: "the Telescope article, data tiering",
    tracks: "regions of any instrument",
    granularity: "regions",
    promotes: "frequency: 5 accesses in 120 s",
    demotes: "the fewest accesses, for room",
    cost: "the instrument's",
    page_bytes: None,
    needs: &[Need::Regions],
    uses: &[Need::AccessBits, Need::Pressure],
    sampling: None,
    reclaims: false,
    make: made!("hot-region", Config::default(), HotRegion::new),
    keys: || keys_of(&mut Config::default()),
};

/// Settings of the policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Accesses (sampling hits) from which a region is hot.
    pub hits: f64,
    /// Sliding time span over which accesses are counted.
    pub history: Duration,
    /// Minimum time between two rounds.
    pub window: Duration,
    /// Size above which a hot region is promoted by parts, one of this size a round, after all
    /// others.
    pub largest: Bytes,
    /// Maximum bytes promoted per round.
    pub round: Bytes,
    /// Share of the resident bytes to keep in the fast tier; `None` for all hot regions and no
    /// others.
    pub share: Option<f64>,
    /// Verification of regions of low confidence.
    pub verify: verify::Config,
    /// Time for which a range is skipped after a failed move.
    pub retry: Duration,
    /// CPU costs of the policy's own work.
    pub costs: Costs,
}

/// The article's values: 5 in 120 s, windows of 200 ms, 4 GB, 10 GB. `retry` is assumed.
impl Default for Config {
    fn default() -> Self {
        Self {
            hits: 5.0,
            history: Duration::from_secs(120),
            window: Duration::from_millis(200),
            largest: Bytes(4 << 30),
            round: Bytes(10 << 30),
            share: None,
            verify: verify::Config::default(),
            retry: Duration::from_secs(10),
            costs: Costs::default(),
        }
    }
}

impl Settings for Config {
    fn visit(&mut self, each: &mut dyn Visit) {
        each.value("hits", "accesses from which a region is hot", &mut self.hits);
        each.value("history", "time over which they count", &mut self.history);
        each.value("window", "least time between two rounds", &mut self.window);
        each.value(
            "largest",
            "larger regions are promoted last, by parts of this size",
            &mut self.largest,
        );
        each.value("round", "bytes promoted in a round at most", &mut self.round);
        let about = "share of the resident bytes to keep in the fast tier, or none";
        each.value("share", about, &mut self.share);
        self.verify.visit(each);
        each.value("retry", "time for which what could not move is left alone", &mut self.retry);
        self.costs.visit(each);
    }

    fn check(&self) -> Result<(), String> {
        if self.share.is_some_and(|share| share > 1.0) {
            return Err("`share` is a share of the resident bytes, 0 to 1".into());
        }
        if self.window.is_zero() || self.history < self.window {
            return Err("`window` must be above zero and no longer than `history`".into());
        }
        if self.hits <= 0.0 || self.round.0 < PAGE_SIZE || self.largest.0 < PAGE_SIZE {
            return Err("`hits` must be above 0, `round` and `largest` a page at least".into());
        }
        self.verify.check()
    }
}

/// A region of the last window, or a run of it, with its accesses.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Heat {
    range: Range,
    accesses: f64,
    confidence: f32,
}

/// Remaining limits of the current round.
#[derive(Clone, Copy, Debug, Default)]
struct Allowance {
    /// Bytes that may still be promoted in this round.
    round: u64,
    /// Bytes still free in the fast tier.
    room: u64,
    /// Bytes still free in the next tier.
    below: u64,
}

/// Tolerated deviation of the fast tier from `share`, as a share of the resident bytes, before
/// regions are demoted: a quarter of the guaranteed percentage point.
const SLACK: f64 = 0.0025;

/// A pending move.
#[derive(Clone, Copy, Debug)]
struct PendingMove {
    id: ActionId,
    range: Range,
}

/// The hot region policy.
#[derive(Clone, Debug)]
pub struct HotRegion {
    config: Config,
    history: History,
    /// The last snapshot's regions; emptied by the round that uses them.
    latest: Vec<Heat>,
    fresh: bool,
    mapped: Vec<Range>,
    verifier: Verifier,
    under_way: Vec<PendingMove>,
    /// Ranges whose move failed, and the time until which each is skipped.
    failed: Vec<(Range, Time)>,
    low: Vec<u64>,
    next_action: u64,
    next_tick: Time,
    now: Time,
}

impl HotRegion {
    /// The policy with these settings.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            history: History::new(config.history),
            verifier: Verifier::new(config.verify.clone()),
            latest: Vec::new(),
            fresh: false,
            mapped: Vec::new(),
            under_way: Vec::new(),
            failed: Vec::new(),
            low: Vec::new(),
            next_action: 0,
            next_tick: Time(0),
            now: Time(0),
            config,
        }
    }

    fn take_snapshot(&mut self, snapshot: &Snapshot, orders: &mut Orders) {
        self.config.costs.charge(orders, snapshot.regions.len() as u64);
        self.history.add(snapshot);
        self.latest.clear();
        let mut history = self.history.reader();
        let mut runs = Vec::new();
        // Regions of unknown activity are neither promoted nor demoted.
        let known = |region: &&Region| !region.range.is_empty() && region.unknown.is_none();
        for region in snapshot.regions.iter().filter(known) {
            runs.clear();
            history.runs(&region.range, self.config.hits, &mut runs);
            let confidence = region.confidence;
            let heat = |(range, accesses): &(Range, f64)| Heat {
                range: *range,
                accesses: *accesses,
                confidence,
            };
            self.latest.extend(runs.iter().map(heat));
        }
        self.fresh = true;
    }

    fn map(&mut self, mappings: &Mappings) {
        self.mapped = mappings.mappings.iter().map(|mapping| mapping.range).collect();
    }

    fn pressure(&mut self, pressure: &Pressure) {
        self.low = pressure.tiers.iter().map(|tier| tier.low).collect();
    }

    fn end(&mut self, outcome: &Outcome) {
        let Some(at) = self.under_way.iter().position(|action| action.id == outcome.id) else {
            return;
        };
        let action = self.under_way.swap_remove(at);
        if outcome.failed > 0 {
            self.failed.push((action.range, self.now + self.config.retry));
        }
    }

    /// One round: promotes the hottest regions, and demotes the coldest to make room.
    fn round(&mut self, view: &dyn PlacementView, orders: &mut Orders) {
        self.failed.retain(|(_, until)| *until > self.now);
        let mut regions = std::mem::take(&mut self.latest);
        regions.retain(|heat| !self.is_barred(&heat.range));
        regions.sort_by(|a, b| b.accesses.total_cmp(&a.accesses).then(a.range.cmp(&b.range)));
        let mut allowed = self.allowance(view);
        let mut cold = regions.len();
        for large in [false, true] {
            for hot in 0..regions.len() {
                if allowed.round == 0 || !self.is_wanted(&regions[hot], allowed) {
                    break;
                }
                if self.is_large(&regions[hot]) == large {
                    self.promote(&regions, (hot, &mut cold), &mut allowed, (view, &mut *orders));
                }
            }
        }
        self.shed(&regions[..cold], view, orders);
        self.config.costs.charge(orders, regions.len() as u64);
    }

    fn is_large(&self, heat: &Heat) -> bool {
        heat.accesses >= self.config.hits && heat.range.bytes() > self.config.largest.0
    }

    fn is_barred(&self, range: &Range) -> bool {
        self.failed.iter().any(|(failed, _)| failed.intersect(range).is_some())
    }

    /// Hot enough, or needed to fill the share.
    fn is_wanted(&self, heat: &Heat, allowed: Allowance) -> bool {
        heat.accesses >= self.config.hits || (self.config.share.is_some() && allowed.room > 0)
    }

    fn allowance(&self, view: &dyn PlacementView) -> Allowance {
        let free = |number: usize| {
            let of = |tier: &TierUse| tier.capacity.saturating_sub(tier.used);
            let low = self.low.get(number).copied().unwrap_or(0);
            view.tiers().get(number).map_or(0, of).saturating_sub(low)
        };
        let mut allowed = Allowance { round: self.config.round.0, room: free(0), below: free(1) };
        if let Some((wanted, fast)) = self.wanted_and_fast(view) {
            allowed.room = allowed.room.min(wanted.saturating_sub(fast));
        }
        allowed
    }

    /// Bytes that should be in the fast tier by `share`, and bytes that are there.
    fn wanted_and_fast(&self, view: &dyn PlacementView) -> Option<(u64, u64)> {
        let share = self.config.share?;
        let tiers = view.tiers();
        let resident =
            |tier: Tier| self.mapped.iter().map(|range| view.resident(range, tier)).sum();
        let by_tier: Vec<u64> = tiers.iter().map(|tier| resident(tier.tier)).collect();
        let all: u64 = by_tier.iter().sum();
        Some(((all as f64 * share) as u64, by_tier.first().copied().unwrap_or(0)))
    }

    /// Promotes a region, or as much of it as the limits permit. Regions from index `cold` on have
    /// already been demoted to make room.
    fn promote(
        &mut self,
        regions: &[Heat],
        (hot, cold): (usize, &mut usize),
        allowed: &mut Allowance,
        (view, orders): (&dyn PlacementView, &mut Orders),
    ) {
        let heat = regions[hot];
        let slow: u64 =
            view.tiers().iter().skip(1).map(|tier| view.resident(&heat.range, tier.tier)).sum();
        if slow == 0 || !self.is_sure(&heat, orders) {
            return;
        }
        let part = if self.is_large(&heat) { self.config.largest.0 } else { u64::MAX };
        let wanted = slow.min(allowed.round).min(part);
        while allowed.room < wanted && *cold > hot + 1 {
            if !self.make_room(&regions[*cold - 1], &heat, wanted, allowed, (view, &mut *orders)) {
                break;
            }
            *cold -= 1;
        }
        let mut left = wanted.min(allowed.room);
        for tier in view.tiers().iter().skip(1).map(|tier| tier.tier) {
            for (range, bytes) in parts(view, &heat.range, tier, &mut left) {
                allowed.round = allowed.round.saturating_sub(bytes);
                allowed.room = allowed.room.saturating_sub(bytes);
                self.order(range, Tier(0), orders);
            }
        }
    }

    fn is_sure(&mut self, heat: &Heat, orders: &mut Orders) -> bool {
        if heat.confidence >= CONFIRMED {
            return true;
        }
        self.verifier.ask(&heat.range, self.now, orders) == Verdict::Hot
    }

    /// Demotes a cold region's memory in the fast tier, as far as needed. False if the region is
    /// not cold enough to make room for the hot one.
    fn make_room(
        &mut self,
        cold: &Heat,
        hot: &Heat,
        wanted: u64,
        allowed: &mut Allowance,
        (view, orders): (&dyn PlacementView, &mut Orders),
    ) -> bool {
        if view.tiers().len() < 2 || 2.0 * cold.accesses > hot.accesses || hot.accesses == 0.0 {
            return false;
        }
        let mut left = (wanted - allowed.room).min(allowed.below);
        for (range, bytes) in parts(view, &cold.range, Tier(0), &mut left) {
            allowed.room += bytes;
            allowed.below = allowed.below.saturating_sub(bytes);
            self.order(range, Tier(1), orders);
        }
        true
    }

    /// Demotes the coldest regions while the fast tier holds more than its share.
    fn shed(&mut self, regions: &[Heat], view: &dyn PlacementView, orders: &mut Orders) {
        let Some((wanted, fast)) = self.wanted_and_fast(view) else { return };
        let slack = (wanted as f64 / self.config.share.unwrap_or(1.0).max(SLACK) * SLACK) as u64;
        if fast <= wanted + slack || view.tiers().len() < 2 {
            return;
        }
        let room = view.tiers()[1].capacity.saturating_sub(view.tiers()[1].used);
        let mut left = (fast - wanted).min(room);
        for heat in regions.iter().rev() {
            if left == 0 {
                break;
            }
            for (range, _) in parts(view, &heat.range, Tier(0), &mut left) {
                self.order(range, Tier(1), orders);
            }
        }
    }

    fn order(&mut self, range: Range, tier: Tier, orders: &mut Orders) {
        let id = ActionId(self.next_action);
        self.next_action += 1;
        // A promotion waits for the last demotion ordered before it, so that memory is freed before
        // it is used.
        let last = orders.actions.iter().rev();
        let mut demotions = last.filter(|action| action.kind != ActionKind::Move(Tier(0)));
        let after = demotions.next().filter(|_| tier == Tier(0)).map(|action| action.id);
        orders.actions.push(Action { id, after, range, kind: ActionKind::Move(tier) });
        self.under_way.push(PendingMove { id, range });
    }
}

impl Policy for HotRegion {
    fn name(&self) -> &'static str {
        "hot-region"
    }

    fn settings(&self) -> Vec<Setting> {
        recorded(&self.config)
    }

    fn observe(&mut self, evidence: Evidence<'_>, orders: &mut Orders) {
        match evidence {
            Evidence::Regions(snapshot) => self.take_snapshot(snapshot, orders),
            Evidence::Mappings(mappings) => self.map(mappings),
            Evidence::Pressure(pressure) => self.pressure(pressure),
            Evidence::Outcomes(outcomes) => outcomes.iter().for_each(|outcome| self.end(outcome)),
            Evidence::Bits(probes) => {
                self.config.costs.charge(orders, probes.len() as u64);
                self.verifier.answer(probes);
            }
            _ => {}
        }
    }

    fn tick(&mut self, now: Time, view: &dyn PlacementView, orders: &mut Orders) -> Time {
        self.now = now;
        if now < self.next_tick {
            return self.next_tick;
        }
        self.config.costs.charge_wake(orders);
        self.verifier.look_again(now, orders);
        if std::mem::take(&mut self.fresh) && self.under_way.is_empty() {
            self.round(view, orders);
        }
        self.next_tick = now + self.config.window;
        self.next_tick
    }
}

#[cfg(test)]
mod tests {
    use tierscope_conformance::tiers::Size;
    use tierscope_core::{Region, SpaceId};

    use super::*;
    use crate::trace::{Trace, range};

    /// Pages of a block of 2 MiB, the test instrument's region.
    const BLOCK: u32 = 512;

    fn trace(config: Config, tiers: [u64; 2], blocks: u32) -> Trace<HotRegion> {
        let sizes = tiers.map(|blocks| Size::without_marks(blocks * u64::from(BLOCK)));
        Trace::with(HotRegion::new(config), &sizes, blocks * BLOCK, false)
    }

    fn all_in_slow(trace: &mut Trace<HotRegion>, blocks: u32) {
        trace.machine.place(&range(0, blocks * BLOCK), Tier(1));
    }

    /// Accesses to `count` pages of a block, which count as that number of hits.
    fn touches(block: u32, count: u32) -> Vec<u32> {
        (0..count).map(|page| block * BLOCK + page).collect()
    }

    // Three blocks in the slow tier: 5, 4 and 7 accesses in the first second. The third and the
    // first are hot and are promoted in this order; the second follows after its fifth access.
    #[test]
    fn golden_five_accesses_are_hot_and_the_hottest_comes_first() {
        let mut trace = trace(Config::default(), [4, 8], 3);
        all_in_slow(&mut trace, 3);
        trace.seconds(1, |_| [touches(0, 5), touches(1, 4), touches(2, 7)].concat());
        assert_eq!(trace.ordered(), ["1024→0", "0→0"]);
        trace.seconds(1, |_| touches(1, 1));
        assert_eq!(trace.ordered(), ["1024→0", "0→0", "512→0"]);
        assert_eq!(trace.machine.used(), [1536, 0]);
    }

    // Four accesses, and a fifth 120 s later: by then the first ones have expired.
    #[test]
    fn golden_accesses_count_for_120_seconds() {
        let late = |gap: u64| {
            let mut trace = trace(Config::default(), [4, 8], 1);
            all_in_slow(&mut trace, 1);
            trace.seconds(gap + 1, |second| match second {
                0 => touches(0, 4),
                second if second == gap => touches(0, 1),
                _ => vec![],
            });
            trace.orders()
        };
        assert_eq!((late(119), late(121)), (1, 0));
    }

    // Rounds of two blocks: the third of three hot ones waits for the next window.
    #[test]
    fn golden_a_round_has_its_limit() {
        let config = Config { round: Bytes(4 << 20), ..Config::default() };
        let mut trace = trace(config, [4, 8], 3);
        all_in_slow(&mut trace, 3);
        trace.seconds(1, |_| [touches(0, 5), touches(1, 6), touches(2, 7)].concat());
        assert_eq!(trace.ordered(), ["1024→0", "512→0", "0→0"]);
        let actions = trace.machine.actions();
        assert_eq!(actions.iter().map(|action| action.range.bytes() >> 20).sum::<u64>(), 6);
    }

    // A history of one window: four accesses now and four in the next window do not add up to
    // eight.
    #[test]
    fn golden_an_instrument_may_count_itself() {
        let config = Config { history: Duration::from_millis(200), ..Config::default() };
        let mut trace = trace(config, [4, 8], 1);
        all_in_slow(&mut trace, 1);
        trace.seconds(3, |_| touches(0, 4));
        assert_eq!(trace.orders(), 0);
        trace.seconds(1, |_| touches(0, 5));
        assert_eq!(trace.ordered(), ["0→0"]);
    }

    // One hot block of eight stays the only hot one when the instrument merges all eight into one
    // region.
    #[test]
    fn golden_a_hot_part_of_a_region_does_not_make_all_of_it_hot() {
        let mut policy = HotRegion::new(Config::default());
        let mut trace = trace(Config::default(), [8, 8], 8);
        all_in_slow(&mut trace, 8);
        use tierscope_core::Ports as _;
        trace.machine.placement().expect("it has one");
        let region = |blocks: std::ops::Range<u32>, hits: f32| {
            Region::sampled(range(blocks.start * BLOCK, blocks.len() as u32 * BLOCK), hits, 40)
        };
        let windows = [
            vec![region(0..3, 0.0), region(3..4, 40.0), region(4..8, 0.0)],
            vec![region(0..8, 0.0)],
        ];
        let mut orders = Orders::default();
        for (window, regions) in (0u64..).zip(windows) {
            let end = Time(window * 200_000_000);
            let snapshot = Snapshot { start: end, end, samples: 40, regions };
            policy.observe(Evidence::Regions(&snapshot), &mut orders);
        }
        policy.tick(Time(1_000_000_000), &trace.machine, &mut orders);
        let ranges: Vec<Range> = orders.actions.iter().map(|action| action.range).collect();
        assert_eq!(ranges, [range(3 * BLOCK, BLOCK)]);
    }

    // Both tiers full: block 0 in the fast tier is unknown, and so is the busy block 2 in the slow
    // tier.
    #[test]
    fn golden_unknown_regions_stay() {
        let moved = |unknown: bool| {
            let mut policy = HotRegion::new(Config::default());
            let mut trace = trace(Config::default(), [2, 8], 4);
            trace.seconds(1, |_| vec![]);
            use tierscope_core::Ports as _;
            trace.machine.placement().expect("it has one");
            let region = |block: u32, hits: f32, unknown: bool| Region {
                unknown: unknown.then_some(tierscope_core::Unknown::Evidence),
                ..Region::sampled(range(block * BLOCK, BLOCK), hits, 40)
            };
            let regions = vec![
                region(0, 0.0, unknown),
                region(1, 40.0, false),
                region(2, 40.0, unknown),
                region(3, 0.0, false),
            ];
            let end = Time(200_000_000);
            let snapshot = Snapshot { start: Time(0), end, samples: 40, regions };
            let mut orders = Orders::default();
            policy.observe(Evidence::Regions(&snapshot), &mut orders);
            policy.tick(Time(1_000_000_000), &trace.machine, &mut orders);
            orders.actions.len()
        };
        assert_eq!((moved(false), moved(true)), (2, 0));
    }

    // The largest region without parts is half a block: a half of block 0 a round; the second order
    // is for the whole block, half of which is there.
    #[test]
    fn golden_large_regions_are_promoted_by_parts() {
        let config = Config { largest: Bytes(1 << 20), ..Config::default() };
        let mut trace = trace(config, [4, 8], 1);
        all_in_slow(&mut trace, 1);
        trace.seconds(2, |_| touches(0, 40));
        assert_eq!(trace.ordered(), ["0→0", "0→0"]);
        assert_eq!(trace.machine.used(), [512, 0]);
    }

    // The fast tier holds two blocks and is full. Block 0 has 12 accesses, block 1 none; block 2
    // with 20 is exchanged for block 1; for block 3, also with 20, no block is cold enough.
    #[test]
    fn golden_the_coldest_page_is_demoted_for_room() {
        let mut trace = trace(Config::default(), [2, 8], 4);
        trace.seconds(2, |second| match second {
            0 => [touches(0, 12), touches(2, 20), touches(3, 20)].concat(),
            _ => vec![],
        });
        assert_eq!(trace.ordered(), ["512→1", "1024→0"]);
        let actions = trace.machine.actions();
        assert_eq!(actions[1].after, Some(actions[0].id));
        assert_eq!(trace.machine.used(), [1024, 1024]);
    }

    // A share of a quarter of eight blocks: two are promoted though nothing is hot, and there are
    // still two when one becomes hot and is exchanged for a cold one. An excess is demoted.
    #[test]
    fn golden_a_share_is_held() {
        let config = Config { share: Some(0.25), ..Config::default() };
        let mut trace = trace(config.clone(), [8, 16], 8);
        all_in_slow(&mut trace, 8);
        trace.seconds(2, |_| vec![]);
        assert_eq!(trace.ordered(), ["0→0", "512→0"]);
        trace.seconds(2, |_| touches(7, 30));
        assert_eq!(trace.ordered()[2..], ["512→1", "3584→0"]);
        assert_eq!(trace.machine.used(), [1024, 3072]);
        let mut full = self::trace(config, [8, 16], 8);
        full.seconds(2, |_| vec![]);
        assert_eq!(full.machine.used(), [1024, 3072]);
    }

    // Regions of low confidence are verified by page probes first: one with all pages accessed
    // moves, one with a single accessed page stays.
    #[test]
    fn golden_unsure_regions_are_verified() {
        let ordered = |everywhere: bool| {
            let mut policy = HotRegion::new(Config::default());
            let mut trace = trace(Config::default(), [4, 8], 1);
            all_in_slow(&mut trace, 1);
            let view = {
                use tierscope_core::Ports as _;
                trace.machine.placement().expect("it has one");
                &trace.machine
            };
            let region = Region { confidence: 0.1, ..Region::sampled(range(0, BLOCK), 20.0, 40) };
            let mut actions = Vec::new();
            for window in 0..10u64 {
                let now = Time(window * 200_000_000);
                let regions = vec![region];
                let snapshot = Snapshot { start: now, end: now, samples: 40, regions };
                let mut orders = Orders::default();
                policy.observe(Evidence::Regions(&snapshot), &mut orders);
                policy.tick(now, view, &mut orders);
                for probe in &mut orders.probes {
                    assert_eq!(probe.at.space, SpaceId(0));
                    let young = everywhere || probe.at.at == range(0, 1).start;
                    use tierscope_core::State::{Old, Young};
                    probe.answer.state = if young { Young } else { Old };
                }
                actions.append(&mut orders.actions);
                let probes = std::mem::take(&mut orders.probes);
                policy.observe(Evidence::Bits(&probes), &mut orders);
            }
            actions.len()
        };
        assert_eq!((ordered(true), ordered(false)), (1, 0));
    }

    // A range whose move failed is skipped for ten seconds.
    #[test]
    fn failures_are_not_repeated_at_once() {
        let mut trace = trace(Config::default(), [4, 8], 1);
        all_in_slow(&mut trace, 1);
        trace.page_event(0, BLOCK, tierscope_core::PageEventKind::Locked);
        trace.seconds(9, |_| touches(0, 10));
        assert_eq!(trace.orders(), 1);
        trace.seconds(4, |_| touches(0, 10));
        assert_eq!(trace.orders(), 2);
    }
}
