//! Bounded logs of entries for a reader, with a count of those lost while the log was full.

use std::collections::VecDeque;

use tierscope_core::Lost;

/// Capacity of a log, of the order of the kernel's buffers.
const ROOM: usize = 1 << 20;

/// A bounded queue.
#[derive(Clone, Debug)]
pub(super) struct Log<T> {
    waiting: VecDeque<T>,
    lost: u64,
    room: usize,
}

impl<T> Default for Log<T> {
    fn default() -> Self {
        Self::with_room(ROOM)
    }
}

impl<T> Log<T> {
    pub(super) fn with_room(room: usize) -> Self {
        Self { waiting: VecDeque::new(), lost: 0, room }
    }

    /// Appends an entry; if the log is full, the entry is lost.
    pub(super) fn push(&mut self, item: T) {
        if self.waiting.len() < self.room {
            self.waiting.push_back(item);
        } else {
            self.lost += 1;
        }
    }

    /// Counts `count` entries as lost that were never appended.
    pub(super) fn lose(&mut self, count: u64) {
        self.lost += count;
    }

    /// Moves all entries to `out`; returns how many were lost since the last call.
    pub(super) fn drain(&mut self, out: &mut Vec<T>) -> Lost {
        out.extend(self.waiting.drain(..));
        Lost(std::mem::take(&mut self.lost))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_log_counts_lost_entries() {
        let mut log = Log::with_room(2);
        (0..5).for_each(|item| log.push(item));
        let mut out = Vec::new();
        assert_eq!((log.drain(&mut out), out), (Lost(3), vec![0, 1]));
        assert_eq!(log.drain(&mut Vec::new()), Lost(0));
    }
}
