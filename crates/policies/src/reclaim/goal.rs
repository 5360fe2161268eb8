//! Reclaim goal, with the limits on its amount, rate, pressure and refaults.

use std::collections::VecDeque;
use std::time::Duration;

use tierscope_core::{PAGE_SIZE, Time};

use crate::settings::{Bytes, Visit};

/// Reclaim goal and limits. By default all cold pages are reclaimed.
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// Share of memory to reclaim, of all that was ever resident.
    pub share: Option<f64>,
    /// Share of time that some task may stall on memory; reclaim stops above it.
    pub pressure: Option<f64>,
    /// Maximum bytes reclaimed per second.
    pub rate: Option<Bytes>,
    /// Maximum refaults within [`SPAN`], as a share of the pages reclaimed within it.
    pub refaults: f64,
}

/// Time over which refaults are counted, and for which reclaim then pauses.
pub const SPAN: Duration = Duration::from_secs(10);

/// `refaults` is assumed: the refault of a page that was checked was a mistake, and at one mistake
/// in twenty, refaults cost more than the rest saves, with 20 us per fault and 0.1 us per access.
/// To be varied from 0.01 to 0.2.
impl Default for Goal {
    fn default() -> Self {
        Self { share: None, pressure: None, rate: None, refaults: 0.05 }
    }
}

impl Goal {
    pub(crate) fn visit(&mut self, each: &mut dyn Visit) {
        let about = "share of the memory to reclaim, or none for all cold memory";
        each.value("share", about, &mut self.share);
        let about = "memory pressure (PSI share) at which reclaim stops, or none";
        each.value("pressure", about, &mut self.pressure);
        each.value("rate", "bytes to reclaim a second, or none", &mut self.rate);
        let about =
            "share of the pages reclaimed in 10 s that may refault in them before it pauses";
        each.value("refaults", about, &mut self.refaults);
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        let is_share = |share: Option<f64>| share.is_none_or(|share| (0.0..=1.0).contains(&share));
        if !is_share(self.share) || !is_share(self.pressure) || !is_share(Some(self.refaults)) {
            return Err("`share`, `pressure` and `refaults` are shares, 0 to 1".into());
        }
        if self.rate.is_some_and(|rate| rate.0 < PAGE_SIZE) {
            return Err("`rate` is a page a second at least".into());
        }
        Ok(())
    }
}

/// Tracks progress towards a goal, and computes the current allowance.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    goal: Goal,
    stalled: f64,
    /// Numbers of pages reclaimed and refaulted, with the time.
    recent: VecDeque<(Time, u64, u64)>,
    paused: Time,
    /// Token bucket of the rate limit: bytes, and the time of the last refill.
    tokens: (f64, Time),
}

impl Way {
    pub(crate) fn new(goal: Goal) -> Self {
        let tokens = (0.0, Time(0));
        Self { goal, stalled: 0.0, recent: VecDeque::new(), paused: Time(0), tokens }
    }

    pub(crate) fn feel(&mut self, stalled: f64) {
        self.stalled = stalled;
    }

    /// Records pages reclaimed and refaulted.
    pub(crate) fn note(&mut self, now: Time, out: u64, back: u64) {
        if out + back > 0 {
            self.recent.push_back((now, out, back));
        }
        while self.recent.front().is_some_and(|(at, ..)| *at + SPAN < now) {
            self.recent.pop_front();
        }
        let sum = |of: fn(&(Time, u64, u64)) -> u64| self.recent.iter().map(of).sum::<u64>();
        let (out, back) = (sum(|recent| recent.1), sum(|recent| recent.2));
        // Fewer refaults than a batch of 64 are insignificant.
        if back >= 64 && back as f64 > self.goal.refaults * out as f64 {
            self.paused = now + SPAN;
        }
    }

    /// Number of pages that may be reclaimed now; `out` counts the pages already reclaimed or being
    /// reclaimed.
    pub(crate) fn allows(&mut self, now: Time, resident: u64, out: u64) -> u64 {
        let waits = self.goal.pressure.is_some_and(|most| self.stalled > most);
        if waits || now < self.paused {
            return 0;
        }
        let mut pages = resident;
        if let Some(share) = self.goal.share {
            let wanted = ((resident + out) as f64 * share) as u64;
            pages = wanted.saturating_sub(out);
        }
        if let Some(Bytes(rate)) = self.goal.rate {
            let (tokens, since) = self.tokens;
            // Bursts are limited to the bytes that the rate permits in one second.
            let tokens = tokens + rate as f64 * now.since(since).as_secs_f64();
            self.tokens = (tokens.min((rate as f64).max(PAGE_SIZE as f64)), now);
            pages = pages.min((self.tokens.0 / PAGE_SIZE as f64) as u64);
        }
        pages
    }

    pub(crate) fn spend(&mut self, pages: u64) {
        self.tokens.0 -= (pages * PAGE_SIZE) as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(seconds: u64) -> Time {
        Time(seconds * 1_000_000_000)
    }

    #[test]
    fn a_share_is_of_all_initial_memory() {
        let mut way = Way::new(Goal { share: Some(0.3), ..Goal::default() });
        assert_eq!(way.allows(second(0), 1000, 0), 300);
        assert_eq!(way.allows(second(0), 800, 200), 100);
        assert_eq!(way.allows(second(0), 700, 300), 0);
    }

    #[test]
    fn rate_and_pressure_hold_it_back() {
        let rate = Some(Bytes(10 * PAGE_SIZE));
        let mut way = Way::new(Goal { rate, pressure: Some(0.1), ..Goal::default() });
        assert_eq!(way.allows(second(100), 1000, 0), 10, "no burst is longer than a second");
        way.spend(10);
        assert_eq!(way.allows(second(100), 990, 10), 0);
        assert_eq!(way.allows(Time(100_500_000_000), 990, 10), 5);
        way.feel(0.11);
        assert_eq!(way.allows(second(101), 990, 10), 0);
    }

    // 5 % of 2000 may refault: 100 do, then one more.
    #[test]
    fn it_pauses_on_refaults() {
        let mut way = Way::new(Goal::default());
        way.note(second(1), 2000, 0);
        way.note(second(2), 0, 100);
        assert!(way.allows(second(2), 10, 0) > 0);
        way.note(second(3), 0, 1);
        assert_eq!(way.allows(second(12), 10, 0), 0);
        way.note(second(13), 1, 0);
        assert_eq!(way.allows(second(13), 10, 0), 10);
    }
}
