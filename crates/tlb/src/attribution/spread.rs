//! Distribution of misses over pages: the paper's figures 6 and 7.

/// Points of the cumulative distribution.
const POINTS: usize = 20;

/// Misses of each page, in any unit, in ascending order.
#[derive(Clone, Debug, Default)]
pub struct Spread(Vec<u64>);

impl Spread {
    /// A distribution of these counts, in any order.
    #[must_use]
    pub fn new(mut misses: Vec<u64>) -> Self {
        misses.sort_unstable();
        Self(misses)
    }

    /// Number of pages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no pages.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Share of all misses in the top `percent` per cent of pages, but at least one page.
    #[must_use]
    pub fn share_of_top(&self, percent: f64) -> f64 {
        let all: u64 = self.0.iter().sum();
        if all == 0 {
            return 0.0;
        }
        let count = ((self.0.len() as f64 * percent / 100.0).round() as usize).max(1);
        let top: u64 = self.0[self.0.len() - count.min(self.0.len())..].iter().sum();
        top as f64 / all as f64
    }

    /// Percentile of misses per page (nearest rank).
    #[must_use]
    pub fn percentile(&self, percent: f64) -> u64 {
        let rank = (self.0.len() as f64 * percent / 100.0).ceil() as usize;
        self.0.get(rank.saturating_sub(1)).copied().unwrap_or(0)
    }

    /// The cumulative distribution: share of pages, fewest misses first, and their share of misses.
    #[must_use]
    pub fn cdf(&self) -> Vec<(f64, f64)> {
        let step = |point: usize| {
            let pages = point as f64 / POINTS as f64;
            (
                pages,
                1.0 - if point == POINTS { 0.0 } else { self.share_of_top(100.0 - 100.0 * pages) },
            )
        };
        (1..=POINTS).map(step).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ten pages: nine with one miss each, one with eleven of the twenty.
    #[test]
    fn the_top_has_the_most_misses() {
        let spread = Spread::new(vec![1, 1, 1, 11, 1, 1, 1, 1, 1, 1]);
        assert_eq!((spread.share_of_top(10.0), spread.share_of_top(5.0)), (0.55, 0.55));
        assert_eq!([50.0, 90.0, 91.0].map(|p| spread.percentile(p)), [1, 1, 11]);
        let cdf = spread.cdf();
        assert!((cdf[17].0 - 0.9).abs() < 1e-9 && (cdf[17].1 - 0.45).abs() < 1e-9, "{cdf:?}");
        assert_eq!(cdf[19], (1.0, 1.0));
        assert_eq!(Spread::default().share_of_top(5.0), 0.0);
    }
}
