//! Latency of a thread's operations, for programs that mark the last access of each operation.

use std::collections::VecDeque;

use crate::exact::units::NS;
use crate::latency::Latencies;

/// A thread's operations. Its client issues the next one as soon as one is done, so an operation
/// lasts from the end of the previous one, or from the thread's wakeup, to the end of its last
/// access, including time taken by faults, interrupts and other threads of the core.
pub(super) struct Operations {
    /// Ends of the drawn operations after the next one, as access counts of the thread.
    ends: VecDeque<u64>,
    /// Access count at which the next one ends; `u64::MAX` if unknown.
    next: u64,
    since: u64,
    pub(super) took: Latencies,
}

impl Operations {
    /// State of a thread that begins at `now`.
    pub(super) fn new(now: u64) -> Self {
        Self { ends: VecDeque::new(), next: u64::MAX, since: now, took: Latencies::default() }
    }

    /// Adds an operation that ends after that many accesses of the thread.
    pub(super) fn will_end(&mut self, after: u64) {
        match self.next {
            u64::MAX => self.next = after,
            _ => self.ends.push_back(after),
        }
    }

    /// The thread sleeps until `now`; that time belongs to no operation.
    pub(super) fn rest(&mut self, now: u64) {
        self.since = self.since.max(now);
    }

    /// Accesses left until the next operation ends, after `carried` accesses.
    #[inline(always)]
    pub(super) fn left(&self, carried: u64) -> usize {
        usize::try_from(self.next - carried).unwrap_or(usize::MAX)
    }

    /// `carried` accesses were executed by `now`.
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
