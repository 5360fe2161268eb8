//! HeMem: sampled accesses, 2 MiB pages, hot and cold FIFO lists.
//!
//! Source: Raybuck et al., "HeMem: Scalable Tiered Memory Management for Big Data Applications and
//! Real NVM" (SOSP'21), as implemented in its library (src/pebs.c), in two revisions:
//!
//! | | hot from | cools above | samples, one in |
//! |---|---|---|---|
//! | *current* (from October 2021) | 4 loads or 4 stores | 10 | 19997 |
//! | *first* | 8 loads or 8 stores | 18 | 5003 |
//!
//! - It manages mappings of 1 GB and more, in pages of 2 MiB, each on one of four FIFO lists: hot
//!   or cold, of the fast or the slow tier. New pages are allocated in the fast tier while it has
//!   free memory: that is up to the machine.
//! - A count above the cooling threshold advances the cooling clock. A page's counts are halved
//!   lazily, once for every clock tick since the page was last examined. After a tick, each pass
//!   examines 8192 pages of the hot lists.
//! - A pass promotes hot pages of the slow tier, up to 10 GB, in the order in which they became
//!   hot. Each takes a free page of the fast tier, or is exchanged for the page that has been cold
//!   there for longest; if there is neither, the pass ends.
//!
//! With `balance` the load of the tiers decides how many hot pages are moved, and in which
//! direction (`balance.rs`, Colloid): those whose access counts make up the wanted share.
//!
//! One pass per second, as NEMO (section 5.1) describes it. The sampling period of the hardware is
//! set at the machine. With more than two tiers, hot pages of all slower tiers are promoted to the
//! first, and cold pages are demoted to the next.

use std::time::Duration;

use tierscope_core::{
    Access, Addr, Evidence, Need, Orders, PlacementView, Policy, Range, Sample, Setting, Tier,
    TierReads, Time,
};

use crate::balance::{Balance, Load, Shift};
use crate::blocks::{BLOCK, Blocks, tier_of};
use crate::cost::Costs;
use crate::pages::{ListId, Lists, Moves};
use crate::registry::{Entry, Sampling, keys_of, made};
use crate::settings::{Bytes, Settings, Visit, recorded};

/// The policy `hemem` in the list.
pub(crate) const ENTRY: Entry = Entry {
    name: "hemem",
    about: "sampled accesses, huge pages, hot and cold FIFOs (October 2021 on)",
    source: "Raybuck et al., SOSP'21",
    tracks: "sampled loads and stores",
    granularity: "2 MiB, mappings from 1 GB on",
    promotes: "frequency: 4 samples",
    demotes: "cold for longest, for room",
    cost: "every 19997th load and store sampled",
    page_bytes: None,
    needs: &[Need::Samples],
    uses: &[Need::Pressure],
    sampling: Some(Sampling::Every(19_997)),
    reclaims: false,
    make: made!("hemem", Config::current(), |config| HeMem::new("hemem", config)),
    keys: || keys_of(&mut Config::current()),
};

/// The policy `hemem-first` in the list.
pub(crate) const ENTRY_FIRST: Entry = Entry {
    name: "hemem-first",
    about: "its first revision: 8 samples, cooling above 18",
    source: "Raybuck et al., SOSP'21",
    tracks: "sampled loads and stores",
    granularity: "2 MiB, mappings from 1 GB on",
    promotes: "frequency: 8 samples",
    demotes: "cold for longest, for room",
    cost: "every 5003rd load and store sampled",
    page_bytes: None,
    needs: &[Need::Samples],
    uses: &[Need::Pressure],
    sampling: Some(Sampling::Every(5_003)),
    reclaims: false,
    make: made!("hemem-first", Config::first(), |config| HeMem::new("hemem-first", config)),
    keys: || keys_of(&mut Config::first()),
};

