//! MEMTIS: classifies as many pages as hot as fit into the fast tier, by sampled accesses; splits
//! skewed huge pages.
//!
//! Source: Lee et al., "Memtis: Efficient Memory Tiering with Dynamic Page Classification and Page
//! Size Determination" (SOSP'23), as implemented in its kernel (mm/htmm_core.c, htmm_sampler.c,
//! htmm_migrater.c):
//!
//! - A sample adds 512 to a base page's count, or 1 to a huge page's and 512 to the subpage's. A
//!   histogram has the number of 4 KiB pages per bin of counts (`histogram.rs`); a second one has
//!   it as if there were base pages only.
//! - Every 100,000 samples the hot threshold is set: the lowest bin such that all pages from it up
//!   fit into the fast tier minus its promotion watermark (3 %, from 100 to 1500 MB). If they fill
//!   less than 75 % of that, the bin below is warm. The threshold only rises, except that after
//!   cooling it may fall by one bin.
//! - Cooling: every 2 million samples, or after 10 GB of memory growth, counts are halved lazily,
//!   on a page's next access or visit by the cooling sweep, and the histograms are rebuilt from the
//!   halved counts.
//! - After cooling, the skewness of huge pages selects the ones to split, and the fast-tier hits
//!   lost to huge pages give their number (`skew.rs`). Splits require more samples than a quarter
//!   of the accessed pages and more than the fast tier's pages; at most 50 per pass, the most
//!   skewed first; they end for good if the last splits improved hits by less than 3 %.
//! - kmigraterd, every 500 ms, promotes hot pages. It keeps 2 % of the fast tier free (50 to 1000
//!   MB) plus the size of pending promotions, by demoting pages that are neither hot nor warm.
//!
//! The sampler's control of its own period (3 % of CPU time, adjusted every 15 s) is the machine's:
//! policies here do not set sampling rates. Whether a sample hit the fast tier is determined by the
//! page's tier.

mod base_counters;
mod histogram;
pub mod nemo;
mod pages;
mod skew;

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use tierscope_core::{
    ActionKind, Addr, Evidence, Need, Orders, PAGE_SIZE, PlacementView, Policy, Range, Sample,
    Setting, Tier, Time,
};

use crate::cost::Costs;
use crate::pages::{Census, FinishedMove, Lists, Moves};
use crate::registry::{Entry, Sampling, keys_of, made};
use crate::settings::{Bytes, Settings, Visit, recorded};
use histogram::{Histogram, bin};
use pages::{Heat, Pages, list};
use skew::{BUCKETS, Hits, bucket, records, splits};

/// The policy `memtis` in the list.
pub(crate) const ENTRY: Entry = Entry {
    name: "memtis",
    about: "as many pages are hot as the fast tier holds; skewed huge pages are split",
    source: "Lee et al., SOSP'23",
    tracks: "sampled loads and stores",
    granularity: "4 KiB and 2 MiB",
    promotes: "frequency: a histogram's upper bins",
    demotes: "frequency: neither hot nor warm",
    cost: "sampling at 3 % of a CPU, held by the machine",
    page_bytes: Some(Memtis::PAGE_BYTES),
    needs: &[Need::Samples],
    uses: &[Need::PageEvents, Need::Pressure],
    sampling: Some(Sampling::Share(0.03)),
    reclaims: false,
    make: made!("memtis", Config::default(), Memtis::new),
    keys: || keys_of(&mut Config::default()),
};

/// Settings of the policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Samples between two updates of the hot threshold.
    pub adapt: u64,
    /// Samples between two coolings.
    pub cool: u64,
    /// Growth of memory that triggers a cooling.
    pub growth: Bytes,
    /// Time between two passes of kmigraterd.
    pub interval: Duration,
    /// Pages that the cooling sweep visits per pass.
    pub cooled: u32,
    /// Whether huge pages are split.
    pub split: bool,
    /// Latency of the fast tier in nanoseconds, for the number of splits.
    pub fast_ns: f64,
    /// Latency of the slow tier in nanoseconds.
    pub slow_ns: f64,
    /// Pages looked up per tick on a machine that does not report allocations.
    pub census: u64,
    /// CPU costs of the policy's own work.
    pub costs: Costs,
}

