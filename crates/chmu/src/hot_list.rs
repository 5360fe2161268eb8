//! The hot list: a ring of entries, each a unit and its count.

use std::collections::VecDeque;

/// A ring. One place stays free, so that an empty ring differs from a full one.
#[derive(Clone, Debug)]
pub(crate) struct HotList {
    places: u16,
    /// Index of the oldest entry.
    head: u16,
    entries: VecDeque<u64>,
    /// Whether an entry found no place since the flag was last cleared.
    pub(crate) overflowed: bool,
}

impl HotList {
    pub(crate) fn new(places: u16) -> Self {
        Self { places, head: 0, entries: VecDeque::new(), overflowed: false }
    }

    pub(crate) fn reset(&mut self) {
        *self = Self::new(self.places);
    }

    /// Appends an entry; returns whether there was a place for it.
    pub(crate) fn push(&mut self, entry: u64) -> bool {
        let room = self.entries.len() + 1 < usize::from(self.places);
        if room {
            self.entries.push_back(entry);
        }
        self.overflowed |= !room;
        room
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn head(&self) -> u16 {
        self.head
    }

    pub(crate) fn tail(&self) -> u16 {
        ((usize::from(self.head) + self.len()) % usize::from(self.places)) as u16
    }

    /// Moves the head to `head`, which frees the entries before it. A head that is not within the
    /// entries frees all of them, as an empty ring is the only state that it describes.
    pub(crate) fn advance(&mut self, head: u16) {
        let places = usize::from(self.places);
        let freed = (usize::from(head) + places - usize::from(self.head)) % places;
        self.entries.drain(..freed.min(self.entries.len()));
        self.head = ((usize::from(self.head) + freed.min(places)) % places) as u16;
    }

    /// The entry at a place; 0 where there is none.
    pub(crate) fn at(&self, place: u16) -> u64 {
        let places = usize::from(self.places);
        let ahead = (usize::from(place) + places - usize::from(self.head)) % places;
        self.entries.get(ahead).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Four places hold three entries; the fourth is lost. After two are read, two more fit.
    #[test]
    fn a_full_ring_loses_entries_and_says_so() {
        let mut ring = HotList::new(4);
        assert_eq!([7, 8, 9, 10].map(|entry| ring.push(entry)), [true, true, true, false]);
        assert_eq!((ring.head(), ring.tail(), ring.overflowed), (0, 3, true));
        assert_eq!([0, 1, 2, 3].map(|place| ring.at(place)), [7, 8, 9, 0]);
        ring.advance(2);
        assert_eq!([11, 12, 13].map(|entry| ring.push(entry)), [true, true, false]);
        assert_eq!((ring.head(), ring.tail()), (2, 1));
        assert_eq!([2, 3, 0].map(|place| ring.at(place)), [9, 11, 12]);
        ring.advance(1);
        assert_eq!((ring.len(), ring.head(), ring.tail()), (0, 1, 1));
    }

    // A head of 3 with entries in 0 and 1 only: nothing is left, and the ring goes on from there.
    #[test]
    fn a_head_beyond_the_entries_empties_the_ring() {
        let mut ring = HotList::new(4);
        ring.push(7);
        ring.push(8);
        ring.advance(3);
        assert_eq!((ring.len(), ring.head(), ring.tail()), (0, 3, 3));
        ring.advance(u16::MAX);
        assert_eq!(ring.len(), 0);
    }
}
