//! CPU time: the budget, and its division among kinds of work.

use std::time::Duration;

use tierscope_core::Time;

/// Minimum time over which unspent CPU time accumulates.
const SAVED: Duration = Duration::from_millis(30);

/// Maximum delay between two refills without a loss of CPU time; delays occur on busy CPUs.
const LATE: Duration = Duration::from_secs(1);

/// Share of the budget that may be charged for CPU time outside of the instrument.
const ELSEWHERE: f64 = 0.5;
/// Time whose budget may be charged later for CPU time before the first step.
const OWED: Duration = Duration::from_secs(5);

/// A share of one CPU, as a token bucket: CPU time is added as the clock advances and removed as it
/// is spent.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    /// Share of one CPU.
    share: f64,
    /// Nanoseconds that may be spent now; negative if the budget was overspent.
    tokens: f64,
    filled: Option<Time>,
    /// Time over which unspent CPU time accumulates.
    saved: Duration,
    /// Nanoseconds that may still be charged for CPU time outside of the instrument, and those of
    /// the start that are to be charged once they may.
    elsewhere: f64,
    owed: f64,
}

impl Budget {
    pub(super) fn new(share: f64) -> Self {
        Self { share, tokens: 0.0, filled: None, saved: SAVED, elsewhere: 0.0, owed: 0.0 }
    }

    /// Adds the CPU time that has become available up to `now`.
    pub(super) fn fill(&mut self, now: Time) {
        let since = now.since(self.filled.unwrap_or(now));
        self.filled = Some(now);
        let saved = self.saved.max(since.min(LATE));
        let most = self.share * saved.as_nanos() as f64;
        self.tokens = (self.tokens + self.share * since.as_nanos() as f64).min(most);
        let room = ELSEWHERE * self.share;
        let most = room * LATE.as_nanos() as f64;
        self.elsewhere = (self.elsewhere + room * since.as_nanos() as f64).min(most);
    }

    /// Lets unspent CPU time accumulate over one and a half times the time between two rounds of
    /// visits.
    pub(super) fn keep(&mut self, beat: Duration) {
        self.saved = SAVED.max(beat * 3 / 2);
    }

    /// Charges CPU time spent.
    pub(super) fn spend(&mut self, time: Duration) {
        self.tokens -= time.as_nanos() as f64;
    }

    /// Owes CPU time spent before the first step, up to the budget of [`OWED`].
    pub(super) fn owe(&mut self, time: Duration) {
        self.owed = (time.as_nanos() as f64).min(self.share * OWED.as_nanos() as f64);
    }

    /// Charges CPU time spent outside of the instrument, by recording and waiting, and what is
    /// owed, up to half of the budget: the other half is left to the instrument.
    pub(super) fn spend_elsewhere(&mut self, time: Duration) {
        let counted = (time.as_nanos() as f64).min(self.elsewhere);
        let paid = self.owed.min(self.elsewhere - counted);
        self.owed -= paid;
        self.elsewhere -= counted + paid;
        self.tokens -= counted + paid;
    }

    /// Returns reserved CPU time; the time spent is charged separately.
    pub(super) fn give_back(&mut self, time: Duration) {
        self.tokens += time.as_nanos() as f64;
    }

    /// Whether any CPU time is left.
    pub(super) fn is_open(&self) -> bool {
        self.tokens > 0.0
    }

    /// Nanoseconds of CPU time left; negative if the budget was overspent.
    pub(super) fn left(&self) -> f64 {
        self.tokens
    }
}

/// Kinds of work among which the budget is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Work {
    /// Visits to tables of level 3.
    Upper,
    /// Visits to tables flagged by level 3.
    Hint,
    /// Round-robin visits to all tables of level 2.
    Round,
    /// Further visits to tables with hot or undecided entries.
    Refine,
    /// Visits to the leaves of chosen entries of 2 MiB.
    Leaves,
}

impl Work {
    pub(super) const ALL: [Work; 5] =
        [Work::Upper, Work::Hint, Work::Round, Work::Refine, Work::Leaves];

    /// Weight of a kind of work while all kinds have something to do. The share of an idle kind
    /// goes to the others: neither search nor refinement can starve the other.
    fn weight(self, shares: &Shares) -> f64 {
        let &Shares { covered, begun, vast, veiled, .. } = shares;
        match self {
            Work::Upper if !begun => 100.0,
            Work::Upper => 5.0,
            Work::Hint if covered => 30.0,
            Work::Hint => 80.0,
            Work::Round if covered => 30.0,
            Work::Round if vast => 5.0,
            Work::Round if !begun => 20.0,
            Work::Round => 80.0,
            Work::Refine if covered => 30.0,
            Work::Refine => 8.0,
            Work::Leaves if covered || veiled => 10.0,
            Work::Leaves => 4.0,
        }
    }
}

