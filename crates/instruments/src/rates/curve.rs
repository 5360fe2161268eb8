//! Arithmetic over the cells of the grid, in lanes, which compilers turn into vector code.

// Cells and words of several arrays are gone through together.
#![allow(clippy::needless_range_loop)]

use super::grid::{CELLS, Curve};

const LANES: usize = 8;

/// The sum of the products of two curves' cells.
#[inline(always)]
pub(super) fn dot(a: &Curve, b: &Curve) -> f32 {
    let mut lanes = [0.0; LANES];
    for row in 0..CELLS / LANES {
        for lane in 0..LANES {
            let cell = row * LANES + lane;
            lanes[lane] += a[cell] * b[cell];
        }
    }
    lanes.iter().sum()
}

/// The sum of a curve's cells.
#[inline(always)]
pub(super) fn total(a: &Curve) -> f32 {
    let mut lanes = [0.0; LANES];
    for row in 0..CELLS / LANES {
        for lane in 0..LANES {
            lanes[lane] += a[row * LANES + lane];
        }
    }
    lanes.iter().sum()
}

/// The sums of a curve's cells up to and including each.
#[inline(always)]
pub(super) fn running_sums(curve: &Curve) -> Curve {
    let mut sums = *curve;
    for row in sums.chunks_exact_mut(LANES) {
        (1..LANES).for_each(|lane| row[lane] += row[lane - 1]);
    }
    let mut before = 0.0;
    for row in sums.chunks_exact_mut(LANES) {
        row.iter_mut().for_each(|sum| *sum += before);
        before = row[LANES - 1];
    }
    sums
}

/// Least share of a normalised curve, and least likelihood, that a cell keeps: products of a few stay far from
/// the numbers that processors handle slowly.
const LEAST: f32 = 1e-12;

/// Scales a curve so that its cells add up to 1; flat if nothing is left of it.
#[inline(always)]
pub(super) fn normalise(curve: &mut Curve) {
    let total = total(curve);
    if total > 0.0 && total.is_finite() {
        let scale = 1.0 / total;
        curve.iter_mut().for_each(|cell| *cell = (*cell * scale).max(LEAST));
    } else {
        *curve = [1.0 / CELLS as f32; CELLS];
    }
}

/// Turns logarithms into numbers of which the greatest is 1.
#[inline]
pub(super) fn exponentiate(curve: &mut Curve) {
    let mut lanes = [f32::MIN; LANES];
    for row in curve.chunks_exact(LANES) {
        lanes.iter_mut().zip(row).for_each(|(most, cell)| *most = most.max(*cell));
    }
    let most = lanes.iter().copied().fold(f32::MIN, f32::max);
    curve.iter_mut().for_each(|cell| *cell = exp(*cell - most).max(LEAST));
}

/// e to the power of `x`, which is not above 0, within 1e-6: a polynomial of 2 to the power of the
/// fraction, unlike a call of the library.
#[inline]
fn exp(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0;
    let power = x.max(-86.0) * std::f32::consts::LOG2_E;
    let whole = (power + ROUND) - ROUND;
    let rest = (power - whole) * std::f32::consts::LN_2;
    let series =
        1.0 + rest * (1.0 + rest * (0.5 + rest * (1.0 / 6.0 + rest * (1.0 / 24.0 + rest / 120.0))));
    // -86 * log2(e) lies above -125: the exponent stays within its bits.
    f32::from_bits(((whole as i32 + 127) << 23) as u32) * series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_e() {
        for x in [0.0f32, -0.1, -1.0, -7.3, -20.0, -80.0] {
            assert!((exp(x) / x.exp() - 1.0).abs() < 1e-5, "{x}: {}", exp(x));
        }
        assert!(exp(-1e9) < 1e-37);
    }

    #[test]
    fn curves_add_up_to_one() {
        let mut curve: Curve = std::array::from_fn(|cell| cell as f32);
        assert_eq!(total(&curve), 63.0 * 64.0 / 2.0);
        assert_eq!(running_sums(&curve)[..4], [0.0, 1.0, 3.0, 6.0]);
        assert_eq!(running_sums(&curve)[63], 63.0 * 64.0 / 2.0);
        normalise(&mut curve);
        assert!((total(&curve) - 1.0).abs() < 1e-6);
        let mut nothing = [0.0; CELLS];
        normalise(&mut nothing);
        assert_eq!(nothing[7], 1.0 / 64.0);
    }
}
