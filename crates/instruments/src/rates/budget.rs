//! CPU time: what may be spent, and on which kind of work.

use std::time::Duration;

use tierscope_core::Time;

/// Time over which CPU time may be saved up, at least.
const SAVED: Duration = Duration::from_millis(30);

/// Time by which the clock may be late without a loss of CPU time, as where CPUs are busy.
const LATE: Duration = Duration::from_secs(1);

/// Part of what comes in that may be spent outside of the instrument.
const ELSEWHERE: f64 = 0.5;

/// A share of one CPU, as a token bucket: CPU time comes in with the clock and goes out as it was spent.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    /// Share of one CPU.
    share: f64,
    /// Nanoseconds that may be spent now; below zero if too many were.
    tokens: f64,
    filled: Option<Time>,
    /// Time over which CPU time may be saved up.
    saved: Duration,
    /// Nanoseconds that others may still take of it.
    elsewhere: f64,
}

impl Budget {
    pub(super) fn new(share: f64) -> Self {
        Self { share, tokens: 0.0, filled: None, saved: SAVED, elsewhere: 0.0 }
    }

    /// Lets CPU time come in up to `now`.
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

    /// CPU time may be saved up over one and a half times the time between two rounds of visits.
    pub(super) fn keep(&mut self, beat: Duration) {
        self.saved = SAVED.max(beat * 3 / 2);
    }

    /// So much was spent.
    pub(super) fn spend(&mut self, time: Duration) {
        self.tokens -= time.as_nanos() as f64;
    }

    /// So much was spent outside of the instrument, by recording and waiting: it counts, but leaves half of what comes
    /// in to the instrument.
    pub(super) fn spend_elsewhere(&mut self, time: Duration) {
        let counted = (time.as_nanos() as f64).min(self.elsewhere);
        self.elsewhere -= counted;
        self.tokens -= counted;
    }

    /// So much was set aside, and is spent by its true price.
    pub(super) fn give_back(&mut self, time: Duration) {
        self.tokens += time.as_nanos() as f64;
    }

    /// Whether there is any left.
    pub(super) fn is_open(&self) -> bool {
        self.tokens > 0.0
    }

    /// Nanoseconds left.
    pub(super) fn left(&self) -> f64 {
        self.tokens
    }
}

/// Kinds of work among which the budget is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Work {
    /// Looks at level-3 entries.
    Upper,
    /// Tables that level-3 entries point out.
    Hint,
    /// All tables in turn.
    Round,
    /// Tables with hot or doubtful entries.
    Refine,
    /// Leaves of hot entries.
    Leaves,
}

impl Work {
    pub(super) const ALL: [Work; 5] =
        [Work::Upper, Work::Hint, Work::Round, Work::Refine, Work::Leaves];

    /// Parts of the budget that it gets where all kinds have something to do. A kind that has nothing to
    /// do leaves its parts to the others: neither searching nor refining can starve the other.
    fn weight(self, shares: &Shares) -> f64 {
        let &Shares { covered, begun, vast, .. } = shares;
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
            Work::Leaves if covered => 10.0,
            Work::Leaves => 4.0,
        }
    }
}

/// Weighted fair queueing of the kinds of work (Demers, Keshav, Shenker, SIGCOMM 1989).
#[derive(Clone, Debug, Default)]
pub(super) struct Shares {
    /// Nanoseconds spent over weight, by kind.
    used: [f64; 5],
    /// All tables were visited once.
    pub(super) covered: bool,
    /// All level-3 entries were looked at.
    pub(super) begun: bool,
    /// Level 3 has more to point out than can be looked at whole.
    pub(super) vast: bool,
}

impl Shares {
    /// The kinds, the one that got least of its part first.
    pub(super) fn in_order(&self) -> [Work; 5] {
        let mut order = Work::ALL;
        order.sort_by(|a, b| self.used[*a as usize].total_cmp(&self.used[*b as usize]));
        order
    }

    pub(super) fn spend(&mut self, work: Work, time: Duration) {
        self.used[work as usize] += time.as_nanos() as f64 / work.weight(self);
    }

    /// What was planned for a kind was not done.
    pub(super) fn refund(&mut self, work: Work, time: Duration) {
        self.used[work as usize] -= time.as_nanos() as f64 / work.weight(self);
    }

    /// A kind had nothing to do: it does not save up what others used meanwhile.
    pub(super) fn idle(&mut self, work: Work) {
        let most = self.used.iter().copied().fold(0.0, f64::max);
        self.used[work as usize] = most;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // 1 % of 20 ms is 200 us; saved up for at most 30 ms.
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
        // What comes late is made up for, up to a second.
        budget.fill(Time(60_000_000_000));
        assert_eq!(budget.left(), 10_000_000.0);
    }

    // 1 % of a second is 10 ms, of which recording takes 5 at most.
    #[test]
    fn what_others_spend_counts_up_to_half() {
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

    #[test]
    fn the_kind_that_got_least_comes_first() {
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
