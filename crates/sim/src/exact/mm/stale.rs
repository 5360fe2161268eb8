//! Translations that a change of a page table made stale.

use tierscope_core::Range;
use tierscope_hw::PageSize;

/// Translations that TLBs must drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct Stale {
    pub(crate) range: Range,
    /// Number of changed pages, of any size.
    pub(crate) pages: u64,
    /// Size of the smallest changed page.
    pub(crate) size: PageSize,
}

impl Stale {
    pub(crate) fn nothing(range: Range) -> Self {
        Self { range, pages: 0, size: PageSize::G1 }
    }

    pub(crate) fn add(&mut self, size: PageSize) {
        self.pages += 1;
        self.size = self.size.min(size);
    }
}
