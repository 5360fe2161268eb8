//! Translations that a change of a page table made stale.

use tierscope_core::Range;
use tierscope_hw::PageSize;

/// Translations that TLBs must drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(in crate::exact) struct Stale {
    pub(in crate::exact) range: Range,
    /// Number of changed pages, of any size.
    pub(in crate::exact) pages: u64,
    /// Size of the smallest changed page.
    pub(in crate::exact) size: PageSize,
}

impl Stale {
    pub(in crate::exact) fn nothing(range: Range) -> Self {
        Self { range, pages: 0, size: PageSize::G1 }
    }

    pub(in crate::exact) fn add(&mut self, size: PageSize) {
        self.pages += 1;
        self.size = self.size.min(size);
    }
}
