//! Accesses in flight: translated by a core and not yet executed.

use tierscope_hw::{Cache, DEPTH, Source};

use super::thread::FORESEEN;
use crate::exact::memory::Spot;

/// Accesses that a core translates before it waits for the first of them: about as many as its
/// out-of-order window holds, and enough for the host to prefetch.
pub(super) const WINDOW: usize = 16;
const _: () = assert!(WINDOW <= FORESEEN);

/// An access that was translated and not yet executed.
#[derive(Clone, Copy)]
pub(super) struct Pending {
    pub(super) spot: Spot,
    pub(super) linear: u64,
    /// Number of accesses just before this one that cost only their cycles.
    pub(super) plain: u8,
    pub(super) source: Source,
    pub(super) stores: bool,
    /// The core's private caches have the line.
    pub(super) private: bool,
    /// Number of entries that the access's walk read.
    pub(super) reads: u8,
    /// Bitmap of these entries: those in which the walk set a flag.
    pub(super) marks: u8,
}

/// The queue of translated accesses with something to wait for.
pub(super) struct Window {
    pub(super) pending: [Pending; WINDOW],
    pub(super) count: usize,
    /// Accesses after the last pending one that cost only their cycles.
    pub(super) plain: u8,
    /// Entries read by the walks, in order.
    pub(super) reads: [Spot; DEPTH * WINDOW],
    read: usize,
}

impl Window {
    pub(super) fn new() -> Self {
        let none = Pending {
            spot: Spot::default(),
            linear: 0,
            plain: 0,
            source: Source::L1,
            stores: false,
            private: false,
            reads: 0,
            marks: 0,
        };
        Self {
            pending: [none; WINDOW],
            count: 0,
            plain: 0,
            reads: [Spot::default(); DEPTH * WINDOW],
            read: 0,
        }
    }

    #[inline(always)]
    pub(super) fn clear(&mut self) {
        (self.count, self.plain, self.read) = (0, 0, 0);
    }

    /// Keeps the entries that a walk read. Prefetches on the host the lines of the last-level
    /// cache's model.
    #[inline(always)]
    pub(super) fn keep_reads(&mut self, addresses: &[u64], llc: Option<&Cache>) {
        for (kept, address) in self.reads[self.read..].iter_mut().zip(addresses) {
            *kept = Spot::new(*address, llc);
            if let Some(llc) = llc {
                llc.prefetch_host(kept.place);
            }
        }
        self.read += addresses.len();
    }
}
