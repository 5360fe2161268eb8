//! Limits the bytes moved in any second, wherever it begins.

use std::collections::VecDeque;
use std::time::Duration;

use tierscope_core::Time;

const SECOND: Duration = Duration::from_secs(1);

/// Bytes moved in the last second. The bytes of a move may have been copied at any time between its
/// start and its end: they count from the start until one second after the end.
#[derive(Clone, Debug)]
pub(crate) struct Rate {
    limit: u64,
    /// End and bytes of each move.
    recent: VecDeque<(Time, u64)>,
    spent: u64,
    /// Spreads bytes evenly: no move before this time.
    next: Time,
}

impl Rate {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, recent: VecDeque::new(), spent: 0, next: Time(0) }
    }

    /// Changes the limit. Bytes already moved still count.
    pub(crate) fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
        self.next = Time(0);
    }

    /// Number of bytes that may be moved now.
    pub(crate) fn allows(&mut self, now: Time) -> u64 {
        while let Some((end, bytes)) = self.recent.front().copied()
            && end + SECOND <= now
        {
            self.recent.pop_front();
            self.spent -= bytes;
        }
        if now < self.next { 0 } else { self.limit.saturating_sub(self.spent) }
    }

    /// Earliest time at which `bytes` may be moved; [`Time::NEVER`] if they exceed the limit.
    pub(crate) fn when(&mut self, now: Time, bytes: u64) -> Time {
        if bytes > self.limit {
            return Time::NEVER;
        }
        self.allows(now);
        let mut left = self.spent;
        let mut at = now.max(self.next);
        for (end, gone) in &self.recent {
            if self.limit - left.min(self.limit) >= bytes {
                break;
            }
            left -= gone;
            at = at.max(*end + SECOND);
        }
        at
    }

    /// Accounts for a move of `bytes` that ended at `end`.
    pub(crate) fn spend(&mut self, end: Time, bytes: u64) {
        if bytes == 0 {
            return;
        }
        self.recent.push_back((end, bytes));
        self.spent += bytes;
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.limit.max(1));
        self.next = end + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(millis: u64) -> Time {
        Time(millis * 1_000_000)
    }

    // 100 bytes per second: 60 bytes block until 0.6 s, and then 40 are left of the first second.
    #[test]
    fn bytes_are_spread_evenly_within_the_limit() {
        let mut rate = Rate::new(100);
        assert_eq!(rate.allows(at(0)), 100);
        rate.spend(at(0), 60);
        assert_eq!((rate.allows(at(599)), rate.allows(at(600))), (0, 40));
        assert_eq!(rate.when(at(0), 40), at(600));
        assert_eq!(rate.when(at(0), 41), at(1000));
        assert_eq!(rate.when(at(0), 101), Time::NEVER);
        assert_eq!(rate.allows(at(1000)), 100);
    }

    #[test]
    fn a_new_limit_counts_earlier_moves() {
        let mut rate = Rate::new(100);
        rate.spend(at(0), 100);
        rate.set_limit(150);
        assert_eq!(rate.allows(at(10)), 50);
        rate.set_limit(50);
        assert_eq!(rate.allows(at(10)), 0);
    }

    proptest! {
        // Moves of arbitrary duration, each as large as allowed: no second exceeds the limit, even
        // if the bytes of each move were all copied at the worst moment.
        #[test]
        fn no_second_holds_more_than_the_limit(
            limit in 1u64..1000,
            moves in prop::collection::vec((0u64..700, 1u64..400, 0u64..900), 1..120),
        ) {
            let mut rate = Rate::new(limit);
            let (mut now, mut done) = (0, Vec::new());
            for (pause, wanted, takes) in moves {
                now += pause;
                let bytes = wanted.min(rate.allows(at(now)));
                if bytes > 0 {
                    done.push((now, now + takes, bytes));
                    now += takes;
                    rate.spend(at(now), bytes);
                }
                let (wait, before) = (rate.when(at(now), 1), rate.allows(at(now)));
                prop_assert_eq!(wait == at(now), before >= 1);
            }
            for (start, ..) in &done {
                for from in [*start, start.saturating_sub(999)] {
                    let within = done.iter().filter(|(start, end, _)| *start < from + 1000 && *end >= from);
                    let sum: u64 = within.map(|(.., bytes)| bytes).sum();
                    prop_assert!(sum <= limit, "{sum} of {limit} from {from}");
                }
            }
        }
    }
}
