//! Definitions of the figures in every table, as code.
//!
//! - **Frequency** of a region: sampling hits / samples of its last window, 0..1
//!   ([`Region::frequency`]).
//! - **Hot**: frequency at least [`HOT_FREQUENCY`] in the last window ([`Region::is_hot`]).
//! - **Precision**, **recall**, **F1**, **false-hot share**: [`Accuracy`], all by bytes.
//! - **Detection time**: [`detection_time`].
//! - **Slowdown**: [`Slowdown`].
//! - **Bytes moved**, by the result of the move: [`moves`].
//! - **Rates**, their intervals, **oracle share**: [`rates`].

pub mod moves;
pub mod rates;

use std::time::Duration;

use crate::{RangeSet, Region, Snapshot, Time};

/// 5 hits of 40 samples (Telescope's rule as posted upstream, 5 ms / 200 ms).
pub const HOT_FREQUENCY: f64 = 5.0 / 40.0;

/// Consecutive windows for which a threshold must be met before it counts as reached.
pub const STEADY_WINDOWS: usize = 4;

/// The bytes of the regions whose frequency is at least `threshold`.
#[must_use]
pub fn hot(snapshot: &Snapshot, threshold: f64) -> RangeSet {
    let is_hot = |region: &&Region| region.is_hot(threshold);
    snapshot.regions.iter().filter(is_hot).map(|region| region.range).collect()
}

/// Agreement of the reported hot bytes with the truth. Shares are `None` where they would divide by
/// zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accuracy {
    /// Bytes reported hot.
    pub reported: u64,
    /// Bytes truly hot.
    pub truth: u64,
    /// Bytes both reported and truly hot.
    pub both: u64,
}

impl Accuracy {
    /// Compares two sets of bytes.
    #[must_use]
    pub fn of(reported: &RangeSet, truth: &RangeSet) -> Self {
        Self {
            reported: reported.bytes(),
            truth: truth.bytes(),
            both: reported.intersect(truth).bytes(),
        }
    }

    /// Of the reported bytes, the share that is truly hot.
    #[must_use]
    pub fn precision(&self) -> Option<f64> {
        share(self.both, self.reported)
    }

    /// Of the truly hot bytes, the share that was reported.
    #[must_use]
    pub fn recall(&self) -> Option<f64> {
        share(self.both, self.truth)
    }

    /// Harmonic mean of precision and recall.
    #[must_use]
    pub fn f1(&self) -> Option<f64> {
        share(2 * self.both, self.reported + self.truth)
    }

    /// Bytes wrongly reported hot, over the truly hot bytes. May exceed 1.
    #[must_use]
    pub fn false_hot_share(&self) -> Option<f64> {
        share(self.reported - self.both, self.truth)
    }
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Time from `from` to the end of the first of [`STEADY_WINDOWS`] consecutive windows that meet a
/// threshold; `None` if there are none. `windows` holds, in order, the end of each window and
/// whether it met the threshold.
#[must_use]
pub fn detection_time(from: Time, windows: &[(Time, bool)]) -> Option<Duration> {
    let after: Vec<_> = windows.iter().filter(|(end, _)| *end > from).collect();
    let steady = after.windows(STEADY_WINDOWS).find(|run| run.iter().all(|(_, held)| *held))?;
    Some(steady[0].0.since(from))
}

/// Pairs needed before a slowdown may be quoted.
pub const SLOWDOWN_PAIRS: usize = 20;

/// Slowdown of a workload by being observed.
///
/// Measured in one run that alternates windows with and without observation (ABAB): each pair of
/// neighbours gives the ratio of the rate without to the rate with, so that drift of the machine
/// cancels out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slowdown {
    /// Number of pairs.
    pub pairs: usize,
    /// Mean ratio minus 1: 0.02 is 2 % slower, below 0 is faster.
    pub mean: f64,
    /// Upper bound of the mean at 95 %, one-sided, by Student's t over the pairs; also minus 1.
    pub upper: f64,
}

impl Slowdown {
    /// From rates `(with, without)` of each pair. `None` for fewer than two pairs, or a rate that
    /// is not above 0.
    #[must_use]
    pub fn of(pairs: &[(f64, f64)]) -> Option<Self> {
        let sound = |(with, without): &(f64, f64)| {
            with.is_finite() && without.is_finite() && *with > 0.0 && *without > 0.0
        };
        if pairs.len() < 2 || !pairs.iter().all(sound) {
            return None;
        }
        let count = pairs.len() as f64;
        let ratios = || pairs.iter().map(|(with, without)| without / with - 1.0);
        let mean = ratios().sum::<f64>() / count;
        let variance = ratios().map(|r| (r - mean).powi(2)).sum::<f64>() / (count - 1.0);
        let upper = mean + student_t_95(count - 1.0) * (variance / count).sqrt();
        Some(Self { pairs: pairs.len(), mean, upper })
    }
}

