//! AutoTiering: promotes pages on hint faults, and demotes the coldest by an eight-bit access
//! history to make room.
//!
//! Source: Kim, Choe and Ahn, "Exploring the Design Space of Page Management for Multi-Tiered
//! Memory Systems" (USENIX ATC'21), as implemented in its kernel (mm/page_balancing.c, migrate.c,
//! mprotect.c).
//!
//! - Memory of all tiers is armed part by part ([`crate::arming`]). A page's history is 8 bits, all
//!   set at first. Each time the hand passes the page, the history is shifted: a 1 if the page
//!   faulted since it was armed, else a 0. Its level is the number of bits set, 0 to 8.
//! - LAP lists, one for each level of each tier but the lowest: an accessed page goes to the tail
//!   of its level's list, any other to the head. Victims are taken from the head of the lowest
//!   level.
//! - A page of a slower tier that faults is a candidate for promotion. A tier accepts it if its
//!   high watermark plus the page's size is free.
//! - *CPM* (conservative) otherwise tries the next lower tiers that are still faster than the
//!   page's own, and then gives up. *OPM* (opportunistic) requires the page's level to be above the
//!   lowest non-empty level of the fast tier. If so, it demotes a file page, and this fault
//!   promotes nothing; without a file page, it demotes the first page of the lowest level below the
//!   faulting page's, and promotes. Failing that, it falls back to CPM.
//! - OPM in the background: when at most 4 pages (3 huge ones) are free above the high watermark,
//!   victims are demoted until 16 (4) are free.
//!
//! Each tier has one node: the source's balancing among nodes of a tier is left out.

use std::time::Duration;

use tierscope_core::{
    Addr, Evidence, HintFault, Need, Orders, PAGE_SIZE, PlacementView, Policy, Pressure, Range,
    Setting, Tier, Time,
};

use crate::arming::{self, Arming};
use crate::cost::Costs;
use crate::pages::{Census, Change, ListId, Lists, Moves, PageStates};
use crate::registry::{BY_FAULTS, Entry, keys_of, made};
use crate::settings::{Settings, Visit, recorded};

/// Promotion mode: conservative or opportunistic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Conservative promotion and migration.
    Cpm,
    /// Opportunistic promotion and migration.
    Opm,
}

/// The policy `autotiering-cpm` in the list.
pub(crate) const ENTRY_CPM: Entry = Entry {
    name: "autotiering-cpm",
    about: "a page that faults is promoted if there is room",
    source: "Kim, Choe and Ahn, USENIX ATC'21",
    tracks: BY_FAULTS,
    granularity: "pages",
    promotes: "recency: one fault",
    demotes: "never",
    cost: "256 MiB armed a second, a fault for each page touched",
    page_bytes: Some(AutoTiering::PAGE_BYTES),
    needs: &[Need::HintFaults],
    uses: &[Need::PageEvents, Need::Pressure],
    sampling: None,
    reclaims: false,
    make: made!("autotiering-cpm", Config::of(Variant::Cpm), AutoTiering::new),
    keys: || keys_of(&mut Config::of(Variant::Cpm)),
};

/// The policy `autotiering-opm` in the list.
pub(crate) const ENTRY_OPM: Entry = Entry {
    name: "autotiering-opm",
    about: "likewise; the page with the fewest accesses in eight scans is demoted to make room",
    source: "Kim, Choe and Ahn, USENIX ATC'21",
    tracks: BY_FAULTS,
    granularity: "pages",
    promotes: "recency: one fault",
    demotes: "frequency: accesses in the last eight scans",
    cost: "256 MiB armed a second, a fault for each page touched",
    page_bytes: Some(AutoTiering::PAGE_BYTES),
    needs: &[Need::HintFaults],
    uses: &[Need::PageEvents, Need::Pressure],
    sampling: None,
    reclaims: false,
    make: made!("autotiering-opm", Config::of(Variant::Opm), AutoTiering::new),
    keys: || keys_of(&mut Config::of(Variant::Opm)),
};