/// Weighted fair queueing of the kinds of work (Demers, Keshav, Shenker, SIGCOMM 1989).
#[derive(Clone, Debug, Default)]
pub(super) struct Shares {
    /// Nanoseconds spent, divided by weight, by kind of work.
    used: [f64; 5],
    /// Whether all level-2 tables were visited once.
    pub(super) covered: bool,
    /// Whether all level-3 tables were visited once.
    pub(super) begun: bool,
    /// Whether so much of level 3 is unvisited that it will flag more tables than full visits can
    /// cover.
    pub(super) vast: bool,
    /// Whether it is unknown if the rates of entries hold for their pages.
    pub(super) veiled: bool,
}

impl Shares {
    /// All kinds of work, the one that used least of its share first.
    pub(super) fn in_order(&self) -> [Work; 5] {
        let mut order = Work::ALL;
        order.sort_by(|a, b| self.used[*a as usize].total_cmp(&self.used[*b as usize]));
        order
    }

    pub(super) fn spend(&mut self, work: Work, time: Duration) {
        self.used[work as usize] += time.as_nanos() as f64 / work.weight(self);
    }

    /// Returns CPU time that was planned for a visit and not spent.
    pub(super) fn refund(&mut self, work: Work, time: Duration) {
        self.used[work as usize] -= time.as_nanos() as f64 / work.weight(self);
    }

    /// Marks a kind of work as idle: it gets no credit for the CPU time that others use meanwhile.
    pub(super) fn idle(&mut self, work: Work) {
        let most = self.used.iter().copied().fold(0.0, f64::max);
        self.used[work as usize] = most;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // 1 % of 20 ms is 200 us; at most 30 ms accumulate.
    #[test]
    fn a_share_of_the_time_may_be_spent() {
        let mut budget = Budget::new(0.01);
        budget.fill(Time(0));
        assert!(!budget.is_open());
        budget.fill(Time(20_000_000));
        assert_eq!(budget.left(), 200_000.0);
        budget.fill(Time(40_000_000));
        assert_eq!(budget.left(), 300_000.0);
        budget.spend(Duration::from_millis(3));
        assert!(!budget.is_open());
        budget.fill(Time(240_000_000));
        assert_eq!(budget.left(), -700_000.0);
        // A late refill adds up to a second.
        budget.fill(Time(60_000_000_000));
        assert_eq!(budget.left(), 10_000_000.0);
    }

    // 1 % of a second is 10 ms, of which at most 5 ms are charged for recording.
    #[test]
    fn time_spent_elsewhere_counts_up_to_half() {
        let mut budget = Budget::new(0.01);
        budget.fill(Time(0));
        budget.keep(Duration::from_secs(1));
        budget.fill(Time(1_000_000_000));
        budget.spend_elsewhere(Duration::from_millis(2));
        assert_eq!(budget.left(), 8_000_000.0);
        budget.spend_elsewhere(Duration::from_millis(9));
        assert_eq!(budget.left(), 5_000_000.0);
        budget.spend(Duration::from_millis(3));
        budget.give_back(Duration::from_millis(1));
        assert_eq!(budget.left(), 3_000_000.0);
    }

    // At the start, up to the budget of five seconds is owed: 50 ms of 1 %, paid with half of the
    // budget.
    #[test]
    fn a_long_start_is_charged_later() {
        let mut budget = Budget::new(0.01);
        budget.fill(Time(0));
        budget.owe(Duration::from_secs(1));
        budget.spend_elsewhere(Duration::ZERO);
        assert_eq!((budget.left(), budget.owed), (0.0, 50_000_000.0));
        for owed in [45_000_000.0, 40_000_000.0] {
            budget.fill(Time(budget.filled.unwrap().0 + 1_000_000_000));
            budget.spend_elsewhere(Duration::ZERO);
            assert_eq!(budget.owed, owed);
        }
    }

    #[test]
    fn the_kind_with_the_smallest_share_is_first() {
        let mut shares = Shares { begun: true, covered: true, ..Shares::default() };
        shares.spend(Work::Round, Duration::from_micros(15));
        shares.spend(Work::Leaves, Duration::from_micros(15));
        let order = shares.in_order();
        assert_eq!(order[3..], [Work::Round, Work::Leaves]);
        for idle in [Work::Upper, Work::Hint, Work::Refine] {
            shares.idle(idle);
        }
        assert_eq!(shares.in_order()[0], Work::Round);
    }
}
