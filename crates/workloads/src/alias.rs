//! Draws from any discrete distribution in constant time: the alias method (Walker 1977, in the
//! form of Vose 1991).

use tierscope_core::Rng;

/// A distribution over `0..len`.
#[derive(Clone, Debug)]
pub(crate) struct Alias {
    cells: Vec<Cell>,
}

/// A cell of the table: draws below `keep` (of 2^64) select this cell's index, the others select
/// `other`.
#[derive(Clone, Copy, Debug)]
struct Cell {
    keep: u64,
    other: u32,
}

impl Alias {
    /// The distribution with these weights. Each probability is exact to about 2^-53.
    ///
    /// # Panics
    /// If there is no weight, more than 2^32, or their sum is not positive.
    #[must_use]
    pub(crate) fn new(weights: &[f64]) -> Self {
        let total: f64 = weights.iter().sum();
        assert!(total > 0.0 && total.is_finite(), "weights add up to {total}");
        let count = u32::try_from(weights.len()).expect("fewer than 2^32 weights");
        let mut share: Vec<f64> = weights.iter().map(|w| w / total * f64::from(count)).collect();
        let (mut small, mut large): (Vec<u32>, Vec<u32>) =
            (0..count).partition(|i| share[*i as usize] < 1.0);
        let mut cells: Vec<Cell> = (0..count).map(|i| Cell { keep: u64::MAX, other: i }).collect();
        while let (Some(less), Some(more)) = (small.pop(), large.last().copied()) {
            let (less, rich) = (less as usize, more as usize);
            cells[less] = Cell { keep: (share[less] * 2f64.powi(64)) as u64, other: more };
            share[rich] -= 1.0 - share[less];
            if share[rich] < 1.0 {
                large.pop();
                small.push(more);
            }
        }
        // Cells that remain small by rounding keep their whole mass, except those of weight zero,
        // which must never be drawn.
        let heaviest =
            (0..count).max_by(|a, b| weights[*a as usize].total_cmp(&weights[*b as usize]));
        for index in small.into_iter().filter(|i| weights[*i as usize] == 0.0) {
            cells[index as usize] = Cell { keep: 0, other: heaviest.unwrap_or(index) };
        }
        Self { cells }
    }

    /// Draws an index with the probability of its weight.
    #[inline]
    pub(crate) fn draw(&self, rng: &mut Rng) -> usize {
        let wide = u128::from(rng.next_u64()) * self.cells.len() as u128;
        let (index, rest) = ((wide >> 64) as usize, wide as u64);
        let cell = self.cells[index];
        if rest < cell.keep { index } else { cell.other as usize }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{prop, prop_assert, proptest};

    /// Probability of each index, computed from the cells.
    fn told(alias: &Alias) -> Vec<f64> {
        let mut masses = vec![0.0; alias.cells.len()];
        for (index, cell) in alias.cells.iter().enumerate() {
            let keep = cell.keep as f64 / 2f64.powi(64);
            masses[index] += keep;
            masses[cell.other as usize] += 1.0 - keep;
        }
        masses.iter().map(|mass| mass / alias.cells.len() as f64).collect()
    }

    // Weights 1, 2, 1 of 4: 100,000 draws give 25,000 ± 137, 50,000 ± 158 (one sigma); six sigma
    // allowed.
    #[test]
    fn draws_follow_the_weights() {
        let (alias, mut rng) = (Alias::new(&[1.0, 2.0, 1.0]), Rng::seeded(5));
        let mut seen = [0u32; 3];
        (0..100_000).for_each(|_| seen[alias.draw(&mut rng)] += 1);
        let expected = [25_000u32, 50_000, 25_000];
        assert!(seen.iter().zip(expected).all(|(n, e)| n.abs_diff(e) < 950), "{seen:?}");
    }

    proptest! {
        #[test]
        fn cells_hold_exactly_the_weights(mut weights in prop::collection::vec(0.0f64..100.0, 1..200), zero in 0usize..200) {
            weights.push(1.0);
            let zero = zero % weights.len();
            if weights.len() > 1 && weights.iter().sum::<f64>() > weights[zero] {
                weights[zero] = 0.0;
            }
            let total: f64 = weights.iter().sum();
            for (told, weight) in told(&Alias::new(&weights)).iter().zip(&weights) {
                prop_assert!((told - weight / total).abs() < 1e-12);
            }
        }
    }
}