/// Settings of the policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Promotion mode.
    pub variant: Variant,
    /// Rate at which memory is armed for hint faults.
    pub arming: arming::Config,
    /// Pages looked up per tick on a machine that does not report allocations.
    pub census: u64,
    /// CPU costs of the policy's own work.
    pub costs: Costs,
}

impl Config {
    /// Defaults: 256 MiB a second, as the source.
    #[must_use]
    pub fn of(variant: Variant) -> Self {
        let arming = arming::Config::default();
        Self { variant, arming, census: 65_536, costs: Costs::default() }
    }
}

impl Settings for Config {
    fn visit(&mut self, each: &mut dyn Visit) {
        self.arming.visit(each);
        let about = "pages looked up at a tick where the machine does not report new ones";
        each.value("census", about, &mut self.census);
        self.costs.visit(each);
    }

    fn check(&self) -> Result<(), String> {
        self.arming.check()
    }
}

/// Levels of a history of eight bits: 0 to 8 bits set.
const LEVELS: u8 = 9;
/// Lists per tier: one per level for anonymous pages and one for file pages, plus one for locked
/// pages.
const LISTS: u8 = 2 * LEVELS + 1;
const TIERS: u8 = 8;
/// Free pages above the high watermark at which background demotion starts, and up to which it
/// runs: 4 KiB pages here, huge ones below.
const POOL: (u64, u64) = (4, 16);
const HUGE_POOL: (u64, u64) = (3, 4);

/// Per-page state: access history and flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PageHistory {
    history: u8,
    flags: u8,
}

impl Default for PageHistory {
    fn default() -> Self {
        Self { history: 0xff, flags: 0 }
    }
}

const ARMED: u8 = 1;
const FILE: u8 = 2;
const LOCKED: u8 = 4;

impl PageHistory {
    fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The hand passes the page: shifts in whether it was accessed since the last pass, and arms
    /// it.
    fn pass(&mut self) {
        let accessed = !self.has(ARMED);
        self.history = self.history << 1 | u8::from(accessed);
        self.flags |= ARMED;
    }
}

/// End of a LAP list at which a page is inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Head,
    Tail,
}

/// The LAP lists of all tiers. Pages of the lowest tier are listed too, but those lists are never
/// read.
#[derive(Clone, Debug)]
struct Laps {
    lists: Lists<PageHistory>,
    /// Unmapped pages, whose pending actions are to be forgotten.
    gone: Vec<u32>,
}

impl Laps {
    fn list(tier: Tier, level: u8, file: bool) -> ListId {
        ListId(tier.0 * LISTS + 2 * level + u8::from(file))
    }

    fn level(&self, page: u32) -> u8 {
        self.lists.payload(page).history.count_ones() as u8
    }

    fn tier(&self, page: u32) -> Option<Tier> {
        self.lists.list_of(page).map(|list| Tier(list.0 / LISTS))
    }

    fn put(&mut self, page: u32, tier: Tier, end: End) {
        if tier.0 >= TIERS {
            return;
        }
        let kept = *self.lists.payload(page);
        if kept.has(LOCKED) {
            return self.lists.push_tail(ListId(tier.0 * LISTS + LISTS - 1), page);
        }
        let list = Self::list(tier, self.level(page), kept.has(FILE));
        match end {
            End::Head => self.lists.push_head(list, page),
            End::Tail => self.lists.push_tail(list, page),
        }
    }

    fn is_locked(&self, page: u32) -> bool {
        self.lists.payload(page).has(LOCKED)
    }

    /// First page of the lowest non-empty level of a tier; only levels under `below` count.
    fn victim(&self, tier: Tier, below: u8, file: bool) -> Option<u32> {
        (0..below.min(LEVELS)).find_map(|level| self.lists.head(Self::list(tier, level, file)))
    }

    /// Lowest non-empty level of a tier.
    fn lowest(&self, tier: Tier) -> u8 {
        let any = |level: &u8| {
            [false, true]
                .iter()
                .any(|file| self.lists.head(Self::list(tier, *level, *file)).is_some())
        };
        (0..LEVELS).find(any).unwrap_or(LEVELS)
    }
}

