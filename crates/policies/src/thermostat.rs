//! Thermostat: places as much memory in the slow tier as a slowdown budget permits.
//!
//! Source: Agarwal and Wenisch, "Thermostat: Application-transparent Page Management for Two-tiered
//! Main Memory" (ASPLOS'17), sections 3.2 to 3.5. The 3 % are in its abstract (doi
//! 10.1145/3093336.3037706); the other figures below are from memory of the paper, whose text was
//! not at hand to confirm them: assumed, and all but the two 5 % are settings to be varied.
//! MULTI-CLOCK's section II-D has the outline only.
//!
//! - The target may be slowed by 3 %. At 1 us per access to slow memory, that is a budget of 30,000
//!   such accesses a second.
//! - Every 30 s a random 5 % of the fast tier's huge pages are sampled. First the ACCESSED bits of
//!   their base pages are cleared, then read; up to 50 of the young ones are armed so that they
//!   fault at each access for a while. A page's access rate is its fault rate, times young pages
//!   over armed pages.
//! - The coldest of the sampled pages are demoted, as long as their rates add up to at most 5 % of
//!   the budget.
//! - All pages of the slow tier are armed too. If their rates add up to more than the budget, the
//!   hottest are promoted until the sum is within it.
//!
//! Departures, because a hint fault here disarms its page: a page that faulted is rearmed every
//! `rearm`, and its rate is faults over the time for which it was armed. Huge pages are not split
//! for sampling: an unsplit huge page counts as one page. In an interval without any fault nothing
//! moves: an idle target does not reveal which of its pages are cold. The three steps share an
//! interval, a third each.

use std::collections::BTreeMap;
use std::time::Duration;

use tierscope_core::{
    Addr, Evidence, HintFault, Level, Need, Orders, PAGE_SIZE, PlacementView, Policy, Probe, Range,
    Rng, Setting, SpaceId, Tier, Time,
};

use crate::blocks::{BLOCK, Blocks, tier_of};
use crate::cost::Costs;
use crate::pages::{ListId, Lists, Moves};
use crate::registry::{Entry, keys_of, made};
use crate::settings::{Settings, Visit, recorded};

/// The policy `thermostat` in the list.
pub(crate) const ENTRY: Entry = Entry {
    name: "thermostat",
    about: "memory is demoted until the target loses 3 %",
    source: "Agarwal and Wenisch, ASPLOS'17",
    tracks: "ACCESSED bits and hint faults of a sample",
    granularity: "2 MiB",
    promotes: "frequency: too many accesses to the slow tier",
    demotes: "frequency: few enough accesses",
    cost: "5 % of the fast tier's entries in 30 s, faults on 50 pages of each huge one",
    page_bytes: None,
    needs: &[Need::HintFaults, Need::AccessBits],
    uses: &[Need::Pressure],
    sampling: None,
    reclaims: false,
    make: made!("thermostat", Config::default(), Thermostat::new),
    keys: || keys_of(&mut Config::default()),
};

/// Settings of the policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Time between two samples.
    pub interval: Duration,
    /// Share of the fast tier's huge pages that is sampled.
    pub share: f64,
    /// Base pages of each sampled huge page that are armed.
    pub pages: u32,
    /// Permitted slowdown of the target, as a share.
    pub slowdown: f64,
    /// Cost of an access to slow memory.
    pub slow: Duration,
    /// Time after which a page that faulted is rearmed.
    pub rearm: Duration,
    /// Seed of the samples.
    pub seed: u64,
    /// CPU costs of the policy's own work.
    pub costs: Costs,
}

/// Defaults: the paper's values; `rearm` is assumed.
impl Default for Config {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(30),
            share: 0.05,
            pages: 50,
            slowdown: 0.03,
            slow: Duration::from_micros(1),
            rearm: Duration::from_millis(100),
            seed: 1,
            costs: Costs::default(),
        }
    }
}

impl Settings for Config {
    fn visit(&mut self, each: &mut dyn Visit) {
        each.value("interval", "time from one sample to the next", &mut self.interval);
        each.value("share", "share of the fast tier's huge pages sampled", &mut self.share);
        each.value("pages", "small pages of each that are made to fault", &mut self.pages);
        each.value("slowdown", "by how much the target may be slower", &mut self.slowdown);
        each.value("slow", "what an access to slow memory costs", &mut self.slow);
        each.value("rearm", "time after which a page that faulted is armed again", &mut self.rearm);
        each.value("seed", "seed of the samples", &mut self.seed);
        self.costs.visit(each);
    }

