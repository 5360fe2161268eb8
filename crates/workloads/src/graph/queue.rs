//! Queues of vertices whose front is read while the back grows, level by level.

use std::ops::Range;

use crate::team::{Array, Out};

/// Vertices that a lane keeps to itself before it appends them all: GAPBS's `QueueBuffer`.
const KEPT: usize = 16_384;

/// A queue shared by lanes, with a buffer for each. The buffers lie in the lanes' own caches: what
/// goes there is not handed out.
pub(crate) struct Queue {
    array: Array,
    items: Vec<u32>,
    /// The level that is read.
    window: Range<usize>,
    kept: Vec<Vec<u32>>,
}

impl Queue {
    pub(crate) fn new(base: u64, width: u64, lanes: usize) -> Self {
        let kept = vec![Vec::new(); lanes];
        Self { array: Array::new(base, width), items: Vec::new(), window: 0..0, kept }
    }

    /// Empty again.
    pub(crate) fn clear(&mut self) {
        self.items.clear();
        self.window = 0..0;
    }

    /// How many are in the level that is read.
    pub(crate) fn len(&self) -> u64 {
        self.window.len() as u64
    }

    /// Where the level that is read begins and ends, from the queue's beginning.
    pub(crate) fn window(&self) -> Range<usize> {
        self.window.clone()
    }

    /// What was appended becomes the level that is read.
    pub(crate) fn slide(&mut self) {
        self.window = self.window.end..self.items.len();
    }

    /// Reads an item of the level.
    #[inline(always)]
    pub(crate) fn get(&self, item: u64, out: &mut Out) -> u32 {
        self.at(self.window.start as u64 + item, out)
    }

    /// Reads any item.
    #[inline(always)]
    pub(crate) fn at(&self, at: u64, out: &mut Out) -> u32 {
        out.read(self.array, at);
        self.items[at as usize]
    }

    /// Appends one at once.
    pub(crate) fn push(&mut self, vertex: u32, out: &mut Out) {
        out.write(self.array, self.items.len() as u64);
        self.items.push(vertex);
    }

    /// Appends one in a lane's own time.
    #[inline(always)]
    pub(crate) fn keep(&mut self, lane: usize, vertex: u32, out: &mut Out) {
        self.kept[lane].push(vertex);
        if self.kept[lane].len() == KEPT {
            self.flush(lane, out);
        }
    }

    /// Appends all that a lane kept.
    pub(crate) fn flush(&mut self, lane: usize, out: &mut Out) {
        let mut kept = std::mem::take(&mut self.kept[lane]);
        kept.drain(..).for_each(|vertex| self.push(vertex, out));
        self.kept[lane] = kept;
    }
}
