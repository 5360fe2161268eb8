//! Places of lines in the last-level cache, computed once for an access.

use tierscope_hw::{Cache, Place};

/// A physical address, and the place of its line in the last-level cache.
#[derive(Clone, Copy, Default)]
pub(crate) struct LinePlace {
    pub(crate) address: u64,
    pub(crate) place: Place,
}

impl LinePlace {
    #[inline(always)]
    pub(crate) fn new(address: u64, llc: Option<&Cache>) -> Self {
        Self { address, place: llc.map_or(Place::default(), |llc| llc.place(address)) }
    }
}
