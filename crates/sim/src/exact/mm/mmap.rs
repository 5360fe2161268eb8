//! Changes of mappings: mmap(2), munmap(2), mprotect(2), mlock(2), madvise(2), exit of a process.

use std::sync::Arc;

use tierscope_core::{
    Error, ErrorKind, Level, PageEvent, PageEventKind, Range, Result, SpaceId, Time,
};
use tierscope_hw::PageSize;
use tierscope_hw::entry::{FRAME_MASK, WRITABLE};

use super::os::Os;
use super::space::{Map, Vma};
use super::stale::Stale;

impl Os {
    /// mmap(2).
    pub(in crate::exact) fn map(&mut self, id: SpaceId, map: &Map) -> Result<Range> {
        let space = self.alive(id)?;
        let refuse = |cause: String, remedy: &str| {
            Err(Error::new(ErrorKind::Usage, format!("cannot map {} bytes", map.bytes))
                .cause(cause)
                .remedy(remedy))
        };
        // A 2 MiB page needs its own alignment, and a hugetlbfs mapping whole pages.
        let grain = if map.pages == PageSize::G1 { map.pages.bytes() } else { 4096 };
        if map.bytes == 0 || !map.bytes.is_multiple_of(grain) {
            return refuse(format!("its size is no multiple of {grain}"), "map whole pages");
        }
        let Some(start) = map.at.or_else(|| space.room(map.bytes, map.pages.bytes())) else {
            return refuse("the address space is full".into(), "unmap something");
        };
        let top = 1u64 << (11 + 9 * u32::from(self.tables.levels()));
        let end = start.checked_add(map.bytes).filter(|end| *end <= top);
        let Some(end) = end.filter(|_| start.is_multiple_of(grain)) else {
            return refuse(
                format!("{start:#x} is not aligned, or beyond the top"),
                "choose an aligned address below the top",
            );
        };
        if space.overlaps(start, end) {
            return refuse("something is mapped there".into(), "unmap it first");
        }
        let Some(first_page) = self.pages.give(map.bytes >> 12, id, start) else {
            return refuse("page numbers have 32 bits".into(), "map less");
        };
        let vma = Vma {
            end,
            pages: map.pages,
            writable: map.writable,
            locked: false,
            watched: false,
            placement: map.placement.clone(),
            backing: map.backing,
            name: Arc::clone(&map.name),
            first_page,
        };
        self.space_mut(id).vmas.insert(start, vma);
        self.change();
        Ok(Range::new(id, start, end))
    }

    /// munmap(2): splits huge pages at its ends, frees pages and tables.
    pub(in crate::exact) fn unmap(&mut self, range: Range, now: Time) -> Result<Stale> {
        self.alive(range.space)?;
        let range = Level::PTE.align(&range);
        self.cut(range)?;
        let mut stale = self.zap(range);
        self.forget_swapped(&range);
        let space = self.space_mut(range.space);
        let gone: Vec<u64> =
            space.vmas.range(range.start..range.end).map(|(start, _)| *start).collect();
        for start in gone {
            let vma = self.space_mut(range.space).vmas.remove(&start).expect("looked up before");
            self.pages.take_back(vma.first_page);
            let freed = Range::new(range.space, start, vma.end);
            self.events.push(PageEvent { time: now, range: freed, kind: PageEventKind::Freed });
        }
        if self.free_tables(range) {
            stale.add(PageSize::K4);
        }
        self.change();
        Ok(stale)
    }

    /// Frees the pages of a range that cuts none (mm/memory.c, `zap_page_range_single`).
    fn zap(&mut self, range: Range) -> Stale {
        let mut stale = Stale::nothing(range);
        let mut from = range.start;
        while let Some((linear, leaf)) = self.next_leaf(range, from) {
            let size = PageSize::of_level(leaf.level).expect("levels of leaves have page sizes");
            self.tables.put(leaf.address, 0);
            self.release(range.space, leaf.entry, size);
            stale.add(size);
            from = linear + size.bytes();
        }
        stale
    }

    /// exit_mmap: unmaps everything and frees the space.
    pub(in crate::exact) fn destroy(&mut self, id: SpaceId, now: Time) -> Result<Stale> {
        let space = self.alive(id)?;
        let end = space.vmas.values().next_back().map_or(0, |vma| vma.end);
        let stale = self.unmap(Range::new(id, 0, end), now)?;
        let space = self.space_mut(id);
        space.alive = false;
        let root = space.root;
        self.tables.exits(root.table);
        self.tables.free(root.table);
        self.asids.give(root.asid.number().into());
        self.change();
        Ok(stale)
    }

