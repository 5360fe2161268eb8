//! In which order pages came to a list's head: a hint at whom its hand meets next.
//!
//! A list's links tell the next page only when the last one's have arrived from memory: 100 ns each once
//! the order is random. The trail tells hundreds at once, so that they arrive together. It is a hint and
//! no more: pages that left the list, or were put to its tail, make it miss.

use std::collections::VecDeque;

/// Entries of a chunk: memory is taken and given back by so many.
const CHUNK: usize = 4096;
/// Entries looked through for a page before the hints are left as they are.
const AHEAD: usize = 64;

/// The hints, four bytes each.
#[derive(Clone, Debug, Default)]
pub(super) struct Trail {
    chunks: VecDeque<Box<[u32]>>,
    /// Entries taken of the first chunk, and in use from there on.
    first: usize,
    len: usize,
}

impl Trail {
    /// A page came to the head of a list that has so many. What is too old is forgotten.
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

    /// The oldest `count` go.
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

    /// The page that came longest ago, or so many after it.
    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<u32> {
        let at = self.first + index;
        (index < self.len).then(|| self.chunks[at / CHUNK][at % CHUNK])
    }

    /// The hand met a page: the hints up to it are used up.
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
        let mut trail = Trail::default();
        (0..10_000).for_each(|page| trail.push(page, 10_000));
        assert_eq!((trail.len, trail.get(0), trail.get(9999)), (10_000, Some(0), Some(9999)));
        // Page 0 left; page 1 is met first, and 77 is too far ahead.
        trail.met(1);
        assert_eq!(trail.get(0), Some(2));
        trail.met(77);
        assert_eq!(trail.get(0), Some(2));
        (2..9000).for_each(|page| trail.met(page));
        assert_eq!((trail.get(0), trail.len), (Some(9000), 1000));
    }

    // A list of ten pages keeps no more than a chunk of old hints.
    #[test]
    fn old_hints_are_forgotten() {
        let mut trail = Trail::default();
        (0..100_000).for_each(|page| trail.push(page % 10, 10));
        assert!(trail.len <= CHUNK + 10 && trail.chunks.len() <= 3, "{}", trail.len);
    }
}
