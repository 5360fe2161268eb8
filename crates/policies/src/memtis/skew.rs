//! Selects the huge pages to split, and their number.
//!
//! Source: MEMTIS (Lee et al., SOSP'23), mm/htmm_core.c. A huge page whose accesses are
//! concentrated on few of its subpages wastes the fast tier. Its skewness is (Σ H² / 11) / U²: H
//! are the samples of each subpage, U is the number of hot subpages; 0 if none is hot, or if the
//! whole page is very hot (bin 13 and above).

use super::histogram::bin;

/// Number of buckets of skewness: by powers of two below 1024, then in steps of 1024, at most 20.
pub(super) const BUCKETS: usize = 21;
/// Bin from which a huge page is hot as a whole.
const VERY_HOT: usize = 13;
/// Weight of a sample in the count of a base page or subpage.
pub(super) const WEIGHT: u32 = 512;

/// Skewness of a huge page with this count and these counts of its subpages, of which bins from
/// `hot` on are hot.
pub(super) fn skewness(count: u32, subpages: impl Iterator<Item = u32>, hot: usize) -> u64 {
    if bin(count) >= VERY_HOT {
        return 0;
    }
    let (mut squares, mut used) = (0u64, 0u64);
    for subpage in subpages {
        let samples = u64::from(subpage / WEIGHT);
        squares += samples * samples;
        used += u64::from(bin(subpage) >= hot && subpage > 0);
    }
    if used == 0 { 0 } else { squares / 11 / (used * used) }
}

/// Bucket of a skewness above 0.
pub(super) fn bucket(skewness: u64) -> usize {
    let bucket = match skewness {
        0 => 0,
        small if small < 1024 => small.ilog2() as usize,
        large => 9 + (large / 1024) as usize,
    };
    bucket.min(BUCKETS - 1)
}

/// Hit statistics that determine the number of splits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Hits {
    /// Fast-tier hits if the fast tier held the hottest base pages.
    pub(super) estimated: u64,
    /// Samples that hit the fast tier.
    pub(super) real: u64,
    /// Effective number of samples in `estimated` and `real`, which are halved at each cooling.
    pub(super) records: u64,
    /// Number of huge pages accessed.
    pub(super) huge_pages: u64,
}

/// Number of huge pages to split: (0.95 estimated − real) / records of the accessed ones, times the
/// relative extra cost of a slow access, times 0.4. The source computes this from accessed 4 KiB
/// pages over their average per huge page, `sum_util / avg_hp`, which is the number of huge pages
/// accessed.
pub(super) fn splits(hits: &Hits, fast_ns: f64, slow_ns: f64) -> u64 {
    let gain = 0.95 * hits.estimated as f64 - hits.real as f64;
    if gain <= 0.0 || hits.records == 0 || slow_ns <= fast_ns {
        return 0;
    }
    let share = gain / hits.records as f64;
    (share * hits.huge_pages as f64 * (slow_ns - fast_ns) / fast_ns * 0.4) as u64
}

/// Effective number of samples in counts that were halved at each of `clock` coolings, of `period`
/// samples each: 2P − (P >> (clock − 1)).
pub(super) fn records(period: u64, clock: u32) -> u64 {
    2 * period - period.checked_shr(clock.max(1) - 1).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    // All 44 samples on one subpage: 44 * 44 / 11 = 176. On two, 22 each: 968 / 11 / 4 = 22. On 44:
    // less than 1. None hot: 0. Hot all over: 0.
    #[test]
    fn few_hot_subpages_are_skewed() {
        let of = |subpages: Vec<u32>, count| skewness(count, subpages.into_iter(), 9);
        assert_eq!(of(vec![44 * 512], 44), 176);
        assert_eq!(of(vec![22 * 512, 22 * 512], 44), 22);
        assert_eq!(of(vec![512; 44], 44), 0);
        assert_eq!(of(vec![0; 512], 0), 0);
        assert_eq!(of(vec![9000 * 512], 9000), 0);
    }

    #[test]
    fn buckets_are_finer_below() {
        let buckets = [1, 2, 22, 176, 1023, 1024, 2048, 5000, 1 << 40].map(bucket);
        assert_eq!(buckets, [0, 1, 4, 7, 9, 10, 11, 13, 20]);
    }

    // 10,000 samples, of which 5000 hit the fast tier and 8000 could: 0.95 * 8000 - 5000 = 2600, a
    // quarter; of 1000 huge pages at 270 to 80 ns: 0.26 * 1000 * 2.375 * 0.4 = 247.
    #[test]
    fn the_number_of_splits_follows_the_lost_hits() {
        let hits = Hits { estimated: 8000, real: 5000, records: 10_000, huge_pages: 1000 };
        assert_eq!(splits(&hits, 80.0, 270.0), 247);
        assert_eq!(splits(&Hits { real: 7700, ..hits }, 80.0, 270.0), 0);
        assert_eq!(splits(&hits, 80.0, 80.0), 0);
    }

    #[test]
    fn halved_counts_weigh_two_periods_at_last() {
        let records = [1, 2, 3, 60].map(|clock| records(1000, clock));
        assert_eq!(records, [1000, 1500, 1750, 2000]);
    }
}
