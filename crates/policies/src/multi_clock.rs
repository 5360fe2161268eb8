//! MULTI-CLOCK: recency and frequency from ACCESSED bits, by one additional list.
//!
//! Source: Maruf et al., "MULTI-CLOCK: Dynamic Tiering for Hybrid Memory Systems", HPCA 2022. The
//! page state diagram (figure 4) is [`crate::clock::state`]; this file has:
//!
//! - *kpromoted* (III-B), a thread per node: every second it scans up to 1024 pages of each list
//!   (V-C), and promotes all pages that are then on a promote list.
//! - New pages are inactive and unreferenced; an access by a system call counts at once (III-A,
//!   supervised), any other when a scan finds ACCESSED set (unsupervised).
//! - Demotion (IV-C): a tier at its low watermark is scanned until it is above its high one. First
//!   the pages of its promote list are promoted or, if that fails, returned to the active list;
//!   then unreferenced active pages become inactive while the active list is longer than √(10·n):1,
//!   n in GB (the printed formula's radical covers both factors, as the kernel's `int_sqrt(10 *
//!   gb)`); then unreferenced inactive pages are demoted to the next tier.
//! - A promotion into a tier that is short of memory demotes as much of it at once (IV-C), and all
//!   pages selected for promotion are promoted "in the same kpromoted run" (III-B): see `Hand`.
//! - The lowest tier writes back: file pages, and anonymous ones if there is swap. When nothing is
//!   left to write back, the machine's allocator fails as it does without a policy: out of memory
//!   is the last resort.
//!
//! Proposed in section VII, not built there, options here: with `dirty-weight`, an access to a
//! written page counts this many times on the way up; `adjust` halves the interval after a run that
//! promoted a list's worth of pages, and doubles it when a whole cycle over the slower tiers found
//! no page accessed, between `shortest` and `longest` (the rule is ours; 100 ms is the shortest
//! interval of section V-E, which saw no difference from 5 s on). The third, the ratio of DRAM to
//! PM, is left to experiments.
//!
//! Left open by the paper, decided here: pages found on a promote list are promoted without another
//! probe; pages whose promotion failed are probed in the next run (transitions 11 and 12). A
//! promotion that lacks free memory waits for the demotions ordered for it. A scan that has found
//! too few victims goes on until there are enough, as CLOCK's hand and kswapd do.

use std::time::Duration;

use tierscope_core::{
    Evidence, Failure, Need, Orders, Outcome, PlacementView, Policy, Pressure, Probe, Setting,
    Tier, Time,
};

use crate::clock::state::{Event, PageState, next};
use crate::clock::{Clock, Kind, MovePurpose, Resident};
use crate::cost::Costs;
use crate::registry::{BITS_OF_LISTS, BY_ACCESSED, Entry, keys_of, made};
use crate::settings::{Settings, Visit, recorded};

/// The policy `multi-clock` in the list.
pub(crate) const ENTRY: Entry = Entry {
    name: "multi-clock",
    about: "recency and frequency by one more list than active and inactive",
    source: "Maruf et al., HPCA'22",
    tracks: BY_ACCESSED,
    granularity: "pages",
    promotes: "four accesses in four scans",
    demotes: "two scans without, under pressure",
    cost: BITS_OF_LISTS,
    page_bytes: Some(MultiClock::PAGE_BYTES),
    needs: &[Need::AccessBits],
    uses: &[Need::PageEvents, Need::Pressure],
    sampling: None,
    reclaims: false,
    make: made!("multi-clock", Config::default(), MultiClock::new),
    keys: || keys_of(&mut Config::default()),
};

/// Settings of the policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Time between two runs of kpromoted.
    pub interval: Duration,
    /// Pages of each list that a run scans, and promotes at most.
    pub scan: u32,
    /// Maximum of active pages for each inactive one; by default the kernel's, by the size of the
    /// tier (III-C). For machines that are scaled down: 31 in a node of 96 GB.
    pub ratio: Option<u64>,
    /// Whether anonymous pages of the lowest tier can be written back.
    pub swap: bool,
    /// Weight of an access to a page that was written; 1 as in the paper.
    pub dirty_weight: u8,
    /// Whether the interval adapts.
    pub adjust: bool,
    /// Minimum of the adaptive interval.
    pub shortest: Duration,
    /// Maximum of the adaptive interval.
    pub longest: Duration,
    /// Pages looked up per tick on a machine that does not report allocations.
    pub census: u64,
    /// CPU costs of the policy's own work.
    pub costs: Costs,
}

