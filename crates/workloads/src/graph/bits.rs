//! Bitmaps in the program's memory.

use crate::team::{Array, Out};

/// A bitmap, in words of 64 bits.
pub(crate) struct Bits {
    words: Vec<u64>,
    array: Array,
}

/// Bytes of a bitmap of `count` bits.
pub(crate) fn bytes(count: u64) -> u64 {
    count.div_ceil(64) * 8
}

impl Bits {
    /// An all-zero bitmap; makes no accesses yet.
    pub(crate) fn new(count: u64, base: u64) -> Self {
        Self { words: vec![0; count.div_ceil(64) as usize], array: Array::new(base, 8) }
    }

    #[inline(always)]
    pub(crate) fn get(&self, at: u64, out: &mut Out) -> bool {
        out.read(self.array, at / 64);
        self.words[(at / 64) as usize] >> (at % 64) & 1 == 1
    }

    #[inline(always)]
    pub(crate) fn set(&mut self, at: u64, out: &mut Out) {
        out.update(self.array, at / 64);
        self.words[(at / 64) as usize] |= 1 << (at % 64);
    }

    pub(crate) fn reset(&mut self, out: &mut Out) {
        self.words.fill(0);
        out.fill(self.array, self.words.len() as u64 * 8);
    }
}
