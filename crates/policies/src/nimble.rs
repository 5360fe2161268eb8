//! Nimble: promotes recently referenced pages, demotes unreferenced ones, in bulk.
//!
//! Source: Yan et al., "Nimble Page Management for Tiered Memory Systems" (ASPLOS'19), as
//! implemented in its kernel (mm/memory_manage.c, `do_mm_manage` and `shrink_lists`):
//!
//! - Each call scans half of every evictable list of both nodes. An active page's ACCESSED bit is
//!   cleared and the page becomes inactive, referenced or not. An inactive page that is young and
//!   was already marked referenced becomes active; young for the first time, it is marked and
//!   stays.
//! - The slow node's active lists are the source of promotions; if the request is smaller than the
//!   free memory of the fast node, the inactive ones too.
//! - For promotions that find no free memory, as many pages of the fast node's inactive lists are
//!   demoted first. There, huge pages are exchanged in pairs; others move out, then in, in batches
//!   of 16. Here, moves are single actions, each of which waits for the one that makes room: the
//!   savings of pairs and batches are up to the machine.
//!
//! Left out: executable file pages, which stay active there (this policy cannot identify them), and
//! pages mapped by more than one table, which are activated at their first reference there (not
//! identifiable either). `request` and `interval` are the launcher's parameters there: assumed, to
//! be varied.

use std::time::Duration;

use tierscope_core::{
    Evidence, Need, Orders, PAGE_SIZE, PlacementView, Policy, Setting, Tier, Time,
};

use crate::clock::state::PageState;
use crate::clock::{Clock, Kind, MovePurpose, Resident};
use crate::cost::Costs;
use crate::registry::{BY_ACCESSED, Entry, keys_of, made};
use crate::settings::{Bytes, Settings, Visit, recorded};

/// The policy `nimble` in the list.
pub(crate) const ENTRY: Entry = Entry {
    name: "nimble",
    about: "whole lists scanned by halves; active pages are exchanged with inactive ones",
    source: "Yan et al., ASPLOS'19",
    tracks: BY_ACCESSED,
    granularity: "pages",
    promotes: "recency: the active list",
    demotes: "recency: the inactive list, for room",
    cost: "half of all entries at each call",
    page_bytes: Some(crate::clock::Clock::PAGE_BYTES),
    needs: &[Need::AccessBits],
    uses: &[Need::PageEvents, Need::Pressure],
    sampling: None,
    reclaims: false,
    make: made!("nimble", Config::default(), Nimble::new),
    keys: || keys_of(&mut Config::default()),
};

/// Settings of the policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Time between two calls.
    pub interval: Duration,
    /// Maximum bytes promoted per call.
    pub request: Bytes,
    /// Pages looked up per tick on a machine that does not report allocations.
    pub census: u64,
    /// CPU costs of the policy's own work.
    pub costs: Costs,
}

/// Assumed: 1 GiB every 5 s.
impl Default for Config {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(5),
            request: Bytes(1 << 30),
            census: 65_536,
            costs: Costs::default(),
        }
    }
}

impl Settings for Config {
    fn visit(&mut self, each: &mut dyn Visit) {
        each.value("interval", "time between two calls", &mut self.interval);
        each.value("request", "bytes that a call may promote", &mut self.request);
        let about = "pages looked up at a tick where the machine does not report new ones";
        each.value("census", about, &mut self.census);
        self.costs.visit(each);
    }

    fn check(&self) -> Result<(), String> {
        let sound = !self.interval.is_zero() && self.request.0 >= PAGE_SIZE;
        if sound {
            Ok(())
        } else {
            Err("`interval` must be above zero, `request` a page at least".into())
        }
    }
}

const KINDS: [(Kind, bool); 4] =
    [(Kind::Active, false), (Kind::Active, true), (Kind::Inactive, false), (Kind::Inactive, true)];

/// The Nimble policy.
#[derive(Clone, Debug)]
pub struct Nimble {
    config: Config,
    pages: Resident,
    next_call: Time,
}

/// `shrink_lists`: next state of a scanned page.
fn settle(clock: &mut Clock, page: u32, young: bool) {
    use PageState::{ActiveUnreferenced, InactiveReferenced, InactiveUnreferenced};
    let Some((tier, state)) = clock.state(page) else { return };
    let next = match (state, young) {
        (InactiveReferenced, true) => ActiveUnreferenced,
        (InactiveUnreferenced, true) => InactiveReferenced,
        (InactiveReferenced | InactiveUnreferenced, false) => state,
        _ => InactiveUnreferenced,
    };
    clock.put(page, tier, next);
}

