//! Proactive reclaim of cold regions, as reported by any region instrument.
//!
//! Source: the scheme of DAMON_RECLAIM (Linux mm/damon/reclaim.c): regions without an access for
//! `min_age` (120 s there) are paged out, the oldest first, within a quota. Watermarks and quotas
//! are replaced by [`crate::reclaim::goal::Goal`].
//!
//! A region is an estimate: only a sample of its entries is probed, and merging hides rare
//! accesses. So the ACCESSED bits of a cold region's pages are cleared first and scanned again
//! `look` later: pages accessed meanwhile are not reclaimed.

use std::collections::VecDeque;
use std::time::Duration;

use tierscope_core::{
    AccessedSet, Backing, Evidence, Level, Mappings, Need, Orders, Outcome, PAGE_SIZE,
    PlacementView, Policy, Range, RangeSet, Region, ScanMode, ScanOrder, Setting, Snapshot, Time,
};

use crate::cost::Costs;
use crate::reclaim::goal::{Goal, Way};
use crate::reclaim::pending::PendingReclaim;
use crate::registry::{Entry, keys_of, made};
use crate::settings::{Settings, Visit, recorded};

/// The policy `cold-regions` in the list.
pub(crate) const ENTRY: Entry = Entry {
    name: "cold-regions",
    about: "regions without an access for a set time are reclaimed",
    source: "DAMON-based proactive reclaim (Linux mm/damon/reclaim.c), on any instrument",
    tracks: "regions of any instrument",
    granularity: "regions",
    promotes: "never",
    demotes: "reclaims the regions that were cold longest",
    cost: "the instrument's, and two looks at leaves before reclaim",
    page_bytes: None,
    needs: &[Need::Regions, Need::AccessBits],
    uses: &[Need::Pressure],
    sampling: None,
    reclaims: true,
    make: made!("cold-regions", Config::default(), ColdRegions::new),
    keys: || keys_of(&mut Config::default()),
};

/// Settings of the policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Time without an access after which a region is cold.
    pub cold: Duration,
    /// Time between the clearing scan and the second scan of a cold region.
    pub look: Duration,
    /// Reclaim goal and quota.
    pub goal: Goal,
    /// CPU costs of the policy's own work.
    pub costs: Costs,
}

/// `cold`: DAMON_RECLAIM's `min_age`. `look` is assumed, equal to the interval of the MGLRU
/// policies.
impl Default for Config {
    fn default() -> Self {
        Self {
            cold: Duration::from_secs(120),
            look: Duration::from_secs(2),
            goal: Goal::default(),
            costs: Costs::default(),
        }
    }
}

impl Settings for Config {
    fn visit(&mut self, each: &mut dyn Visit) {
        each.value("cold", "time without an access after which a region is cold", &mut self.cold);
        each.value("look", "time between the two looks at its leaves", &mut self.look);
        self.goal.visit(each);
        self.costs.visit(each);
    }

    fn check(&self) -> Result<(), String> {
        if self.cold.is_zero() || self.look.is_zero() {
            return Err("`cold` and `look` must be above zero".into());
        }
        self.goal.check()
    }
}

/// Maximum bytes between clearing and second scan at any time.
const SLICE: u64 = 4 << 30;
/// Maximum bytes of one reclaim action.
const ACTION: u64 = 2 << 20;

/// A scan whose result is pending.
#[derive(Clone, Copy, Debug)]
struct PendingScan {
    order: ScanOrder,
    /// Whether this is the second scan, whose old pages are reclaimed.
    second: bool,
}

/// The policy of proactive reclaim by cold regions.
#[derive(Clone, Debug)]
pub struct ColdRegions {
    config: Config,
    way: Way,
    reclaiming: PendingReclaim,
    mapped: RangeSet,
    /// Cold ranges, and since when each is cold.
    cold: Vec<(Range, Time)>,
    /// Cleared ranges, and when each is due for its second scan.
    cleared: VecDeque<(Range, Time)>,
    /// Ranges scanned twice: skipped until they are accessed again.
    dealt: RangeSet,
    pending: VecDeque<PendingScan>,
    /// Pages reclaimed.
    out: u64,
    /// Pages that may still be reclaimed in this tick.
    left: u64,
    now: Time,
}

