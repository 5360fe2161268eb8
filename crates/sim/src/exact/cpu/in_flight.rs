//! Accesses in flight: translated by a core and not yet executed.

use tierscope_hw::{Cache, DEPTH, Source};

use super::thread::LOOKAHEAD;
use crate::exact::memory::LinePlace;

/// Accesses that a core translates before it waits for the first of them: about as many as its
/// out-of-order window holds, and enough for the host to prefetch.
pub(super) const MOST_IN_FLIGHT: usize = 16;
const _: () = assert!(MOST_IN_FLIGHT <= LOOKAHEAD);

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
    /// Number of entries that the access's walk read.
    pub(super) reads: u8,
    /// Bitmap of these entries: those in which the walk set a flag.
    pub(super) marks: u8,
}

/// The queue of translated accesses with something to wait for.
pub(super) struct InFlight {
    pub(super) pending: [Pending; MOST_IN_FLIGHT],
    pub(super) count: usize,
    /// Accesses after the last pending one that cost only their cycles.
    pub(super) plain: u8,
    /// Entries read by the walks, in order.
    pub(super) reads: [LinePlace; DEPTH * MOST_IN_FLIGHT],
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
            reads: 0,
            marks: 0,
        };
        Self {
            pending: [none; MOST_IN_FLIGHT],
            count: 0,
            plain: 0,
            reads: [LinePlace::default(); DEPTH * MOST_IN_FLIGHT],
            read: 0,
        }
    }

    #[inline(always)]
    pub(super) fn clear(&mut self) {
        (self.count, self.plain, self.read) = (0, 0, 0);
    }

    /// Queues the entries that a walk read. Prefetches on the host the lines of the last-level
    /// cache's model.
    #[inline(always)]
    pub(super) fn enqueue_reads(&mut self, addresses: &[u64], llc: Option<&Cache>) {
        for (queued, address) in self.reads[self.read..].iter_mut().zip(addresses) {
            *queued = LinePlace::new(*address, llc);
            if let Some(llc) = llc {
                llc.prefetch_host(queued.place);
            }
        }
        self.read += addresses.len();
    }
}
