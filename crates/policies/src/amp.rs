//! AMP: scans every page of every tier, and exchanges the best pages of a slower tier for the worst
//! of the tier above, ranked by LRU, by LFU or at random.
//!
//! Source: MULTI-CLOCK (HPCA'22), section II-C, on AMP: "page selection mechanisms based on the
//! popular cache replacement algorithms, including least-recently-used (LRU), least-frequently used
//! (LFU), and random selection", which "requires it to scan and profile all the memory pages from
//! both DRAM and PM tier". That this does not scale is the paper's point: a scan's cost grows with
//! memory.
//!
//! Not specified there, decided here: one scan per second; at most 1024 promotions per scan (as for
//! the paper's other policies); only pages that the scan found accessed are promoted. With LRU and
//! LFU, a page is promoted only in exchange for a worse one. Counts are never halved; ties are
//! broken by page number.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use tierscope_core::{
    Evidence, Level, Need, Orders, PlacementView, Policy, Probe, Range, Rng, Setting, State, Tier,
    Time,
};

use crate::cost::Costs;
use crate::pages::{Census, Change, ListId, Lists, Moves, PageStates};
use crate::registry::{BY_ACCESSED, Entry, keys_of, made};
use crate::settings::{Settings, Visit, recorded};

/// How pages are ranked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Promote the most recently used pages, demote the least recently used.
    Lru,
    /// Promote the pages found accessed in most scans, demote those found in fewest.
    Lfu,
    /// Promote random accessed pages, demote random pages.
    Random,
}

/// The policy `amp-lru` in the list.
pub(crate) const ENTRY_LRU: Entry = Entry {
    name: "amp-lru",
    about: "all pages are scanned; the most recently accessed are promoted",
    source: "MULTI-CLOCK (HPCA'22), section II-C, on AMP",
    tracks: BY_ACCESSED,
    granularity: "pages",
    promotes: "recency",
    demotes: "recency, for room",
    cost: "all entries at each scan",
    page_bytes: Some(Amp::PAGE_BYTES),
    needs: &[Need::AccessBits],
    uses: &[Need::PageEvents, Need::Pressure],
    sampling: None,
    reclaims: false,
    make: made!("amp-lru", Config::of(Variant::Lru), Amp::new),
    keys: || keys_of(&mut Config::of(Variant::Lru)),
};

/// The policy `amp-lfu` in the list.
pub(crate) const ENTRY_LFU: Entry = Entry {
    name: "amp-lfu",
    about: "all pages are scanned; the most often accessed are promoted",
    source: "MULTI-CLOCK (HPCA'22), section II-C, on AMP",
    tracks: BY_ACCESSED,
    granularity: "pages",
    promotes: "frequency",
    demotes: "frequency, for room",
    cost: "all entries at each scan",
    page_bytes: Some(Amp::PAGE_BYTES),
    needs: &[Need::AccessBits],
    uses: &[Need::PageEvents, Need::Pressure],
    sampling: None,
    reclaims: false,
    make: made!("amp-lfu", Config::of(Variant::Lfu), Amp::new),
    keys: || keys_of(&mut Config::of(Variant::Lfu)),
};

/// The policy `amp-random` in the list.
pub(crate) const ENTRY_RANDOM: Entry = Entry {
    name: "amp-random",
    about: "all pages are scanned; random accessed pages are promoted",
    source: "MULTI-CLOCK (HPCA'22), section II-C, on AMP",
    tracks: BY_ACCESSED,
    granularity: "pages",
    promotes: "at random, of the accessed pages",
    demotes: "at random, for room",
    cost: "all entries at each scan",
    page_bytes: Some(Amp::PAGE_BYTES),
    needs: &[Need::AccessBits],
    uses: &[Need::PageEvents, Need::Pressure],
    sampling: None,
    reclaims: false,
    make: made!("amp-random", Config::of(Variant::Random), Amp::new),
    keys: || keys_of(&mut Config::of(Variant::Random)),
};

/// Settings of the policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// How pages are ranked.
    pub variant: Variant,
    /// Minimum time from the beginning of one scan to the next.
    pub interval: Duration,
    /// Maximum promotions per scan and tier.
    pub batch: u32,
    /// Pages probed per batch; the scan continues 10 ms later.
    pub chunk: u32,
    /// Seed of the random ranking.
    pub seed: u64,
    /// Pages looked up per tick on a machine that does not report allocations.
    pub census: u64,
    /// CPU costs of the policy's own work.
    pub costs: Costs,
}

