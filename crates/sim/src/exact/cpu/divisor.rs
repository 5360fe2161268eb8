//! Division by a small constant, as a multiplication: hardware divides slowly.

/// Divides by a number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Divisor {
    by: u64,
    /// 2^64 divided by the divisor, rounded up.
    factor: u64,
    /// Below this limit the product gives the exact quotient: the factor is too large by less than
    /// `by` / 2^64 of itself, and 2^48 x 2^16 is no more than 2^64.
    limit: u64,
}

impl Divisor {
    pub(super) fn new(by: u64) -> Self {
        debug_assert!((1..=1 << 16).contains(&by));
        let limit = if by == 1 { 0 } else { 1 << 48 };
        Self { by, factor: (u64::MAX / by).wrapping_add(1), limit }
    }

    #[inline(always)]
    pub(super) fn divide(self, whole: u64) -> u64 {
        if whole < self.limit {
            ((u128::from(whole) * u128::from(self.factor)) >> 64) as u64
        } else {
            whole / self.by
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equals_division() {
        let wholes = (0..1000).chain((16..64).flat_map(|bits| (1 << bits) - 3..(1 << bits) + 3));
        let wholes: Vec<u64> = wholes.chain([u64::MAX]).collect();
        for by in (1..200).chain([1023, 1024, 65_535, 65_536]) {
            let divisor = Divisor::new(by);
            let near = |whole: u64| [whole, whole / by * by, (whole / by * by).saturating_sub(1)];
            for whole in wholes.iter().flat_map(|whole| near(*whole)) {
                assert_eq!(divisor.divide(whole), whole / by, "{whole} / {by}");
            }
        }
    }
}