impl ColdRegions {
    /// The policy with these settings.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            way: Way::new(config.goal.clone()),
            reclaiming: PendingReclaim::default(),
            mapped: RangeSet::default(),
            cold: Vec::new(),
            cleared: VecDeque::new(),
            dealt: RangeSet::default(),
            pending: VecDeque::new(),
            out: 0,
            left: 0,
            now: Time(0),
            config,
        }
    }

    fn map(&mut self, mappings: &Mappings) {
        let own = |backing: Backing| matches!(backing, Backing::Anonymous | Backing::Heap);
        let found = mappings.mappings.iter().filter(|mapping| own(mapping.backing));
        self.mapped = found.map(|mapping| mapping.range).collect();
        self.dealt = self.dealt.intersect(&self.mapped);
    }

    fn take_snapshot(&mut self, snapshot: &Snapshot, orders: &mut Orders) {
        self.config.costs.charge(orders, snapshot.regions.len() as u64);
        let ranges = |of: &dyn Fn(&Region) -> bool| -> RangeSet {
            snapshot.regions.iter().filter(|region| of(region)).map(|region| region.range).collect()
        };
        let hot = ranges(&|region| !region.is_cold() && !region.is_unknown());
        self.dealt = self.dealt.minus(&hot);
        let cold = ranges(&Region::is_cold);
        let cold = cold.intersect(&self.mapped);
        let mut next: Vec<(Range, Time)> = Vec::new();
        for (range, since) in &self.cold {
            let one: RangeSet = [*range].into_iter().collect();
            next.extend(one.intersect(&cold).as_slice().iter().map(|part| (*part, *since)));
        }
        let known: RangeSet = next.iter().map(|(range, _)| *range).collect();
        next.extend(cold.minus(&known).as_slice().iter().map(|part| (*part, snapshot.start)));
        next.sort_unstable();
        next.dedup_by(|next, last| {
            let same = last.0.touches(&next.0) && last.1 == next.1;
            last.0.end = if same { next.0.end } else { last.0.end };
            same
        });
        self.cold = next;
    }

    /// Orders the clearing scan of ranges that were cold for long enough, the oldest first.
    fn clear(&mut self, orders: &mut Orders) {
        let busy: RangeSet = self.cleared.iter().map(|(range, _)| *range).collect();
        let barred = |range: &Range| {
            let one: RangeSet = [*range].into_iter().collect();
            one.minus(&self.dealt).minus(&busy)
        };
        let mut due: Vec<(Time, Range)> = self
            .cold
            .iter()
            .filter(|(_, since)| *since + self.config.cold <= self.now)
            .flat_map(|(range, since)| {
                let free = barred(range);
                free.as_slice().iter().map(|part| (*since, *part)).collect::<Vec<_>>()
            })
            .collect();
        due.sort_unstable();
        let mut left = (self.left * PAGE_SIZE).min(SLICE.saturating_sub(busy.bytes()));
        for (_, range) in due {
            let start = range.start.next_multiple_of(PAGE_SIZE);
            let end = range.end.min(start.saturating_add(left)) & !(PAGE_SIZE - 1);
            if start >= end {
                continue;
            }
            let range = Range { start, end, ..range };
            left -= range.bytes();
            self.cleared.push_back((range, self.now + self.config.look));
            self.ask(range, false, orders);
        }
    }

    fn ask(&mut self, range: Range, second: bool, orders: &mut Orders) {
        let mode = ScanMode { clear: true, prune: false, present: true };
        let order = ScanOrder { range, level: Level::PTE, mode };
        self.pending.extend(order.parts().map(|order| PendingScan { order, second }));
        orders.scans.push(order);
    }

    fn look_again(&mut self, orders: &mut Orders) {
        while let Some((range, at)) = self.cleared.front().copied()
            && at <= self.now
        {
            self.cleared.pop_front();
            self.ask(range, true, orders);
        }
    }

    fn answered(&mut self, set: &AccessedSet, orders: &mut Orders) {
        let is_it =
            |pending: &PendingScan| pending.order.range == set.range && set.level == Level::PTE;
        let Some(at) = self.pending.iter().position(is_it) else { return };
        let pending = self.pending.drain(..=at).next_back().expect("it was found");
        if !pending.second || set.present.len() != set.young.len() {
            return;
        }
        self.dealt = self.dealt.as_slice().iter().chain([&set.range]).copied().collect();
        let bit = |words: &[u64], index: u64| words[(index / 64) as usize] >> (index % 64) & 1 == 1;
        let mut runs: Vec<Range> = Vec::new();
        for index in 0..set.entries() {
            if self.left == 0 || !bit(&set.present, index) || bit(&set.young, index) {
                continue;
            }
            let start = set.range.start + index * PAGE_SIZE;
            let page = Range { start, end: start + PAGE_SIZE, ..set.range };
            self.left -= 1;
            match runs.last_mut() {
                Some(last) if last.touches(&page) && last.start / ACTION == start / ACTION => {
                    last.end = page.end;
                }
                _ => runs.push(page),
            }
        }
        self.config.costs.charge(orders, set.entries() / 64 + runs.len() as u64);
        let runs: Vec<Range> = runs
            .iter()
            .filter(|run| crate::reclaim::generations::holds(&self.mapped, run))
            .copied()
            .collect();
        for run in runs {
            self.way.spend(run.bytes() / PAGE_SIZE);
            self.reclaiming.order(run, orders);
        }
    }

    fn ended(&mut self, outcome: &Outcome) {
        if self.reclaiming.end(outcome).is_some() {
            let pages = outcome.done / PAGE_SIZE;
            self.out += pages;
            self.way.note(self.now, pages, 0);
        }
    }
}

