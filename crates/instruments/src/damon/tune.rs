//! Interval tuning: sampling slows down until the target share of the possible accesses is
//! observed.

use std::fmt;
use std::time::Duration;

use tierscope_core::{Error, ErrorKind, Result};

use super::regions::SampledRegion;

/// The whole in basis points (1/10,000).
const WHOLE: u64 = 10_000;

/// Goal of the tuning (`struct damon_intervals_goal`, v6.15).
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// Observed accesses over possible ones (bytes x samples), in basis points.
    pub access_bp: u32,
    /// Windows between two adjustments.
    pub windows: u32,
    /// Shortest sampling interval.
    pub min_sampling: Duration,
    /// Longest sampling interval.
    pub max_sampling: Duration,
}

/// The recommendation of Documentation/mm/damon/design.rst: 4 %, 3 windows, 5 ms to 10 s.
impl Default for Goal {
    fn default() -> Self {
        Self {
            access_bp: 400,
            windows: 3,
            min_sampling: Duration::from_millis(5),
            max_sampling: Duration::from_secs(10),
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { access_bp, windows, min_sampling, max_sampling } = self;
        write!(f, "{access_bp} bp in {windows} windows, {min_sampling:?}..{max_sampling:?}")
    }
}

impl Goal {
    /// `damon_valid_intervals_goal`, and checks against division by zero.
    pub(super) fn check(&self, sampling: Duration) -> Result<()> {
        let refuse = |cause: &str, remedy: &str| {
            Err(Error::new(ErrorKind::Usage, "tuning goal").cause(cause).remedy(remedy))
        };
        if !(1..=WHOLE).contains(&u64::from(self.access_bp)) || self.windows == 0 {
            return refuse("it can never be reached", "try 400 bp in 3 windows");
        }
        if !(self.min_sampling..=self.max_sampling).contains(&sampling) {
            return refuse("the sampling interval lies outside of its limits", "try 5ms..10s");
        }
        Ok(())
    }

    /// The next sampling interval (`kdamond_tune_intervals`).
    pub(super) fn next_sampling(
        &self,
        now: Duration,
        zones: &[SampledRegion],
        samples: u32,
    ) -> Duration {
        let adaptation = adaptation_bp(self.score_bp(zones, samples));
        let nanos = now.as_nanos() * u128::from(adaptation) / u128::from(WHOLE);
        let next = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        next.min(self.max_sampling).max(self.min_sampling)
    }

    /// Score against the goal, in basis points (`damon_get_intervals_score`).
    fn score_bp(&self, zones: &[SampledRegion], samples: u32) -> u64 {
        let bytes = |zone: &SampledRegion| u128::from(zone.range.bytes());
        let possible: u128 = zones.iter().map(|z| bytes(z) * u128::from(samples)).sum();
        let seen: u128 = zones.iter().map(|z| bytes(z) * u128::from(z.accesses)).sum();
        let wanted = (possible * u128::from(self.access_bp) / u128::from(WHOLE)).max(1);
        u64::try_from(seen * u128::from(WHOLE) / wanted).unwrap_or(u64::MAX)
    }
}

/// Factor for the sampling interval, in basis points: 2 if no access was observed, 1 at the goal,
/// down to 1/2 at twice the goal and beyond (`damon_get_intervals_adaptation_bp`,
/// `damon_feed_loop_next_input`).
fn adaptation_bp(score_bp: u64) -> u64 {
    let fed_back = (2 * WHOLE).saturating_sub(score_bp).max(1);
    if fed_back <= WHOLE { WHOLE / 2 + fed_back / 2 } else { fed_back }
}

#[cfg(test)]
mod tests {
    use super::super::test_range as r;
    use super::*;

    #[test]
    fn the_factor_runs_from_two_to_a_half() {
        assert_eq!(adaptation_bp(0), 20_000);
        assert_eq!(adaptation_bp(5_000), 15_000);
        assert_eq!(adaptation_bp(10_000), 10_000);
        assert_eq!(adaptation_bp(15_000), 7_500);
        assert_eq!(adaptation_bp(20_000), 5_000);
        assert_eq!(adaptation_bp(u64::MAX), 5_000);
    }

    // 100 bytes x 20 samples = 2000 possible; 4 % are 80; 10 bytes x 4 accesses = 40: half of the
    // goal.
    #[test]
    fn the_score_weighs_accesses_by_size() {
        let hot = SampledRegion { accesses: 4, ..SampledRegion::new(r(0, 10)) };
        let zones = [hot, SampledRegion::new(r(10, 100))];
        assert_eq!(Goal::default().score_bp(&zones, 20), 5_000);
        let next = Goal::default().next_sampling(Duration::from_millis(8), &zones, 20);
        assert_eq!(next, Duration::from_millis(12), "8 ms x 1.5");
    }

    #[test]
    fn limits_hold() {
        let cold = [SampledRegion::new(r(0, 4096))];
        let hot = [SampledRegion { accesses: 20, ..SampledRegion::new(r(0, 4096)) }];
        let goal = Goal::default();
        assert_eq!(goal.next_sampling(Duration::from_secs(8), &cold, 20), goal.max_sampling);
        assert_eq!(goal.next_sampling(Duration::from_millis(7), &hot, 20), goal.min_sampling);
    }
}