    fn check(&self) -> Result<(), String> {
        if self.rearm.is_zero() || self.interval < self.rearm * 6 {
            return Err("`rearm` must be above zero and six of it no longer than `interval`".into());
        }
        if self.share <= 0.0 || self.share > 1.0 || self.slow.is_zero() || self.pages == 0 {
            return Err(
                "`share` must be above 0 and at most 1, `slow` and `pages` above zero".into()
            );
        }
        Ok(())
    }
}

impl Config {
    /// Permitted accesses to slow memory per second.
    fn budget(&self) -> f64 {
        self.slowdown / self.slow.as_secs_f64()
    }
}

/// The three steps of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// ACCESSED bits of the sample are cleared.
    Clear,
    /// ACCESSED bits of the sample are read.
    Read,
    /// Faults of the armed pages are counted.
    Count,
}

/// An armed page and its faults.
#[derive(Clone, Copy, Debug)]
struct ArmedPage {
    block: u32,
    bytes: u64,
    faults: u32,
    /// Time for which it was armed without a fault, up to `armed`.
    exposed: Duration,
    /// Time of the current arming; `None` if it is not armed.
    armed: Option<Time>,
}

impl ArmedPage {
    /// Faults per second of armed time.
    fn rate(&self, now: Time) -> f64 {
        let exposed = self.exposed + self.armed.map_or(Duration::ZERO, |since| now - since);
        if self.faults == 0 {
            0.0
        } else {
            f64::from(self.faults) / exposed.as_secs_f64().max(1e-9)
        }
    }
}

const TIERS: u8 = 8;
/// Blocks whose tier is not known yet.
const UNSORTED: ListId = ListId(TIERS);
/// Blocks whose bits are probed per tick.
const AT_ONCE: usize = 64;

/// The Thermostat policy.
#[derive(Clone, Debug)]
pub struct Thermostat {
    config: Config,
    blocks: Blocks,
    /// Lists of blocks, one per tier.
    pages: Lists<()>,
    moves: Moves<()>,
    rng: Rng,
    step: Step,
    /// The sampled blocks, with the pages of each that were found young.
    sample: Vec<(u32, Vec<Range>)>,
    /// Number of sampled blocks already probed in this step.
    armed: usize,
    watched: BTreeMap<(SpaceId, u64), ArmedPage>,
    next_step: Time,
    next_tick: Time,
}

