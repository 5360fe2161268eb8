//! Records of memory bus requests.

use crate::Time;

/// One request as a memory controller sees it: 16 bytes, so that batches stay in cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct BusRecord {
    /// Bits 0..48: physical address. Bit 48: write. Bits 49..52: channel. Bits 52..64: requester.
    packed: u64,
    /// Nanoseconds of the machine's clock.
    nanos: u64,
}

impl BusRecord {
    /// Bytes per request: a cache line. Memory controllers see no other lengths.
    pub const BYTES: u64 = 64;
    /// The highest byte address that a record can hold.
    pub const LAST_ADDRESS: u64 = (1 << Self::ADDRESS_BITS) - 1;

    const ADDRESS_BITS: u32 = 48;
    const ADDRESS_MASK: u64 = (1 << Self::ADDRESS_BITS) - 1;
    const WRITE: u64 = 1 << Self::ADDRESS_BITS;
    const CHANNEL_SHIFT: u32 = 49;
    const REQUESTER_SHIFT: u32 = 52;

    /// A request for the physical address `address` (below 2^48).
    #[must_use]
    pub fn new(time: Time, address: u64, write: bool) -> Self {
        debug_assert!(address <= Self::ADDRESS_MASK);
        let write = if write { Self::WRITE } else { 0 };
        Self { packed: (address & Self::ADDRESS_MASK) | write, nanos: time.0 }
    }

    /// The same request, on `channel` (0..8) and from `requester` (0..4096).
    #[must_use]
    pub fn via(mut self, channel: u8, requester: u16) -> Self {
        debug_assert!(channel < 8 && requester < 4096);
        self.packed &= Self::ADDRESS_MASK | Self::WRITE;
        self.packed |= u64::from(channel & 7) << Self::CHANNEL_SHIFT;
        self.packed |= u64::from(requester & 0xfff) << Self::REQUESTER_SHIFT;
        self
    }

    /// Physical address of the request.
    #[must_use]
    #[inline]
    pub fn address(self) -> u64 {
        self.packed & Self::ADDRESS_MASK
    }

    /// Whether the request writes.
    #[must_use]
    #[inline]
    pub fn is_write(self) -> bool {
        self.packed & Self::WRITE != 0
    }

    /// The memory channel of the request.
    #[must_use]
    #[inline]
    pub fn channel(self) -> u8 {
        ((self.packed >> Self::CHANNEL_SHIFT) & 7) as u8
    }

    /// The core or device that issued the request.
    #[must_use]
    #[inline]
    pub fn requester(self) -> u16 {
        (self.packed >> Self::REQUESTER_SHIFT) as u16
    }

    /// When the request crossed the bus.
    #[must_use]
    #[inline]
    pub fn time(self) -> Time {
        Time(self.nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_bytes_keep_every_field() {
        assert_eq!(size_of::<BusRecord>(), 16);
        let record = BusRecord::new(Time(9), 0x1234_5678_9abc, true).via(5, 77);
        assert_eq!(record.address(), 0x1234_5678_9abc);
        assert!(record.is_write());
        assert_eq!((record.channel(), record.requester(), record.time()), (5, 77, Time(9)));
    }
}
