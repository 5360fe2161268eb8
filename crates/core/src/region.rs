//! Regions and the snapshots that hold them.

use crate::{Level, Range, Time};

/// A range that an instrument reports as one unit: its bytes are assumed to be accessed alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Region {
    /// Addresses that the region covers.
    pub range: Range,
    /// Sampling intervals of the window in which an access was seen. Fractional where regions were
    /// merged (mean weighted by size).
    pub hits: f32,
    /// Sampling intervals of the window in which the region was probed.
    pub samples: u32,
    /// Windows for which the access count has stayed about the same; where rates are estimated, for
    /// which the memory has been hot, warm or cold.
    pub age: u32,
    /// Coarsest page-table level whose entries gave evidence about the region in this window;
    /// `None` where the instrument has no levels or did not probe.
    pub level: Option<Level>,
    /// Confidence that heat inside the region is where the instrument reports it, 0..1. 1 for
    /// instruments without such an estimate; less where many samples of the window are missing;
    /// below [`CONFIRMED`] a region does not count as hot.
    pub confidence: f32,
    /// Access rate of its pages; `None` where the instrument counts hits and estimates no rates.
    pub rate: Option<Rate>,
    /// Why hot and cold cannot be separated: neither the frequency nor the bounds of the rate may
    /// be acted on. `None` if they can, or if the region was not probed. See
    /// [`Region::is_unknown`].
    pub unknown: Option<Unknown>,
    /// Resident bytes of the range, as last measured, at most its size; `None` if all of it is
    /// resident or the machine does not report it. Reports count these bytes.
    pub resident: Option<u64>,
}

/// Reasons why a region is unknown although it was probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unknown {
    /// Too few samples, or samples from which no bound of the rate follows.
    Evidence,
    /// The machine refuses to judge these entries ([`crate::State::Refused`]).
    Refused,
    /// Memory of a virtual machine: its guest accesses it through tables of its own.
    Guest,
}

impl Unknown {
    /// All reasons, in the order of reports.
    pub const ALL: [Self; 3] = [Self::Evidence, Self::Refused, Self::Guest];

    /// Name in recordings, exports and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Evidence => "evidence",
            Self::Refused => "refused",
            Self::Guest => "guest",
        }
    }
}

/// Accesses per second and 4 KiB page, averaged over the pages of a region: an estimate and its 90
/// % credible interval. Only accesses that would set a clear ACCESSED bit are counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Lower bound: with 95 % probability the true rate is not below it.
    pub low: f32,
    /// The estimated rate.
    pub mean: f32,
    /// Upper bound: with 95 % probability the true rate is not above it.
    pub high: f32,
}

/// Confidence from which a region may be called hot.
pub const CONFIRMED: f32 = 0.5;

impl Region {
    /// Whether the evidence does not suffice to separate hot from cold: the instrument set
    /// `unknown`, or never probed the region.
    #[must_use]
    #[inline]
    pub fn is_unknown(&self) -> bool {
        self.unknown.is_some() || self.samples == 0
    }

    /// A region as DAMON has them: `hits` of `samples` in a window, all of it resident and known;
    /// without age, level and rate.
    #[must_use]
    #[inline]
    pub fn sampled(range: Range, hits: f32, samples: u32) -> Self {
        Self {
            range,
            hits,
            samples,
            age: 0,
            level: None,
            confidence: 1.0,
            rate: None,
            unknown: None,
            resident: None,
        }
    }