impl Config {
    /// Defaults: 1 s, 1024 pages (assumed).
    #[must_use]
    pub fn of(variant: Variant) -> Self {
        Self {
            variant,
            interval: Duration::from_secs(1),
            batch: 1024,
            chunk: 1 << 18,
            seed: 1,
            census: 65_536,
            costs: Costs::default(),
        }
    }
}

impl Settings for Config {
    fn visit(&mut self, each: &mut dyn Visit) {
        each.value("interval", "time from one scan to the next, at least", &mut self.interval);
        each.value("batch", "pages promoted after a scan at most", &mut self.batch);
        each.value("chunk", "pages looked up at once", &mut self.chunk);
        if self.variant == Variant::Random {
            each.value("seed", "seed of the lot", &mut self.seed);
        }
        let about = "pages looked up at a tick where the machine does not report new ones";
        each.value("census", about, &mut self.census);
        self.costs.visit(each);
    }

    fn check(&self) -> Result<(), String> {
        if self.interval.is_zero() || self.batch == 0 || self.chunk == 0 {
            return Err("`interval`, `batch` and `chunk` must be above zero".into());
        }
        Ok(())
    }
}

/// Time between two chunks of a scan.
const PACE: Duration = Duration::from_millis(10);
const TIERS: u8 = 8;

/// Per-page scan history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ScanHistory {
    /// Number of scans that found the page accessed.
    count: u16,
    /// Number of the last scan that did; 0 for none.
    last: u16,
}

/// Page lists by tier; the second half of the lists holds locked pages.
#[derive(Clone, Debug)]
struct Pages {
    lists: Lists<ScanHistory>,
    gone: Vec<u32>,
}

impl Pages {
    fn tier(&self, page: u32) -> Option<Tier> {
        self.lists.list_of(page).filter(|list| list.0 < TIERS).map(|list| Tier(list.0))
    }

    fn put(&mut self, page: u32, tier: Tier) {
        if tier.0 < TIERS {
            self.lists.push_head(ListId(tier.0), page);
        }
    }
}

impl PageStates for Pages {
    fn order_of(&self, page: u32) -> Option<u8> {
        self.lists.knows(page).then(|| self.lists.order(page))
    }

    fn reserve(&mut self, pages: u32) {
        self.lists.reserve(pages);
    }

    fn change(&mut self, change: Change) {
        match change {
            Change::Seen { page, order, tier, .. } => {
                if !self.lists.knows(page) {
                    self.lists.add(page, order);
                    self.put(page, tier);
                } else if self.tier(page).is_some_and(|known| known != tier) {
                    self.put(page, tier);
                }
            }
            Change::Gone { page } if self.lists.knows(page) => {
                self.gone.push(page);
                self.lists.forget(page);
            }
            Change::Locked { page, on } => match self.lists.list_of(page) {
                Some(list) if on && list.0 < TIERS => {
                    self.lists.push_head(ListId(list.0 + TIERS), page);
                }
                Some(list) if !on && list.0 >= TIERS => {
                    self.lists.push_head(ListId(list.0 - TIERS), page);
                }
                _ => {}
            },
            _ => {}
        }
    }
}

/// The AMP policy.
#[derive(Clone, Debug)]
pub struct Amp {
    config: Config,
    census: Census,
    pages: Pages,
    moves: Moves<()>,
    rng: Rng,
    /// Number of the scan under way (from 1), and in `hand` the next page that it will probe.
    scan: u16,
    hand: Option<u32>,
    next_scan: Time,
}

