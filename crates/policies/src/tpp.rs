//! Memory tiering by hint faults: the Linux kernel's mode of NUMA balancing, and TPP, from which it
//! developed.
//!
//! Source: Linux kernel/sched/fair.c (`should_numa_migrate_memory`,
//! `numa_migration_adjust_threshold`) and mm/vmscan.c; TPP: Maruf et al., ASPLOS'23. The
//! MULTI-CLOCK paper calls the kernel's mode AutoNUMA-tiering.
//!
//! - Pages of the slower tiers are armed in turn ([`crate::arming`]). The time from arming to the
//!   fault is the page's latency: the shorter, the hotter.
//! - While the fast tier's free memory exceeds its promotion watermark by more than 1 GiB or a
//!   sixteenth of the tier, whichever is more, every page that faults is promoted, and the
//!   threshold is reset to its initial value.
//! - Otherwise, a page is a candidate if its latency is below the threshold, initially 1000 ms.
//!   Every 60 s the threshold falls by 125 ms if there were over 1.1 times the candidates that the
//!   rate limit allows in that time, and rises by as much if there were less than 0.9 times; it
//!   stays from 125 to 2000 ms.
//! - Candidates beyond the rate limit of a second are not promoted (65536 MB/s by default).
//! - Nothing is promoted into a tier that would fall below its high watermark; its kswapd is woken
//!   instead and demotes cold inactive pages until the promotion watermark is free, which is as far
//!   above the high watermark as that is above the low one.
//! - *TPP* demotes earlier, below 2 % of the tier plus the low watermark, and promotes only pages
//!   on the active list; any other page that faults is activated.
//!
//! Reclaim in the lowest tier is left to the machine.

use std::time::Duration;

use tierscope_core::{
    Evidence, HintFault, Need, Orders, PAGE_SIZE, PlacementView, Policy, Pressure, Range, Setting,
    Tier, Time,
};

use crate::arming::{self, Arming};
use crate::clock::state::PageState;
use crate::clock::{Clock, Kind, MovePurpose, Resident};
use crate::cost::Costs;
use crate::registry::{BY_FAULTS, Entry, keys_of, made};
use crate::settings::{Bytes, Settings, Visit, recorded};

/// Memory tiering mode: the kernel's, or TPP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// The kernel's memory tiering mode of NUMA balancing.
    AutoNuma,
    /// The TPP paper's patches.
    Tpp,
}

/// The policy `autonuma` in the list.
pub(crate) const ENTRY_AUTONUMA: Entry = Entry {
    name: "autonuma",
    about: "the kernel's memory tiering: pages that fault soon after being armed",
    source: "Linux kernel/sched/fair.c",
    tracks: BY_FAULTS,
    granularity: "pages",
    promotes: "recency: time from arming to the fault",
    demotes: "the kernel's inactive list, under pressure",
    cost: "256 MiB of the slow tiers armed a second, a fault for each page touched",
    page_bytes: Some(crate::clock::Clock::PAGE_BYTES),
    needs: &[Need::HintFaults, Need::AccessBits],
    uses: &[Need::PageEvents, Need::Pressure],
    sampling: None,
    reclaims: false,
    make: made!("autonuma", Config::of(Variant::AutoNuma), Tpp::new),
    keys: || keys_of(&mut Config::of(Variant::AutoNuma)),
};

/// The policy `tpp` in the list.
pub(crate) const ENTRY_TPP: Entry = Entry {
    name: "tpp",
    about: "likewise, from the active list only, with room kept free beforehand",
    source: "Maruf et al., ASPLOS'23",
    tracks: BY_FAULTS,
    granularity: "pages",
    promotes: "recency: two faults",
    demotes: "the kernel's inactive list, early",
    cost: "256 MiB of the slow tiers armed a second, a fault for each page touched",
    page_bytes: Some(crate::clock::Clock::PAGE_BYTES),
    needs: &[Need::HintFaults, Need::AccessBits],
    uses: &[Need::PageEvents, Need::Pressure],
    sampling: None,
    reclaims: false,
    make: made!("tpp", Config::of(Variant::Tpp), Tpp::new),
    keys: || keys_of(&mut Config::of(Variant::Tpp)),
};

