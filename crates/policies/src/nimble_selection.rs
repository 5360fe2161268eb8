//! Nimble's page selection alone, as evaluated in the MULTI-CLOCK paper.
//!
//! Source: MULTI-CLOCK (HPCA'22), sections II-D and V-C: the authors "separated its hot/cold page
//! identification technique and implemented a single threaded Nimble page selection mechanism". It
//! consists of the kernel's own two lists, by recency alone: the most recently activated pages of a
//! slower tier are exchanged for the least recently used ones of the faster tier, at most 1024 per
//! scan ("always 1024", V-D, if the active list has as many), every second. A promoted page goes
//! "to the bottom of the higher tier's active list" (figure 3, 11). The full Nimble is
//! [`crate::nimble`].
//!
//! A page found accessed once is active: Nimble does not distinguish one access from several
//! (III-A), for the authors' kernel, 5.3, activates anonymous pages at the first look.
//!
//! Left open by the paper, decided here: the least recently used pages are those at the tail of the
//! inactive lists or, if these are empty, of the active ones; a page is not exchanged if the faster
//! tier has a free page for it.

use std::time::Duration;

use tierscope_core::{Evidence, Need, Orders, PlacementView, Policy, Setting, Tier, Time};

use crate::clock::state::PageState;
use crate::clock::{Clock, Kind, MovePurpose, Resident};
use crate::cost::Costs;
use crate::registry::{BITS_OF_LISTS, BY_ACCESSED, Entry, keys_of, made};
use crate::settings::{Settings, Visit, recorded};

/// The policy `nimble-selection` in the list.
pub(crate) const ENTRY: Entry = Entry {
    name: "nimble-selection",
    about: "Nimble's choice of pages alone, as the MULTI-CLOCK paper compares with it",
    source: "MULTI-CLOCK (HPCA'22), sections II-D and V-C",
    tracks: BY_ACCESSED,
    granularity: "pages",
    promotes: "recency: a fixed number from the active list",
    demotes: "recency: the least recently used, for room",
    cost: BITS_OF_LISTS,
    page_bytes: Some(crate::clock::Clock::PAGE_BYTES),
    needs: &[Need::AccessBits],
    uses: &[Need::PageEvents, Need::Pressure],
    sampling: None,
    reclaims: false,
    make: made!("nimble-selection", Config::default(), NimbleSelection::new),
    keys: || keys_of(&mut Config::default()),
};

/// Settings of the policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Time between two scans.
    pub interval: Duration,
    /// Pages of each list that a scan examines; also the maximum promoted per tier.
    pub scan: u32,
    /// Pages looked up per tick on a machine that does not report allocations.
    pub census: u64,
    /// CPU costs of the policy's own work.
    pub costs: Costs,
}

/// Defaults: 1 s and 1024 pages (V-C, V-E).
impl Default for Config {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(1),
            scan: 1024,
            census: 65_536,
            costs: Costs::default(),
        }
    }
}

impl Settings for Config {
    fn visit(&mut self, each: &mut dyn Visit) {
        each.value("interval", "time between two scans", &mut self.interval);
        each.value("scan", "pages of each list that a scan looks at, and promotes", &mut self.scan);
        let about = "pages looked up at a tick where the machine does not report new ones";
        each.value("census", about, &mut self.census);
        self.costs.visit(each);
    }

    fn check(&self) -> Result<(), String> {
        let sound = !self.interval.is_zero() && self.scan > 0;
        if sound { Ok(()) } else { Err("`interval` and `scan` must be above zero".into()) }
    }
}

/// The Nimble page selection policy.
#[derive(Clone, Debug)]
pub struct NimbleSelection {
    config: Config,
    pages: Resident,
    next_scan: Time,
}

impl NimbleSelection {
    /// The policy with these settings.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let clock = Clock::new(false, 1).without_cold().activating_at_once();
        let pages = Resident::new(clock, config.census);
        Self { pages, next_scan: Time(0), config }
    }

    fn scan(&mut self, orders: &mut Orders) {
        for tier in self.pages.tiers() {
            self.config.costs.charge_wake(orders);
            for (kind, file) in [
                (Kind::Inactive, false),
                (Kind::Inactive, true),
                (Kind::Active, false),
                (Kind::Active, true),
            ] {
                let Resident { clock, census, .. } = &mut self.pages;
                let met = clock.scan(&census.numbers, (tier, kind, file), self.config.scan, orders);
                self.config.costs.charge(orders, met);
            }
        }
    }

    fn exchange(&mut self, orders: &mut Orders) {
        for tier in self.pages.tiers().skip(1) {
            let mut left = self.config.scan;
            for file in [false, true] {
                for page in self.pages.clock.last_come(tier, Kind::Active, file, left) {
                    left -= u32::from(self.promote(page, tier, orders));
                }
            }
            self.config.costs.charge(orders, u64::from(self.config.scan - left));
        }
    }

    fn promote(&mut self, page: u32, from: Tier, orders: &mut Orders) -> bool {
        let to = Tier(from.0 - 1);
        while self.pages.moves.room_above_low(to) < self.pages.clock.bytes(page) {
            if !demote_oldest(&mut self.pages, to, orders) {
                return false;
            }
        }
        self.pages.send(page, from, Some(to), MovePurpose::Up, orders)
    }
}

