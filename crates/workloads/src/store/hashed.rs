//! Hash tables computed on the fly: the keys of each bucket after a load, without building the
//! table.
//!
//! An invertible hash maps key numbers to more places than there are keys; the upper bits of a
//! place are its bucket. So the keys of a bucket are found by inverting its few places, a
//! terabyte's index costs the host nothing, and only buckets that changed since the load are
//! stored.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::permutation::{Bits, mixed};

/// Minimum of the bits of a place below its bucket: with fewer than 16 places per bucket, keys
/// would be distributed too evenly, as each place holds at most one key.
const LEAST_LOW: u32 = 4;
/// Places per key, as a power of two, for the same reason: the number of keys in a bucket is then
/// practically Poisson-distributed.
const SPREAD: u32 = 4;

/// A hash function over key numbers, and the buckets after the keys `0..loaded` were inserted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hashed {
    places: Bits,
    low: u32,
    loaded: u64,
}

impl Hashed {
    /// A table of `2^buckets` buckets for keys below `keys`.
    pub(crate) fn new(buckets: u32, keys: u64, loaded: u64) -> Self {
        let keys = 64 - keys.leading_zeros();
        let bits = (buckets + LEAST_LOW).max(keys + SPREAD);
        Self { places: Bits::new(bits, 0x7165_7273), low: bits - buckets, loaded }
    }

    /// The bucket of a key.
    pub(crate) fn bucket(&self, key: u64) -> u64 {
        self.places.forward(key) >> self.low
    }

    /// The loaded keys of a bucket, in the order of insertion.
    pub(crate) fn loaded(&self, bucket: u64) -> Vec<u64> {
        let places = (bucket << self.low)..(bucket + 1) << self.low;
        let mut keys: Vec<u64> =
            places.map(|place| self.places.back(place)).filter(|key| *key < self.loaded).collect();
        keys.sort_unstable();
        keys
    }
}

/// The binary logarithm of `number`, rounded up.
pub(crate) fn log2_up(number: u64) -> u32 {
    64 - number.saturating_sub(1).leading_zeros()
}

/// A sparse table: stores only the values that changed since the load.
#[derive(Debug)]
pub(crate) struct ChangedValues<V>(HashMap<u64, V, BuildHasherDefault<Mixer>>);

impl<V> Default for ChangedValues<V> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

impl<V> ChangedValues<V> {
    /// Value `number`, if it has changed.
    pub(crate) fn get(&self, number: u64) -> Option<&V> {
        self.0.get(&number)
    }

    /// Value `number`, for changing; `initial` computes its value after the load.
    pub(crate) fn entry(&mut self, number: u64, initial: impl FnOnce() -> V) -> &mut V {
        self.0.entry(number).or_insert_with(initial)
    }

    /// Sets value `number`.
    pub(crate) fn set(&mut self, number: u64, value: V) {
        self.0.insert(number, value);
    }

    /// Removes value `number`, which is not used any more.
    pub(crate) fn forget(&mut self, number: u64) {
        self.0.remove(&number);
    }
}

impl<V: Clone> ChangedValues<V> {
    /// Value `number`, changed or initial.
    pub(crate) fn look(&self, number: u64, initial: impl FnOnce() -> V) -> Cow<'_, V> {
        self.0.get(&number).map_or_else(|| Cow::Owned(initial()), Cow::Borrowed)
    }
}

/// A hasher for a single number.
#[derive(Default)]
pub(crate) struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = mixed(self.0 ^ u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = mixed(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // 2^14 keys in 2^14 buckets: the Poisson distribution with mean 1 has 36.8 % empty, 36.8 % with
    // one key, 18.4 % with two, 1.9 % with more than three. Of 16,384 buckets 6027 ± 62, 3014 ± 50,
    // 311 ± 17.
    #[test]
    fn buckets_are_filled_as_by_chance() {
        let hashed = Hashed::new(14, 1 << 14, 1 << 14);
        let mut with = [0u32; 20];
        (0..1 << 14).for_each(|bucket| with[hashed.loaded(bucket).len()] += 1);
        assert!(with[0].abs_diff(6027) < 400, "{with:?}");
        assert!(with[1].abs_diff(6027) < 400, "{with:?}");
        assert!(with[2].abs_diff(3014) < 300, "{with:?}");
        assert!(with[4..].iter().sum::<u32>().abs_diff(311) < 110, "{with:?}");
    }

    #[test]
    fn powers_of_two() {
        assert_eq!([1, 2, 3, 4, 5, 1 << 40].map(log2_up), [0, 1, 2, 2, 3, 40]);
    }

    proptest! {
        #[test]
        fn every_key_is_in_its_bucket_and_in_no_other(buckets in 0u32..8, keys in 1u64..500, loaded in 0u64..500) {
            let loaded = loaded.min(keys);
            let hashed = Hashed::new(buckets, keys, loaded);
            let mut seen = Vec::new();
            for bucket in 0..1 << buckets {
                let here = hashed.loaded(bucket);
                prop_assert!(here.iter().all(|key| hashed.bucket(*key) == bucket));
                seen.extend(here);
            }
            seen.sort_unstable();
            prop_assert!(seen.into_iter().eq(0..loaded));
        }
    }
}
