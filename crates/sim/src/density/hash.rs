//! Draws by counter: hashes of the drawn object, so that the result does not depend on the order of
//! draws.

/// The finalizer of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number
/// generators", OOPSLA 2014): every bit of the result depends on every bit of `x`.
#[inline(always)]
pub(super) fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The odd increment of SplitMix64's counter: 2^64 over the golden ratio.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The draw of `counter` in the stream of `key`.
#[inline(always)]
pub(super) fn draw(key: u64, counter: u64) -> u64 {
    mix(key.wrapping_add(counter.wrapping_add(1).wrapping_mul(STEP)))
}

/// Uniform in 0..1, by the upper 53 bits.
#[inline]
pub(super) fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

/// Mean from which a Poisson distribution is taken as normal.
const MANY: f64 = 30.0;

/// Poisson distribution of a fixed mean, by inversion of a 64-bit draw.
#[derive(Clone, Debug)]
pub(super) struct Poisson {
    /// `below[n]`: a draw below it gives a count of at most n.
    below: Box<[u64]>,
}

impl Poisson {
    /// Distribution with this mean, at least 0. Exact to 2^-53; meant for means up to a few dozen.
    pub(super) fn new(mean: f64) -> Self {
        let mut term = (-mean).exp();
        let mut sum = term;
        let mut below = Vec::new();
        for count in 1.. {
            // From 2^-53 on the sums no longer change.
            if sum >= 1.0 - f64::EPSILON || term == 0.0 || count > 1000 {
                break;
            }
            below.push((sum * 2f64.powi(64)) as u64);
            term *= mean / f64::from(count);
            sum += term;
        }
        Self { below: below.into() }
    }

    /// The count for a draw, for any mean: by inversion; from 30 on by a normal approximation,
    /// which is off by less than its rounding there.
    pub(super) fn of_many(mean: f64) -> impl Fn(u64) -> u64 {
        let law = Self::new(mean.min(MANY));
        move |bits| {
            if mean < MANY {
                return law.count(bits);
            }
            let (angle, length) = (unit(bits), unit(draw(bits, 0)).max(f64::MIN_POSITIVE));
            let normal = (-2.0 * length.ln()).sqrt() * (std::f64::consts::TAU * angle).cos();
            (mean + mean.sqrt() * normal).round().max(0.0) as u64
        }
    }

    /// The count for a draw.
    #[inline]
    pub(super) fn count(&self, bits: u64) -> u64 {
        self.below.partition_point(|limit| *limit <= bits) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_of_zero_draws_no_events() {
        let poisson = Poisson::new(0.0);
        assert_eq!((poisson.count(0), poisson.count(u64::MAX)), (0, 0));
    }

    // P(0) = exp(-1) = 0.3679, P(0 or 1) = 0.7358.
    #[test]
    fn counts_follow_the_law_at_a_mean_of_one() {
        let poisson = Poisson::new(1.0);
        let at = |share: f64| poisson.count((share * 2f64.powi(64)) as u64);
        assert_eq!((at(0.367), at(0.369), at(0.735), at(0.737)), (0, 1, 1, 2));
    }

    // 10^5 draws of mean 6: their mean is 6 ± 0.0077 (one sigma), their variance 6 ± 0.027. Six
    // sigma are allowed; the draws are fixed.
    #[test]
    fn mean_and_variance_are_alike() {
        let poisson = Poisson::new(6.0);
        let counts: Vec<f64> = (0..100_000).map(|i| poisson.count(draw(7, i)) as f64).collect();
        let mean = counts.iter().sum::<f64>() / 1e5;
        let variance = counts.iter().map(|n| (n - mean).powi(2)).sum::<f64>() / 1e5;
        assert!((mean - 6.0).abs() < 0.047 && (variance - 6.0).abs() < 0.17, "{mean} {variance}");
    }

    // 10^5 draws: means of 0.2, 6 and 400 within six sigma, and variances within 3 %.
    #[test]
    fn counts_follow_the_law_for_any_mean() {
        for mean in [0.2, 6.0, 400.0] {
            let law = Poisson::of_many(mean);
            let counts: Vec<f64> = (0..100_000).map(|n| law(draw(5, n)) as f64).collect();
            let found = counts.iter().sum::<f64>() / 1e5;
            let variance = counts.iter().map(|n| (n - found).powi(2)).sum::<f64>() / 1e5;
            assert!((found - mean).abs() < 6.0 * (mean / 1e5).sqrt(), "{mean}: {found}");
            assert!((variance / mean - 1.0).abs() < 0.03, "{mean}: {variance}");
        }
        assert_eq!(Poisson::of_many(0.0)(7), 0);
    }

    // 16 bins by the upper bits, by the lower bits: 6250 ± 77 each; six sigma.
    #[test]
    fn draws_are_uniform_in_all_bits() {
        let mut bins = [[0u32; 16]; 2];
        for i in 0..100_000 {
            let bits = draw(3, i);
            bins[0][(bits >> 60) as usize] += 1;
            bins[1][(bits & 15) as usize] += 1;
        }
        assert!(bins.iter().flatten().all(|n| n.abs_diff(6250) < 460), "{bins:?}");
    }
}