impl Thermostat {
    /// The policy with these settings.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            blocks: Blocks::default(),
            pages: Lists::new(usize::from(TIERS) + 1),
            moves: Moves::new(),
            rng: Rng::seeded(config.seed),
            step: Step::Count,
            sample: Vec::new(),
            armed: 0,
            watched: BTreeMap::new(),
            next_step: Time(0),
            next_tick: Time(0),
            config,
        }
    }

    fn map(&mut self, mappings: &tierscope_core::Mappings) {
        let changed = self.blocks.map(mappings, 0);
        for block in changed.gone.into_iter().flatten() {
            self.moves.forget(block);
            if self.pages.knows(block) {
                self.pages.forget(block);
            }
        }
        self.sample.retain(|(block, _)| self.pages.knows(*block));
        self.watched.retain(|_, watch| self.pages.knows(watch.block));
        for block in changed.new.into_iter().flatten() {
            self.pages.add(block, 9);
            self.pages.push_head(UNSORTED, block);
        }
    }

    fn settle(&mut self, view: &dyn PlacementView, orders: &mut Orders) {
        let new: Vec<u32> = self.pages.tail_first(UNSORTED).collect();
        self.config.costs.charge(orders, new.len() as u64);
        for block in new {
            let range = self.blocks.range(block);
            let tier = range.and_then(|range| tier_of(view, &range));
            match tier.filter(|tier| tier.0 < TIERS) {
                Some(tier) => self.pages.push_head(ListId(tier.0), block),
                None => self.pages.push_head(UNSORTED, block),
            }
        }
    }

    /// Begins the next step of the interval.
    fn advance(&mut self, now: Time, orders: &mut Orders) {
        self.config.costs.charge_wake(orders);
        self.next_step = now + self.config.interval / 3;
        self.armed = 0;
        self.step = match self.step {
            Step::Clear => Step::Read,
            Step::Read => {
                self.watch_sample(now, orders);
                Step::Count
            }
            Step::Count => {
                self.decide(now, orders);
                self.draw();
                self.arm_slow(orders);
                Step::Clear
            }
        };
    }

    /// Samples a random share of the fast tier's blocks.
    fn draw(&mut self) {
        let fast: Vec<u32> = self.pages.tail_first(ListId(0)).collect();
        let wanted = (fast.len() as f64 * self.config.share).ceil() as usize;
        let mut left = fast;
        let draw = |_| {
            let at = self.rng.below(left.len() as u64) as usize;
            (left.swap_remove(at), Vec::new())
        };
        self.sample = (0..wanted).map(draw).collect();
    }

    /// Orders probes of the next few blocks of the sample.
    fn ask(&mut self, orders: &mut Orders) {
        let end = (self.armed + AT_ONCE).min(self.sample.len());
        if self.step == Step::Count || self.armed >= end {
            return;
        }
        for (block, _) in &self.sample[self.armed..end] {
            let Some(range) = self.blocks.range(*block) else { continue };
            let addresses = (range.start..range.end).step_by(PAGE_SIZE as usize);
            let at = |at| Addr { space: range.space, at };
            orders.probes.extend(addresses.map(|page| match self.step {
                Step::Clear => Probe::test_and_clear(at(page), Level::PTE),
                _ => Probe::test(at(page), Level::PTE),
            }));
        }
        self.armed = end;
    }

    fn answer(&mut self, probes: &[Probe]) {
        if self.step != Step::Read {
            return;
        }
        for probe in probes.iter().filter(|probe| probe.is_young()) {
            let Some(block) = self.blocks.at(probe.at) else { continue };
            let Some((_, young)) = self.sample.iter_mut().find(|(known, _)| *known == block) else {
                continue;
            };
            // A huge page mapped by one entry has one bit for all of its base pages.
            let leaf = probe.answer.reached.unwrap_or(Level::PTE).entry_of(probe.at);
            if young.last() != Some(&leaf) {
                young.push(leaf);
            }
        }
    }

    /// Arms some of the young pages of each sampled block.
    fn watch_sample(&mut self, now: Time, orders: &mut Orders) {
        let mut sample = std::mem::take(&mut self.sample);
        for (block, young) in &mut sample {
            let mut left = young.clone();
            while !left.is_empty() && young.len() - left.len() < self.config.pages as usize {
                let page = left.swap_remove(self.rng.below(left.len() as u64) as usize);
                self.watch(*block, &page, now, orders);
            }
        }
        self.sample = sample;
    }

    /// Arms all blocks of the slower tiers. A page among them is watched from its first fault on.
    fn arm_slow(&mut self, orders: &mut Orders) {
        for tier in 1..TIERS {
            let slow: Vec<u32> = self.pages.tail_first(ListId(tier)).collect();
            for block in slow {
                if let Some(range) = self.blocks.range(block) {
                    self.config.costs.charge(orders, 1);
                    orders.arm.push(range);
                }
            }
        }
    }

    fn watch(&mut self, block: u32, page: &Range, now: Time, orders: &mut Orders) {
        orders.arm.push(*page);
        let (faults, exposed, armed) = (0, Duration::ZERO, Some(now));
        let watch = ArmedPage { block, bytes: page.bytes(), faults, exposed, armed };
        self.watched.insert((page.space, page.start), watch);
        self.config.costs.charge(orders, 1);
    }

    fn fault(&mut self, fault: &HintFault) {
        let Some(block) = self.blocks.at(fault.at) else { return };
        let start = fault.at.at & !(PAGE_SIZE - 1);
        let huge = fault.at.at & !(BLOCK - 1);
        let space = fault.at.space;
        let whole = self.watched.get(&(space, huge)).is_some_and(|watch| watch.bytes >= BLOCK);
        let key = (space, if whole { huge } else { start });
        let fresh = ArmedPage {
            block,
            bytes: PAGE_SIZE,
            faults: 0,
            exposed: Duration::ZERO,
            armed: Some(fault.armed),
        };
        let watch = self.watched.entry(key).or_insert(fresh);
        if let Some(since) = watch.armed.take() {
            watch.faults = watch.faults.saturating_add(1);
            watch.exposed += fault.time - since.max(fault.armed);
        }
    }

    /// Rearms the pages that faulted.
    fn rearm(&mut self, now: Time, orders: &mut Orders) {
        let mut armed = 0;
        for ((space, start), watch) in &mut self.watched {
            if watch.armed.is_none() {
                watch.armed = Some(now);
                orders.arm.push(Range::new(*space, *start, start + watch.bytes));
                armed += 1;
            }
        }
        self.config.costs.charge(orders, armed);
    }

    /// End of an interval: promotes and demotes by the rates measured.
    fn decide(&mut self, now: Time, orders: &mut Orders) {
        let watched = std::mem::take(&mut self.watched);
        let mut rates: BTreeMap<u32, (f64, u32)> = BTreeMap::new();
        for watch in watched.values() {
            let (rate, pages) = rates.entry(watch.block).or_default();
            *rate += watch.rate(now);
            *pages += 1;
        }
        self.config.costs.charge(orders, watched.len() as u64);
        if watched.values().all(|watch| watch.faults == 0) {
            return;
        }
        self.correct(&rates, orders);
        self.demote(&rates, orders);
    }

    /// Promotes the hottest blocks of slower tiers while their total access rate is above the
    /// budget.
    fn correct(&mut self, rates: &BTreeMap<u32, (f64, u32)>, orders: &mut Orders) {
        let slow =
            |block: u32| self.pages.list_of(block).filter(|list| (1..TIERS).contains(&list.0));
        let mut hot: Vec<(f64, u32, Tier)> = rates
            .iter()
            .filter_map(|(block, (rate, _))| Some((*rate, *block, Tier(slow(*block)?.0))))
            .collect();
        hot.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut total: f64 = hot.iter().map(|(rate, ..)| rate).sum();
        for (rate, block, tier) in hot {
            if total <= self.config.budget() || self.moves.room_above_low(Tier(0)) < BLOCK {
                return;
            }
            self.send(block, tier, Tier(0), orders);
            total -= rate;
        }
    }

    /// Demotes the coldest blocks of the sample, within the sample's share of the budget.
    fn demote(&mut self, rates: &BTreeMap<u32, (f64, u32)>, orders: &mut Orders) {
        let rate = |(block, young): &(u32, Vec<Range>)| {
            let (rate, watched) = rates.get(block).copied().unwrap_or_default();
            let scale = young.len() as f64 / f64::from(watched.max(1));
            (rate * scale.max(1.0), *block)
        };
        let mut cold: Vec<(f64, u32)> = self.sample.iter().map(rate).collect();
        cold.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let mut left = self.config.budget() * self.config.share;
        for (rate, block) in cold {
            let there = self.pages.knows(block) && self.pages.list_of(block) == Some(ListId(0));
            if rate > left || self.moves.tiers() < 2 || self.moves.free(Tier(1)) < BLOCK {
                return;
            }
            if there {
                self.send(block, Tier(0), Tier(1), orders);
                left -= rate;
            }
        }
    }

    fn send(&mut self, block: u32, from: Tier, to: Tier, orders: &mut Orders) {
        let Some(range) = self.blocks.range(block) else { return };
        self.config.costs.charge(orders, 1);
        self.pages.take(block);
        self.moves.move_page(orders, (block, range), (from, to), ());
    }
}

