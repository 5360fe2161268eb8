//! Vertex queues that proceed by levels: the front level is read while the next one is appended.

use std::ops::Range;

use crate::team::{Array, Out};

/// Vertices that a lane buffers before it appends them: GAPBS's `QueueBuffer`.
const KEPT: usize = 16_384;

/// A queue shared by lanes, with a buffer per lane. Buffers stay in the lanes' own caches, so
/// accesses to them are left out.
pub(crate) struct Queue {
    array: Array,
    items: Vec<u32>,
    /// Positions of the level that is read.
    window: Range<usize>,
    kept: Vec<Vec<u32>>,
}

impl Queue {
    pub(crate) fn new(base: u64, width: u64, lanes: usize) -> Self {
        let kept = vec![Vec::new(); lanes];
        Self { array: Array::new(base, width), items: Vec::new(), window: 0..0, kept }
    }

    /// Empties the queue.
    pub(crate) fn clear(&mut self) {
        self.items.clear();
        self.window = 0..0;
    }

    /// Number of vertices in the level that is read.
    pub(crate) fn len(&self) -> u64 {
        self.window.len() as u64
    }

    /// Positions of the level that is read, from the queue's beginning.
    pub(crate) fn window(&self) -> Range<usize> {
        self.window.clone()
    }

    /// Makes the appended vertices the level that is read.
    pub(crate) fn slide(&mut self) {
        self.window = self.window.end..self.items.len();
    }

    /// Reads a vertex of the level, by its position in the level.
    #[inline(always)]
    pub(crate) fn get(&self, item: u64, out: &mut Out) -> u32 {
        self.at(self.window.start as u64 + item, out)
    }

    /// Reads a vertex, by its position in the queue.
    #[inline(always)]
    pub(crate) fn at(&self, at: u64, out: &mut Out) -> u32 {
        out.read(self.array, at);
        self.items[at as usize]
    }

    /// Appends a vertex immediately.
    pub(crate) fn push(&mut self, vertex: u32, out: &mut Out) {
        out.write(self.array, self.items.len() as u64);
        self.items.push(vertex);
    }

    /// Adds a vertex to a lane's buffer, which is flushed when it is full.
    #[inline(always)]
    pub(crate) fn keep(&mut self, lane: usize, vertex: u32, out: &mut Out) {
        self.kept[lane].push(vertex);
        if self.kept[lane].len() == KEPT {
            self.flush(lane, out);
        }
    }

    /// Appends all vertices of a lane's buffer.
    pub(crate) fn flush(&mut self, lane: usize, out: &mut Out) {
        let mut kept = std::mem::take(&mut self.kept[lane]);
        kept.drain(..).for_each(|vertex| self.push(vertex, out));
        self.kept[lane] = kept;
    }
}