impl PageStates for Laps {
    fn order_of(&self, page: u32) -> Option<u8> {
        self.lists.knows(page).then(|| self.lists.order(page))
    }

    fn reserve(&mut self, pages: u32) {
        self.lists.reserve(pages);
    }

    fn change(&mut self, change: Change) {
        match change {
            Change::Seen { page, order, tier, file } => {
                if !self.lists.knows(page) {
                    self.lists.add(page, order);
                    self.lists.payload_mut(page).flags = if file { FILE } else { 0 };
                    self.put(page, tier, End::Tail);
                } else if self.tier(page).is_some_and(|known| known != tier) {
                    self.put(page, tier, End::Tail);
                }
            }
            Change::Gone { page } if self.lists.knows(page) => {
                self.gone.push(page);
                self.lists.forget(page);
            }
            Change::Locked { page, on } if self.lists.knows(page) => {
                let flags = &mut self.lists.payload_mut(page).flags;
                *flags = if on { *flags | LOCKED } else { *flags & !LOCKED };
                if let Some(tier) = self.tier(page) {
                    self.put(page, tier, End::Tail);
                }
            }
            _ => {}
        }
    }
}

/// The AutoTiering policy.
#[derive(Clone, Debug)]
pub struct AutoTiering {
    config: Config,
    census: Census,
    laps: Laps,
    moves: Moves<()>,
    arming: Arming,
    next_tick: Time,
}

impl AutoTiering {
    /// Bytes kept for each tracked page of 4 KiB.
    pub const PAGE_BYTES: usize = Lists::<PageHistory>::PAGE_BYTES;