impl Policy for Thermostat {
    fn name(&self) -> &'static str {
        "thermostat"
    }

    fn settings(&self) -> Vec<Setting> {
        recorded(&self.config)
    }

    fn observe(&mut self, evidence: Evidence<'_>, orders: &mut Orders) {
        match evidence {
            Evidence::Mappings(mappings) => self.map(mappings),
            Evidence::Faults(faults) => {
                self.config.costs.charge(orders, faults.len() as u64);
                faults.iter().for_each(|fault| self.fault(fault));
            }
            Evidence::Bits(probes) => {
                self.config.costs.charge(orders, probes.len() as u64);
                self.answer(probes);
            }
            Evidence::Pressure(pressure) => self.moves.pressure(pressure),
            Evidence::Outcomes(outcomes) => {
                for outcome in outcomes {
                    let Some(ended) = self.moves.end(outcome) else { continue };
                    match ended.to.filter(|_| ended.done) {
                        Some(tier) => self.pages.push_head(ListId(tier.0), ended.page),
                        None => self.pages.push_head(UNSORTED, ended.page),
                    }
                }
            }
            _ => {}
        }
    }

    fn tick(&mut self, now: Time, view: &dyn PlacementView, orders: &mut Orders) -> Time {
        if now < self.next_tick {
            return self.next_tick;
        }
        self.moves.refresh(view.tiers());
        self.settle(view, orders);
        if now >= self.next_step {
            self.advance(now, orders);
        }
        self.ask(orders);
        self.rearm(now, orders);
        self.next_tick = now + self.config.rearm;
        self.next_tick
    }
}

