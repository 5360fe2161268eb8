//! Means over time on elementary ranges: the finest ranges that no region boundary cuts.

use tierscope_core::{Range, SpaceId};

/// Frequency and confidence are summed as integers in units of 1/65536, so that adding and
/// subtracting leaves no rounding error: memory that was never hot stays exactly cold.
const ONE: f64 = 65536.0;

/// Sums over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    seen: i128,
    hot: i128,
    sure: i128,
    unknown: i128,
}

impl Sums {
    fn plus(self, other: Sums) -> Sums {
        Sums {
            seen: self.seen + other.seen,
            hot: self.hot + other.hot,
            sure: self.sure + other.sure,
            unknown: self.unknown + other.unknown,
        }
    }

    fn negated(self) -> Sums {
        Sums { seen: -self.seen, hot: -self.hot, sure: -self.sure, unknown: -self.unknown }
    }
}

/// The mean over time of an elementary range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Mean {
    pub(crate) range: Range,
    /// Mean frequency while known, 0..=1; 0 if never known.
    pub(crate) frequency: f64,
    /// Mean confidence while known, 0..=1; 0 if never known.
    pub(crate) confidence: f64,
    /// Nanoseconds in which it was probed and known.
    pub(crate) seen: u64,
}

/// Collects ranges, each with a frequency and a duration.
#[derive(Debug, Default)]
pub(crate) struct Means {
    /// Points at which a range begins or ends, with the change of the sums.
    steps: Vec<(SpaceId, u64, Sums)>,
}

impl Means {
    /// Adds `range` as probed and known for `nanos`, with this frequency and confidence (0..=1).
    pub(crate) fn add(&mut self, range: &Range, nanos: u64, frequency: f64, confidence: f64) {
        let whole = |share: f64| {
            let least = f64::from(u8::from(share > 0.0));
            (share * ONE).round().clamp(least, ONE) as i128 * i128::from(nanos)
        };
        let (hot, sure) = (whole(frequency), whole(confidence));
        self.push(range, Sums { seen: nanos.into(), hot, sure, unknown: 0 });
    }

    /// Adds `range` as probed and unknown for `nanos`; with 0 it only becomes a separate range.
    pub(crate) fn add_unknown(&mut self, range: &Range, nanos: u64) {
        self.push(range, Sums { unknown: nanos.into(), ..Sums::default() });
    }

    fn push(&mut self, range: &Range, sums: Sums) {
        self.steps.push((range.space, range.start, sums));
        self.steps.push((range.space, range.end, sums.negated()));
    }

    /// The elementary ranges that were probed, in order.
    pub(crate) fn finish(mut self) -> Vec<Mean> {
        self.steps.sort_unstable_by_key(|(space, at, _)| (*space, *at));
        let mut means = Vec::new();
        let mut now = Sums::default();
        for pair in self.steps.windows(2) {
            let ((space, start, sums), (next_space, end, _)) = (pair[0], pair[1]);
            now = now.plus(sums);
            if space == next_space && start < end && (now.seen > 0 || now.unknown > 0) {
                means.push(now.over(Range::new(space, start, end)));
            }
        }
        means
    }
}

impl Sums {
    fn over(self, range: Range) -> Mean {
        let mean = |sum: i128| match self.seen {
            0 => 0.0,
            seen => sum as f64 / ONE / seen as f64,
        };
        Mean {
            range,
            frequency: mean(self.hot),
            confidence: mean(self.sure),
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

    // 0..10 is known for 10 ns and unknown for 30, 10..20 never known; 5..8 is cut out.
    #[test]
    fn unknown_time_has_no_part_in_means() {
        let mut means = Means::default();
        means.add(&range(0, 10), 10, 0.5, 1.0);
        means.add_unknown(&range(0, 20), 30);
        means.add_unknown(&range(5, 8), 0);
        let shown: Vec<_> =
            means.finish().iter().map(|m| (m.range.start, m.frequency, m.seen)).collect();
        assert_eq!(shown, [(0, 0.5, 10), (5, 0.5, 10), (8, 0.5, 10), (10, 0.0, 0)]);
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