/// Settings of the policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Hot threshold: sampled loads of a page.
    pub hot_reads: u32,
    /// Hot threshold: sampled stores to a page.
    pub hot_writes: u32,
    /// A count above this advances the cooling clock.
    pub cool: u32,
    /// Pages of the hot lists examined per pass after a tick.
    pub cooled: u32,
    /// Time between two passes.
    pub interval: Duration,
    /// Maximum bytes promoted per pass.
    pub round: Bytes,
    /// Minimum size of a managed mapping.
    pub least: Bytes,
    /// Whether hot pages are moved until reads of both tiers take equally long (Colloid).
    pub balance: bool,
    /// CPU costs of the policy's own work.
    pub costs: Costs,
}

impl Config {
    /// Defaults of HeMem's revision from October 2021 on.
    #[must_use]
    pub fn current() -> Self {
        Self {
            hot_reads: 4,
            hot_writes: 4,
            cool: 10,
            cooled: 8192,
            interval: Duration::from_secs(1),
            round: Bytes(10 << 30),
            least: Bytes(1 << 30),
            balance: false,
            costs: Costs::default(),
        }
    }

    /// Defaults of HeMem's revision before October 2021.
    #[must_use]
    pub fn first() -> Self {
        Self { hot_reads: 8, hot_writes: 8, cool: 18, ..Self::current() }
    }
}

impl Settings for Config {
    fn visit(&mut self, each: &mut dyn Visit) {
        each.value("hot-reads", "sampled loads from which a page is hot", &mut self.hot_reads);
        each.value("hot-writes", "sampled stores from which it is", &mut self.hot_writes);
        each.value("cool", "a count above this makes the clock tick", &mut self.cool);
        each.value("cooled", "pages looked at in a pass after a tick", &mut self.cooled);
        each.value("interval", "time between two passes", &mut self.interval);
        each.value("round", "bytes that a pass promotes at most", &mut self.round);
        each.value("least", "smaller mappings are left alone", &mut self.least);
        each.value("balance", "hot pages where both tiers take equally long", &mut self.balance);
        self.costs.visit(each);
    }

    fn check(&self) -> Result<(), String> {
        if self.hot_reads == 0 || self.hot_writes == 0 || self.cooled == 0 {
            return Err("`hot-reads`, `hot-writes` and `cooled` must be above zero".into());
        }
        if self.cool > u32::from(u16::MAX) - 1 {
            return Err("`cool` must be below 65535".into());
        }
        if self.interval.is_zero() || self.round.0 < BLOCK {
            return Err("`interval` must be above zero, `round` 2 MiB at least".into());
        }
        Ok(())
    }
}

/// Per-page access counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    reads: u16,
    writes: u16,
    /// Value of the cooling clock at the last halving of the counts.
    clock: u16,
}

impl Counts {
    /// Halves the counts once for every tick missed.
    fn cool(&mut self, clock: u16) {
        let missed = u32::from(clock.wrapping_sub(self.clock));
        self.reads = self.reads.checked_shr(missed).unwrap_or(0);
        self.writes = self.writes.checked_shr(missed).unwrap_or(0);
        self.clock = clock;
    }

    fn all(self) -> u64 {
        u64::from(self.reads) + u64::from(self.writes)
    }
}

/// What a pass may still move.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    blocks: u64,
    /// Sum of the moved pages' access counts.
    accesses: u64,
}

const TIERS: u8 = 8;
/// Maximum number of rounds into which `add` divides the counts of an interval.
const ROUNDS: u32 = 64;
/// Blocks whose tier is not known yet.
const UNSORTED: ListId = ListId(2 * TIERS);
/// Unsorted blocks looked up per tick.
const SORTED: usize = 65_536;

fn list(tier: Tier, hot: bool) -> ListId {
    ListId(2 * tier.0 + u8::from(hot))
}

/// The HeMem policy.
#[derive(Clone, Debug)]
pub struct HeMem {
    name: &'static str,
    config: Config,
    blocks: Blocks,
    pages: Lists<Counts>,
    moves: Moves<()>,
    clock: u16,
    /// Pages of the hot lists still to be examined since the last tick.
    to_cool: u32,
    balance: Balance,
    /// Reads of the fast and of the next tier.
    reads: Option<[TierReads; 2]>,
    next_pass: Time,
}