/// The source's values, with Optane's 270 ns. `cooled`, the speed of the cooling sweep, is assumed.
impl Default for Config {
    fn default() -> Self {
        Self {
            adapt: 100_000,
            cool: 2_000_000,
            growth: Bytes(10 << 30),
            interval: Duration::from_millis(500),
            cooled: 1 << 20,
            split: true,
            fast_ns: 80.0,
            slow_ns: 270.0,
            census: 65_536,
            costs: Costs::default(),
        }
    }
}

impl Settings for Config {
    fn visit(&mut self, each: &mut dyn Visit) {
        each.value("adapt", "samples between two updates of the threshold", &mut self.adapt);
        each.value("cool", "samples after which all cools", &mut self.cool);
        each.value("growth", "growth of memory after which all cools", &mut self.growth);
        each.value("interval", "time between two passes", &mut self.interval);
        each.value("cooled", "pages cooled in a pass", &mut self.cooled);
        each.value("split", "huge pages are split", &mut self.split);
        each.value("fast-ns", "nanoseconds of a fast access", &mut self.fast_ns);
        each.value("slow-ns", "nanoseconds of a slow access", &mut self.slow_ns);
        let about = "pages looked up at a tick where the machine does not report new ones";
        each.value("census", about, &mut self.census);
        self.costs.visit(each);
    }

    fn check(&self) -> Result<(), String> {
        if self.adapt == 0 || self.cool < self.adapt || self.cooled == 0 {
            return Err(
                "`adapt` and `cooled` must be above zero, `cool` no less than `adapt`".into()
            );
        }
        if self.interval.is_zero() || self.fast_ns <= 0.0 || self.growth.0 == 0 {
            return Err("`interval`, `growth` and `fast-ns` must be above zero".into());
        }
        Ok(())
    }
}

const TIERS: u8 = 8;
/// Name in [`Policy::notes`] of the number of huge pages that ever had a skewness above 0.
pub const CANDIDATES: &str = "split candidates";
/// Maximum number of splits per pass.
const SPLITS: usize = 50;
const MIB: u64 = 1 << 20;

/// Kind of a pending action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PendingKind {
    Move,
    Split,
}

/// The MEMTIS policy.
#[derive(Clone, Debug)]
pub struct Memtis {
    config: Config,
    census: Census,
    pages: Pages,
    moves: Moves<PendingKind>,
    samples: u64,
    /// Sample numbers of the next threshold update and the next cooling.
    next_adapt: u64,
    next_cool: u64,
    /// Tracked pages of 4 KiB at the last cooling.
    cooled_size: u64,
    /// Position of the cooling sweep; `None` if it is complete.
    hand: Option<u32>,
    hits: Hits,
    /// Share of fast-tier hits before the last splits.
    before_splits: Option<f64>,
    splits_pay: bool,
    to_split: VecDeque<u32>,
    /// Huge pages that ever had a skewness above 0.
    candidates: HashSet<u32>,
    /// Suppresses migration and splits, until the caller's counters are complete.
    holds_still: bool,
    next_pass: Time,
}

