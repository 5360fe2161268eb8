//! MEMTIS fed by counters in the memory controller (MEMTIS-NEMO).
//!
//! Source: Li et al., "Finding NEMO", section 5.2: MEMTIS's policy unchanged; a counter for each
//! huge page of the slow tier replaces the page's samples, and base-page counters, rotated over the
//! huge pages (`base_counters.rs`), replace the attribution of samples to subpages. The fast tier
//! is sampled as before. In the article's experiments memory is allocated from the slow tier first
//! and stays there for 180 s ([`Config::pin`]), so that the prototype's controller observes all of
//! it once.
//!
//! Counts are divided by the sampling period, as in section 5.1. A huge page's samples are
//! attributed to its base pages in proportion to its requests in the last counting interval, so
//! that MEMTIS's own formulas apply to them. Base pages of split huge pages have no counters: they
//! remain sampled, in either tier.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tierscope_core::{
    Evidence, Need, Orders, PlacementView, Policy, Range, RuleId, Sample, Setting, Tier, Time,
};

use super::base_counters::BaseCounters;
use super::{Memtis, TIERS, list};
use crate::block_counters::BlockCounters;
use crate::hemem_nemo::Coverage;
use crate::registry::{BY_COUNTERS_AND_SAMPLES, Entry, Sampling, keys_of, made};
use crate::settings::{Settings, Visit, recorded};

/// The policy `memtis-nemo` in the list.
pub(crate) const ENTRY: Entry = Entry {
    name: "memtis-nemo",
    about: "MEMTIS; requests to slow memory are counted in its controllers, base pages in rotation",
    source: "Li et al., Finding NEMO, section 5.2",
    tracks: BY_COUNTERS_AND_SAMPLES,
    granularity: "4 KiB and 2 MiB",
    promotes: "frequency: a histogram's upper bins",
    demotes: "frequency: neither hot nor warm",
    cost: "all counters read every 500 ms, every 5003rd load and store sampled",
    page_bytes: Some(Memtis::PAGE_BYTES),
    needs: &[Need::Counters, Need::Samples],
    uses: &[Need::PageEvents, Need::Pressure],
    sampling: Some(Sampling::Every(5_003)),
    reclaims: false,
    make: made!("memtis-nemo", Config::default(), |config| {
        MemtisNemo::new(crate::hemem_nemo::Coverage::Slow, config)
    }),
    keys: || keys_of(&mut Config::default()),
};

/// The policy `memtis-nemo-all` in the list.
pub(crate) const ENTRY_ALL: Entry = Entry {
    name: "memtis-nemo-all",
    about: "likewise, with controllers in front of fast memory too",
    source: "Li et al., Finding NEMO, section 5.2, beyond its prototype",
    tracks: BY_COUNTERS_AND_SAMPLES,
    granularity: "4 KiB and 2 MiB",
    promotes: "frequency: a histogram's upper bins",
    demotes: "frequency: neither hot nor warm",
    cost: "all counters read every 500 ms, every 5003rd load and store sampled",
    page_bytes: Some(Memtis::PAGE_BYTES),
    needs: &[Need::Counters, Need::Samples],
    uses: &[Need::PageEvents, Need::Pressure],
    sampling: Some(Sampling::Every(5_003)),
    reclaims: false,
    make: made!("memtis-nemo-all", Config::default(), |config| {
        MemtisNemo::new(crate::hemem_nemo::Coverage::All, config)
    }),
    keys: || keys_of(&mut Config::default()),
};

/// Settings of the policy: MEMTIS's, and those of the counters.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Sampling period: one in `every` requests is counted.
    pub every: u64,
    /// Huge pages whose base pages are counted at the same time.
    pub at_once: u32,
    /// Length of the counting interval of base pages.
    pub turn: Duration,
    /// Initial time during which nothing is moved or split.
    pub pin: Duration,
    /// Settings of the underlying MEMTIS policy.
    pub memtis: super::Config,
}

/// 112 huge pages for 500 ms; one in 5003 as in section 5.1, because 5.2 gives no period. No
/// initial pinning.
impl Default for Config {
    fn default() -> Self {
        Self {
            every: 5003,
            at_once: 112,
            turn: Duration::from_millis(500),
            pin: Duration::ZERO,
            memtis: super::Config::default(),
        }
    }
}

impl Settings for Config {
    fn visit(&mut self, each: &mut dyn Visit) {
        each.value(
            "every",
            "sampling period: one in this many requests is counted",
            &mut self.every,
        );
        each.value("at-once", "huge pages whose base pages are counted", &mut self.at_once);
        each.value("turn", "how long they are", &mut self.turn);
        each.value("pin", "nothing is moved or split for so long", &mut self.pin);
        self.memtis.visit(each);
    }

