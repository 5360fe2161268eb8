//! Allocation of all missing pages of a range at once, without accesses.

use tierscope_core::{Level, Range, Result};
use tierscope_hw::PageSize;
use tierscope_hw::entry::{ACCESSED, DIRTY, PRESENT, WRITABLE};

use super::fault::{Denied, Hole};
use super::os::Os;
use crate::placement::Placement;

impl Os {
    /// Allocates every missing page of a range without an access: old and clean, as are the entries
    /// above.
    pub(in crate::exact) fn populate(&mut self, range: Range) -> Result<Result<(), Denied>> {
        let filled = self.fill_holes(range, 0)?;
        if filled.is_ok() {
            self.age_above(range);
        }
        Ok(filled)
    }

    /// Allocates every missing page of a range as if it was written: young and dirty.
    pub(in crate::exact) fn write_all(&mut self, range: Range) -> Result<Result<(), Denied>> {
        self.fill_holes(range, ACCESSED | DIRTY)
    }

    /// Allocates every missing page of a range, with these additional flags.
    fn fill_holes(&mut self, range: Range, flags: u64) -> Result<Result<(), Denied>> {
        let mut at = range.start;
        while at < range.end {
            let Some(space) = self.space(range.space) else { return Ok(Err(Denied::Unmapped)) };
            let Some((start, vma)) = space.vma(at) else { return Ok(Err(Denied::Unmapped)) };
            let (vma, uncached, root) = (vma.clone(), space.uncached_of(vma), space.root);
            let (id, end) = (range.space, range.end.min(vma.end));
            while at < end {
                let found = self.tables.locate(root, at, Level::PTE);
                let mut bytes = found.level.entry_bytes();
                if !found.is_leaf() {
                    let hole = Hole {
                        id,
                        root,
                        linear: at,
                        start,
                        vma: &vma,
                        uncached,
                        level: found.level,
                    };
                    bytes = match self.populate_one(&hole, end, flags)? {
                        Ok(bytes) => bytes,
                        Err(denied) => return Ok(Err(denied)),
                    };
                }
                at = (at & !(bytes - 1)) + bytes;
            }
        }
        Ok(Ok(()))
    }

    /// Fills a hole with one page, or with a table full of small ones; returns the bytes.
    fn populate_one(
        &mut self,
        hole: &Hole<'_>,
        end: u64,
        flags: u64,
    ) -> Result<Result<u64, Denied>> {
        let whole = PageSize::M2.bytes();
        let empty = hole.level >= Level::PMD && hole.linear.is_multiple_of(whole);
        if empty && hole.linear + whole <= end && hole.vma.pages == PageSize::K4 {
            let one_tier = match &hole.vma.placement {
                Placement::Interleave(_) => false,
                Placement::Known(map) => map.at(hole.linear).1 >= hole.linear + whole,
                Placement::FirstTouch | Placement::Bind(_) => true,
            };
            if one_tier && !hole.vma.watched && self.populate_table(hole, flags)? {
                self.forget_swapped(&Range::new(hole.id, hole.linear, hole.linear + whole));
                return Ok(Ok(whole));
            }
        }
        let placed = self.place_page(hole, flags)?;
        if let Ok((size, _)) = placed {
            let page = hole.linear & !(size.bytes() - 1);
            self.forget_swapped(&Range::new(hole.id, page, page + size.bytes()));
        }
        Ok(placed.map(|(size, _)| size.bytes()))
    }

    /// 512 small pages from one 2 MiB block, if there is a whole one.
    fn populate_table(&mut self, hole: &Hole<'_>, flags: u64) -> Result<bool> {
        let Some(first) = self.take(&hole.vma.placement, hole.linear, PageSize::M2) else {
            return Ok(false);
        };
        let address = self.tables.reach(hole.root, hole.linear, Level::PTE, hole.uncached)?;
        self.charge_tables();
        let Some(address) = address else {
            self.frames.give(first, PageSize::M2);
            return Ok(false);
        };
        let flags = flags | PRESENT | if hole.vma.writable { WRITABLE } else { 0 };
        self.tables.fill(address, first << 12 | flags);
        let tier = self.frames.tier_of(first);
        self.space_mut(hole.id).resident[usize::from(tier.0)] += 512;
        Ok(true)
    }

    /// Clears ACCESSED in the non-leaf entries above a range.
    fn age_above(&mut self, range: Range) {
        let root = self.spaces[range.space.0 as usize].root;
        for level in (2..=self.tables.levels()).filter_map(Level::new) {
            let span = level.align(&range);
            for at in (span.start..span.end).step_by(level.entry_bytes() as usize) {
                let found = self.tables.locate(root, at, level);
                if found.level == level && found.is_table() {
                    self.tables.put(found.address, found.entry & !ACCESSED);
                }
            }
        }
    }
}