/// The paper's values: 1 s (V-E), 1024 pages (V-C), no option of section VII.
impl Default for Config {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(1),
            scan: 1024,
            ratio: None,
            swap: true,
            dirty_weight: 1,
            adjust: false,
            shortest: Duration::from_millis(100),
            longest: Duration::from_secs(5),
            census: 65_536,
            costs: Costs::default(),
        }
    }
}

impl Settings for Config {
    fn visit(&mut self, each: &mut dyn Visit) {
        each.value("interval", "time between two runs of kpromoted", &mut self.interval);
        each.value("scan", "pages of each list that a run looks at", &mut self.scan);
        let about = "most active pages for each inactive one, or none: by the size of the tier";
        each.value("ratio", about, &mut self.ratio);
        each.value(
            "swap",
            "anonymous pages of the lowest tier can be written back",
            &mut self.swap,
        );
        let about = "how often an access to a written page counts (section VII; 1: as any other)";
        each.value("dirty-weight", about, &mut self.dirty_weight);
        each.value("adjust", "the interval adjusts itself (section VII)", &mut self.adjust);
        each.value("shortest", "the shortest interval then", &mut self.shortest);
        each.value("longest", "the longest interval then", &mut self.longest);
        let about = "pages looked up at a tick where the machine does not report new ones";
        each.value("census", about, &mut self.census);
        self.costs.visit(each);
    }

    fn check(&self) -> Result<(), String> {
        if self.interval.is_zero() || self.scan == 0 || self.dirty_weight == 0 {
            return Err("`interval`, `scan` and `dirty-weight` must be above zero".into());
        }
        if self.shortest.is_zero() || self.shortest > self.longest {
            return Err("`shortest` must be above zero and no longer than `longest`".into());
        }
        Ok(())
    }
}

/// State of a tier's kswapd.
#[derive(Clone, Copy, Debug, Default)]
struct Balance {
    /// The tier fell to its low watermark and has not reached the high one.
    short: bool,
    /// The last scan freed nothing: no further one until the next run.
    rests: bool,
    /// A page was demoted since.
    freed: bool,
    /// The tier lacks a victim: for a page to be promoted into it, or up to its high watermark.
    wanted: bool,
    hand: Hand,
}

/// Search of a tier's lists for pages to demote, which goes on until there are enough.
///
/// Each round meets twice as many pages as the one before, as kswapd raises its priority
/// (mm/vmscan.c, `balance_pgdat`). It ends after four circuits: an active referenced page is a
/// victim at the third look without an access (7, 9, 3); one more finds bits set meanwhile.
#[derive(Clone, Copy, Debug, Default)]
struct Hand {
    rounds: u32,
    met: u64,
}

impl Hand {
    const CIRCUITS: u64 = 4;
    /// Log2 of the pages of the longest round over those of the first: a round of 65,536 probes
    /// takes some 20 ms on a live process.
    const LONGEST: u32 = 6;
}

/// Counters of the policy's work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Runs of kpromoted.
    pub runs: u64,
    /// Pages ordered to be promoted.
    pub promoted: u64,
    /// Pages ordered to be demoted.
    pub demoted: u64,
    /// Pages ordered to be written back.
    pub written_back: u64,
    /// Scans of the lowest tier, short of memory, that found nothing to write back: the machine's
    /// own last resort, the OOM killer, is near.
    pub last_resorts: u64,
}

/// The MULTI-CLOCK policy.
#[derive(Clone, Debug)]
pub struct MultiClock {
    config: Config,
    interval: Duration,
    pages: Resident,
    balances: Vec<Balance>,
    next_run: Time,
    /// Whether a run awaits the results of its probes, and the pages that were promoted before it.
    running: bool,
    promoted_before: u64,
    /// Pages of slower tiers found accessed since the last run; and in `idle`, pages found not
    /// accessed since the last accessed one or the last change of the interval.
    accessed: u64,
    idle: u64,
    /// Whether the machine has turned out unable to write back.
    no_write_back: bool,
    account: Account,
}