/// Settings of the policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Memory tiering mode.
    pub variant: Variant,
    /// Rate at which memory is armed for hint faults.
    pub arming: arming::Config,
    /// Initial value of the latency threshold, below which a page is hot.
    pub threshold: Duration,
    /// Time between two adjustments of the threshold.
    pub adjust: Duration,
    /// Rate limit: bytes of candidates promoted per second.
    pub rate: Bytes,
    /// TPP: share of the fast tier to keep free in addition to the low watermark.
    pub headroom: f64,
    /// Pages of each list that a kswapd scan examines.
    pub scan: u32,
    /// Pages looked up per tick on a machine that does not report allocations.
    pub census: u64,
    /// CPU costs of the policy's own work.
    pub costs: Costs,
}

impl Config {
    /// The kernel's defaults: 1000 ms, 60 s, 65536 MB/s; TPP's 2 %. `scan` is assumed.
    #[must_use]
    pub fn of(variant: Variant) -> Self {
        Self {
            variant,
            arming: arming::Config::default(),
            threshold: Duration::from_millis(1000),
            adjust: Duration::from_secs(60),
            rate: Bytes(65_536 << 20),
            headroom: 0.02,
            scan: 1024,
            census: 65_536,
            costs: Costs::default(),
        }
    }
}

impl Settings for Config {
    fn visit(&mut self, each: &mut dyn Visit) {
        self.arming.visit(each);
        each.value("threshold", "latency below which a page is hot, at first", &mut self.threshold);
        each.value("adjust", "time after which the threshold is adjusted", &mut self.adjust);
        each.value("rate", "bytes of candidates allowed in a second", &mut self.rate);
        if self.variant == Variant::Tpp {
            each.value("headroom", "share of the fast tier to keep free", &mut self.headroom);
        }
        each.value("scan", "pages of each list that kswapd looks at", &mut self.scan);
        let about = "pages looked up at a tick where the machine does not report new ones";
        each.value("census", about, &mut self.census);
        self.costs.visit(each);
    }

    fn check(&self) -> Result<(), String> {
        if self.adjust.is_zero() || self.scan == 0 || self.headroom > 0.5 {
            return Err("`adjust` and `scan` must be above zero, `headroom` at most a half".into());
        }
        self.arming.check()
    }
}

/// Step of the threshold: a sixteenth of twice its default, which is 1000 ms.
const UNIT: Duration = Duration::from_millis(125);
const HIGHEST: Duration = Duration::from_millis(2000);
/// Minimum of free bytes above the promotion watermark for the fast tier to have ample free memory.
const ROOMY: u64 = 1 << 30;

/// The latency threshold, and the candidate counts that adjust it.
#[derive(Clone, Debug)]
struct Threshold {
    first: Duration,
    now: Duration,
    /// Bytes of candidates since the last adjustment, and in the current second.
    candidates: u64,
    in_second: u64,
    adjusted: Time,
    second: Time,
}

impl Threshold {
    fn new(first: Duration) -> Self {
        let (adjusted, second) = (Time(0), Time(0));
        Self { first, now: first, candidates: 0, in_second: 0, adjusted, second }
    }

    /// The kernel's `numa_migration_adjust_threshold`.
    fn adjust(&mut self, now: Time, every: Duration, rate: u64) {
        if now < self.adjusted + every {
            return;
        }
        let allowed = rate as f64 * every.as_secs_f64();
        let candidates = self.candidates as f64;
        if candidates > 1.1 * allowed {
            self.now = self.now.saturating_sub(UNIT).max(UNIT);
        } else if candidates < 0.9 * allowed {
            self.now = (self.now + UNIT).min(HIGHEST);
        }
        self.candidates = 0;
        self.adjusted = now;
    }

    /// Counts a candidate. Returns whether the rate limit permits it (`numa_promotion_rate_limit`).
    fn allows(&mut self, now: Time, bytes: u64, rate: u64) -> bool {
        self.candidates += bytes;
        if now >= self.second + Duration::from_secs(1) {
            self.second = now;
            self.in_second = 0;
        }
        self.in_second += bytes;
        self.in_second <= rate
    }