    fn check(&self) -> Result<(), String> {
        if self.every == 0 || self.at_once == 0 || self.turn.is_zero() {
            return Err("`every`, `at-once` and `turn` must be above zero".into());
        }
        self.memtis.check()
    }
}

/// Component that registered a rule: the huge-page or the base-page counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RuleOwner {
    BlockCounters,
    BaseCounters,
}

/// The MEMTIS-NEMO policy.
#[derive(Clone, Debug)]
pub struct MemtisNemo {
    sees: Coverage,
    config: Config,
    memtis: Memtis,
    counted: BlockCounters,
    turns: BaseCounters,
    /// Owners of the rules that await their id, in the order of registration.
    registering: VecDeque<RuleOwner>,
    /// For each huge page, the share of its requests to base pages that would be hot.
    shares: HashMap<u32, f32>,
    begun: Option<Time>,
    next_turn: Time,
}

impl MemtisNemo {
    /// The policy with these settings.
    #[must_use]
    pub fn new(sees: Coverage, config: Config) -> Self {
        Self {
            sees,
            memtis: Memtis::new(config.memtis.clone()),
            counted: BlockCounters::new(config.every),
            turns: BaseCounters::new(config.at_once),
            registering: VecDeque::new(),
            shares: HashMap::new(),
            begun: None,
            next_turn: Time(0),
            config,
        }
    }

    fn sees(&self, tier: Tier) -> bool {
        self.sees == Coverage::All || tier.0 > 0
    }

    /// Huge pages in tiers that have controllers: the ones on hot lists, and the ones on cold
    /// lists.
    fn huge_pages(&self) -> [Vec<(u32, Range)>; 2] {
        let of = |hot: bool| {
            let tiers = (0..TIERS).map(Tier).filter(|tier| self.sees(*tier));
            let pages = tiers
                .flat_map(|tier| self.memtis.pages.lists.tail_first(list(tier, hot)))
                .filter(|page| self.memtis.pages.is_huge(*page));
            pages.filter_map(|page| Some((page, self.memtis.range_of(page)?))).collect()
        };
        [of(true), of(false)]
    }

    /// Watches the given huge pages at their current frames, and stops watching all others.
    fn follow(
        &mut self,
        lists: &[Vec<(u32, Range)>; 2],
        view: &dyn PlacementView,
        orders: &mut Orders,
    ) {
        let before = self.counted.registering();
        let mut changed = 0;
        for (page, range) in lists.iter().flatten() {
            if let Some(frame) = view.frame_of(range) {
                changed += u64::from(self.counted.watch(*page, frame, view, orders));
            }
        }
        let there: std::collections::HashSet<u32> =
            lists.iter().flatten().map(|(page, _)| *page).collect();
        let gone: Vec<u32> = self.counted.watched().filter(|page| !there.contains(page)).collect();
        changed += gone.len() as u64;
        gone.into_iter().for_each(|page| self.counted.forget(page, orders));
        self.registering
            .extend((before..self.counted.registering()).map(|_| RuleOwner::BlockCounters));
        self.config.memtis.costs.charge(orders, changed);
    }

    fn take(&mut self, id: RuleId, states: &[u64], orders: &mut Orders) {
        if states.is_empty() {
            match self.registering.pop_front() {
                Some(RuleOwner::BaseCounters) => self.turns.named(id),
                Some(RuleOwner::BlockCounters) => drop(self.counted.take(id, states, orders)),
                None => {}
            }
            return;
        }
        if self.turns.has(id) {
            let read = self.turns.take(id, states);
            // One item per huge page, although each of its 512 counters is examined.
            self.config.memtis.costs.charge(orders, read.len() as u64);
            for (page, requests) in read {
                if let Some(share) = self.memtis.divide(page, requests) {
                    self.shares.insert(page, share);
                }
            }
            return;
        }
        let counts = self.counted.take(id, states, orders);
        self.config.memtis.costs.charge(orders, counts.len() as u64);
        for (page, samples) in counts {
            let share = self.shares.get(&page).copied().unwrap_or(0.0);
            self.memtis.add(page, samples, share);
        }
    }

    fn turn(&mut self, view: &dyn PlacementView, orders: &mut Orders) {
        let lists = self.huge_pages();
        self.counted.ask(orders);
        self.turns.end(orders);
        let registered = match self.config.memtis.split {
            true => self.turns.begin(lists.clone(), view, orders),
            false => 0,
        };
        self.registering.extend((0..registered).map(|_| RuleOwner::BaseCounters));
        self.follow(&lists, view, orders);
    }
}