impl HeMem {
    /// The policy with these settings; `name` is the revision's name.
    #[must_use]
    pub fn new(name: &'static str, config: Config) -> Self {
        Self {
            name,
            config,
            blocks: Blocks::default(),
            pages: Lists::new(usize::from(2 * TIERS + 1)),
            moves: Moves::new(),
            clock: 0,
            to_cool: 0,
            balance: Balance::new(),
            reads: None,
            next_pass: Time(0),
        }
    }

    fn map(&mut self, mappings: &tierscope_core::Mappings) {
        let changed = self.blocks.map(mappings, self.config.least.0);
        for block in changed.gone.into_iter().flatten() {
            self.moves.forget(block);
            if self.pages.knows(block) {
                self.pages.forget(block);
            }
        }
        for block in changed.new.into_iter().flatten() {
            self.pages.add(block, 9);
            self.pages.push_head(UNSORTED, block);
        }
    }

    fn is_hot(&self, counts: Counts) -> bool {
        u32::from(counts.reads) >= self.config.hot_reads
            || u32::from(counts.writes) >= self.config.hot_writes
    }

    fn count(&mut self, sample: &Sample) {
        let Some(block) = self.blocks.at(sample.at).filter(|block| self.pages.knows(*block)) else {
            return;
        };
        let clock = self.clock;
        let counts = self.pages.payload_mut(block);
        counts.cool(clock);
        let count = match sample.access {
            Access::Load => &mut counts.reads,
            Access::Store => &mut counts.writes,
        };
        *count = count.saturating_add(1);
        let ticks = u32::from(*count) > self.config.cool;
        self.sort(block);
        if ticks {
            self.begin_cooling();
        }
    }

    /// Adds per-block counts of an interval, as loads spread evenly over it: in rounds in which no
    /// block gets more than half of the cooling threshold, each of which ends with a tick if a
    /// count is above it.
    pub(crate) fn add(&mut self, counts: &[(u32, u32)]) {
        let most = counts.iter().map(|(_, count)| *count).max().unwrap_or(0);
        let rounds = most.div_ceil((self.config.cool / 2).max(1)).clamp(1, ROUNDS);
        (0..rounds).for_each(|round| self.add_round(counts, round, rounds));
    }

    fn add_round(&mut self, counts: &[(u32, u32)], round: u32, rounds: u32) {
        let up_to =
            |count: u32, round: u32| u64::from(count) * u64::from(round) / u64::from(rounds);
        let mut ticks = false;
        for (block, count) in counts {
            if !self.pages.knows(*block) {
                continue;
            }
            let part = up_to(*count, round + 1) - up_to(*count, round);
            let (clock, part) = (self.clock, u16::try_from(part).unwrap_or(u16::MAX));
            let counts = self.pages.payload_mut(*block);
            counts.cool(clock);
            counts.reads = counts.reads.saturating_add(part);
            ticks |= u32::from(counts.reads) > self.config.cool;
            self.sort(*block);
        }
        if ticks {
            self.begin_cooling();
        }
    }

    fn begin_cooling(&mut self) {
        self.clock = self.clock.wrapping_add(1);
        let hot = (0..TIERS).map(|tier| self.pages.count(list(Tier(tier), true)));
        self.to_cool = hot.sum();
    }

    #[cfg(test)]
    pub(crate) fn ticks(&self) -> u16 {
        self.clock
    }

    /// One pass: placement of new blocks, cooling, and promotion.
    pub(crate) fn step(&mut self, view: &dyn PlacementView, orders: &mut Orders) {
        self.moves.refresh(view.tiers());
        self.config.costs.charge_wake(orders);
        self.settle(view, orders);
        self.cool_some(orders);
        self.pass(orders);
    }