    fn reset(&mut self) {
        self.now = self.first;
    }
}

/// The memory tiering policy.
#[derive(Clone, Debug)]
pub struct Tpp {
    config: Config,
    pages: Resident,
    arming: Arming,
    threshold: Threshold,
    /// By tier: whether its kswapd was woken, and whether it sleeps until the next second.
    woken: Vec<bool>,
    rests: Vec<bool>,
    next_second: Time,
}

impl Tpp {
    /// The policy with these settings.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            pages: Resident::new(Clock::new(false, 1), config.census),
            arming: Arming::new(config.arming.clone()),
            threshold: Threshold::new(config.threshold),
            woken: Vec::new(),
            rests: Vec::new(),
            next_second: Time(0),
            config,
        }
    }

    /// Free bytes up to which a tier's kswapd demotes.
    fn wanted_free(&self, tier: Tier) -> u64 {
        let moves = &self.pages.moves;
        let (low, high) = (moves.low(tier), moves.high(tier));
        match self.config.variant {
            Variant::AutoNuma => high + (high - low.min(high)),
            Variant::Tpp => low + (moves.capacity(tier) as f64 * self.config.headroom) as u64,
        }
    }

    fn fault(&mut self, fault: &HintFault, orders: &mut Orders) {
        let Some((page, tier, state)) = self.page_of(fault) else { return };
        if tier.0 == 0 {
            return;
        }
        let to = Tier(tier.0 - 1);
        let bytes = self.pages.clock.bytes(page);
        if !self.is_hot(to, fault, bytes) {
            return;
        }
        let active = matches!(state, PageState::ActiveUnreferenced | PageState::ActiveReferenced);
        if self.config.variant == Variant::Tpp && !active {
            return self.pages.clock.put(page, tier, PageState::ActiveUnreferenced);
        }
        if self.pages.moves.free_soon(to) < bytes + self.pages.moves.high(to) {
            self.woken[usize::from(to.0)] = true;
            return;
        }
        self.pages.send(page, tier, Some(to), MovePurpose::Up, orders);
    }

    /// The page (4 KiB, 2 MiB or 1 GiB) that contains the fault's address.
    fn page_of(&self, fault: &HintFault) -> Option<(u32, Tier, PageState)> {
        let at = |shift: u32| {
            let at = tierscope_core::Addr { at: fault.at.at >> shift << shift, ..fault.at };
            let page = self.pages.census.numbers.page_at(at)?;
            let reaches =
                self.pages.clock.knows(page) && at.at + self.pages.clock.bytes(page) > fault.at.at;
            let (tier, state) = self.pages.clock.state(page).filter(|_| reaches)?;
            Some((page, tier, state))
        };
        [12, 21, 30].into_iter().find_map(at)
    }

    /// The kernel's `should_numa_migrate_memory`.
    fn is_hot(&mut self, to: Tier, fault: &HintFault, bytes: u64) -> bool {
        let moves = &self.pages.moves;
        let promo = moves.high(to) + (moves.high(to) - moves.low(to).min(moves.high(to)));
        let roomy = promo + ROOMY.max(moves.capacity(to) / 16);
        if moves.free_soon(to) > roomy {
            self.threshold.reset();
            return true;
        }
        let rate = self.config.rate.0;
        self.threshold.adjust(fault.time, self.config.adjust, rate);
        let latency = fault.time - fault.armed;
        latency < self.threshold.now && self.threshold.allows(fault.time, bytes, rate)
    }

    /// Scans tiers that are short of memory or whose kswapd was woken by a promotion.
    fn relieve(&mut self, pressure: &Pressure, orders: &mut Orders) {
        self.pages.moves.pressure(pressure);
        let tiers = self.pages.moves.tiers();
        for tier in self.pages.tiers().take(tiers.saturating_sub(1)) {
            let number = usize::from(tier.0);
            let free = self.pages.moves.free_at_last(tier);
            let early = self.config.variant == Variant::Tpp && free < self.wanted_free(tier);
            self.woken[number] |= early || self.pages.moves.shortage(tier) > 0;
            self.woken[number] &= free < self.wanted_free(tier);
            if self.woken[number] && !std::mem::replace(&mut self.rests[number], true) {
                self.config.costs.charge_wake(orders);
                self.scan(tier, orders);
            }
        }
    }

    fn scan(&mut self, tier: Tier, orders: &mut Orders) {
        for (kind, file) in [
            (Kind::Active, false),
            (Kind::Active, true),
            (Kind::Inactive, false),
            (Kind::Inactive, true),
        ] {
            let Resident { clock, census, .. } = &mut self.pages;
            if kind == Kind::Active && !clock.is_inactive_low(tier, file) {
                continue;
            }
            let met = clock.scan(&census.numbers, (tier, kind, file), self.config.scan, orders);
            self.config.costs.charge(orders, met);
        }
    }

    /// Demotes cold pages of woken tiers.
    fn demote(&mut self, orders: &mut Orders) {
        for tier in self.pages.tiers() {
            let number = usize::from(tier.0);
            if number + 1 >= self.pages.moves.tiers() || !self.woken[number] {
                continue;
            }
            let to = Tier(tier.0 + 1);
            let mut freed = false;
            while self.pages.moves.free_at_last(tier) < self.wanted_free(tier)
                && let Some(page) = self.pages.clock.next_cold(tier)
            {
                let fits = self.pages.moves.free(to) >= self.pages.clock.bytes(page);
                if !fits || !self.pages.send(page, tier, Some(to), MovePurpose::Down, orders) {
                    break;
                }
                freed = true;
                self.config.costs.charge(orders, 1);
            }
            self.rests[number] = !freed;
        }
        self.pages.clock.clear_cold();
    }

    /// Arms the pages of slower tiers in the ranges whose turn it is.
    fn arm(&mut self, now: Time, orders: &mut Orders) -> Time {
        let mut parts = Orders::default();
        let (armed, next) = self.arming.go(now, &mut parts);
        for part in armed {
            self.arm_slow(&part, orders);
        }
        next
    }

    fn arm_slow(&mut self, part: &Range, orders: &mut Orders) {
        let Resident { census, clock, .. } = &self.pages;
        let pages = census.numbers.rows(part).into_iter().flatten();
        let slow = pages.filter(|page| clock.state(*page).is_some_and(|(tier, _)| tier.0 > 0));
        let mut armed = 0;
        for page in slow {
            let Some(at) = census.numbers.address_of(page) else { continue };
            let range = Range::new(at.space, at.at, at.at + clock.bytes(page).max(PAGE_SIZE));
            armed += 1;
            match orders.arm.last_mut() {
                Some(last) if last.touches(&range) => last.end = range.end,
                _ => orders.arm.push(range),
            }
        }
        self.config.costs.charge(orders, armed);
    }
}