impl MultiClock {
    /// The policy with these settings.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            interval: config.interval,
            pages: Resident::new(
                Clock::new(true, config.dirty_weight).with_ratio(config.ratio),
                config.census,
            ),
            balances: Vec::new(),
            next_run: Time(0),
            running: false,
            promoted_before: 0,
            accessed: 0,
            idle: 0,
            no_write_back: false,
            account: Account::default(),
            config,
        }
    }

    /// Bytes kept for each tracked page of 4 KiB.
    pub const PAGE_BYTES: usize = Clock::PAGE_BYTES;

    /// Counters of the policy's work so far.
    #[must_use]
    pub fn account(&self) -> Account {
        self.account
    }

    /// Current interval between runs.
    #[must_use]
    pub fn interval(&self) -> Duration {
        self.interval
    }

    fn tiers(&self) -> impl Iterator<Item = Tier> + use<> {
        self.pages.tiers()
    }

    /// A run of kpromoted: orders probes of each list's tail.
    fn begin_run(&mut self, orders: &mut Orders) {
        self.account.runs += 1;
        self.running = true;
        self.promoted_before = self.account.promoted;
        for balance in &mut self.balances {
            (balance.rests, balance.hand) = (false, Hand::default());
        }
        for tier in self.tiers() {
            self.config.costs.charge_wake(orders);
            for kind in [Kind::Inactive, Kind::Active, Kind::Promote] {
                self.scan(tier, kind, self.config.scan, orders);
            }
        }
    }

    /// Orders probes of up to `most` pages of each list of a kind; returns the number met.
    fn scan(&mut self, tier: Tier, kind: Kind, most: u32, orders: &mut Orders) -> u64 {
        let mut all = 0;
        for file in [false, true] {
            let which = (tier, kind, file);
            let met = self.pages.clock.scan(&self.pages.census.numbers, which, most, orders);
            self.config.costs.charge(orders, met);
            all += met;
        }
        all
    }

    /// Scans a tier at its low watermark at once (kswapd).
    fn relieve(&mut self, pressure: &Pressure, orders: &mut Orders) {
        self.pages.moves.pressure(pressure);
        for tier in self.tiers() {
            let balance = &mut self.balances[usize::from(tier.0)];
            balance.short |= self.pages.moves.shortage(tier) > 0;
            balance.short &= self.pages.moves.free_at_last(tier) < self.pages.moves.high(tier);
            if !balance.short || balance.rests {
                continue;
            }
            // Set until the hand has come to rest, so that an unanswered scan is not repeated.
            (balance.rests, balance.hand) = (true, Hand::default());
            self.config.costs.charge_wake(orders);
            self.search(tier, orders);
            if orders.probes.is_empty() {
                self.finish(orders);
            }
        }
    }

    /// Lets the hand of a tier go on by one round.
    fn search(&mut self, tier: Tier, orders: &mut Orders) {
        let hand = &mut self.balances[usize::from(tier.0)].hand;
        let most = self.config.scan.saturating_mul(1 << hand.rounds.min(Hand::LONGEST));
        hand.rounds += 1;
        let met = [Kind::Active, Kind::Inactive].map(|kind| self.scan(tier, kind, most, orders));
        self.balances[usize::from(tier.0)].hand.met += met.iter().sum::<u64>();
    }

    /// Lets the hands go on of tiers that need more victims. Returns whether any did.
    fn search_on(&mut self, orders: &mut Orders) -> bool {
        let before = orders.probes.len();
        for tier in self.tiers() {
            let pages = self.pages_on(tier, &[Kind::Inactive, Kind::Active]);
            let balance = &mut self.balances[usize::from(tier.0)];
            let goes_on = balance.hand.met < Hand::CIRCUITS * pages;
            if std::mem::take(&mut balance.wanted) && goes_on && self.can_lose(tier) {
                self.search(tier, orders);
            }
        }
        orders.probes.len() > before
    }

    /// Whether pages of a tier have where to go.
    fn can_lose(&self, tier: Tier) -> bool {
        let below = Tier(tier.0 + 1);
        let lowest = usize::from(below.0) == self.pages.moves.tiers();
        if lowest { !self.no_write_back } else { self.pages.moves.free(below) > 0 }
    }

    fn judge(&mut self, probes: &[Probe]) {
        let (accessed, idle) = (&mut self.accessed, &mut self.idle);
        self.pages.judge(probes, |clock, page, young| {
            if clock.state(page).is_some_and(|(tier, _)| tier.0 > 0) {
                *(if young { &mut *accessed } else { &mut *idle }) += 1;
            }
            clock.settle(page, young);
        });
    }

    /// Promotes and demotes, once all probes are answered; orders more if victims lack.
    fn finish(&mut self, orders: &mut Orders) {
        let promoting: Vec<Tier> = self.tiers().filter(|tier| self.promotes_from(*tier)).collect();
        for tier in &promoting {
            self.promote_all(*tier, orders);
        }
        for tier in self.tiers() {
            if self.balances[usize::from(tier.0)].short {
                self.demote_some(tier, orders);
            }
        }
        if self.search_on(orders) {
            return;
        }
        for tier in promoting {
            self.give_up(tier, orders);
        }
        self.tiers().for_each(|tier| self.rest(tier));
        self.pages.clock.clear_cold();
        if std::mem::take(&mut self.running) && self.config.adjust {
            self.adjust(self.account.promoted - self.promoted_before);
        }
    }

    fn promotes_from(&self, tier: Tier) -> bool {
        tier.0 > 0 && (self.running || self.balances[usize::from(tier.0)].short)
    }

    /// Ends a scan of a tier that is short of memory.
    fn rest(&mut self, tier: Tier) {
        let balance = &mut self.balances[usize::from(tier.0)];
        let freed = std::mem::take(&mut balance.freed);
        if balance.short {
            balance.rests = !freed;
            let lowest = usize::from(tier.0) + 1 == self.pages.moves.tiers();
            let lacks = lowest && !freed && self.pages.moves.shortage(tier) > 0;
            self.account.last_resorts += u64::from(lacks);
        }
    }

    fn adjust(&mut self, promoted: u64) {
        if std::mem::take(&mut self.accessed) > 0 {
            self.idle = 0;
        }
        let mut wanted = self.interval;
        if promoted >= u64::from(self.config.scan) {
            wanted /= 2;
        } else if self.accessed_nothing() {
            wanted *= 2;
            self.idle = 0;
        }
        self.interval = wanted.clamp(self.config.shortest, self.config.longest);
    }

    /// Whether at least as many pages in a row as the slower tiers have were found not accessed.
    fn accessed_nothing(&self) -> bool {
        let kinds = [Kind::Inactive, Kind::Active, Kind::Promote];
        self.idle >= self.tiers().skip(1).map(|tier| self.pages_on(tier, &kinds)).sum::<u64>()
    }

    /// Pages on a tier's lists of these kinds.
    fn pages_on(&self, tier: Tier, kinds: &[Kind]) -> u64 {
        let lists = kinds.iter().flat_map(|kind| [(*kind, false), (*kind, true)]);
        lists.map(|(kind, file)| u64::from(self.pages.clock.count(tier, kind, file))).sum()
    }

    /// Promotes the pages on a tier's promote lists (13), until victims lack.
    fn promote_all(&mut self, tier: Tier, orders: &mut Orders) {
        for file in [false, true] {
            for page in self.pages.clock.first_come(tier, Kind::Promote, file, self.config.scan) {
                self.config.costs.charge(orders, 1);
                if !self.promote(page, tier, orders) {
                    break;
                }
            }
        }
    }

    fn promote(&mut self, page: u32, from: Tier, orders: &mut Orders) -> bool {
        let to = Tier(from.0 - 1);
        let bytes = self.pages.clock.bytes(page);
        while self.pages.moves.room_above_low(to) < bytes {
            if !self.demote_one(to, orders) {
                self.balances[usize::from(to.0)].wanted = true;
                return false;
            }
        }
        let sent = self.pages.send(page, from, Some(to), MovePurpose::Up, orders);
        self.account.promoted += u64::from(sent);
        sent
    }

    /// Ends the attempt to promote what is left: a page stays for the next run, or becomes active
    /// again if its own tier is short of memory (11).
    fn give_up(&mut self, tier: Tier, orders: &mut Orders) {
        let short = self.balances[usize::from(tier.0)].short;
        for file in [false, true] {
            for page in self.pages.clock.first_come(tier, Kind::Promote, file, self.config.scan) {
                self.config.costs.charge(orders, 1);
                if short {
                    self.pages.clock.happen(page, Event::Refused);
                } else {
                    self.pages.clock.mark_tried(page);
                }
            }
        }
    }

    /// Demotes one page that was just found cold, if the next tier has room; in the lowest tier,
    /// writes it back.
    fn demote_one(&mut self, tier: Tier, orders: &mut Orders) -> bool {
        let lowest = usize::from(tier.0) + 1 == self.pages.moves.tiers();
        while let Some(page) = self.pages.clock.next_cold(tier) {
            self.config.costs.charge(orders, 1);
            if lowest {
                if self.write_back(page, tier, orders) {
                    return true;
                }
                continue;
            }
            let to = Tier(tier.0 + 1);
            if self.pages.moves.free(to) < self.pages.clock.bytes(page) {
                self.pages.clock.keep_cold(tier, page);
                return false;
            }
            if self.pages.send(page, tier, Some(to), MovePurpose::Down, orders) {
                self.account.demoted += 1;
                return true;
            }
        }
        false
    }

    fn write_back(&mut self, page: u32, tier: Tier, orders: &mut Orders) -> bool {
        let possible = !self.no_write_back && (self.pages.clock.is_file(page) || self.config.swap);
        let sent = possible && self.pages.send(page, tier, None, MovePurpose::Out, orders);
        self.account.written_back += u64::from(sent);
        sent
    }

    /// Frees a tier up to its high watermark, as far as known cold pages suffice.
    fn demote_some(&mut self, tier: Tier, orders: &mut Orders) {
        while self.pages.moves.free_at_last(tier) < self.pages.moves.high(tier) {
            if !self.demote_one(tier, orders) {
                self.balances[usize::from(tier.0)].wanted = true;
                break;
            }
            self.balances[usize::from(tier.0)].freed = true;
        }
    }

    fn end(&mut self, outcome: &Outcome) {
        let Some(ended) = self.pages.end(outcome) else { return };
        let page = ended.page;
        let (tier, state) = match (ended.tag, ended.done, ended.to) {
            (MovePurpose::Up, true, Some(to)) => {
                (to, next(PageState::Promote, Event::Promoted, true))
            }
            (MovePurpose::Up, ..) => (ended.from, next(PageState::Promote, Event::Refused, true)),
            (MovePurpose::Down, true, Some(to)) => {
                (to, next(PageState::InactiveUnreferenced, Event::Demoted, true))
            }
            (MovePurpose::Out, true, _) => return self.pages.clock.forget(page),
            (MovePurpose::Down | MovePurpose::Out, ..) => {
                (ended.from, PageState::InactiveUnreferenced)
            }
        };
        self.no_write_back |=
            ended.tag == MovePurpose::Out && ended.why == Some(Failure::Unsupported);
        self.pages.clock.put(page, tier, state);
    }
}