impl Memtis {
    /// The policy with these settings.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            census: Census::new(config.census),
            pages: Pages::new(),
            moves: Moves::new(),
            samples: 0,
            next_adapt: config.adapt,
            next_cool: config.cool,
            cooled_size: 0,
            hand: None,
            hits: Hits::default(),
            before_splits: None,
            splits_pay: true,
            to_split: VecDeque::new(),
            candidates: HashSet::new(),
            holds_still: false,
            next_pass: Time(0),
            config,
        }
    }

    /// Bytes kept for each tracked page of 4 KiB.
    pub const PAGE_BYTES: usize = Lists::<Heat>::PAGE_BYTES;

    /// The page and subpage that contain an address.
    fn page_of(&self, at: Addr) -> Option<(u32, u32)> {
        let small = self.census.numbers.page_at(at)?;
        if self.pages.lists.knows(small) {
            return Some((small, small));
        }
        let head = self.census.numbers.page_at(Addr { at: at.at & !(2 * MIB - 1), ..at })?;
        let huge = self.pages.lists.knows(head) && self.pages.is_huge(head);
        (huge && small > head && small < head + 512).then_some((head, small))
    }

    fn count(&mut self, sample: &Sample) {
        let Some((page, subpage)) = self.page_of(sample.at) else { return };
        self.pages.sample(page, subpage);
        let of_base = if self.pages.is_huge(page) {
            bin(self.pages.sub_count(page, subpage))
        } else {
            self.pages.bin(page)
        };
        self.hits.estimated += u64::from(of_base >= self.pages.base_hot);
        self.hits.real += u64::from(self.pages.tier(page) == Some(Tier(0)));
        self.sampled(1);
    }

    /// Counts samples of a huge page; `share` of them is assumed to hit hot base pages.
    fn add(&mut self, page: u32, samples: u32, share: f32) {
        if !self.pages.lists.knows(page) || !self.pages.is_huge(page) {
            return;
        }
        self.pages.add(page, samples);
        self.hits.estimated += (f64::from(samples) * f64::from(share)).round() as u64;
        let fast = self.pages.tier(page) == Some(Tier(0));
        self.hits.real += if fast { u64::from(samples) } else { 0 };
        self.sampled(samples.into());
    }

    /// Attributes a huge page's samples to its base pages in proportion to these requests. Returns
    /// the share of the requests to base pages that would be hot; `None` without requests or if the
    /// page was split.
    fn divide(&mut self, page: u32, requests: &[u64]) -> Option<f32> {
        let all: u64 = requests.iter().sum();
        if all == 0 || !self.pages.lists.knows(page) || !self.pages.is_huge(page) {
            return None;
        }
        self.pages.divide(page, requests, all);
        if self.pages.skewness(page) > 0 {
            self.candidates.insert(page);
        }
        let hot = self.pages.subpages(page).zip(requests).filter(|(subpage, _)| {
            bin(self.pages.sub_count(page, *subpage)) >= self.pages.base_hot
        });
        Some(hot.map(|(_, requests)| *requests).sum::<u64>() as f32 / all as f32)
    }

    /// Advances the sample count; updates the threshold or begins a cooling when due.
    fn sampled(&mut self, samples: u64) {
        self.samples += samples;
        if self.samples >= self.next_cool {
            self.begin_cooling();
        } else if self.samples >= self.next_adapt {
            self.pages.adapt(self.room(), false);
            self.next_adapt = self.samples + self.config.adapt;
        }
    }

    /// Number of 4 KiB pages that may be hot: the fast tier minus its promotion watermark, which is
    /// limited to an eighth of the tier, for machines smaller than the source's.
    fn room(&self) -> u64 {
        let capacity = self.moves.capacity(Tier(0));
        let mark = (capacity / 100 * 3).clamp(100 * MIB, 1500 * MIB).min(capacity / 8);
        (capacity - mark) / PAGE_SIZE
    }

    /// Bytes kept free in the fast tier: its demotion watermark, at most a sixteenth of the tier.
    fn reserve(&self) -> u64 {
        let capacity = self.moves.capacity(Tier(0));
        (capacity / 100 * 2).clamp(50 * MIB, 1000 * MIB).min(capacity / 16)
    }

    fn begin_cooling(&mut self) {
        self.next_cool = self.samples + self.config.cool;
        self.next_adapt = self.samples + self.config.adapt;
        self.cooled_size = self.pages.lists.known();
        self.pages.all = Histogram::default();
        self.pages.base = Histogram::default();
        self.pages.clock = self.pages.clock.wrapping_add(1);
        self.hand = Some(0);
    }

    /// Advances the cooling sweep, which reaches pages without accesses.
    fn cool_some(&mut self, orders: &mut Orders) {
        let Some(from) = self.hand else { return };
        let mut next = self.pages.lists.next_known(from);
        let mut cooled = 0;
        while let Some(page) = next
            && cooled < self.config.cooled
        {
            self.pages.cool(page);
            cooled += 1;
            next = page.checked_add(1).and_then(|after| self.pages.lists.next_known(after));
        }
        self.config.costs.charge(orders, cooled.into());
        self.hand = next;
        if next.is_none() {
            self.pages.adapt(self.room(), true);
            self.choose_splits(orders);
        }
    }

    /// Selects the most skewed huge pages for splitting, as many as are expected to pay off.
    fn choose_splits(&mut self, orders: &mut Orders) {
        let share = self.hits.real as f64 / (self.hits.records_or(self.config.cool)) as f64;
        if let Some(before) = self.before_splits.take() {
            self.splits_pay &= share >= before * 1.03;
        }
        let (buckets, accessed, used) = self.skewed();
        self.config.costs.charge(orders, accessed);
        self.candidates.extend(buckets.iter().flatten());
        self.hits.records = records(self.config.cool, u32::from(self.pages.clock));
        self.hits.huge_pages = accessed;
        let fast = self.moves.capacity(Tier(0)) / PAGE_SIZE;
        let enough = self.samples > (used / 4).max(fast);
        let wanted = splits(&self.hits, self.config.fast_ns, self.config.slow_ns);
        if self.config.split && self.splits_pay && enough && wanted > 0 {
            let skewed = buckets.into_iter().rev().flatten();
            self.to_split = skewed.take(wanted as usize).collect();
            self.before_splits = (!self.to_split.is_empty()).then_some(share);
        }
        self.hits.estimated /= 2;
        self.hits.real /= 2;
    }

    /// Huge pages by bucket of skewness, the number accessed, and the number of 4 KiB pages
    /// accessed in total.
    fn skewed(&self) -> (Vec<Vec<u32>>, u64, u64) {
        let mut buckets = vec![Vec::new(); BUCKETS];
        let (mut accessed, mut used) = (0, 0);
        let mut next = self.pages.lists.next_known(0);
        while let Some(page) = next {
            if self.pages.lists.payload(page).count() > 0 {
                used += self.pages.small(page);
                if self.pages.is_huge(page) {
                    accessed += 1;
                    match self.pages.skewness(page) {
                        0 => {}
                        skewness => buckets[bucket(skewness)].push(page),
                    }
                }
            }
            next = page.checked_add(1).and_then(|after| self.pages.lists.next_known(after));
        }
        (buckets, accessed, used)
    }

    /// Of the accessed huge pages, the number of skewness 0, of 16 and above, and in total.
    fn scores(&self) -> [u64; 3] {
        let (mut scores, mut next) = ([0; 3], self.pages.lists.next_known(0));
        while let Some(page) = next {
            if self.pages.is_huge(page) && self.pages.lists.payload(page).count() > 0 {
                let skewness = self.pages.skewness(page);
                scores[0] += u64::from(skewness == 0);
                scores[1] += u64::from(skewness >= 16);
                scores[2] += 1;
            }
            next = page.checked_add(1).and_then(|after| self.pages.lists.next_known(after));
        }
        scores
    }

    fn split_some(&mut self, orders: &mut Orders) {
        for _ in 0..SPLITS {
            let Some(page) = self.to_split.pop_front() else { return };
            let tier = self.pages.lists.knows(page).then(|| self.pages.tier(page)).flatten();
            if let Some(tier) = tier.filter(|_| self.pages.is_huge(page))
                && let Some(range) = self.range_of(page)
            {
                self.pages.lists.take(page);
                let kind = ActionKind::Split;
                self.moves.in_place(orders, (page, range), (tier, kind), PendingKind::Split);
                self.config.costs.charge(orders, 1);
            }
        }
    }

    fn range_of(&self, page: u32) -> Option<Range> {
        let at = self.census.numbers.address_of(page)?;
        Some(Range::new(at.space, at.at, at.at + self.pages.lists.bytes(page)))
    }

    /// Promotes hot pages of slower tiers, and demotes cold ones to make room.
    fn migrate(&mut self, orders: &mut Orders) {
        while self.moves.free_at_last(Tier(0)) < self.reserve() && self.demote(orders) {}
        for tier in (1..self.moves.tiers().min(usize::from(TIERS)) as u8).map(Tier) {
            while let Some(page) = self.pages.lists.tail(list(tier, true)) {
                self.config.costs.charge(orders, 1);
                self.pages.cool(page);
                if !self.pages.is_hot(page) {
                    self.pages.put(page, tier);
                    continue;
                }
                let bytes = self.pages.lists.bytes(page);
                while self.moves.free_soon(Tier(0)) < self.reserve() + bytes {
                    if !self.demote(orders) {
                        return;
                    }
                }
                if !self.send(page, tier, Tier(0), orders) {
                    return;
                }
            }
        }
    }

    /// Demotes a page of the fast tier that is neither hot nor warm to the next tier.
    fn demote(&mut self, orders: &mut Orders) -> bool {
        let cold = list(Tier(0), false);
        let fits =
            |moves: &Moves<PendingKind>, bytes| moves.tiers() > 1 && moves.free(Tier(1)) >= bytes;
        // Warm pages are rotated to the head, so that each is examined once.
        for _ in 0..self.pages.lists.count(cold) {
            let Some(page) = self.pages.lists.tail(cold) else { return false };
            self.config.costs.charge(orders, 1);
            self.pages.cool(page);
            if self.pages.lists.list_of(page) != Some(cold) {
                continue;
            }
            if self.pages.bin(page) >= self.pages.warm.max(1) {
                self.pages.lists.push_head(cold, page);
                continue;
            }
            return fits(&self.moves, self.pages.lists.bytes(page))
                && self.send(page, Tier(0), Tier(1), orders);
        }
        false
    }

    fn send(&mut self, page: u32, from: Tier, to: Tier, orders: &mut Orders) -> bool {
        let Some(range) = self.range_of(page) else { return false };
        self.pages.lists.take(page);
        self.moves.move_page(orders, (page, range), (from, to), PendingKind::Move);
        true
    }

    fn end(&mut self, ended: &FinishedMove<PendingKind>) {
        if !self.pages.lists.knows(ended.page) {
            return;
        }
        match (ended.tag, ended.done) {
            (PendingKind::Split, true) if self.pages.is_huge(ended.page) => {
                self.pages.cool(ended.page);
                self.pages.split(ended.page, ended.from);
            }
            _ => {
                let tier = ended.to.filter(|_| ended.done).unwrap_or(ended.from);
                self.pages.put(ended.page, tier);
            }
        }
    }
}