    /// Bytes that reports count: the resident ones.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.resident.unwrap_or_else(|| self.range.bytes())
    }

    /// Bytes that reports count of `part`, a range inside of the region: its share of the resident
    /// bytes, as if they were spread evenly. The shares of all parts add up to [`Region::bytes`].
    #[must_use]
    #[inline]
    pub fn bytes_of(&self, part: &Range) -> u64 {
        match self.resident {
            None => part.bytes(),
            Some(resident) if *part == self.range => resident,
            Some(resident) => {
                let all = u128::from(self.range.bytes().max(1));
                let up_to = |at: u64| {
                    (u128::from(resident) * u128::from(at - self.range.start) / all) as u64
                };
                up_to(part.end) - up_to(part.start)
            }
        }
    }

    /// Whether no sampling interval of the window probed the region, for want of budget. A region
    /// that was probed and still [`Region::is_unknown`] lacks evidence, and one that the machine
    /// refuses or that belongs to a guest is unknown for that reason, probed or not; reports show
    /// these cases separately.
    #[must_use]
    #[inline]
    pub fn is_unseen(&self) -> bool {
        self.samples == 0 && !matches!(self.unknown, Some(Unknown::Refused | Unknown::Guest))
    }

    /// Whether the region is known to be idle: no sampling hit, or, where rates are estimated, less
    /// than one expected hit.
    #[must_use]
    #[inline]
    pub fn is_cold(&self) -> bool {
        !self.is_unknown() && (self.hits == 0.0 || (self.rate.is_some() && self.hits < 1.0))
    }

    /// Sampling hits that may be added up over windows. Where rates are estimated, only hot regions
    /// count (a low rate adds up to many hits as well); unknown regions count 0.
    #[must_use]
    #[inline]
    pub fn countable_hits(&self) -> f32 {
        let counts = match self.rate {
            Some(_) => self.is_hot(crate::metrics::HOT_FREQUENCY),
            None => self.unknown.is_none(),
        };
        if counts { self.hits } else { 0.0 }
    }

    /// Share of the samples that were hits, 0..1; 0 for a region that was never probed
    /// (METRICS.md).
    #[must_use]
    #[inline]
    pub fn frequency(&self) -> f64 {
        // Most regions are cold: no need to divide.
        if self.samples == 0 || self.hits == 0.0 {
            return 0.0;
        }
        (f64::from(self.hits) / f64::from(self.samples)).min(1.0)
    }

    /// Whether the frequency is at least `threshold` and the confidence at least [`CONFIRMED`].
    #[must_use]
    #[inline]
    pub fn is_hot(&self, threshold: f64) -> bool {
        !self.is_unknown() && self.confidence >= CONFIRMED && self.frequency() >= threshold
    }

    /// Whether the region has at least one sampling hit, averaged over its bytes: DAMON's
    /// `nr_accesses` of 1, from which `damo` counts a region into the working set.
    #[must_use]
    #[inline]
    pub fn is_accessed(&self) -> bool {
        !self.is_unknown() && self.hits >= 1.0
    }
}

/// The regions over one window (aggregation interval).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Start of the window.
    pub start: Time,
    /// End of the window.
    pub end: Time,
    /// Sampling intervals in the window.
    pub samples: u32,
    /// Regions of the window, sorted by range, disjoint.
    pub regions: Vec<Region>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SpaceId;

    // 4 hits of 40 are warm: where a rate is estimated, they must not add up over windows.
    #[test]
    fn rates_make_hits_of_hot_regions_only() {
        let range = Range::new(SpaceId(0), 0, 4096);
        let rate = Some(Rate { low: 0.5, mean: 1.0, high: 2.0 });
        let counted = Region::sampled(range, 4.0, 40);
        let of = |hits, rate, unknown| Region { hits, rate, unknown, ..counted }.countable_hits();
        let unknown = Some(Unknown::Evidence);
        assert_eq!([of(4.0, None, None), of(4.0, rate, None)], [4.0, 0.0]);
        assert_eq!([of(8.0, rate, None), of(8.0, rate, unknown)], [8.0, 0.0]);
        let cold = |hits, rate| Region { hits, rate, ..counted }.is_cold();
        assert_eq!([cold(0.0, None), cold(0.5, None), cold(0.5, rate)], [true, false, true]);
        assert!(!Region { hits: 0.0, unknown, ..counted }.is_cold());
    }

    #[test]
    fn unknown_regions_are_neither_hot_nor_accessed() {
        let range = Range::new(SpaceId(0), 0, 4096);
        let region = Region {
            rate: Some(Rate { low: 0.0, mean: 1.0, high: 1e3 }),
            unknown: Some(Unknown::Evidence),
            ..Region::sampled(range, 40.0, 40)
        };
        assert!(region.is_unknown() && !region.is_hot(0.125) && !region.is_accessed());
    }

    #[test]
    fn frequency_is_hits_over_samples() {
        let range = Range::new(SpaceId(0), 0, 4096);
        let mut region = Region::sampled(range, 5.0, 40);
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

    // 3 of 16 pages are resident: a quarter of the range counts for three quarters of a page.
    #[test]
    fn resident_bytes_are_counted() {
        let range = Range::new(SpaceId(0), 0, 16 * 4096);
        let region = Region { resident: Some(3 * 4096), ..Region::sampled(range, 0.0, 40) };
        let quarter = Range { end: 4 * 4096, ..range };
        assert_eq!([region.bytes(), region.bytes_of(&quarter)], [3 * 4096, 3 * 1024]);
        let thirds = [(0, 5), (5, 10), (10, 16)].map(|(from, to)| Range {
            start: from * 4096 + 1,
            end: to * 4096 + 1,
            ..range
        });
        let first = Range { end: 1, ..range };
        let last = Range { end: 16 * 4096, ..thirds[2] };
        let parts = [first, thirds[0], thirds[1], last];
        assert_eq!(parts.map(|part| region.bytes_of(&part)).iter().sum::<u64>(), 3 * 4096);
        let all = Region { resident: None, ..region };
        assert_eq!([all.bytes(), all.bytes_of(&quarter)], [16 * 4096, 4 * 4096]);
    }
}