impl Policy for MultiClock {
    fn name(&self) -> &'static str {
        "multi-clock"
    }

    fn settings(&self) -> Vec<Setting> {
        recorded(&self.config)
    }

    fn observe(&mut self, evidence: Evidence<'_>, orders: &mut Orders) {
        self.pages.census.observe(&evidence);
        match evidence {
            Evidence::Bits(probes) => {
                self.judge(probes);
                self.config.costs.charge(orders, probes.len() as u64);
                self.finish(orders);
            }
            Evidence::Pressure(pressure) => self.relieve(pressure, orders),
            Evidence::Outcomes(outcomes) => {
                self.config.costs.charge(orders, outcomes.len() as u64);
                outcomes.iter().for_each(|outcome| self.end(outcome));
            }
            _ => {}
        }
    }

    fn tick(&mut self, now: Time, view: &dyn PlacementView, orders: &mut Orders) -> Time {
        let looked = self.pages.settle(view);
        self.balances.resize(self.pages.moves.tiers(), Balance::default());
        self.config.costs.charge(orders, looked);
        if now >= self.next_run {
            self.begin_run(orders);
            if orders.probes.is_empty() {
                self.finish(orders);
            }
            self.next_run = now + self.interval;
        }
        self.next_run
    }
}

#[cfg(test)]
mod tests {
    use tierscope_conformance::tiers::Size;
    use tierscope_core::{Access, PageEventKind};

