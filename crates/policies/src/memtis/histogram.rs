//! Histogram of pages by access count, and the hot threshold from it.
//!
//! Source: MEMTIS (Lee et al., SOSP'23), mm/htmm_core.c: `get_idx`, `__adjust_active_threshold`.

/// Number of bins; a count n is in bin floor(log2(n + 1)), or the last one.
pub(super) const BINS: usize = 16;

/// Bin of an access count.
#[inline]
pub(super) fn bin(count: u32) -> usize {
    ((u64::from(count) + 1).ilog2() as usize).min(BINS - 1)
}

/// Number of 4 KiB pages per bin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Histogram([u64; BINS]);

impl Histogram {
    pub(super) fn add(&mut self, bin: usize, pages: u64) {
        self.0[bin] += pages;
    }

    pub(super) fn take(&mut self, bin: usize, pages: u64) {
        self.0[bin] = self.0[bin].saturating_sub(pages);
    }

    /// Hot threshold: the lowest bin, at least 1, such that all pages from it up fit into `room`;
    /// and the number of those pages.
    pub(super) fn threshold(&self, room: u64) -> (usize, u64) {
        let (mut lowest, mut filled) = (BINS, 0);
        while lowest > 0 && filled + self.0[lowest - 1] <= room {
            lowest -= 1;
            filled += self.0[lowest];
        }
        (lowest.clamp(1, BINS - 1), filled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_powers_of_two() {
        let bins = [0, 1, 2, 3, 6, 7, 511, 512, 1023, 32_767, u32::MAX].map(bin);
        assert_eq!(bins, [0, 1, 1, 2, 2, 3, 9, 9, 10, 15, 15]);
    }

    // 10 pages in bin 9, 20 in 5, 100 in 0: a room of 15 fits the first, 30 both, 1000 all; but
    // pages never accessed are not hot.
    #[test]
    fn the_threshold_is_the_lowest_that_fits() {
        let mut histogram = Histogram::default();
        [(9, 10), (5, 20), (0, 100)].iter().for_each(|(bin, pages)| histogram.add(*bin, *pages));
        let lines = [5, 15, 30, 1000].map(|room| histogram.threshold(room));
        assert_eq!(lines, [(10, 0), (6, 10), (1, 30), (1, 130)]);
        histogram.take(9, 10);
        assert_eq!(histogram.threshold(5), (6, 0));
    }
}
