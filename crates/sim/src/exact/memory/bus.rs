//! The memory bus: hands records, in order of time, to an observer in large batches.

use tierscope_core::{BusObserver, BusRecord, Time};

/// Records in a batch.
const BATCH: usize = 4096;

/// Collects records for an observer. Costs nothing where the observer is `()`.
pub(in crate::exact) struct Bus<B> {
    pub(in crate::exact) observer: B,
    /// Record times follow the order of events: clock drift between cores (up to a quantum) never
    /// makes a later record look earlier.
    pub(in crate::exact) ordered: bool,
    last: u64,
    waiting: Vec<BusRecord>,
}

impl<B: BusObserver> Bus<B> {
    /// Whether there is an observer: one of size zero keeps nothing.
    pub(super) const OBSERVED: bool = size_of::<B>() > 0;

    pub(super) fn new(observer: B) -> Self {
        Self { observer, ordered: false, last: 0, waiting: Vec::new() }
    }

    /// A line crosses the bus.
    #[inline(always)]
    pub(super) fn put(&mut self, at: u64, address: u64, write: bool, cpu: usize) {
        if Self::OBSERVED {
            let mut nanos = at / crate::exact::units::NS;
            if self.ordered {
                nanos = nanos.max(self.last);
                self.last = nanos;
            }
            let record = BusRecord::new(Time(nanos), address, write);
            self.waiting.push(record.via(0, (cpu & 0xfff) as u16));
        }
    }

    /// Puts `nanos` ns between the records so far and the next one.
    pub(in crate::exact) fn pause(&mut self, nanos: u64) {
        self.last += nanos;
    }

    /// Delivers the records from before `now`, if they fill a batch or if `all` is set.
    pub(in crate::exact) fn flush(&mut self, now: Time, all: bool) {
        if !Self::OBSERVED || self.waiting.is_empty() || (self.waiting.len() < BATCH && !all) {
            return;
        }
        self.waiting.sort_by_key(|record| record.time());
        let ready = self.waiting.partition_point(|record| record.time() < now);
        if ready > 0 {
            self.observer.observe(&self.waiting[..ready]);
            self.waiting.drain(..ready);
        }
    }
}