    /// The policy with these settings.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            census: Census::new(config.census),
            laps: Laps { lists: Lists::new(usize::from(LISTS * TIERS)), gone: Vec::new() },
            moves: Moves::new(),
            arming: Arming::new(config.arming.clone()),
            next_tick: Time(0),
            config,
        }
    }

    /// The page (4 KiB, 2 MiB or 1 GiB) that contains an address.
    fn page_of(&self, at: Addr) -> Option<u32> {
        let head = |shift: u32| {
            let start = Addr { at: at.at >> shift << shift, ..at };
            let page = self.census.numbers.page_at(start)?;
            let reaches =
                self.laps.lists.knows(page) && start.at + self.laps.lists.bytes(page) > at.at;
            reaches.then_some(page)
        };
        [12, 21, 30].into_iter().find_map(head)
    }

    fn fault(&mut self, fault: &HintFault, orders: &mut Orders) {
        let Some(page) = self.page_of(fault.at) else { return };
        self.laps.lists.payload_mut(page).flags &= !ARMED;
        let Some(tier) = self.laps.tier(page) else { return };
        if tier.0 > 0 && !self.laps.is_locked(page) {
            self.promote(page, tier, orders);
        }
    }

    fn promote(&mut self, page: u32, from: Tier, orders: &mut Orders) {
        if self.is_balanced(Tier(0), page) {
            return self.send(page, from, Tier(0), orders);
        }
        if self.config.variant == Variant::Opm {
            match self.make_room(Tier(0), page, orders) {
                RoomResult::Made => return self.send(page, from, Tier(0), orders),
                RoomResult::NextTime => return,
                RoomResult::None => {}
            }
        }
        let next = (1..from.0).map(Tier).find(|tier| self.is_balanced(*tier, page));
        if let Some(to) = next {
            self.send(page, from, to, orders);
        }
    }

    /// Whether the tier's high watermark plus the page's size is free.
    fn is_balanced(&self, tier: Tier, page: u32) -> bool {
        let wanted = self.moves.high(tier) + self.laps.lists.bytes(page);
        self.moves.free_soon(tier) >= wanted
    }

    fn make_room(&mut self, tier: Tier, page: u32, orders: &mut Orders) -> RoomResult {
        let level = self.laps.level(page);
        if level <= self.laps.lowest(tier) {
            return RoomResult::None;
        }
        if let Some(victim) = self.laps.victim(tier, level, true)
            && self.demote(victim, tier, orders)
        {
            return RoomResult::NextTime;
        }
        let bytes = self.laps.lists.bytes(page);
        match self.laps.victim(tier, level, false) {
            Some(victim) if self.laps.lists.bytes(victim) >= bytes => {
                if self.demote(victim, tier, orders) { RoomResult::Made } else { RoomResult::None }
            }
            _ => RoomResult::None,
        }
    }

    fn demote(&mut self, page: u32, from: Tier, orders: &mut Orders) -> bool {
        let to = Tier(from.0 + 1);
        let fits = usize::from(to.0) < self.moves.tiers()
            && self.moves.free(to) >= self.laps.lists.bytes(page);
        if fits {
            self.send(page, from, to, orders);
        }
        fits
    }

    fn send(&mut self, page: u32, from: Tier, to: Tier, orders: &mut Orders) {
        let bytes = self.laps.lists.bytes(page);
        let Some(at) = self.census.numbers.address_of(page) else { return };
        let range = Range::new(at.space, at.at, at.at + bytes);
        self.laps.lists.take(page);
        self.moves.move_page(orders, (page, range), (from, to), ());
        self.config.costs.charge(orders, 1);
    }

    /// The source's kdemoted: keeps a few pages free above the high watermark.
    fn refill(&mut self, orders: &mut Orders) {
        if self.config.variant == Variant::Cpm {
            return;
        }
        for tier in (0..self.moves.tiers().saturating_sub(1) as u8).map(Tier) {
            let Some(first) = self.laps.victim(tier, LEVELS, false) else { continue };
            let bytes = self.laps.lists.bytes(first);
            let (wake, full) = if bytes > PAGE_SIZE { HUGE_POOL } else { POOL };
            let free = |moves: &Moves<()>| {
                moves.free_at_last(tier).saturating_sub(moves.high(tier)) / bytes
            };
            if free(&self.moves) > wake {
                continue;
            }
            self.config.costs.charge_wake(orders);
            while free(&self.moves) < full
                && let Some(victim) = self.laps.victim(tier, LEVELS, false)
                && self.demote(victim, tier, orders)
            {}
        }
    }

    /// The hand passes over a range: histories are shifted, pages change LAP lists.
    fn pass(&mut self, part: &Range, orders: &mut Orders) {
        let mut passed = 0;
        for page in self.census.numbers.rows(part).into_iter().flatten() {
            if !self.laps.lists.knows(page) {
                continue;
            }
            passed += 1;
            let kept = self.laps.lists.payload_mut(page);
            let end = if kept.has(ARMED) { End::Head } else { End::Tail };
            kept.pass();
            if let Some(tier) = self.laps.tier(page) {
                self.laps.put(page, tier, end);
            }
        }
        self.config.costs.charge(orders, passed);
    }

    fn pressure(&mut self, pressure: &Pressure) {
        self.moves.pressure(pressure);
    }
}

/// Result of trying to free memory for a promotion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RoomResult {
    Made,
    /// A file page is being demoted; the promotion is retried at the page's next fault.
    NextTime,
    None,
}

