//! Regions and the snapshots that hold them.

use crate::{Level, Range, Time};

/// A range whose bytes an instrument takes to be accessed alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Region {
    /// What the region covers.
    pub range: Range,
    /// Sampling intervals of the window in which an access was seen. May be fractional where
    /// regions were merged (means weighted by size).
    pub hits: f32,
    /// Sampling intervals of the window in which the region was looked at.
    pub samples: u32,
    /// Windows for which the access count has been about the same.
    pub age: u32,
    /// Coarsest page-table level that told about the region in this window; `None` where the
    /// instrument knows no levels or did not look.
    pub level: Option<Level>,
    /// How sure the instrument is that heat inside the region is where it says, 0..1. 1 where an
    /// instrument makes no difference; below [`CONFIRMED`] a region is not called hot.
    pub confidence: f32,
    /// How often its pages are accessed; `None` where the instrument counts hits and estimates no
    /// rates.
    pub rate: Option<Rate>,
    /// Not enough evidence yet to tell hot from cold: neither the frequency nor the bounds of the
    /// rate may be acted on. See [`Region::is_unknown`].
    pub unknown: bool,
}

/// Accesses per second and page of 4 KiB, in the mean over the pages of a region: an estimate and
/// its 90 % credible interval. Accesses are those that set an ACCESSED bit if it was clear.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Lower bound: with 95 % probability the true rate is not below it.
    pub low: f32,
    /// The estimate.
    pub mean: f32,
    /// Upper bound: with 95 % probability the true rate is not above it.
    pub high: f32,
}

/// Confidence from which a region may be called hot.
pub const CONFIRMED: f32 = 0.5;

impl Region {
    /// Whether the evidence does not suffice to tell hot from cold: the instrument says so, or it
    /// never looked.
    #[must_use]
    #[inline]
    pub fn is_unknown(&self) -> bool {
        self.unknown || self.samples == 0
    }

    /// Whether no sampling interval of the window looked at it. What is [`Region::is_unknown`] and
    /// was looked at lacks evidence; reports tell the two apart.
    #[must_use]
    #[inline]
    pub fn is_unseen(&self) -> bool {
        self.samples == 0
    }

    /// Whether it is known not to be accessed: no sampling hit, or, where rates are estimated, less
    /// than one expected.
    #[must_use]
    #[inline]
    pub fn is_cold(&self) -> bool {
        !self.is_unknown() && (self.hits == 0.0 || (self.rate.is_some() && self.hits < 1.0))
    }

    /// Sampling hits to be added up over windows: of regions whose rate is estimated only those of
    /// hot ones, because a low rate adds up to many hits as well; of unknown ones none.
    #[must_use]
    #[inline]
    pub fn countable_hits(&self) -> f32 {
        let counts = match self.rate {
            Some(_) => self.is_hot(crate::metrics::HOT_FREQUENCY),
            None => !self.unknown,
        };
        if counts { self.hits } else { 0.0 }
    }

    /// Share of the samples that were hits, 0..1; 0 for a region never looked at (METRICS.md).
    #[must_use]
    #[inline]
    pub fn frequency(&self) -> f64 {
        // Most regions are cold: no need to divide.
        if self.samples == 0 || self.hits == 0.0 {
            return 0.0;
        }
        (f64::from(self.hits) / f64::from(self.samples)).min(1.0)
    }

    /// Whether the frequency is at least `threshold` and the instrument is sure enough of it.
    #[must_use]
    #[inline]
    pub fn is_hot(&self, threshold: f64) -> bool {
        !self.is_unknown() && self.confidence >= CONFIRMED && self.frequency() >= threshold
    }

    /// Whether at least one sampling hit fell on it, in the mean over its bytes: DAMON's
    /// `nr_accesses` of 1, from which `damo` counts a region to the working set.
    #[must_use]
    #[inline]
    pub fn is_accessed(&self) -> bool {
        !self.is_unknown() && self.hits >= 1.0
    }
}

/// The regions over one window (aggregation interval).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// When the window began.
    pub start: Time,
    /// When it ended.
    pub end: Time,
    /// Sampling intervals in the window.
    pub samples: u32,
    /// Sorted by range, disjoint.
    pub regions: Vec<Region>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SpaceId;

    // 4 hits of 40 are warm: of a rate they are not to be added up to many.
    #[test]
    fn rates_make_hits_of_hot_regions_only() {
        let range = Range::new(SpaceId(0), 0, 4096);
        let rate = Some(Rate { low: 0.5, mean: 1.0, high: 2.0 });
        let counted = Region {
            range,
            hits: 4.0,
            samples: 40,
            age: 0,
            level: None,
            confidence: 1.0,
            rate: None,
            unknown: false,
        };
        let of = |hits, rate, unknown| Region { hits, rate, unknown, ..counted }.countable_hits();
        assert_eq!([of(4.0, None, false), of(4.0, rate, false)], [4.0, 0.0]);
        assert_eq!([of(8.0, rate, false), of(8.0, rate, true)], [8.0, 0.0]);
        let cold = |hits, rate| Region { hits, rate, ..counted }.is_cold();
        assert_eq!([cold(0.0, None), cold(0.5, None), cold(0.5, rate)], [true, false, true]);
        assert!(!Region { hits: 0.0, unknown: true, ..counted }.is_cold());
    }

    #[test]
    fn what_is_unknown_is_neither_hot_nor_accessed() {
        let range = Range::new(SpaceId(0), 0, 4096);
        let region = Region {
            range,
            hits: 40.0,
            samples: 40,
            age: 0,
            level: None,
            confidence: 1.0,
            rate: Some(Rate { low: 0.0, mean: 1.0, high: 1e3 }),
            unknown: true,
        };
        assert!(region.is_unknown() && !region.is_hot(0.125) && !region.is_accessed());
    }

    #[test]
    fn frequency_is_hits_over_samples() {
        let range = Range::new(SpaceId(0), 0, 4096);
        let mut region = Region {
            range,
            hits: 5.0,
            samples: 40,
            age: 0,
            level: None,
            confidence: 1.0,
            rate: None,
            unknown: false,
        };
        assert!((region.frequency() - 0.125).abs() < 1e-9);
        assert!(region.is_hot(0.125));
        region.confidence = 0.4;
        assert!(!region.is_hot(0.125), "not sure enough");
        assert!(region.is_accessed());
        region.hits = 0.9;
        assert!(!region.is_accessed(), "most of it was not");
        region.samples = 0;
        assert_eq!(region.frequency(), 0.0);
        assert!(region.is_unknown());
    }
}
