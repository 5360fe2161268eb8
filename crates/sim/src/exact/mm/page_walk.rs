//! Walks over the leaves of a range, by software.

use tierscope_core::{Level, Range, SpaceId};
use tierscope_hw::PageSize;
use tierscope_hw::entry::{FRAME_MASK, PRESENT};

use super::line::ARMED;
use super::os::Os;
use super::stale::Stale;
use super::tables::Located;

impl Os {
    /// The first leaf of the range at or after `from`, and its first address.
    pub(in crate::exact) fn next_leaf(&self, range: Range, from: u64) -> Option<(u64, Located)> {
        let root = self.space(range.space)?.root;
        let mut at = from;
        while at < range.end {
            let found = self.tables.locate(root, at, Level::PTE);
            let start = at & !(found.level.entry_bytes() - 1);
            if found.is_leaf() {
                return Some((start, found));
            }
            at = start.checked_add(found.level.entry_bytes())?;
        }
        None
    }

    /// Rewrites the leaves of a range; returns the changed ones.
    pub(super) fn each_leaf(&mut self, range: Range, rewrite: impl Fn(u64) -> u64) -> Stale {
        let mut stale = Stale::nothing(range);
        let mut from = range.start;
        while let Some((linear, leaf)) = self.next_leaf(range, from) {
            let size = PageSize::of_level(leaf.level).expect("levels of leaves have page sizes");
            let entry = rewrite(leaf.entry);
            if entry != leaf.entry {
                self.tables.put(leaf.address, entry);
                stale.add(size);
            }
            from = linear + size.bytes();
        }
        stale
    }

    /// Makes the mapped leaves of the range fault at their next access (mm/mprotect.c,
    /// `change_prot_numa`).
    pub(in crate::exact) fn arm(&mut self, range: Range) -> Stale {
        self.each_leaf(range, |entry| (entry & !PRESENT) | ARMED)
    }

    /// The physical address of a linear one, through a leaf that is present or armed.
    pub(in crate::exact) fn physical(&self, id: SpaceId, linear: u64) -> Option<u64> {
        let found = self.tables.locate(self.space(id)?.root, linear, Level::PTE);
        let within = linear & (found.level.entry_bytes() - 1);
        found.is_leaf().then_some((found.entry & FRAME_MASK) + within)
    }
}