impl Nimble {
    /// The policy with these settings.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let pages = Resident::new(Clock::new(false, 1), config.census);
        Self { pages, next_call: Time(0), config }
    }

    /// Orders probes of half of every list.
    fn call(&mut self, orders: &mut Orders) {
        self.config.costs.charge_wake(orders);
        for tier in self.pages.tiers() {
            for (kind, file) in KINDS {
                let Resident { clock, census, .. } = &mut self.pages;
                let half = clock.count(tier, kind, file).div_ceil(2);
                let met = clock.scan(&census.numbers, (tier, kind, file), half, orders);
                self.config.costs.charge(orders, met);
            }
        }
    }

    /// Exchanges the pages of the source lists for the fast tier's inactive ones.
    fn migrate(&mut self, orders: &mut Orders) {
        for tier in self.pages.tiers().skip(1) {
            let to = Tier(tier.0 - 1);
            let ample = self.config.request.0 < self.pages.moves.room_above_low(to);
            let mut left = self.config.request.0;
            for (kind, file) in KINDS {
                if kind == Kind::Inactive && !ample {
                    continue;
                }
                self.take(tier, (kind, file), &mut left, orders);
            }
        }
    }

    fn take(
        &mut self,
        tier: Tier,
        (kind, file): (Kind, bool),
        left: &mut u64,
        orders: &mut Orders,
    ) {
        let most = u32::try_from(*left / PAGE_SIZE).unwrap_or(u32::MAX);
        for page in self.pages.clock.last_come(tier, kind, file, most) {
            self.config.costs.charge(orders, 1);
            // Unreferenced inactive pages are no better than the pages that they would displace.
            let state = self.pages.clock.state(page).map(|(_, state)| state);
            let bytes = self.pages.clock.bytes(page);
            if state == Some(PageState::InactiveUnreferenced) || bytes > *left {
                continue;
            }
            if !self.promote(page, tier, orders) {
                return;
            }
            *left -= bytes;
        }
    }

    fn promote(&mut self, page: u32, from: Tier, orders: &mut Orders) -> bool {
        let to = Tier(from.0 - 1);
        while self.pages.moves.room_above_low(to) < self.pages.clock.bytes(page) {
            if !self.demote(to, orders) {
                return false;
            }
        }
        self.pages.send(page, from, Some(to), MovePurpose::Up, orders)
    }

    /// Demotes an inactive page.
    fn demote(&mut self, tier: Tier, orders: &mut Orders) -> bool {
        let lists = [(Kind::Inactive, false), (Kind::Inactive, true)];
        self.pages.demote_first(tier, &lists, orders)
    }
}

impl Policy for Nimble {
    fn name(&self) -> &'static str {
        "nimble"
    }

    fn settings(&self) -> Vec<Setting> {
        recorded(&self.config)
    }

    fn observe(&mut self, evidence: Evidence<'_>, orders: &mut Orders) {
        self.pages.census.observe(&evidence);
        match evidence {
            Evidence::Bits(probes) => {
                self.pages.judge(probes, settle);
                self.config.costs.charge(orders, probes.len() as u64);
                self.migrate(orders);
            }
            Evidence::Pressure(pressure) => self.pages.moves.pressure(pressure),
            Evidence::Outcomes(outcomes) => {
                self.config.costs.charge(orders, outcomes.len() as u64);
                outcomes.iter().for_each(|outcome| self.pages.land(outcome));
            }
            _ => {}
        }
    }

    fn tick(&mut self, now: Time, view: &dyn PlacementView, orders: &mut Orders) -> Time {
        let looked = self.pages.settle(view);
        self.config.costs.charge(orders, looked);
        if now >= self.next_call {
            self.call(orders);
            self.next_call = now + self.config.interval;
        }
        self.next_call
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Trace;

    fn every_second() -> Nimble {
        Nimble::new(Config { interval: Duration::from_secs(1), ..Config::default() })
    }

    #[test]
    fn active_pages_go_inactive_even_if_referenced() {
        let mut clock = Clock::new(false, 1);
        let mut moves = crate::pages::Moves::<()>::new();
        let mut kept = crate::clock::TrackedPages { clock: &mut clock, moves: &mut moves };
        use crate::pages::{Change, PageStates as _};
        kept.change(Change::Seen { page: 0, order: 0, tier: Tier(1), file: false });
        let mut seen = Vec::new();
        for young in [true, false, true, true, false] {
            settle(&mut clock, 0, young);
            seen.push(clock.state(0).expect("it is there").1);
        }
        use PageState::{
            ActiveUnreferenced as A, InactiveReferenced as R, InactiveUnreferenced as I,
        };
        assert_eq!(seen, [R, R, A, I, I]);
    }

    // Two pages per tier; 1 and 3 are touched all the time. Half of each list is one page, so pages
    // are scanned alternately: 0 and 2 at 0 s; 1 and 3 at 1 s, which marks them, and again at 3 s,
    // which activates them. Page 3 is exchanged for page 0.
    #[test]
    fn golden_active_pages_are_exchanged_with_inactive_ones() {
        let mut trace = Trace::new(every_second(), [2, 8], 4);
        trace.seconds(2, |_| vec![1, 3]);
        assert_eq!(trace.orders(), 0, "{:?}", trace.ordered());
        trace.seconds(1, |_| vec![1, 3]);
        assert_eq!(trace.ordered(), ["0→1", "3→0"]);
        assert_eq!(trace.machine.actions()[1].after, Some(trace.machine.actions()[0].id));
    }

    // The free memory exceeds the request: a page that was marked referenced once, at its scan at 2
    // s, is still inactive and is promoted too.
    #[test]
    fn golden_with_ample_room_inactive_pages_are_promoted_too() {
        let config = Config {
            interval: Duration::from_secs(1),
            request: Bytes(2 * PAGE_SIZE),
            ..Config::default()
        };
        let mut trace = Trace::new(Nimble::new(config), [8, 8], 2);
        trace.machine.place(&crate::trace::range(0, 2), Tier(1));
        trace.seconds(1, |_| vec![0]);
        assert_eq!(trace.orders(), 0);
        trace.seconds(1, |_| vec![]);
        assert_eq!(trace.ordered(), ["0→0"]);
    }
}
