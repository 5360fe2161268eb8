//! Arithmetic over the cells of the grid, in lanes that compilers turn into vector code.

// The loops index cells of several arrays together.
#![allow(clippy::needless_range_loop)]

use super::grid::{CELLS, Curve};

const LANES: usize = 8;

/// The dot product of two curves.
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

/// Prefix sums: for each cell, the sum of the curve's cells up to and including it.
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

/// Smallest value of a cell in a normalised curve or a likelihood: keeps products of a few curves
/// far from subnormal numbers, which processors handle slowly.
const LEAST: f32 = 1e-12;

/// Scales a curve so that its cells add up to 1; makes it flat if their sum is zero or not finite.
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

/// Replaces logarithms by their exponentials, scaled so that the greatest is 1.
#[inline]
pub(super) fn exponentiate(curve: &mut Curve) {
    let mut lanes = [f32::MIN; LANES];
    for row in curve.chunks_exact(LANES) {
        lanes.iter_mut().zip(row).for_each(|(most, cell)| *most = most.max(*cell));
    }
    let most = lanes.iter().copied().fold(f32::MIN, f32::max);
    curve.iter_mut().for_each(|cell| *cell = exp(*cell - most).max(LEAST));
}

/// e to the power of `x`, which is not above 0, within 1e-6: a power of 2 by its exponent bits,
/// times a polynomial of the fraction. Inlined, unlike the library's function.
#[inline]
fn exp(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0;
    let power = x.max(-86.0) * std::f32::consts::LOG2_E;
    let whole = (power + ROUND) - ROUND;
    let rest = (power - whole) * std::f32::consts::LN_2;
    let series =
        1.0 + rest * (1.0 + rest * (0.5 + rest * (1.0 / 6.0 + rest * (1.0 / 24.0 + rest / 120.0))));
    // -86 * log2(e) is above -125: the exponent does not underflow.
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