impl Amp {
    /// The policy with these settings.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            census: Census::new(config.census),
            pages: Pages { lists: Lists::new(usize::from(2 * TIERS)), gone: Vec::new() },
            moves: Moves::new(),
            rng: Rng::seeded(config.seed),
            scan: 0,
            hand: None,
            next_scan: Time(0),
            config,
        }
    }

    /// Bytes kept for each tracked page of 4 KiB.
    pub const PAGE_BYTES: usize = Lists::<ScanHistory>::PAGE_BYTES;

    /// Orders probes of the next chunk of pages; `hand` becomes `None` at the end of the scan.
    fn ask(&mut self, orders: &mut Orders) {
        let Some(from) = self.hand else { return };
        let mut scanned = 0;
        let mut next = self.pages.lists.next_known(from);
        while let Some(page) = next
            && scanned < self.config.chunk
        {
            if let Some(at) = self.census.numbers.address_of(page) {
                let level = if self.pages.lists.order(page) >= 9 { Level::PMD } else { Level::PTE };
                orders.probes.push(Probe::test_and_clear(at, level));
            }
            scanned += 1;
            next = page.checked_add(1).and_then(|after| self.pages.lists.next_known(after));
        }
        self.hand = next;
        self.config.costs.charge(orders, scanned.into());
    }

    fn answer(&mut self, probes: &[Probe]) {
        for probe in probes {
            let Some(page) = self.census.numbers.page_at(probe.at) else { continue };
            if !self.pages.lists.knows(page) {
                continue;
            }
            match probe.answer.state {
                State::Young => {
                    let seen = self.pages.lists.payload_mut(page);
                    seen.count = seen.count.saturating_add(1);
                    seen.last = self.scan;
                }
                State::Gone | State::Unmapped | State::Absent => {
                    self.moves.forget(page);
                    self.pages.lists.forget(page);
                }
                State::Old | State::Refused => {}
            }
        }
    }

    /// Rank of a page: pages of greater merit belong in the fast tier.
    fn merit(&mut self, page: u32) -> u64 {
        let seen = *self.pages.lists.payload(page);
        match self.config.variant {
            Variant::Lru => u64::from(u16::MAX - self.scan.wrapping_sub(seen.last)),
            Variant::Lfu => seen.count.into(),
            Variant::Random => self.rng.next_u64(),
        }
    }

    /// Runs when a scan is complete: exchanges the best pages of each slower tier for the worst of
    /// the tier above.
    fn exchange(&mut self, orders: &mut Orders) {
        for tier in (1..self.moves.tiers().min(usize::from(TIERS)) as u8).map(Tier) {
            let above = Tier(tier.0 - 1);
            let mut worst = self.worst(above).into_iter().peekable();
            for (merit, page) in self.best(tier) {
                let bytes = self.pages.lists.bytes(page);
                while self.moves.room_above_low(above) < bytes
                    && let Some((_, victim)) = worst.next_if(|(least, _)| {
                        *least < merit || self.config.variant == Variant::Random
                    })
                {
                    if self.moves.free(tier) >= self.pages.lists.bytes(victim) {
                        self.send(victim, above, tier, orders);
                    }
                }
                if self.moves.room_above_low(above) < bytes {
                    break;
                }
                self.send(page, tier, above, orders);
            }
        }
    }

    /// The best of the pages that this scan found accessed, best first.
    fn best(&mut self, tier: Tier) -> Vec<(u64, u32)> {
        let mut best = BinaryHeap::new();
        let pages: Vec<u32> = self.pages.lists.head_first(ListId(tier.0)).collect();
        for page in pages {
            if self.pages.lists.payload(page).last == self.scan {
                let merit = self.merit(page);
                best.push(Reverse((merit, Reverse(page))));
                if best.len() > self.config.batch as usize {
                    best.pop();
                }
            }
        }
        let sorted = best.into_sorted_vec().into_iter();
        sorted.map(|Reverse((merit, Reverse(page)))| (merit, page)).collect()
    }

    /// The worst pages of a tier, the worst first.
    fn worst(&mut self, tier: Tier) -> Vec<(u64, u32)> {
        let mut worst = BinaryHeap::new();
        let pages: Vec<u32> = self.pages.lists.head_first(ListId(tier.0)).collect();
        for page in pages {
            worst.push((self.merit(page), page));
            if worst.len() > self.config.batch as usize {
                worst.pop();
            }
        }
        worst.into_sorted_vec()
    }

    fn send(&mut self, page: u32, from: Tier, to: Tier, orders: &mut Orders) {
        let bytes = self.pages.lists.bytes(page);
        let Some(at) = self.census.numbers.address_of(page) else { return };
        let range = Range::new(at.space, at.at, at.at + bytes);
        self.pages.lists.take(page);
        self.moves.move_page(orders, (page, range), (from, to), ());
        self.config.costs.charge(orders, 1);
    }

    fn begin(&mut self, now: Time, orders: &mut Orders) {
        self.config.costs.charge_wake(orders);
        self.next_scan = now + self.config.interval;
        // Scan number 0 means never accessed.
        self.scan = self.scan.checked_add(1).unwrap_or(1);
        self.hand = Some(0);
    }
}

