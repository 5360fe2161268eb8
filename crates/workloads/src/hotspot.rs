//! Which keys are hot, and which key comes next: YCSB's hotspot distribution
//! (Cooper et al., "Benchmarking Cloud Serving Systems with YCSB", SoCC 2010).

use tierscope_core::Rng;

/// A share of the keys takes a share of the operations; both sides are uniform within.
#[derive(Debug, Clone)]
pub struct Hotspot {
    hot: Vec<u32>,
    cold: Vec<u32>,
    hot_operations: f64,
}

/// How hot keys lie among the others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Layout {
    /// In one run that begins at this share of the keys, 0..1, wrapping around.
    Run(f64),
    /// Anywhere, drawn from this seed.
    Scattered(u64),
}

impl Hotspot {
    /// `hot_keys` and `hot_operations` are shares, 0..1. At least one key is hot, and so is a
    /// share of 0 of the operations possible: a control without a hot set.
    #[must_use]
    pub fn new(keys: u32, hot_keys: f64, hot_operations: f64, layout: Layout) -> Self {
        let count = ((f64::from(keys) * hot_keys).round() as u32).clamp(1, keys.max(1));
        let mut order: Vec<u32> = (0..keys).collect();
        match layout {
            Layout::Run(begin) => {
                order.rotate_left((f64::from(keys) * begin) as usize % keys.max(1) as usize);
            }
            Layout::Scattered(seed) => shuffle(&mut order, &mut Rng::seeded(seed)),
        }
        let cold = order.split_off(count as usize);
        Hotspot { hot: order, cold, hot_operations }
    }

    /// The hot keys.
    #[must_use]
    pub fn hot(&self) -> &[u32] {
        &self.hot
    }

    /// Draws the next key.
    pub fn next(&self, rng: &mut Rng) -> u32 {
        let hot = self.cold.is_empty() || unit(rng) < self.hot_operations;
        let side = if hot { &self.hot } else { &self.cold };
        side[rng.below(side.len() as u64) as usize]
    }
}

/// Uniform in 0..1.
fn unit(rng: &mut Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// Fisher and Yates.
fn shuffle(items: &mut [u32], rng: &mut Rng) {
    for i in (1..items.len()).rev() {
        items.swap(i, rng.below(i as u64 + 1) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_hot_keys_wraps_around() {
        assert_eq!(Hotspot::new(10, 0.3, 1.0, Layout::Run(0.5)).hot(), [5, 6, 7]);
        assert_eq!(Hotspot::new(10, 0.3, 1.0, Layout::Run(0.9)).hot(), [9, 0, 1]);
    }

    #[test]
    fn scattered_keys_are_as_many_and_follow_the_seed() {
        let hot = |seed| Hotspot::new(1000, 0.1, 1.0, Layout::Scattered(seed)).hot().to_vec();
        let mut unique = hot(1);
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), 100);
        assert_eq!(hot(1), hot(1));
        assert_ne!(hot(1), hot(2));
    }

    // 90 % of 100,000 operations: 90,000 ± 95 (one sigma); six sigma are allowed.
    #[test]
    fn the_hot_keys_take_their_share() {
        let spot = Hotspot::new(100, 0.1, 0.9, Layout::Run(0.0));
        let mut rng = Rng::seeded(7);
        let hot = (0..100_000).filter(|_| spot.next(&mut rng) < 10).count();
        assert!(hot.abs_diff(90_000) < 570, "{hot}");
    }

    #[test]
    fn all_operations_on_hot_keys_leave_the_cold_alone() {
        let spot = Hotspot::new(100, 0.1, 1.0, Layout::Run(0.2));
        let mut rng = Rng::seeded(3);
        assert!((0..1000).all(|_| (20..30).contains(&spot.next(&mut rng))));
    }
}