impl Policy for MemtisNemo {
    fn name(&self) -> &'static str {
        match self.sees {
            Coverage::Slow => "memtis-nemo",
            Coverage::All => "memtis-nemo-all",
        }
    }

    fn settings(&self) -> Vec<Setting> {
        recorded(&self.config)
    }

    fn notes(&self) -> Vec<(&'static str, f64)> {
        self.memtis.notes()
    }

    fn observe(&mut self, evidence: Evidence<'_>, orders: &mut Orders) {
        match evidence {
            Evidence::Counters(id, states) => self.take(id, states, orders),
            Evidence::Samples(samples) => {
                let counted = |sample: &Sample| {
                    let page = self.memtis.page_of(sample.at).map(|(page, _)| page);
                    page.is_some_and(|page| self.counted.watches(page))
                };
                let rest: Vec<Sample> =
                    samples.iter().filter(|sample| !counted(sample)).copied().collect();
                // Dropped samples cost as much: the buffer is read as a whole.
                let skipped = (samples.len() - rest.len()) as u64;
                self.config.memtis.costs.charge(orders, skipped);
                self.memtis.observe(Evidence::Samples(&rest), orders);
            }
            _ => self.memtis.observe(evidence, orders),
        }
    }

    fn tick(&mut self, now: Time, view: &dyn PlacementView, orders: &mut Orders) -> Time {
        let begun = *self.begun.get_or_insert(now);
        self.memtis.holds_still = now < begun + self.config.pin;
        let next = self.memtis.tick(now, view, orders);
        if now >= self.next_turn {
            self.turn(view, orders);
            self.next_turn = now + self.config.turn;
        }
        next.min(self.next_turn)
    }
}

#[cfg(test)]
mod tests {
    use tierscope_conformance::tiers::Size;

    use super::super::skew::WEIGHT;
    use super::*;
    use crate::trace::Trace;

    const PAGES: u32 = 512;

    fn trace(config: Config, huge_pages: u32) -> Trace<MemtisNemo> {
        let sizes = [2, 8].map(|huge| Size::without_marks(huge * u64::from(PAGES)));
        let policy = MemtisNemo::new(Coverage::All, config);
        Trace::with(policy, &sizes, huge_pages * PAGES, true)
    }

    // 300 requests to huge page 0 at half past three seconds in a row: 200 to its page 5 and 100 to
    // page 7. One in ten is counted: 90 samples, of which 60 and 30 belong to these pages. The
    // active list's counting intervals begin at full and half seconds, and page 0 is on it once it
    // was counted.
    #[test]
    fn golden_samples_are_divided_by_the_requests_of_the_interval() {
        let config = Config { every: 10, turn: Duration::from_millis(250), ..Config::default() };
        let mut trace = trace(config, 2);
        trace.seconds(5, |second| match second {
            0 | 1 => vec![],
            _ => [vec![5; 200], vec![7; 100]].concat(),
        });
        let pages = &trace.policy.memtis.pages;
        assert_eq!(pages.lists.payload(0).count(), 90);
        let subs = [5, 7, 9].map(|subpage| pages.sub_count(0, subpage) / WEIGHT);
        assert_eq!(subs, [60, 30, 0]);
        assert_eq!(trace.policy.notes()[0].1, 1.0, "page 0 may be split");
        assert_eq!(trace.policy.shares[&0], 1.0, "all of them fell on base pages that are hot");
        assert_eq!(pages.all.threshold(u64::MAX).1, 1024, "every page is counted once");
    }

    #[test]
    fn nothing_moves_while_it_is_pinned() {
        let config = Config {
            every: 1,
            pin: Duration::from_secs(4),
            memtis: super::super::Config { adapt: 10, ..Default::default() },
            ..Config::default()
        };
        let mut trace = trace(config, 4);
        trace.machine.place(&crate::trace::range(0, 4 * PAGES), Tier(1));
        trace.seconds(3, |_| vec![PAGES + 3; 500]);
        assert_eq!(trace.orders(), 0);
        trace.seconds(3, |_| vec![PAGES + 3; 500]);
        assert!(trace.ordered().contains(&"512→0".to_owned()), "{:?}", trace.ordered());
    }

    #[test]
    fn absurd_settings_are_refused() {
        assert!(Config { at_once: 0, ..Config::default() }.check().is_err());
        assert!(Config { every: 0, ..Config::default() }.check().is_err());
    }
}