impl Policy for Amp {
    fn name(&self) -> &'static str {
        match self.config.variant {
            Variant::Lru => "amp-lru",
            Variant::Lfu => "amp-lfu",
            Variant::Random => "amp-random",
        }
    }

    fn settings(&self) -> Vec<Setting> {
        recorded(&self.config)
    }

    fn observe(&mut self, evidence: Evidence<'_>, orders: &mut Orders) {
        self.census.observe(&evidence);
        match evidence {
            Evidence::Bits(probes) => {
                self.config.costs.charge(orders, probes.len() as u64);
                self.answer(probes);
                if self.hand.is_none() {
                    self.config.costs.charge(orders, self.pages.lists.known());
                    self.exchange(orders);
                }
            }
            Evidence::Pressure(pressure) => self.moves.pressure(pressure),
            Evidence::Outcomes(outcomes) => {
                self.config.costs.charge(orders, outcomes.len() as u64);
                for outcome in outcomes {
                    let Some(ended) = self.moves.end(outcome) else { continue };
                    if self.pages.lists.knows(ended.page) {
                        let tier = ended.to.filter(|_| ended.done).unwrap_or(ended.from);
                        self.pages.put(ended.page, tier);
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
        if self.hand.is_none() && now >= self.next_scan {
            self.begin(now, orders);
        }
        self.ask(orders);
        if self.hand.is_some() { now + PACE } else { self.next_scan.max(now + PACE) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Trace;

    fn trace(variant: Variant, tiers: [u64; 2], pages: u32) -> Trace<Amp> {
        Trace::new(Amp::new(Config::of(variant)), tiers, pages)
    }

    // Pages 0 and 1 are in the fast tier, 2 and 3 in the slow one. Accessed: 0 in the first second,
    // 1 and 3 in the second. Page 3 is promoted; page 0, accessed less recently than 1, is demoted.
    #[test]
    fn golden_lru() {
        let mut trace = trace(Variant::Lru, [2, 8], 4);
        trace.seconds(3, |second| [vec![0], vec![1, 3], vec![]][second as usize].clone());
        assert_eq!(trace.ordered(), ["0→1", "3→0"]);
    }

    // Page 0 is accessed in three seconds, page 1 in one, page 3 in two: page 3 is promoted once
    // its count exceeds page 1's.
    #[test]
    fn golden_lfu() {
        let mut trace = trace(Variant::Lfu, [2, 8], 4);
        trace.seconds(2, |second| [vec![0, 1, 3], vec![0]][second as usize].clone());
        assert_eq!(trace.orders(), 0, "one each is no reason");
        trace.seconds(2, |second| [vec![0, 3], vec![]][second as usize - 2].clone());
        assert_eq!(trace.ordered(), ["1→1", "3→0"]);
        assert_eq!(trace.places(), "0:0 1:1 2:1 3:0");
    }

    // An accessed page is promoted in exchange for a random one.
    #[test]
    fn golden_random() {
        let mut trace = trace(Variant::Random, [2, 8], 4);
        trace.seconds(2, |second| if second == 0 { vec![0, 1, 3] } else { vec![] });
        assert_eq!(trace.orders(), 2);
        assert_eq!(trace.tier(3), Some(Tier(0)));
        assert_eq!(trace.machine.used(), [2, 2]);
    }

    // Five pages in chunks of two: three steps, and the exchange follows the last. Pages 0 to 3
    // were not accessed: the lowest page number is demoted.
    #[test]
    fn golden_a_scan_goes_by_chunks() {
        let config = Config { chunk: 2, ..Config::of(Variant::Lru) };
        let mut trace = Trace::new(Amp::new(config), [4, 8], 5);
        trace.seconds(3, |_| vec![4]);
        assert_eq!(trace.ordered(), ["0→1", "4→0"]);
    }
}