impl Hits {
    /// Number of samples for the hit ratio; before the first cooling, those of one cooling period.
    fn records_or(&self, period: u64) -> u64 {
        if self.records == 0 { period } else { self.records }
    }
}

impl Policy for Memtis {
    fn name(&self) -> &'static str {
        "memtis"
    }

    fn settings(&self) -> Vec<Setting> {
        recorded(&self.config)
    }

    fn notes(&self) -> Vec<(&'static str, f64)> {
        let [none, high, all] = self.scores().map(|pages| pages as f64);
        let all = all.max(1.0);
        vec![
            (CANDIDATES, self.candidates.len() as f64),
            ("share of skewness 0", none / all),
            ("share of skewness from 16 on", high / all),
        ]
    }

    fn observe(&mut self, evidence: Evidence<'_>, orders: &mut Orders) {
        self.census.observe(&evidence);
        match evidence {
            Evidence::Samples(samples) => {
                self.config.costs.charge(orders, samples.len() as u64);
                samples.iter().for_each(|sample| self.count(sample));
            }
            Evidence::Pressure(pressure) => self.moves.pressure(pressure),
            Evidence::Outcomes(outcomes) => {
                self.config.costs.charge(orders, outcomes.len() as u64);
                for outcome in outcomes {
                    if let Some(ended) = self.moves.end(outcome) {
                        self.end(&ended);
                    }
                }
            }
            _ => {}
        }
    }

    fn tick(&mut self, now: Time, view: &dyn PlacementView, orders: &mut Orders) -> Time {
        self.moves.refresh(view.tiers());
        let looked = self.census.settle(view, &mut self.pages);
        for page in std::mem::take(&mut self.pages.gone) {
            self.moves.forget(page);
        }
        self.config.costs.charge(orders, looked);
        if now < self.next_pass {
            return self.next_pass;
        }
        self.config.costs.charge_wake(orders);
        let grown = self.pages.lists.known().saturating_sub(self.cooled_size) * PAGE_SIZE;
        if grown > self.config.growth.0 {
            self.begin_cooling();
        }
        self.cool_some(orders);
        if !self.holds_still {
            self.split_some(orders);
            self.migrate(orders);
        }
        self.next_pass = now + self.config.interval;
        self.next_pass
    }
}

