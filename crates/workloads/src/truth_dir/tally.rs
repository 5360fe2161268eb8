//! How many accesses, and which.

use crate::stream::Touch;

/// Counts accesses and sums them up, so that a replay can be compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many.
    pub touches: u64,
    sum: u64,
}

impl Tally {
    /// Adds some.
    #[inline]
    pub fn add(&mut self, touches: &[Touch]) {
        self.touches += touches.len() as u64;
        self.sum = touches.iter().fold(self.sum, |sum, touch| sum.wrapping_add(touch.bits()));
    }

    /// The sum of all addresses and kinds, its halves folded together.
    #[must_use]
    pub fn checksum(&self) -> u32 {
        (self.sum ^ (self.sum >> 32)) as u32
    }
}
