//! How long a thread's operations take, where its program marks their last accesses.

use std::collections::VecDeque;

use super::tier::NS;
use crate::latency::Latencies;

/// A thread's operations. Its client asks for the next as soon as one is done, so an operation takes from the
/// end of the one before, or from when the thread woke, to the end of its last access: what faults,
/// interrupts and other threads of the core take is in it.
pub(super) struct Operations {
    /// After how many accesses of the thread those end that were drawn, but for the next.
    ends: VecDeque<u64>,
    /// After how many the next ends; `u64::MAX` for none that is known.
    next: u64,
    since: u64,
    pub(super) took: Latencies,
}

impl Operations {
    /// Those of a thread that begins at `now`.
    pub(super) fn new(now: u64) -> Self {
        Self { ends: VecDeque::new(), next: u64::MAX, since: now, took: Latencies::default() }
    }

    /// One is drawn that ends after so many accesses.
    pub(super) fn will_end(&mut self, after: u64) {
        match self.next {
            u64::MAX => self.next = after,
            _ => self.ends.push_back(after),
        }
    }

    /// The thread does nothing until `now`.
    pub(super) fn rest(&mut self, now: u64) {
        self.since = self.since.max(now);
    }

    /// Accesses until the next ends, when so many are carried out.
    #[inline(always)]
    pub(super) fn left(&self, carried: u64) -> usize {
        usize::try_from(self.next - carried).unwrap_or(usize::MAX)
    }

    /// So many are carried out at `now`.
    #[inline(always)]
    pub(super) fn carried(&mut self, carried: u64, now: u64) {
        if carried == self.next {
            self.end(now);
        }
    }

    #[cold]
    fn end(&mut self, now: u64) {
        self.took.count((now - self.since + NS / 2) / NS);
        self.since = now;
        self.next = self.ends.pop_front().unwrap_or(u64::MAX);
    }
}
