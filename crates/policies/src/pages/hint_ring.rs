//! Order in which pages were put at a list's head: a prefetch hint for the pages that its hand will
//! visit.
//!
//! The links of a list give the next page only after the last one has arrived from memory: 100 ns
//! each once the order is random. The trail gives hundreds at once, so that their misses overlap.
//! It is only a hint: pages that left the list, or were moved to its tail, make it wrong.

use std::collections::VecDeque;

/// Entries per chunk, the unit of allocation.
const CHUNK: usize = 4096;
/// Maximum number of entries searched for a visited page.
const AHEAD: usize = 64;

/// Ring of prefetch hints, four bytes each.
#[derive(Clone, Debug, Default)]
pub(super) struct HintRing {
    chunks: VecDeque<Box<[u32]>>,
    /// Entries consumed of the first chunk, and entries in use after them.
    first: usize,
    len: usize,
}

impl HintRing {
    /// Records that a page was put at the head of a list of `most` pages. Entries that are too old
    /// are dropped.
    #[inline]
    pub(super) fn push(&mut self, page: u32, most: usize) {
        let end = self.first + self.len;
        if end == self.chunks.len() * CHUNK {
            self.chunks.push_back(vec![0; CHUNK].into_boxed_slice());
        }
        if let Some(chunk) = self.chunks.back_mut() {
            chunk[end % CHUNK] = page;
            self.len += 1;
        }
        if self.len > most + CHUNK {
            self.skip(self.len - most);
        }
    }

    /// Drops the oldest `count` entries.
    #[inline]
    fn skip(&mut self, count: usize) {
        let count = count.min(self.len);
        self.first += count;
        self.len -= count;
        while self.first >= CHUNK {
            self.chunks.pop_front();
            self.first -= CHUNK;
        }
    }

    /// The entry at `index`, counted from the oldest.
    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<u32> {
        let at = self.first + index;
        (index < self.len).then(|| self.chunks[at / CHUNK][at % CHUNK])
    }

    /// The hand visited a page: drops the entries up to it.
    #[inline]
    pub(super) fn met(&mut self, page: u32) {
        if self.get(0) == Some(page) {
            return self.skip(1);
        }
        let found = (1..AHEAD).map_while(|index| self.get(index)).position(|hint| hint == page);
        if let Some(index) = found {
            self.skip(index + 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_come_in_the_order_of_pushes() {
        let mut trail = HintRing::default();
        (0..10_000).for_each(|page| trail.push(page, 10_000));
        assert_eq!((trail.len, trail.get(0), trail.get(9999)), (10_000, Some(0), Some(9999)));
        // Page 0 left the list; page 1 is visited first, and 77 is too far ahead.
        trail.met(1);
        assert_eq!(trail.get(0), Some(2));
        trail.met(77);
        assert_eq!(trail.get(0), Some(2));
        (2..9000).for_each(|page| trail.met(page));
        assert_eq!((trail.get(0), trail.len), (Some(9000), 1000));
    }

    // A list of ten pages keeps at most one chunk of old hints.
    #[test]
    fn old_hints_are_forgotten() {
        let mut trail = HintRing::default();
        (0..100_000).for_each(|page| trail.push(page % 10, 10));
        assert!(trail.len <= CHUNK + 10 && trail.chunks.len() <= 3, "{}", trail.len);
    }
}