impl Policy for Tpp {
    fn name(&self) -> &'static str {
        match self.config.variant {
            Variant::AutoNuma => "autonuma",
            Variant::Tpp => "tpp",
        }
    }

    fn settings(&self) -> Vec<Setting> {
        recorded(&self.config)
    }

    fn observe(&mut self, evidence: Evidence<'_>, orders: &mut Orders) {
        self.pages.census.observe(&evidence);
        match evidence {
            Evidence::Mappings(mappings) => self.arming.map(mappings),
            Evidence::Faults(faults) => {
                self.config.costs.charge(orders, faults.len() as u64);
                faults.iter().for_each(|fault| self.fault(fault, orders));
            }
            Evidence::Bits(probes) => {
                self.pages.judge(probes, Clock::settle);
                self.config.costs.charge(orders, probes.len() as u64);
                self.demote(orders);
            }
            Evidence::Pressure(pressure) => self.relieve(pressure, orders),
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
        self.woken.resize(self.pages.moves.tiers(), false);
        self.rests.resize(self.pages.moves.tiers(), false);
        if now >= self.next_second {
            self.config.costs.charge_wake(orders);
            self.rests.iter_mut().for_each(|rests| *rests = false);
            self.next_second = now + Duration::from_secs(1);
        }
        self.arm(now, orders).min(self.next_second)
    }
}