    use super::*;
    use crate::trace::Trace;
    use PageState::*;

    fn trace<const N: usize>(tiers: [u64; N], pages: u32) -> Trace<MultiClock> {
        Trace::new(MultiClock::new(Config::default()), tiers, pages)
    }

    fn state(trace: &Trace<MultiClock>, page: u32) -> (u8, PageState) {
        trace.policy.pages.clock.state_of(page).expect("it is on a list")
    }

    // Page 3 of the slow tier is touched in every second: the runs at 1, 2, 3 and 4 s take it from
    // inactive to the promote list, and the last one promotes it. The fast tier has room for it.
    //
    //     run at   0   1   2   3   4
    //     page 3   IU  IR  AU  AR  P, promoted
    #[test]
    fn golden_four_accesses_promote() {
        let mut trace = trace([4, 8], 3);
        trace.machine.place(&crate::trace::range(2, 1), Tier(1));
        let states = [InactiveReferenced, ActiveUnreferenced, ActiveReferenced];
        for wanted in states {
            trace.seconds(1, |_| vec![2]);
            assert_eq!(state(&trace, 2), (1, wanted));
        }
        assert_eq!(trace.orders(), 0);
        trace.seconds(1, |_| vec![2]);
        assert_eq!(trace.ordered(), ["2→0"]);
        trace.seconds(1, |_| vec![]);
        assert_eq!(state(&trace, 2), (0, ActiveUnreferenced), "where (13) leads");
        assert_eq!(trace.places(), "0:0 1:0 2:0");
        assert_eq!(trace.policy.account(), Account { runs: 6, promoted: 1, ..Default::default() });
    }

