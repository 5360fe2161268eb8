//! Pseudo-random permutations computed on the fly, and their inverses.

/// Rounds of mixing; with fewer, neighbours stay close to each other.
const ROUNDS: usize = 3;

/// A permutation of the numbers below 2^`bits`.
///
/// A round folds the upper half of the bits into the lower half, and multiplies by an odd number:
/// both steps are invertible.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bits {
    mask: u64,
    half: u32,
    add: u64,
    factors: [u64; ROUNDS],
    inverses: [u64; ROUNDS],
}

impl Bits {
    /// The permutation of numbers of `bits` bits (1..=63) for `seed`.
    pub(crate) fn new(bits: u32, seed: u64) -> Self {
        assert!((1..64).contains(&bits), "a permutation of {bits} bits");
        let mut state = seed;
        let mut next = || {
            state = mixed(state);
            state
        };
        let add = next();
        let factors = std::array::from_fn(|_| next() | 1);
        Self {
            mask: (1 << bits) - 1,
            half: bits.div_ceil(2),
            add,
            factors,
            inverses: factors.map(inverse),
        }
    }

    /// The image of `number`.
    #[inline]
    pub(crate) fn forward(&self, number: u64) -> u64 {
        let mut x = number.wrapping_add(self.add) & self.mask;
        for factor in self.factors {
            x ^= x >> self.half;
            x = x.wrapping_mul(factor) & self.mask;
        }
        x ^ (x >> self.half)
    }

    /// The preimage of `place`.
    #[inline]
    pub(crate) fn back(&self, place: u64) -> u64 {
        let mut x = place ^ (place >> self.half);
        for inverse in self.inverses.iter().rev() {
            x = x.wrapping_mul(*inverse) & self.mask;
            x ^= x >> self.half;
        }
        x.wrapping_sub(self.add) & self.mask
    }
}

/// A permutation of `0..count`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shuffle {
    bits: Bits,
    count: u64,
}

impl Shuffle {
    /// The permutation of `0..count` for `seed`; `count` is above 0.
    pub(crate) fn new(count: u64, seed: u64) -> Self {
        Self { bits: Bits::new((64 - count.leading_zeros()).min(63), seed), count }
    }

    /// The image of `number`: images outside of `0..count` are mapped again, less than twice on
    /// average.
    pub(crate) fn forward(&self, number: u64) -> u64 {
        let mut place = self.bits.forward(number);
        while place >= self.count {
            place = self.bits.forward(place);
        }
        place
    }

    /// The preimage of `place`.
    pub(crate) fn back(&self, place: u64) -> u64 {
        let mut number = self.bits.back(place);
        while number >= self.count {
            number = self.bits.back(number);
        }
        number
    }
}

/// Mixes bits: every bit of the result depends on every bit of `x` (the finalizer of Vigna's
/// SplitMix64, 2015).
pub(crate) fn mixed(x: u64) -> u64 {
    let mut z = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Inverse of an odd number modulo 2^64, by Newton's method: each step doubles the number of
/// correct bits, and an odd number is its own inverse modulo 8.
fn inverse(odd: u64) -> u64 {
    (0..5).fold(odd, |x, _| x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // The first 4096 of 2^16 numbers, in order, in 256 buckets by their upper bits: under a random
    // hash a bucket gets 16 ± 4; eight sigma allowed.
    #[test]
    fn runs_of_numbers_spread() {
        for seed in 0..20 {
            let bits = Bits::new(16, seed);
            let mut buckets = [0u32; 256];
            (0..4096).for_each(|x| buckets[(bits.forward(x) >> 8) as usize] += 1);
            assert!(buckets.iter().all(|n| n.abs_diff(16) < 32), "{seed}: {buckets:?}");
        }
    }

    proptest! {
        #[test]
        fn back_undoes_forward(bits in 1u32..64, seed: u64, x: u64) {
            let permutation = Bits::new(bits, seed);
            let x = x & permutation.mask;
            prop_assert!(permutation.forward(x) <= permutation.mask);
            prop_assert_eq!(permutation.back(permutation.forward(x)), x);
        }

        #[test]
        fn a_shuffle_visits_every_place(count in 1u64..2000, seed: u64) {
            let shuffle = Shuffle::new(count, seed);
            let mut places: Vec<u64> = (0..count).map(|x| shuffle.forward(x)).collect();
            prop_assert!(places.iter().enumerate().all(|(x, at)| shuffle.back(*at) == x as u64));
            places.sort_unstable();
            prop_assert!(places.into_iter().eq(0..count));
        }
    }
}
