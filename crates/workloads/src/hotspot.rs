//! A hot set of keys: YCSB's hotspot distribution (Cooper et al., "Benchmarking Cloud Serving
//! Systems with YCSB", SoCC 2010).

use tierscope_core::Rng;

use crate::permutation::Shuffle;

/// A hot set: a share of the keys takes a share of the operations; hot keys are equally likely, and
/// so are cold keys.
#[derive(Debug, Clone, Copy)]
pub struct Hotspot {
    keys: u64,
    hot: u64,
    hot_operations: f64,
    order: Order,
}

/// Positions of the hot keys among all keys.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Layout {
    /// One run that begins at this fraction of the keys, 0..1, wrapping around.
    Run(f64),
    /// Random positions drawn from this seed.
    Scattered(u64),
}

/// An order of the keys in which the hot ones precede all others.
#[derive(Debug, Clone, Copy)]
enum Order {
    From(u64),
    Shuffled(Shuffle),
}

impl Hotspot {
    /// `hot_keys` and `hot_operations` are shares, 0..1. At least one key is hot; a share of 0 of
    /// the operations is allowed, for a control run without a hot set.
    #[must_use]
    pub fn new(keys: u64, hot_keys: f64, hot_operations: f64, layout: Layout) -> Self {
        let keys = keys.max(1);
        let hot = ((keys as f64 * hot_keys).round() as u64).clamp(1, keys);
        let order = match layout {
            Layout::Run(begin) => Order::From((keys as f64 * begin) as u64 % keys),
            Layout::Scattered(seed) => Order::Shuffled(Shuffle::new(keys, seed)),
        };
        Hotspot { keys, hot, hot_operations, order }
    }

    /// The hot keys, in no particular order.
    pub fn hot(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.hot).map(|place| self.key(place))
    }

    /// Number of hot keys.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.hot
    }

    /// Whether `key` is hot.
    #[must_use]
    pub fn is_hot(&self, key: u64) -> bool {
        let place = match self.order {
            Order::From(begin) => (key + self.keys - begin) % self.keys,
            Order::Shuffled(shuffle) => shuffle.back(key),
        };
        place < self.hot
    }

    /// Draws the next key.
    pub fn next(&self, rng: &mut Rng) -> u64 {
        let cold = self.keys - self.hot;
        let hot = cold == 0 || unit(rng) < self.hot_operations;
        self.key(if hot { rng.below(self.hot) } else { self.hot + rng.below(cold) })
    }

    fn key(&self, place: u64) -> u64 {
        match self.order {
            Order::From(begin) => (begin + place) % self.keys,
            Order::Shuffled(shuffle) => shuffle.forward(place),
        }
    }
}

/// A uniform draw from 0..1.
pub fn unit(rng: &mut Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hot(spot: Hotspot) -> Vec<u64> {
        spot.hot().collect()
    }

    #[test]
    fn a_run_of_hot_keys_wraps_around() {
        assert_eq!(hot(Hotspot::new(10, 0.3, 1.0, Layout::Run(0.5))), [5, 6, 7]);
        assert_eq!(hot(Hotspot::new(10, 0.3, 1.0, Layout::Run(0.9))), [9, 0, 1]);
    }

    #[test]
    fn scattered_keys_are_as_many_and_follow_the_seed() {
        let spot = |seed| Hotspot::new(1000, 0.1, 1.0, Layout::Scattered(seed));
        let mut unique = hot(spot(1));
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), 100);
        assert_eq!(hot(spot(1)), hot(spot(1)));
        assert_ne!(hot(spot(1)), hot(spot(2)));
        assert!((0..1000).all(|key| spot(1).is_hot(key) == unique.contains(&key)));
    }

    // 90 % of 100,000 operations: 90,000 ± 95 (one sigma); six sigma allowed.
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
        assert!((0..100).all(|key| spot.is_hot(key) == (20..30).contains(&key)));
    }
}