    /// Blocks whose tier is known, except those being moved.
    pub(crate) fn placed(&self) -> Vec<(u32, Tier)> {
        let lists = (0..2 * TIERS).map(ListId);
        let blocks = lists.flat_map(|list| {
            self.pages.tail_first(list).map(move |block| (block, Tier(list.0 / 2)))
        });
        blocks.collect()
    }

    /// The tier of the block that contains an address, if known.
    pub(crate) fn tier_at(&self, at: Addr) -> Option<Tier> {
        let block = self.blocks.at(at).filter(|block| self.pages.knows(*block))?;
        let list = self.pages.list_of(block).filter(|list| *list != UNSORTED)?;
        Some(Tier(list.0 / 2))
    }

    /// Address range of a block in the target's address space.
    pub(crate) fn range(&self, block: u32) -> Option<Range> {
        self.blocks.range(block)
    }

    /// Moves a page that became hot or cold to the end of the list of its new class.
    fn sort(&mut self, block: u32) {
        let Some(on) = self.pages.list_of(block).filter(|on| *on != UNSORTED) else { return };
        let wanted = ListId(on.0 & !1 | u8::from(self.is_hot(*self.pages.payload(block))));
        if wanted != on {
            self.pages.push_head(wanted, block);
        }
    }

    /// Looks up the tiers of new blocks.
    fn settle(&mut self, view: &dyn PlacementView, orders: &mut Orders) {
        let new: Vec<u32> = self.pages.tail_first(UNSORTED).take(SORTED).collect();
        self.config.costs.charge(orders, new.len() as u64);
        for block in new {
            let tier = self.blocks.range(block).and_then(|range| tier_of(view, &range));
            match tier.filter(|tier| tier.0 < TIERS) {
                Some(tier) => self.place(block, tier),
                None => self.pages.push_head(UNSORTED, block),
            }
        }
    }

    fn place(&mut self, block: u32, tier: Tier) {
        let hot = self.is_hot(*self.pages.payload(block));
        self.pages.push_head(list(tier, hot), block);
    }

    /// Examines pages of the hot lists after a tick, and moves those no longer hot to the cold
    /// lists.
    fn cool_some(&mut self, orders: &mut Orders) {
        let mut left = self.to_cool.min(self.config.cooled);
        self.to_cool -= left;
        self.config.costs.charge(orders, left.into());
        for tier in 0..TIERS {
            let hot = list(Tier(tier), true);
            let some = self.pages.count(hot).min(left);
            left -= some;
            for _ in 0..some {
                let Some(block) = self.pages.tail(hot) else { break };
                self.pages.push_head(hot, block);
                self.cool(block);
            }
        }
    }

    fn cool(&mut self, block: u32) {
        let clock = self.clock;
        self.pages.payload_mut(block).cool(clock);
        self.sort(block);
    }

    /// Promotes hot pages of the slower tiers; or moves as many as balance the tiers.
    fn pass(&mut self, orders: &mut Orders) {
        let shift =
            if self.config.balance { self.balance.step(self.reads) } else { Shift::Unknown };
        match shift {
            Shift::None => {}
            Shift::Unknown => {
                let blocks = self.config.round.0 / BLOCK;
                self.promote(Allowance { blocks, accesses: u64::MAX }, orders);
            }
            Shift::Promote(load) => {
                let allowed = self.allowed(load, orders);
                self.promote(allowed, orders);
            }
            Shift::Demote(load) => {
                let mut allowed = self.allowed(load, orders);
                self.move_hot(Tier(0), Tier(1), &mut allowed, orders);
            }
        }
    }

    /// What a pass may move for a share of the load.
    fn allowed(&mut self, load: Load, orders: &mut Orders) -> Allowance {
        let accesses = (load.share * self.accesses(orders) as f64) as u64;
        Allowance { blocks: self.config.round.0.min(load.bytes) / BLOCK, accesses }
    }

    fn promote(&mut self, mut allowed: Allowance, orders: &mut Orders) {
        let mut tiers = 1..self.moves.tiers().min(usize::from(TIERS)) as u8;
        let _ = tiers.all(|tier| self.move_hot(Tier(tier), Tier(0), &mut allowed, orders));
    }