impl Policy for AutoTiering {
    fn name(&self) -> &'static str {
        match self.config.variant {
            Variant::Cpm => "autotiering-cpm",
            Variant::Opm => "autotiering-opm",
        }
    }

    fn settings(&self) -> Vec<Setting> {
        recorded(&self.config)
    }

    fn observe(&mut self, evidence: Evidence<'_>, orders: &mut Orders) {
        self.census.observe(&evidence);
        match evidence {
            Evidence::Mappings(mappings) => self.arming.map(mappings),
            Evidence::Faults(faults) => {
                self.config.costs.charge(orders, faults.len() as u64);
                faults.iter().for_each(|fault| self.fault(fault, orders));
            }
            Evidence::Pressure(pressure) => self.pressure(pressure),
            Evidence::Outcomes(outcomes) => {
                self.config.costs.charge(orders, outcomes.len() as u64);
                for outcome in outcomes {
                    let Some(ended) = self.moves.end(outcome) else { continue };
                    if self.laps.lists.knows(ended.page) {
                        let tier = ended.to.filter(|_| ended.done).unwrap_or(ended.from);
                        self.laps.put(ended.page, tier, End::Tail);
                    }
                }
            }
            _ => {}
        }
    }

    fn tick(&mut self, now: Time, view: &dyn PlacementView, orders: &mut Orders) -> Time {
        self.moves.refresh(view.tiers());
        let looked = self.census.settle(view, &mut self.laps);
        for page in std::mem::take(&mut self.laps.gone) {
            self.moves.forget(page);
        }
        self.config.costs.charge(orders, looked);
        if now >= self.next_tick {
            self.config.costs.charge_wake(orders);
            self.refill(orders);
            self.next_tick = now + Duration::from_secs(1);
        }
        let (parts, next) = self.arming.go(now, orders);
        parts.iter().for_each(|part| self.pass(part, orders));
        next.min(self.next_tick)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Trace;

    fn trace<const N: usize>(variant: Variant, tiers: [u64; N], pages: u32) -> Trace<AutoTiering> {
        Trace::new(AutoTiering::new(Config::of(variant)), tiers, pages)
    }

    // A history of 11111111: a pass, a fault, a pass, and two passes without a fault.
    #[test]
    fn histories_are_shifted_as_the_hand_passes() {
        let mut kept = PageHistory::default();
        kept.pass();
        assert_eq!((kept.history, kept.has(ARMED)), (0xff, true));
        kept.flags &= !ARMED;
        kept.pass();
        assert_eq!(kept.history, 0xff);
        kept.pass();
        kept.pass();
        assert_eq!((kept.history, kept.history.count_ones()), (0xfc, 6));
    }

    // Armed at 1 s, touched at 1.5 s: promoted where there is room.
    #[test]
    fn golden_a_fault_promotes() {
        for variant in [Variant::Cpm, Variant::Opm] {
            let mut trace = trace(variant, [32, 32], 2);
            trace.machine.place(&crate::trace::range(1, 1), Tier(1));
            trace.seconds(3, |_| vec![1]);
            assert_eq!(trace.ordered(), ["1→0"]);
        }
    }

    // The fast tier is full: CPM gives up. In four seconds the hand has passed four times; page 0,
    // never touched, has a history of 11111000, page 2 a full one. OPM would demote page 0 for page
    // 2, but not page 1, which is as hot.
    #[test]
    fn golden_cpm_gives_up_and_opm_demotes() {
        let mut trace = trace(Variant::Cpm, [2, 8], 3);
        trace.seconds(4, |_| vec![1, 2]);
        assert_eq!(trace.orders(), 0);
        let policy = &mut trace.policy;
        assert_eq!([0, 1, 2].map(|page| policy.laps.level(page)), [5, 8, 8]);
        policy.config.variant = Variant::Opm;
        let mut orders = Orders::default();
        policy.promote(2, Tier(1), &mut orders);
        let start = |page| crate::trace::range(page, 1).start;
        let starts: Vec<u64> = orders.actions.iter().map(|action| action.range.start).collect();
        assert_eq!(starts, [start(0), start(2)]);
        policy.promote(2, Tier(1), &mut orders);
        assert_eq!(orders.actions.len(), 2, "no page is colder");
    }

    // Three tiers, the first one full: CPM promotes page 2 to the second.
    #[test]
    fn golden_cpm_looks_at_the_next_tier() {
        let mut trace = trace(Variant::Cpm, [1, 4, 8], 2);
        trace.machine.place(&crate::trace::range(1, 1), Tier(2));
        trace.seconds(3, |_| vec![1]);
        assert_eq!(trace.ordered(), ["1→1"]);
    }

    // Twenty pages fill the fast tier: at the first tick 16 of them are demoted, so that 16 are
    // free.
    #[test]
    fn golden_a_pool_is_kept_free() {
        let mut trace = trace(Variant::Opm, [20, 40], 20);
        trace.seconds(1, |_| vec![]);
        assert_eq!(trace.machine.used(), [4, 16]);
        trace.seconds(3, |_| vec![]);
        assert_eq!(trace.orders(), 16, "enough");
    }
}
