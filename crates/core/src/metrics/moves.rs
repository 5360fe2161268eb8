//! Results of page moves, by bytes.
//!
//! - **Promoted**, **demoted**: moved to a faster tier, to a slower one.
//! - **Reclaimed**: given back (swap, write-back).
//! - **Failed**: ordered and not moved, by cause.
//! - **Re-accessed**: promoted, and accessed before the page moved again or the run ended.
//! - **Wasted**: promoted, and not accessed until then. Demotions are never wasted: an idle page is
//!   their purpose.
//! - **Ping-pong**: moved twice within [`PING_PONG`]; the second move counts.

use std::time::Duration;

use super::share;
use crate::{Failure, Tier, Time};

/// Two moves of a page within this time are a ping-pong.
pub const PING_PONG: Duration = Duration::from_secs(60);

/// Whether a page that moved at `before` and moves again at `now` is a ping-pong.
#[must_use]
pub fn is_ping_pong(before: Time, now: Time) -> bool {
    now.since(before) < PING_PONG
}

/// Bytes by the result of their moves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Bytes moved to a faster tier.
    pub promoted: u64,
    /// Bytes moved to a slower tier.
    pub demoted: u64,
    /// Bytes promoted and accessed since.
    pub reaccessed: u64,
    /// Bytes promoted and not accessed until they moved again, were freed, or the run ended.
    pub wasted: u64,
    /// Bytes moved twice within [`PING_PONG`].
    pub ping_pong: u64,
    /// Bytes reclaimed; the next access faults them back in.
    pub reclaimed: u64,
    /// Bytes of huge pages that were split.
    pub split: u64,
    /// Bytes not moved, by cause, in the order in which the causes first occurred.
    pub failed: Vec<(Failure, u64)>,
}

impl Moved {
    /// Counts a move of `bytes` between tiers.
    pub fn moves(&mut self, from: Tier, to: Tier, bytes: u64) {
        if to < from {
            self.promoted += bytes;
        } else {
            self.demoted += bytes;
        }
    }

    /// Counts `bytes` that failed to move.
    pub fn fails(&mut self, why: Failure, bytes: u64) {
        match self.failed.iter_mut().find(|(known, _)| *known == why) {
            Some((_, sum)) => *sum += bytes,
            None => self.failed.push((why, bytes)),
        }
    }

    /// Bytes that failed, over all causes.
    #[must_use]
    pub fn all_failed(&self) -> u64 {
        self.failed.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Share of the promoted bytes that were accessed since; `None` if nothing was promoted.
    #[must_use]
    pub fn reaccess_share(&self) -> Option<f64> {
        share(self.reaccessed, self.promoted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: Tier = Tier(0);
    const SLOW: Tier = Tier(1);

    // 12 promoted, of which 8 are accessed and 4 are not; 4 demoted.
    #[test]
    fn bytes_are_summed_by_result() {
        let mut moved = Moved::default();
        moved.moves(SLOW, FAST, 12);
        moved.moves(FAST, SLOW, 4);
        (moved.reaccessed, moved.wasted) = (8, 4);
        moved.fails(Failure::Busy, 3);
        moved.fails(Failure::NoRoom, 5);
        moved.fails(Failure::Busy, 1);
        assert_eq!((moved.promoted, moved.demoted), (12, 4));
        assert_eq!(moved.failed, [(Failure::Busy, 4), (Failure::NoRoom, 5)]);
        assert_eq!(moved.all_failed(), 9);
        assert_eq!(moved.reaccess_share(), Some(8.0 / 12.0));
        assert_eq!(Moved::default().reaccess_share(), None);
    }

    #[test]
    fn back_and_forth_is_within_a_minute() {
        let second = |n: u64| Time(n * 1_000_000_000);
        assert!(is_ping_pong(second(5), second(64)));
        assert!(!is_ping_pong(second(5), second(65)));
    }
}