    // The fast tier is full: page 0, never touched, is demoted first, and the promotion waits for
    // it. Page 1 is touched and stays.
    #[test]
    fn golden_a_promotion_into_a_full_tier_demotes_at_once() {
        let mut trace = trace([2, 8], 4);
        trace.seconds(5, |_| vec![1, 3]);
        assert_eq!(trace.ordered(), ["0→1", "3→0"]);
        assert_eq!(trace.machine.actions()[1].after, Some(trace.machine.actions()[0].id));
        assert_eq!(trace.places(), "0:1 1:0 2:1 3:0");
    }

    // No page of the fast tier is cold, for both are touched in every second. The hand goes on: its
    // first circuit makes both active unreferenced, the second page 0 inactive, the third finds it
    // cold, and page 3 is promoted in the run that selected it.
    #[test]
    fn golden_the_hand_goes_on_until_it_finds_a_victim() {
        let mut trace = trace([2, 8], 4);
        trace.seconds(5, |_| vec![0, 1, 3]);
        assert_eq!(trace.ordered(), ["0→1", "3→0"]);
        assert_eq!(trace.places(), "0:1 1:0 2:1 3:0");
    }

    // The slow tier is full, so nothing can be demoted: page 3 stays on the promote list, where an
    // access keeps it (12), and is active again after a second without one (11).
    #[test]
    fn golden_without_room_below_nothing_is_promoted() {
        let mut trace = trace([2, 2], 4);
        trace.seconds(5, |_| vec![3]);
        assert_eq!((trace.orders(), state(&trace, 3)), (0, (1, Promote)));
        trace.seconds(1, |_| vec![3]);
        assert_eq!(state(&trace, 3), (1, Promote));
        trace.seconds(1, |_| vec![]);
        assert_eq!((trace.orders(), state(&trace, 3)), (0, (1, ActiveUnreferenced)));
    }

    // Ten pages, watermarks 2 and 4. The allocations leave 2 free, the low watermark. No page was
    // touched since, so the two coldest, which were allocated first, are demoted, and 4 are free.
    #[test]
    fn golden_watermarks_demote() {
        let sizes = [Size { pages: 10, low: 2, high: 4 }, Size::without_marks(20)];
        let mut trace = Trace::with(MultiClock::new(Config::default()), &sizes, 9, false);
        assert_eq!(trace.machine.used(), [8, 1]);
        trace.seconds(2, |_| vec![2, 3]);
        assert_eq!(trace.ordered(), ["0→1", "1→1"]);
        assert_eq!(trace.machine.used(), [6, 3]);
    }

    // A single tier, watermarks 2 and 4: pages are written back. Without swap nothing can be freed.
    #[test]
    fn golden_the_lowest_tier_writes_back() {
        let sizes = [Size { pages: 10, low: 2, high: 4 }];
        let mut trace = Trace::with(MultiClock::new(Config::default()), &sizes, 8, false);
        trace.seconds(2, |_| vec![2, 3]);
        assert_eq!(trace.ordered(), ["0 Reclaim", "1 Reclaim"]);
        assert_eq!(trace.places(), "2:0 3:0 4:0 5:0 6:0 7:0");
        let config = Config { swap: false, ..Config::default() };
        let mut trace = Trace::with(MultiClock::new(config), &sizes, 8, false);
        trace.seconds(2, |_| vec![2, 3]);
        assert_eq!(trace.orders(), 0);
        assert!(trace.policy.account().last_resorts > 0, "out of memory comes last");
    }

