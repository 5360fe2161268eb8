//! Requests as every pipeline of a controller needs them, taken apart once for all.

use tierscope_core::BusRecord;

/// Requests that pipelines see at a time: what the match stage reads of them (12 KiB), what it finds
/// (4 KiB), and a pipeline's table (16 KiB) then fit a first-level cache of 32 KiB.
pub(super) const ROOM: usize = 1 << 10;

/// A counter to update: bits 0..13 the word, 13..16 the channel, 16..19 which counter of the word,
/// 19..32 which request of the part. The lowest 16 bits are the word's place among all channels'.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Found(u32);

impl Found {
    /// The word among those of all channels.
    #[inline(always)]
    pub(super) fn place(self) -> usize {
        usize::from(self.0 as u16)
    }

    #[inline(always)]
    pub(super) fn channel(self) -> usize {
        (self.0 >> 13 & 7) as usize
    }

    #[inline(always)]
    pub(super) fn at(self) -> usize {
        (self.0 >> 19) as usize
    }

    /// The state, of counters of which 2^`per` share a word.
    #[inline(always)]
    pub(super) fn state(self, per: u32) -> u32 {
        (self.0 & 0x1fff) << per | (self.0 >> 16 & 7)
    }

    /// The same request and channel, with a state; what is no state makes no sense, but no harm.
    #[inline(always)]
    pub(super) fn with_state(self, state: u64, per: u32) -> Self {
        let lane = state as u32 & ((1 << per) - 1);
        Self(self.0 | (state >> per) as u32 & 0x1fff | lane << 16)
    }
}

/// Requests that wait to be seen by all pipelines.
#[derive(Clone, Debug, Default)]
pub(super) struct Part {
    /// As they came.
    pub(super) records: Vec<BusRecord>,
    /// Their addresses; bit 48 says write.
    pub(super) addresses: Vec<u64>,
    /// Their numbers and channels, with word 0.
    pub(super) places: Vec<Found>,
}

impl Part {
    /// How many more there is room for.
    pub(super) fn room(&self) -> usize {
        ROOM - self.records.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Adds requests, for which there must be room.
    pub(super) fn extend(&mut self, batch: &[BusRecord], channel_shift: u32, channels: usize) {
        debug_assert!(batch.len() <= self.room());
        let first = self.records.len();
        let mask = channels as u64 - 1;
        self.records.extend_from_slice(batch);
        self.addresses.extend(
            batch.iter().map(|record| record.address() | u64::from(record.is_write()) << 48),
        );
        self.places.extend(batch.iter().enumerate().map(|(n, record)| {
            let channel = (record.address() >> channel_shift & mask) as u32;
            Found(channel << 13 | ((first + n) as u32) << 19)
        }));
    }

    pub(super) fn clear(&mut self) {
        self.records.clear();
        self.addresses.clear();
        self.places.clear();
    }
}