#[cfg(test)]
mod tests {
    use tierscope_conformance::tiers::Size;

    use super::skew::WEIGHT;
    use super::*;
    use crate::trace::{Trace, range};

    /// Touches that yield `count` samples of a page: the machine samples every hundredth.
    fn samples(page: u32, count: u32) -> Vec<u32> {
        vec![page; 100 * count as usize]
    }

    fn trace(config: Config, tiers: [u64; 2], pages: u32, huge: bool) -> Trace<Memtis> {
        let sizes = tiers.map(Size::without_marks);
        Trace::with(Memtis::new(config), &sizes, pages, huge)
    }

    #[test]
    fn sixteen_bytes_a_page() {
        assert_eq!(Memtis::PAGE_BYTES, 16);
    }

    // Counts of 512 a sample: bin 9 with one, 10 with two. The first threshold is bin 1: every
    // sampled page is hot, and is promoted if there is room.
    #[test]
    fn golden_a_sample_makes_a_base_page_hot() {
        let mut trace = trace(Config::default(), [64, 64], 3, false);
        trace.machine.place(&range(1, 2), Tier(1));
        trace.seconds(2, |second| if second == 0 { samples(2, 1) } else { vec![] });
        assert_eq!(trace.ordered(), ["2→0"]);
        assert_eq!(trace.policy.pages.bin(2), 9);
    }