    /// Access counts of all pages.
    fn accesses(&mut self, orders: &mut Orders) -> u64 {
        let placed = self.placed();
        self.config.costs.charge(orders, placed.len() as u64);
        let cooled = |block: u32| {
            let mut counts = *self.pages.payload(block);
            counts.cool(self.clock);
            counts.all()
        };
        placed.into_iter().map(|(block, _)| cooled(block)).sum()
    }

    /// Moves hot pages of a tier as far as allowed, in the order in which they became hot; false if
    /// there is no room.
    fn move_hot(
        &mut self,
        from: Tier,
        to: Tier,
        allowed: &mut Allowance,
        orders: &mut Orders,
    ) -> bool {
        let hot = list(from, true);
        for _ in 0..self.pages.count(hot) {
            let Some(block) = self.pages.tail(hot).filter(|_| allowed.blocks > 0) else { break };
            self.config.costs.charge(orders, 1);
            self.cool(block);
            if self.pages.list_of(block) != Some(hot) {
                continue;
            }
            let accesses = self.pages.payload(block).all();
            if accesses > allowed.accesses {
                self.pages.push_head(hot, block);
                continue;
            }
            let room = match to {
                Tier(0) => self.has_room(orders),
                _ => self.moves.free(to) >= BLOCK,
            };
            if !room || !self.send(block, from, to, orders) {
                return false;
            }
            allowed.blocks -= 1;
            allowed.accesses -= accesses;
        }
        true
    }

    /// Whether the fast tier has a free page; demotes a cold page to free one if needed.
    fn has_room(&mut self, orders: &mut Orders) -> bool {
        while self.moves.room_above_low(Tier(0)) < BLOCK {
            let Some(victim) = self.pages.tail(list(Tier(0), false)) else { return false };
            if self.moves.free(Tier(1)) < BLOCK || !self.send(victim, Tier(0), Tier(1), orders) {
                return false;
            }
        }
        true
    }

    fn send(&mut self, block: u32, from: Tier, to: Tier, orders: &mut Orders) -> bool {
        let Some(range) = self.blocks.range(block) else { return false };
        self.pages.take(block);
        self.moves.move_page(orders, (block, range), (from, to), ());
        true
    }
}

impl Policy for HeMem {
    fn name(&self) -> &'static str {
        self.name
    }

    fn settings(&self) -> Vec<Setting> {
        recorded(&self.config)
    }

    fn observe(&mut self, evidence: Evidence<'_>, orders: &mut Orders) {
        match evidence {
            Evidence::Mappings(mappings) => self.map(mappings),
            Evidence::Samples(samples) => {
                self.config.costs.charge(orders, samples.len() as u64);
                samples.iter().for_each(|sample| self.count(sample));
            }
            Evidence::Pressure(pressure) => {
                self.moves.pressure(pressure);
                let reads = |tier: usize| pressure.tiers.get(tier)?.reads;
                self.reads = reads(0).zip(reads(1)).map(|(fast, slow)| [fast, slow]);
            }
            Evidence::Outcomes(outcomes) => {
                self.config.costs.charge(orders, outcomes.len() as u64);
                for outcome in outcomes {
                    let Some(ended) = self.moves.end(outcome) else { continue };
                    // A failed move may have split the block between tiers: look its tier up.
                    match ended.to.filter(|_| ended.done) {
                        Some(tier) => self.place(ended.page, tier),
                        None => self.pages.push_head(UNSORTED, ended.page),
                    }
                }
            }
            _ => {}
        }
    }

    fn tick(&mut self, now: Time, view: &dyn PlacementView, orders: &mut Orders) -> Time {
        if now < self.next_pass {
            return self.next_pass;
        }
        self.step(view, orders);
        self.next_pass = now + self.config.interval;
        self.next_pass
    }
}

#[cfg(test)]
mod tests {
    use tierscope_conformance::tiers::Size;

    use super::*;
    use crate::trace::{Trace, range};

