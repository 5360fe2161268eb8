//! A chunk of requests, decoded once for all pipelines of a controller.

use tierscope_core::BusRecord;

/// Requests of a chunk: the match stage's input (12 KiB), its output (4 KiB) and a pipeline's table
/// (16 KiB) together fit a 32 KiB L1 cache.
pub(super) const CHUNK_REQUESTS: usize = 1 << 10;

/// A counter to update: bits 0..13 the word, 13..16 the channel, 16..19 the counter within the
/// word, 19..32 the request within the chunk. The lowest 16 bits are the word's index over all
/// channels.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Match(u32);

impl Match {
    /// Index of the word over all channels.
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

    /// Number of the state; 2^`per` counters share a word.
    #[inline(always)]
    pub(super) fn state(self, per: u32) -> u32 {
        (self.0 & 0x1fff) << per | (self.0 >> 16 & 7)
    }

    /// The same request and channel, with another state; an invalid state yields a meaningless but
    /// harmless value.
    #[inline(always)]
    pub(super) fn with_state(self, state: u64, per: u32) -> Self {
        let lane = state as u32 & ((1 << per) - 1);
        Self(self.0 | (state >> per) as u32 & 0x1fff | lane << 16)
    }
}

/// Requests that all pipelines have yet to process.
#[derive(Clone, Debug, Default)]
pub(super) struct Chunk {
    /// The requests in order.
    pub(super) records: Vec<BusRecord>,
    /// Their addresses; bit 48 is set for writes.
    pub(super) addresses: Vec<u64>,
    /// Their numbers and channels, with word 0.
    pub(super) places: Vec<Match>,
}

impl Chunk {
    /// Free capacity.
    pub(super) fn room(&self) -> usize {
        CHUNK_REQUESTS - self.records.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Appends requests, which must fit.
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
            Match(channel << 13 | ((first + n) as u32) << 19)
        }));
    }

    pub(super) fn clear(&mut self) {
        self.records.clear();
        self.addresses.clear();
        self.places.clear();
    }
}
