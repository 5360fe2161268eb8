//! Count and checksum of accesses.

use crate::stream::Touch;

/// Counts and checksums accesses, so that a replay can be compared with the original.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of accesses.
    pub touches: u64,
    sum: u64,
}

impl Tally {
    /// Adds accesses.
    #[inline]
    pub fn add(&mut self, touches: &[Touch]) {
        self.touches += touches.len() as u64;
        self.sum = touches.iter().fold(self.sum, |sum, touch| sum.wrapping_add(touch.bits()));
    }

    /// Checksum: the sum of all addresses and kinds, folded to 32 bits.
    #[must_use]
    pub fn checksum(&self) -> u32 {
        (self.sum ^ (self.sum >> 32)) as u32
    }
}
