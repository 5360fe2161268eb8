//! Places of lines in the last-level cache, computed once for an access.

use tierscope_hw::{Cache, Place};

/// A physical address, and the place of its line in the last-level cache.
#[derive(Clone, Copy, Default)]
pub(in crate::exact) struct LinePlace {
    pub(in crate::exact) address: u64,
    pub(in crate::exact) place: Place,
}

impl LinePlace {
    #[inline(always)]
    pub(in crate::exact) fn new(address: u64, llc: Option<&Cache>) -> Self {
        Self { address, place: llc.map_or(Place::default(), |llc| llc.place(address)) }
    }
}