    const PAGES: u32 = 512;

    /// A policy that manages mappings of any size, on tiers given in blocks of 2 MiB.
    fn trace(config: Config, tiers: [u64; 2], blocks: u32) -> Trace<HeMem> {
        let config = Config { least: Bytes(0), ..config };
        let sizes = tiers.map(|blocks| Size::without_marks(blocks * u64::from(PAGES)));
        Trace::with(HeMem::new("hemem", config), &sizes, blocks * PAGES, false)
    }

    /// Touches that yield `count` samples of a block: the machine samples every hundredth.
    fn samples(block: u32, count: u32) -> Vec<u32> {
        (0..count * 100).map(|touch| block * PAGES + touch % PAGES).collect()
    }

    // Blocks 1 and 2 in the slow tier with 4 and 3 samples: the first is hot.
    #[test]
    fn golden_four_samples_are_hot() {
        let mut trace = trace(Config::current(), [4, 8], 3);
        trace.machine.place(&range(PAGES, 2 * PAGES), Tier(1));
        trace.seconds(2, |second| {
            if second == 0 { [samples(1, 4), samples(2, 3)].concat() } else { vec![] }
        });
        assert_eq!(trace.ordered(), ["512→0"]);
        let mut first = self::trace(Config::first(), [4, 8], 3);
        first.machine.place(&range(PAGES, 2 * PAGES), Tier(1));
        first.seconds(2, |second| if second == 0 { samples(1, 7) } else { vec![] });
        assert_eq!(first.orders(), 0, "the first revision wants 8");
        first.seconds(2, |second| if second == 2 { samples(1, 1) } else { vec![] });
        assert_eq!(first.ordered(), ["512→0"]);
    }

    // The fast tier holds two blocks: 0 is hot, 1 cold. Block 2 is exchanged for 1; no cold page is
    // left for block 3.
    #[test]
    fn golden_hot_pages_are_exchanged_with_cold_ones() {
        let mut trace = trace(Config::current(), [2, 8], 4);
        trace.seconds(4, |second| {
            if second == 0 {
                [samples(0, 5), samples(2, 4), samples(3, 4)].concat()
            } else {
                vec![]
            }
        });
        assert_eq!(trace.ordered(), ["512→1", "1024→0"]);
        assert_eq!(trace.machine.used(), [1024, 1024]);
    }

    // A count of 11 advances the clock: the 11 become 5, which is still hot; the 4 of block 2
    // become 2, which is not.
    #[test]
    fn golden_a_tick_halves() {
        let mut trace = trace(Config::current(), [4, 8], 3);
        trace.seconds(2, |second| {
            if second == 0 { [samples(2, 4), samples(0, 11)].concat() } else { vec![] }
        });
        let policy = &trace.policy;
        let counts = |block: u32| *policy.pages.payload(block);
        assert_eq!(policy.clock, 1);
        assert_eq!((counts(0).reads, counts(2).reads), (5, 2));
        let hot = |block| policy.pages.list_of(block) == Some(list(Tier(0), true));
        assert_eq!((hot(0), hot(1), hot(2)), (true, false, false));
    }

    #[test]
    fn missed_ticks_are_made_up_for() {
        let mut counts = Counts { reads: 40, writes: 7, clock: u16::MAX };
        counts.cool(1);
        assert_eq!(counts, Counts { reads: 10, writes: 1, clock: 1 });
        counts.cool(900);
        assert_eq!((counts.reads, counts.writes), (0, 0));
    }

    #[test]
    fn small_mappings_are_left_alone() {
        let sizes = [4u64, 8].map(|blocks| Size::without_marks(blocks * u64::from(PAGES)));
        let policy = HeMem::new("hemem", Config::current());
        let mut trace = Trace::with(policy, &sizes, 2 * PAGES, false);
        trace.machine.place(&range(0, 2 * PAGES), Tier(1));
        trace.seconds(3, |_| samples(0, 9));
        assert_eq!(trace.orders(), 0);
    }
}
