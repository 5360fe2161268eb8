//! Means over time on elementary ranges: the finest ranges that no region boundary cuts.

use tierscope_core::{Range, SpaceId};

/// Frequency and confidence are added up as whole numbers of 1/65536, so that what was never hot
/// stays cold however much is added and taken away.
const ONE: f64 = 65536.0;

/// What is added up over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    seen: i128,
    hot: i128,
    sure: i128,
}

impl Sums {
    fn plus(self, other: Sums) -> Sums {
        Sums {
            seen: self.seen + other.seen,
            hot: self.hot + other.hot,
            sure: self.sure + other.sure,
        }
    }

    fn negated(self) -> Sums {
        Sums { seen: -self.seen, hot: -self.hot, sure: -self.sure }
    }
}

/// The mean over time of an elementary range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Mean {
    pub(crate) range: Range,
    /// Mean frequency while looked at, 0..=1.
    pub(crate) frequency: f64,
    /// Mean confidence while looked at, 0..=1.
    pub(crate) confidence: f64,
    /// Nanoseconds looked at.
    pub(crate) seen: u64,
}

/// Collects ranges with a frequency each.
#[derive(Debug, Default)]
pub(crate) struct Means {
    /// Where something begins or ends to count.
    steps: Vec<(SpaceId, u64, Sums)>,
}

impl Means {
    /// `range` was looked at for `nanos`, with this frequency and confidence (0..=1).
    pub(crate) fn add(&mut self, range: &Range, nanos: u64, frequency: f64, confidence: f64) {
        let whole = |share: f64| {
            let least = f64::from(u8::from(share > 0.0));
            (share * ONE).round().clamp(least, ONE) as i128 * i128::from(nanos)
        };
        let sums = Sums { seen: nanos.into(), hot: whole(frequency), sure: whole(confidence) };
        self.steps.push((range.space, range.start, sums));
        self.steps.push((range.space, range.end, sums.negated()));
    }

    /// The elementary ranges that were looked at, in order.
    pub(crate) fn finish(mut self) -> Vec<Mean> {
        self.steps.sort_unstable_by_key(|(space, at, _)| (*space, *at));
        let mut means = Vec::new();
        let mut now = Sums::default();
        for pair in self.steps.windows(2) {
            let ((space, start, sums), (next_space, end, _)) = (pair[0], pair[1]);
            now = now.plus(sums);
            if space == next_space && start < end && now.seen > 0 {
                means.push(now.over(Range::new(space, start, end)));
            }
        }
        means
    }
}

impl Sums {
    fn over(self, range: Range) -> Mean {
        let seen = self.seen as f64;
        Mean {
            range,
            frequency: self.hot as f64 / ONE / seen,
            confidence: self.sure as f64 / ONE / seen,
            seen: u64::try_from(self.seen).unwrap_or(u64::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> Range {
        Range::new(SpaceId(0), start, end)
    }

    //  0    10    20    30
    //  [ 1.0     ]           10 ns
    //       [  0.5    ]      30 ns
    #[test]
    fn weighs_by_time() {
        let mut means = Means::default();
        means.add(&range(0, 20), 10, 1.0, 1.0);
        means.add(&range(10, 30), 30, 0.5, 1.0);
        let shown: Vec<_> =
            means.finish().iter().map(|m| (m.range.start, m.frequency, m.seen)).collect();
        assert_eq!(shown, [(0, 1.0, 10), (10, 25.0 / 40.0, 40), (20, 0.5, 30)]);
    }

    #[test]
    fn cold_stays_exactly_cold() {
        let mut means = Means::default();
        for start in 0..1000 {
            means.add(&range(start, start + 1), 7, 0.3, 1.0);
            means.add(&range(2000, 3000), 7, 0.0, 1.0);
        }
        assert_eq!(means.finish().last().map(|m| m.frequency), Some(0.0));
    }
}