#[cfg(test)]
mod tests {
    use tierscope_conformance::tiers::Size;

    use super::*;
    use crate::trace::Trace;

    fn trace(variant: Variant, pages: u32) -> Trace<Tpp> {
        let sizes = [Size { pages: 8, low: 1, high: 2 }, Size::without_marks(8)];
        Trace::with(Tpp::new(Config::of(variant)), &sizes, pages, false)
    }

    // Armed at 1 s, touched at 1.5 s, promoted: the latency of half a second is below the
    // threshold. Only the slow tier's page is armed.
    #[test]
    fn golden_a_short_latency_promotes() {
        let mut trace = trace(Variant::AutoNuma, 2);
        trace.machine.place(&crate::trace::range(1, 1), Tier(1));
        trace.seconds(3, |_| vec![0, 1]);
        assert_eq!(trace.ordered(), ["1→0"]);
        assert_eq!(trace.places(), "0:0 1:0");
    }

    // TPP: the first fault activates, the second one, a second later, promotes.
    #[test]
    fn golden_tpp_promotes_from_the_active_list() {
        let mut trace = trace(Variant::Tpp, 2);
        trace.machine.place(&crate::trace::range(1, 1), Tier(1));
        trace.seconds(2, |_| vec![1]);
        assert_eq!(trace.orders(), 0);
        trace.seconds(2, |_| vec![1]);
        assert_eq!(trace.ordered(), ["1→0"]);
    }

    // Touched only in the fourth second: armed at 1 s, faulted at 3.5 s, too late.
    #[test]
    fn golden_a_long_latency_does_not() {
        let mut trace = trace(Variant::AutoNuma, 2);
        trace.machine.place(&crate::trace::range(1, 1), Tier(1));
        trace.seconds(4, |second| if second == 3 { vec![1] } else { vec![] });
        assert_eq!(trace.orders(), 0);
    }

    // Of the fast tier's 8 pages, 7 are used: 1 is free, below the high watermark. The fault wakes
    // kswapd, which demotes the two coldest, up to the promotion watermark of 3; the next fault
    // promotes.
    #[test]
    fn golden_kswapd_makes_room_first() {
        let mut trace = trace(Variant::AutoNuma, 8);
        assert_eq!(trace.machine.used(), [7, 1]);
        trace.seconds(4, |_| vec![2, 3, 4, 5, 6, 7]);
        assert_eq!(trace.ordered(), ["0→1", "1→1", "7→0"]);
    }

    #[test]
    fn the_threshold_follows_the_candidates() {
        let mut threshold = Threshold::new(Duration::from_millis(1000));
        let minute = |n: u64| Time(n * 60_000_000_000);
        let every = Duration::from_secs(60);
        let mut seen = Vec::new();
        for (n, candidates) in (1..).zip([61, 70, 50, 60, 0]) {
            threshold.candidates = candidates;
            threshold.adjust(minute(n), every, 1);
            seen.push(threshold.now.as_millis());
        }
        // 60 candidates are allowed: 61 is within a tenth of that, 70 is more, 50 less.
        assert_eq!(seen, [1000, 875, 1000, 1000, 1125]);
        (6..40).for_each(|n| threshold.adjust(minute(n), every, 1));
        assert_eq!(threshold.now, HIGHEST);
        for n in 40..80 {
            threshold.candidates = 1000;
            threshold.adjust(minute(n), every, 1);
        }
        assert_eq!(threshold.now, UNIT);
    }

    #[test]
    fn candidates_above_the_rate_wait() {
        let mut threshold = Threshold::new(Duration::from_millis(1000));
        let at = |ms: u64| Time(10_000_000_000 + ms * 1_000_000);
        let allowed: Vec<bool> =
            [0, 1, 2, 999, 1000].map(|ms| threshold.allows(at(ms), 4096, 8192)).to_vec();
        assert_eq!(allowed, [true, true, false, false, true]);
    }
}
