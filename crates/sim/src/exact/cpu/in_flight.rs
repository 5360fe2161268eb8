//! Accesses in flight: translated by a core and not yet executed.

use tierscope_hw::{Cache, DEPTH, Source};

use super::thread::LOOKAHEAD;
use crate::exact::memory::LinePlace;

/// Accesses that a core translates before it waits for the first of them: about as many as its
/// out-of-order window holds, and enough for the host to prefetch.
pub(super) const MOST_IN_FLIGHT: usize = 16;
const _: () = assert!(MOST_IN_FLIGHT <= LOOKAHEAD);
/// Entries that the walks of these read, at most.
const MOST_READS: usize = DEPTH * MOST_IN_FLIGHT;

/// An access that was translated and not yet executed.
#[derive(Clone, Copy)]
pub(super) struct Pending {
    pub(super) line: LinePlace,
    pub(super) linear: u64,
    /// Number of accesses just before this one that cost only their cycles.
    pub(super) plain: u8,
    pub(super) source: Source,
    pub(super) stores: bool,
    /// The address depends on the data of the access before.
    pub(super) depends: bool,
    /// The core's private caches have the line.
    pub(super) private: bool,
    pub(super) walk: WalkReads,
}

/// Entries that a walk read.
#[derive(Clone, Copy, Default)]
pub(super) struct WalkReads {
    /// Number of entries that the core's private caches have.
    pub(super) private: u8,
    /// Number of the others, which are queued.
    pub(super) queued: u8,
    /// Bitmap of the queued entries: those in which the walk set a flag.
    pub(super) marks: u8,
}

/// The queue of translated accesses with something to wait for.
pub(super) struct InFlight {
    pub(super) pending: [Pending; MOST_IN_FLIGHT],
    pub(super) count: usize,
    /// Accesses after the last pending one that cost only their cycles.
    pub(super) plain: u8,
    /// Entries read by the walks that the private caches lack, in order.
    pub(super) reads: [LinePlace; MOST_READS],
    read: usize,
}

impl InFlight {
    pub(super) fn new() -> Self {
        let none = Pending {
            line: LinePlace::default(),
            linear: 0,
            plain: 0,
            source: Source::L1,
            stores: false,
            depends: false,
            private: false,
            walk: WalkReads { private: 0, queued: 0, marks: 0 },
        };
        Self {
            pending: [none; MOST_IN_FLIGHT],
            count: 0,
            plain: 0,
            reads: [LinePlace::default(); MOST_READS],
            read: 0,
        }
    }

    #[inline(always)]
    pub(super) fn clear(&mut self) {
        (self.count, self.plain, self.read) = (0, 0, 0);
    }

    /// Queues an entry that a walk read. Prefetches on the host the line of the last-level cache's
    /// model.
    #[inline(always)]
    pub(super) fn enqueue_read(&mut self, address: u64, llc: Option<&Cache>) {
        let line = LinePlace::new(address, llc);
        if let Some(llc) = llc {
            llc.prefetch_host(line.place);
        }
        self.reads[self.read % MOST_READS] = line;
        self.read += 1;
    }
}