    /// mprotect(2).
    pub(in crate::exact) fn protect(&mut self, range: Range, writable: bool) -> Result<Stale> {
        self.alive(range.space)?;
        let range = Level::PTE.align(&range);
        self.cut(range)?;
        for (_, vma) in self.space_mut(range.space).vmas.range_mut(range.start..range.end) {
            vma.writable = writable;
        }
        self.change();
        Ok(self
            .each_leaf(range, |entry| if writable { entry | WRITABLE } else { entry & !WRITABLE }))
    }

    /// mlock(2) and munlock(2).
    pub(in crate::exact) fn lock(&mut self, range: Range, on: bool) -> Result<()> {
        self.alive(range.space)?;
        let range = Level::PTE.align(&range);
        for at in [range.start, range.end] {
            self.cut_vma(range.space, at);
        }
        for (_, vma) in self.space_mut(range.space).vmas.range_mut(range.start..range.end) {
            vma.locked = on;
        }
        self.change();
        Ok(())
    }

    /// Whether the page at the address is locked and may not be moved.
    pub(in crate::exact) fn is_locked(&self, id: SpaceId, linear: u64) -> bool {
        self.space(id).and_then(|space| space.vma(linear)).is_some_and(|(_, vma)| vma.locked)
    }

    /// madvise(2) with `MADV_DONTNEED`: frees pages and parts of huge pages, and keeps mappings.
    /// Locked pages are kept, and 1 GiB pages that the range does not cover completely.
    pub(in crate::exact) fn discard(&mut self, range: Range, now: Time) -> Result<Stale> {
        self.alive(range.space)?;
        let range = Level::PTE.align(&range);
        for at in [range.start, range.end] {
            if !at.is_multiple_of(PageSize::M2.bytes()) {
                let _ = self.split_at(range.space, at)?;
            }
        }
        let mut stale = Stale::nothing(range);
        let mut from = range.start;
        while let Some((linear, leaf)) = self.next_leaf(range, from) {
            let size = PageSize::of_level(leaf.level).expect("levels of leaves have page sizes");
            from = linear + size.bytes();
            if linear < range.start || from > range.end || self.is_locked(range.space, linear) {
                continue;
            }
            self.tables.put(leaf.address, 0);
            self.release(range.space, leaf.entry, size);
            stale.add(size);
        }
        self.forget_swapped(&range);
        if stale.pages > 0 {
            self.events.push(PageEvent { time: now, range, kind: PageEventKind::Freed });
        }
        Ok(stale)
    }

    /// Splits mappings and huge pages at both ends of the range.
    fn cut(&mut self, range: Range) -> Result<()> {
        self.cut_pages(range)?;
        self.cut_vma(range.space, range.start);
        self.cut_vma(range.space, range.end);
        Ok(())
    }

    /// Splits huge pages at both ends of the range.
    fn cut_pages(&mut self, range: Range) -> Result<()> {
        for at in [range.start, range.end] {
            let Some((_, vma)) = self.spaces[range.space.0 as usize].vma(at) else { continue };
            if vma.pages == PageSize::G1 && !at.is_multiple_of(PageSize::G1.bytes()) {
                return Err(Error::new(ErrorKind::Usage, format!("cannot change {range}"))
                    .cause("it begins or ends in the middle of a page of 1 GiB")
                    .remedy("change whole pages"));
            }
        }
        for at in [range.start, range.end] {
            if !at.is_multiple_of(PageSize::M2.bytes()) {
                let _ = self.split_at(range.space, at)?;
            }
        }
        Ok(())
    }

    fn cut_vma(&mut self, id: SpaceId, at: u64) {
        let Some((start, vma)) = self.spaces[id.0 as usize].vma(at) else { return };
        if start == at {
            return;
        }
        let mut upper = vma.clone();
        upper.first_page = self.pages.cut(vma.first_page, (at - start) >> 12);
        let space = self.space_mut(id);
        space.vmas.get_mut(&start).expect("looked up before").end = at;
        space.vmas.insert(at, upper);
    }

    /// Frees the tables without any mapping below them (mm/memory.c, `free_pgtables`). Returns
    /// whether there were any.
    fn free_tables(&mut self, range: Range) -> bool {
        let mut freed = false;
        for level in [Level::PMD, Level::PUD, Level::P4D, Level::PGD5] {
            if level.number() > self.tables.levels() {
                break;
            }
            let span = level.align(&range);
            let mut at = span.start;
            while at < span.end {
                let space = &self.spaces[range.space.0 as usize];
                let found = self.tables.locate(space.root, at, level);
                let start = at & !(found.level.entry_bytes() - 1);
                let end = start.saturating_add(found.level.entry_bytes());
                if found.level == level && found.is_table() && !space.overlaps(start, end) {
                    self.tables.put(found.address, 0);
                    self.tables.free(found.entry & FRAME_MASK);
                    freed = true;
                }
                at = end;
            }
        }
        freed
    }
}