impl Policy for ColdRegions {
    fn name(&self) -> &'static str {
        "cold-regions"
    }

    fn settings(&self) -> Vec<Setting> {
        recorded(&self.config)
    }

    fn observe(&mut self, evidence: Evidence<'_>, orders: &mut Orders) {
        match evidence {
            Evidence::Mappings(mappings) => self.map(mappings),
            Evidence::Pressure(pressure) => self.way.feel(pressure.stalled),
            Evidence::Regions(snapshot) => self.take_snapshot(snapshot, orders),
            Evidence::Scanned(set, _) => self.answered(set, orders),
            Evidence::Outcomes(outcomes) => outcomes.iter().for_each(|outcome| self.ended(outcome)),
            _ => {}
        }
    }

    fn tick(&mut self, now: Time, view: &dyn PlacementView, orders: &mut Orders) -> Time {
        self.now = now;
        self.config.costs.charge_wake(orders);
        // Scan results arrive before the next tick, or never.
        self.pending.clear();
        let tiers = view.tiers().iter().map(|tier| tier.tier);
        let of = |tier| {
            self.mapped.as_slice().iter().map(|range| view.resident(range, tier)).sum::<u64>()
        };
        let resident: u64 = tiers.map(of).sum();
        self.left = self.way.allows(now, resident / PAGE_SIZE, self.out);
        self.look_again(orders);
        self.clear(orders);
        let soon = now + self.config.look.min(Duration::from_secs(1));
        self.cleared
            .front()
            .map_or(soon, |(_, at)| soon.min(*at))
            .max(now + Duration::from_millis(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Trace;

    // Four blocks of 2 MiB, of which page 600 is touched: its block is a hot region; the others are
    // reclaimed after 2 s cold plus 1 s between the two scans.
    #[test]
    fn regions_without_access_are_reclaimed() {
        let config = Config {
            cold: Duration::from_secs(2),
            look: Duration::from_secs(1),
            ..Config::default()
        };
        let mut trace = Trace::new(ColdRegions::new(config), [4096], 2048);
        trace.seconds(2, |_| vec![600]);
        assert_eq!(trace.orders(), 0);
        trace.seconds(6, |_| vec![600]);
        assert!(trace.ordered().starts_with(&["0 Reclaim".into(), "1024 Reclaim".into()]));
        assert_eq!((trace.tier(600).is_some(), trace.tier(1500)), (true, None));
    }
}
