//! Splits and collapses of 2 MiB pages.

use tierscope_core::{Failure, Level, Result, SpaceId, Tier};
use tierscope_hw::PageSize;
use tierscope_hw::entry::{ACCESSED, DIRTY, FRAME_MASK, HUGE, PRESENT, WRITABLE};

use super::os::Os;
use super::stale::Stale;

impl Os {
    /// Splits the 2 MiB page at the address, if there is one, into 512 entries with its flags
    /// (mm/huge_memory.c, `__split_huge_pmd_locked`).
    pub(in crate::exact) fn split_at(&mut self, id: SpaceId, linear: u64) -> Result<Option<Stale>> {
        let Some(space) = self.space(id) else { return Ok(None) };
        let (root, uncached) = (space.root, space.uncached);
        let found = self.tables.locate(root, linear, Level::PMD);
        if found.level != Level::PMD || !found.is_leaf() {
            return Ok(None);
        }
        let Some(table) = self.tables.new_leaf(root, linear, uncached)? else { return Ok(None) };
        let first = found.entry & !HUGE;
        self.promotion_reuse.split((first & FRAME_MASK) >> 12);
        self.tables.fill(table, first);
        self.tables.attach(root, linear, found, table);
        self.charge_tables();
        let range = Level::PMD.entry_of(tierscope_core::Addr { space: id, at: linear });
        Ok(Some(Stale { range, pages: 1, size: PageSize::M2 }))
    }

    /// Collapses the 2 MiB at the address into one page in the tier that holds most of them; `None`
    /// if they are one page already. Holes are filled with zeros. The new page is young and, if
    /// writable, dirty (mm/khugepaged.c, `collapse_huge_page`).
    ///
    /// # Errors
    /// No page is there, the mapping does not cover the 2 MiB, a page is armed or locked, or the
    /// tier has no whole block.
    pub(in crate::exact) fn collapse_at(
        &mut self,
        id: SpaceId,
        linear: u64,
    ) -> Result<Option<Stale>, Failure> {
        let space = self.space(id).ok_or(Failure::Gone)?;
        let range = Level::PMD.entry_of(tierscope_core::Addr { space: id, at: linear });
        let (start, vma) = space.vma(linear).ok_or(Failure::Unmapped)?;
        let writable = vma.writable;
        if start > range.start || vma.end < range.end {
            return Err(Failure::Unsupported);
        }
        let found = self.tables.locate(space.root, linear, Level::PMD);
        if found.is_leaf() {
            return Ok(None);
        }
        if found.level != Level::PMD || !found.is_table() {
            return Err(Failure::Unmapped);
        }
        let table = found.entry & FRAME_MASK;
        let entries: Vec<u64> = (0..512).map(|at| self.tables.entry(table + at * 8)).collect();
        let mapped = || entries.iter().filter(|entry| **entry != 0);
        let out = self.swapped.holds(&range);
        if out || vma.locked || mapped().any(|entry| entry & PRESENT == 0) {
            return Err(Failure::Busy);
        }
        let mut each = vec![0u64; self.frames.tiers()];
        mapped().for_each(|entry| each[usize::from(self.frames.tier_of(entry >> 12).0)] += 1);
        let most = (0..each.len()).max_by_key(|tier| (each[*tier], usize::MAX - tier));
        let most = most.filter(|tier| each[*tier] > 0).ok_or(Failure::Unmapped)?;
        let frame = self.frames.take(Tier(most as u8), PageSize::M2).ok_or(Failure::NoRoom)?;
        mapped().for_each(|entry| self.release(id, *entry, PageSize::K4));
        self.tables.free(table);
        let flags = if writable { WRITABLE | DIRTY } else { 0 };
        self.tables.put(found.address, frame << 12 | PRESENT | ACCESSED | HUGE | flags);
        self.space_mut(id).resident[most] += 512;
        Ok(Some(Stale { range, pages: mapped().count() as u64, size: PageSize::K4 }))
    }
}
