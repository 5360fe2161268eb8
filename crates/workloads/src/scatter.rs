//! Positions of scattered ranges.

use std::collections::HashSet;

use tierscope_core::Rng;

/// Seed of one access of one phase, derived from the workload's seed: seeds of neighbours differ in
/// all bits.
pub(crate) fn seed(workload: u64, phase: usize, access: usize) -> u64 {
    let mixed = workload ^ (phase as u64).rotate_left(48) ^ (access as u64).rotate_left(32);
    Rng::seeded(mixed).next_u64()
}

/// `count` distinct positions in `0..of`, ascending (Floyd: Bentley, "A sample of brilliance", CACM
/// 1987).
///
/// # Panics
/// If `count` is above `of`.
pub(crate) fn places(of: u64, count: u64, seed: u64) -> Vec<u64> {
    assert!(count <= of, "{count} of {of} places");
    let mut rng = Rng::seeded(seed);
    let mut chosen = HashSet::new();
    for last in of - count..of {
        let place = rng.below(last + 1);
        if !chosen.insert(place) {
            chosen.insert(last);
        }
    }
    let mut chosen: Vec<u64> = chosen.into_iter().collect();
    chosen.sort_unstable();
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // 5 of 10 positions, 20,000 times: each position is chosen 10,000 ± 71 times; six sigma
    // allowed.
    #[test]
    fn every_place_is_as_likely() {
        let mut seen = [0u32; 10];
        for seed in 0..20_000 {
            places(10, 5, seed).iter().for_each(|place| seen[*place as usize] += 1);
        }
        assert!(seen.iter().all(|n| n.abs_diff(10_000) < 426), "{seen:?}");
    }

    proptest! {
        #[test]
        fn places_are_distinct_and_as_many(of in 1u64..1000, share in 0.0f64..=1.0, draw: u64) {
            let count = (of as f64 * share) as u64;
            let places = places(of, count, draw);
            prop_assert_eq!(places.len() as u64, count);
            prop_assert!(places.windows(2).all(|pair| pair[0] < pair[1]));
            prop_assert!(places.last().is_none_or(|last| *last < of));
        }
    }
}