    // A system call's accesses count one by one: after four between two runs, the next run
    // promotes.
    #[test]
    fn golden_supervised_accesses_count_at_once() {
        let mut trace = trace([4, 8], 3);
        trace.machine.place(&crate::trace::range(2, 1), Tier(1));
        trace.seconds(1, |_| vec![]);
        for _ in 0..4 {
            trace.page_event(2, 1, PageEventKind::FileAccess(Access::Load));
        }
        trace.seconds(1, |_| vec![]);
        assert_eq!(trace.ordered(), ["2→0"]);
    }

    // A locked page is on a list of its own, whatever its accesses; when unlocked, it starts over
    // (5), and its ACCESSED bit, not cleared meanwhile, counts (1).
    #[test]
    fn golden_locked_pages_stay() {
        let mut trace = trace([4, 8], 3);
        trace.machine.place(&crate::trace::range(2, 1), Tier(1));
        trace.page_event(2, 1, PageEventKind::Locked);
        trace.seconds(6, |_| vec![2]);
        assert_eq!((trace.orders(), trace.policy.pages.clock.state_of(2)), (0, None));
        trace.page_event(2, 1, PageEventKind::Unlocked);
        trace.seconds(1, |_| vec![]);
        assert_eq!(state(&trace, 2), (1, InactiveReferenced));
    }

    // Locked between the order and the move: back to the active list (IV-C).
    #[test]
    fn a_page_that_cannot_move_is_active_again() {
        let mut trace = trace([4, 8], 3);
        trace.machine.place(&crate::trace::range(2, 1), Tier(1));
        trace.seconds(3, |_| vec![2]);
        let mut orders = Orders::default();
        trace.policy.pages.clock.happen(2, Event::Called);
        trace.policy.running = true;
        trace.policy.finish(&mut orders);
        let (id, why) = (orders.actions[0].id, Some(Failure::Busy));
        let failed = Outcome { id, time: Time(0), done: 0, failed: 4096, why };
        trace.policy.observe(Evidence::Outcomes(&[failed]), &mut orders);
        assert_eq!(state(&trace, 2), (1, ActiveUnreferenced));
    }

    // Three tiers: a page is promoted one tier at a time, each time after four accesses (after two
    // from the second tier on, because it arrives active).
    #[test]
    fn golden_three_tiers() {
        let mut trace = trace([2, 2, 8], 2);
        trace.machine.place(&crate::trace::range(1, 1), Tier(2));
        trace.seconds(5, |_| vec![1]);
        assert_eq!(trace.ordered(), ["1→1"]);
        trace.seconds(3, |_| vec![1]);
        assert_eq!(trace.ordered(), ["1→1", "1→0"]);
    }

    // Section VII: a page written by a system call needs half as many accesses.
    #[test]
    fn golden_dirty_pages_weigh_more() {
        let config = Config { dirty_weight: 2, ..Config::default() };
        let mut trace = Trace::new(MultiClock::new(config), [4, 8], 4);
        trace.machine.place(&crate::trace::range(2, 2), Tier(1));
        trace.seconds(1, |_| vec![]);
        trace.page_event(3, 1, PageEventKind::FileAccess(Access::Store));
        trace.seconds(2, |_| vec![2, 3]);
        assert_eq!(trace.ordered(), ["3→0"]);
        assert_eq!(state(&trace, 2), (1, ActiveUnreferenced));
    }

    // Section VII: nothing accessed for three runs: 1, 2, 4 and then 5 s; some accesses, too few to
    // shorten it; then two runs that promote a list's worth.
    #[test]
    fn the_interval_adjusts_itself() {
        let config = Config { adjust: true, scan: 2, ..Config::default() };
        let mut policy = MultiClock::new(config);
        let mut intervals = Vec::new();
        for (promoted, accessed) in [(0, 0), (0, 0), (0, 0), (0, 9), (1, 9), (2, 9), (9, 9)] {
            policy.accessed = accessed;
            policy.adjust(promoted);
            intervals.push(policy.interval().as_millis());
        }
        assert_eq!(intervals, [2000, 4000, 5000, 5000, 5000, 2500, 1250]);
    }
}