#[cfg(test)]
mod tests {
    use tierscope_conformance::tiers::Size;

    use super::*;
    use crate::trace::{Trace, range};

    const PAGES: u32 = 512;

    /// An interval of 3 s, the whole fast tier sampled, a budget of `budget` accesses a second.
    fn trace(budget: f64, tiers: [u64; 2], blocks: u32) -> Trace<Thermostat> {
        let config = Config {
            interval: Duration::from_secs(3),
            share: 1.0,
            slowdown: budget * 1e-6,
            ..Config::default()
        };
        let sizes = tiers.map(|blocks| Size::without_marks(blocks * u64::from(PAGES)));
        Trace::with(Thermostat::new(config), &sizes, blocks * PAGES, false)
    }

    #[test]
    fn the_budget_is_the_papers() {
        assert!((Config::default().budget() - 30_000.0).abs() < 1e-6);
    }

    // A page with one fault half a second after it was armed, and another 0.1 s after it was
    // rearmed: two faults in 0.6 s. Then rearmed for 0.3 s without a fault.
    #[test]
    fn a_rate_is_faults_over_the_time_armed() {
        let mut watch = ArmedPage {
            block: 0,
            bytes: PAGE_SIZE,
            faults: 2,
            exposed: Duration::from_millis(600),
            armed: None,
        };
        assert!((watch.rate(Time(2_000_000_000)) - 2.0 / 0.6).abs() < 1e-9);
        watch.armed = Some(Time(1_700_000_000));
        assert!((watch.rate(Time(2_000_000_000)) - 2.0 / 0.9).abs() < 1e-9);
    }

    // Blocks 0 and 1 are in the fast tier; block 1 is not touched and is demoted. Bits are cleared
    // at 0 s, read at 1 s, faults counted from 2 s on, pages moved at 3 s.
    #[test]
    fn golden_cold_pages_are_demoted() {
        let mut trace = trace(0.1, [4, 8], 2);
        trace.seconds(4, |_| vec![3, 4]);
        assert_eq!(trace.ordered(), ["512→1"]);
    }

    // Within the budget even the touched block is demoted: two accesses a second are less than a
    // thousand.
    #[test]
    fn golden_touched_blocks_within_the_budget_are_demoted() {
        let mut trace = trace(1000.0, [4, 8], 2);
        trace.seconds(4, |_| vec![3, 4]);
        assert_eq!(trace.ordered(), ["512→1", "0→1"], "the coldest first");
    }

    // Both blocks are in the slow tier, the budget is one access in ten seconds: block 1, touched
    // at two pages, is promoted at the end of the first interval.
    #[test]
    fn golden_hot_pages_are_promoted_again() {
        let mut trace = trace(0.1, [4, 8], 2);
        trace.machine.place(&range(0, 2 * PAGES), Tier(1));
        trace.seconds(4, |_| vec![PAGES + 1, PAGES + 2]);
        assert_eq!(trace.ordered(), ["512→0"]);
    }

    #[test]
    fn a_target_that_does_nothing_moves_nothing() {
        let mut trace = trace(0.1, [4, 8], 3);
        trace.seconds(10, |_| vec![]);
        assert_eq!(trace.orders(), 0);
    }
}