/// Demotes a tier's least recently used page to the next tier, if that has room.
fn demote_oldest(pages: &mut Resident, tier: Tier, orders: &mut Orders) -> bool {
    let lists = [
        (Kind::Inactive, false),
        (Kind::Inactive, true),
        (Kind::Active, false),
        (Kind::Active, true),
    ];
    pages.demote_first(tier, &lists, orders)
}

impl Policy for NimbleSelection {
    fn name(&self) -> &'static str {
        "nimble-selection"
    }

    fn settings(&self) -> Vec<Setting> {
        recorded(&self.config)
    }

    fn observe(&mut self, evidence: Evidence<'_>, orders: &mut Orders) {
        self.pages.census.observe(&evidence);
        match evidence {
            Evidence::Bits(probes) => {
                self.pages.judge(probes, Clock::settle);
                self.config.costs.charge(orders, probes.len() as u64);
                self.exchange(orders);
            }
            Evidence::Pressure(pressure) => self.pages.moves.pressure(pressure),
            Evidence::Outcomes(outcomes) => {
                self.config.costs.charge(orders, outcomes.len() as u64);
                for outcome in outcomes {
                    let Some(ended) = self.pages.end(outcome) else { continue };
                    let arrived = ended.to.filter(|_| ended.done);
                    let tier = arrived.unwrap_or(ended.from);
                    match ended.tag {
                        MovePurpose::Up => {
                            self.pages.clock.put_last(
                                ended.page,
                                tier,
                                PageState::ActiveUnreferenced,
                            );
                        }
                        MovePurpose::Down | MovePurpose::Out => {
                            self.pages.clock.put(ended.page, tier, PageState::InactiveUnreferenced);
                        }
                    }
                }
            }
            _ => {}
        }
    }

    fn tick(&mut self, now: Time, view: &dyn PlacementView, orders: &mut Orders) -> Time {
        let looked = self.pages.settle(view);
        self.config.costs.charge(orders, looked);
        if now >= self.next_scan {
            self.scan(orders);
            self.next_scan = now + self.config.interval;
        }
        self.next_scan
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Trace;

    // Page 3 is touched once: the scan at 1 s activates it and promotes it, in exchange for page 0,
    // which was allocated first. MULTI-CLOCK would require three more accesses.
    #[test]
    fn golden_one_access_promotes() {
        let mut trace = Trace::new(NimbleSelection::new(Config::default()), [2, 8], 4);
        trace.seconds(1, |_| vec![1, 3]);
        assert_eq!(trace.ordered(), ["0→1", "3→0"]);
        assert_eq!(trace.places(), "0:1 1:0 2:1 3:0");
    }

    // Of three active pages, a scan may exchange two: the most recently activated ones.
    #[test]
    fn golden_a_scan_promotes_a_fixed_number() {
        let config = Config { scan: 2, ..Config::default() };
        let mut trace = Trace::new(NimbleSelection::new(config), [4, 8], 7);
        trace.seconds(2, |_| vec![]);
        assert_eq!(trace.orders(), 0, "nothing is active");
        trace.seconds(8, |_| vec![4, 5, 6]);
        assert!(trace.orders() >= 4);
        let per_second = trace.machine.actions().len() as u64 / 2 / 2;
        assert!(per_second <= 8, "two promotions a second at most: {:?}", trace.ordered());
    }

    // The fast tier's pages are as hot as the slow tier's: recency alone exchanges them
    // nevertheless.
    #[test]
    fn golden_exchanges_pages_of_equal_heat() {
        let mut trace = Trace::new(NimbleSelection::new(Config::default()), [1, 8], 2);
        trace.seconds(6, |_| vec![0, 1]);
        assert_eq!(trace.ordered()[..2], ["0→1", "1→0"]);
        assert!(trace.orders() > 2, "and again: {:?}", trace.ordered());
    }
}