/// The 95 % quantile of Student's t, by its expansion around the normal quantile (Abramowitz and
/// Stegun, 26.7.5): the error is below 0.001 from 5 degrees of freedom on; too small below.
fn student_t_95(freedom: f64) -> f64 {
    const Z: f64 = 1.644_853_626_951;
    let power = |n: i32| Z.powi(n);
    Z + (power(3) + Z) / (4.0 * freedom)
        + (5.0 * power(5) + 16.0 * power(3) + 3.0 * Z) / (96.0 * freedom.powi(2))
        + (3.0 * power(7) + 19.0 * power(5) + 17.0 * power(3) - 15.0 * Z)
            / (384.0 * freedom.powi(3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Range, SpaceId};

    fn bytes(start: u64, end: u64) -> RangeSet {
        [Range::new(SpaceId(0), start, end)].into_iter().collect()
    }

    //        0    10    20    30
    // truth        ##########
    // reported  ########
    #[test]
    fn shares_by_bytes() {
        let accuracy = Accuracy::of(&bytes(5, 20), &bytes(10, 30));
        assert_eq!(accuracy, Accuracy { reported: 15, truth: 20, both: 10 });
        assert_eq!(accuracy.precision(), Some(10.0 / 15.0));
        assert_eq!(accuracy.recall(), Some(0.5));
        assert_eq!(accuracy.f1(), Some(20.0 / 35.0));
        assert_eq!(accuracy.false_hot_share(), Some(0.25));
    }

    #[test]
    fn nothing_reported_has_no_precision() {
        let accuracy = Accuracy::of(&RangeSet::default(), &bytes(0, 10));
        assert_eq!(accuracy.precision(), None);
        assert_eq!(accuracy.recall(), Some(0.0));
    }

    #[test]
    fn five_of_forty_is_hot() {
        let region =
            |start, hits| Region::sampled(Range::new(SpaceId(0), start, start + 10), hits, 40);
        let snapshot =
            Snapshot { regions: vec![region(0, 5.0), region(10, 4.0)], ..Default::default() };
        assert_eq!(hot(&snapshot, HOT_FREQUENCY), bytes(0, 10));
    }

    // A threshold met from the third window on counts from the third; a single window earlier does
    // not.
    #[test]
    fn detection_needs_four_windows_in_a_row() {
        let windows: Vec<_> = [true, false, true, true, true, true]
            .iter()
            .enumerate()
            .map(|(i, held)| (Time(10 * (i as u64 + 1)), *held))
            .collect();
        assert_eq!(detection_time(Time(0), &windows), Some(Duration::from_nanos(30)));
        assert_eq!(detection_time(Time(0), &windows[..5]), None);
        assert_eq!(detection_time(Time(25), &windows), Some(Duration::from_nanos(5)));
    }

    // Ratios 1.00, 1.02, 1.04: mean 2 %, standard deviation 2 %, standard error 2 % / sqrt 3; t of
    // two degrees of freedom is 2.92 (here 2.85): 2 % + 2.85 * 1.155 % = 5.3 %.
    #[test]
    fn slowdown_of_three_pairs_by_hand() {
        let slowdown = Slowdown::of(&[(100.0, 100.0), (100.0, 102.0), (100.0, 104.0)]).unwrap();
        assert_eq!(slowdown.pairs, 3);
        assert!((slowdown.mean - 0.02).abs() < 1e-12);
        assert!((slowdown.upper - 0.053).abs() < 0.001, "{slowdown:?}");
    }

    #[test]
    fn equal_pairs_have_no_spread() {
        let slowdown = Slowdown::of(&[(50.0, 55.0); 20]).unwrap();
        assert!((slowdown.mean - 0.1).abs() < 1e-12 && (slowdown.upper - 0.1).abs() < 1e-9);
        assert_eq!(Slowdown::of(&[(1.0, 1.0)]), None);
        assert_eq!(Slowdown::of(&[(1.0, 1.0), (0.0, 1.0)]), None);
    }

    // Quantiles from published tables of the distribution.
    #[test]
    fn quantiles_of_student() {
        for (freedom, quantile) in [(5.0, 2.015), (10.0, 1.812), (19.0, 1.729), (100.0, 1.660)] {
            assert!((student_t_95(freedom) - quantile).abs() < 0.001, "{freedom}");
        }
    }
}