    // Room for 28 of 32 pages. 40 pages have one sample each: the threshold rises to bin 10,
    // because bin 9 does not fit; only page 50, with four samples, is hot then.
    #[test]
    fn golden_the_threshold_rises_until_hot_pages_fit() {
        let config = Config { adapt: 44, interval: Duration::from_secs(100), ..Config::default() };
        let mut trace = trace(config, [32, 96], 64, false);
        trace.seconds(2, |second| match second {
            0 => (0..40).flat_map(|page| samples(page, 1)).chain(samples(50, 4)).collect(),
            _ => vec![],
        });
        let pages = &trace.policy.pages;
        assert_eq!((pages.hot, pages.warm, pages.base_hot), (10, 9, 10));
        assert_eq!((pages.is_hot(50), pages.is_hot(3)), (true, false));
    }

    // The fourth sample triggers a cooling: 3 * 512 of page 0 become 768, 512 of page 1 become 256,
    // and the histograms contain every page once.
    #[test]
    fn golden_all_cools() {
        let config = Config { adapt: 4, cool: 4, ..Config::default() };
        let mut trace = trace(config, [64, 64], 8, false);
        trace.seconds(2, |second| {
            if second == 0 { [samples(0, 3), samples(1, 1)].concat() } else { vec![] }
        });
        let pages = &trace.policy.pages;
        assert_eq!(pages.clock, 1);
        assert_eq!((pages.lists.payload(0).count(), pages.lists.payload(1).count()), (768, 256));
        assert_eq!(pages.all.threshold(u64::MAX).1, 8, "every page is counted once");
        assert_eq!(pages.all, pages.base);
    }

    // A huge page in the slow tier, all of whose samples are at its page 5: it is split, page 5 is
    // promoted and the other 511 stay.
    #[test]
    fn golden_a_skewed_huge_page_is_split() {
        let config = Config { adapt: 50, cool: 600, slow_ns: 100_000.0, ..Config::default() };
        let mut trace = trace(config, [512, 2048], 1024, true);
        trace.seconds(4, |_| samples(512 + 5, 200));
        assert!(trace.ordered().contains(&"512 Split".to_owned()), "{:?}", trace.ordered());
        trace.seconds(2, |_| samples(512 + 5, 1));
        let notes = trace.policy.notes();
        assert_eq!(notes[0], (CANDIDATES, 1.0), "huge page 0 was never sampled");
        let pages = &trace.policy.pages;
        assert_eq!(pages.lists.order(517), 0);
        assert!(pages.lists.payload(517).count() > 100 * WEIGHT);
        assert_eq!(pages.all.threshold(u64::MAX).1, 1024, "every page is counted once");
    }
}
