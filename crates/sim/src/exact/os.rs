//! Memory management: spaces, their mappings, and the pages behind them.
//!
//! Does the work of the kernel's mm, in its order and with its effects on entries, except for the
//! shootdown that has to follow a change: each change returns a [`Stale`], and the caller shoots it
//! down.

use std::sync::Arc;

use tierscope_core::{
    Backing, Error, ErrorKind, Failure, Level, Mapping, Mappings, PageEvent, PageEventKind, Radix,
    Range, Result, SpaceId, Tier, Time,
};
use tierscope_hw::entry::{ACCESSED, DIRTY, FRAME_MASK, HUGE, PRESENT, WRITABLE};
use tierscope_hw::{Asid, PageSize, Root};
use tierscope_wire::ptat::Window;

use super::cpus::CpuSet;
use super::frames::Frames;
use super::line::ARMED;
use super::log::Log;
use super::pages::Pages;
use super::setup::Setup;
use super::space::{Map, Space, Vma};
use super::swap::Swapped;
use super::tables::{Located, Tables};
use super::unused::Unused;
use crate::placement::{Placement, Watermarks};

/// Translations that TLBs must drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) struct Stale {
    pub(super) range: Range,
    /// Number of changed pages, of any size.
    pub(super) pages: u64,
    /// Size of the smallest changed page.
    pub(super) size: PageSize,
}

impl Stale {
    pub(super) fn nothing(range: Range) -> Self {
        Self { range, pages: 0, size: PageSize::G1 }
    }

    pub(super) fn add(&mut self, size: PageSize) {
        self.pages += 1;
        self.size = self.size.min(size);
    }
}

/// Why an access fails for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The address is not mapped.
    Unmapped,
    /// A store to read-only memory.
    ReadOnly,
    /// No tier that the placement allows has a free page.
    OutOfMemory,
}

/// How a fault was resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resolved {
    /// A page was allocated.
    Page(PageSize),
    /// A page was allocated; this many of its 4 KiB pages were swapped in.
    Read(PageSize, u64),
    /// An armed page is present again.
    Hint,
    /// Nothing to do: the entry allows the access by now.
    Spurious,
}

/// An address without a page.
struct Hole<'a> {
    id: SpaceId,
    root: Root,
    linear: u64,
    /// Start of the mapping that contains the address.
    start: u64,
    vma: &'a Vma,
    uncached: u8,
    /// The level of the missing entry.
    level: Level,
}

impl Hole<'_> {
    /// Whether a page of that size at `page` fills it. A mapping of 1 GiB pages takes no other
    /// size; one of 2 MiB pages takes 4 KiB pages too.
    fn takes(&self, size: PageSize, page: u64) -> bool {
        size <= self.vma.pages
            && (self.vma.pages != PageSize::G1 || size == PageSize::G1)
            && size.level() <= self.level
            && page >= self.start
            && page + size.bytes() <= self.vma.end
    }
}

/// State of memory management.
pub(super) struct Os {
    pub(super) frames: Frames,
    pub(super) tables: Tables,
    pub(super) spaces: Vec<Space>,
    pub(super) pages: Pages,
    pub(super) events: Log<PageEvent>,
    /// Promotions that were not followed by an access.
    pub(super) unused: Unused,
    pub(super) swapped: Swapped,
    /// 2 MiB blocks allocated for page tables.
    table_blocks: u64,
    asids: super::slots::Slots,
    pub(super) mappings: Arc<Mappings>,
    changed: bool,
    /// A process ended since the clock last reported it.
    news: bool,
    /// The fastest tier that pages may come from.
    fastest: u8,
}

impl Os {
    pub(super) fn new(setup: &Setup) -> Result<Self> {
        let hardware = &setup.hardware;
        let bits = hardware.processor.physical_bits;
        let mut frames = Frames::new(&hardware.tiers, &setup.watermarks());
        if frames.end() << 12 > 1 << (bits - 1) {
            return Err(Error::new(
                ErrorKind::Usage,
                format!("machine {} cannot be simulated exactly", hardware.name),
            )
            .cause(format!(
                "its tiers reach beyond the lower half of {bits} physical address bits; the upper \
                 half is for page tables"
            ))
            .remedy("raise processor.physical_bits by one, or make the tiers smaller"));
        }
        if frames.end() > 1 << 32 {
            return Err(Error::new(ErrorKind::Usage, "the tiers are too large")
                .cause("exact mode reaches 16 TiB of physical memory")
                .remedy("use density mode"));
        }
        let mut asids = super::slots::Slots::new(Asid::COUNT.into());
        let _ = asids.take();
        let levels = hardware.translation.levels;
        let tables = Tables::new(levels, bits, setup.uncached_tables, setup.watch_tables);
        frames.reserve(tables.first_reserved());
        Ok(Self {
            frames,
            tables,
            spaces: Vec::new(),
            pages: Pages::default(),
            events: Log::default(),
            unused: Unused::default(),
            swapped: Swapped::new(setup.costs.swap.ratio_percent),
            table_blocks: 0,
            asids,
            mappings: Arc::default(),
            changed: true,
            news: false,
            fastest: u8::from(setup.memory_mode),
        })
    }

    pub(super) fn radix(&self) -> Radix {
        if self.tables.levels() == 5 { Radix::X86_64_LA57 } else { Radix::X86_64 }
    }

    /// Mapped bytes of all spaces.
    pub(super) fn mapped(&self) -> u64 {
        let alive = self.spaces.iter().filter(|space| space.alive);
        alive.flat_map(|space| &space.vmas).map(|(start, vma)| vma.end - start).sum()
    }

    pub(super) fn alive_spaces(&self) -> usize {
        self.spaces.iter().filter(|space| space.alive).count()
    }

    /// Whether a process ended since [`Os::take_news`].
    pub(super) fn is_news(&self) -> bool {
        self.news
    }

    pub(super) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    fn change(&mut self) {
        self.changed = true;
        self.news = true;
    }

    pub(super) fn create(&mut self, name: &str, uncached: u8) -> Result<SpaceId> {
        let none = |what: &str| {
            Error::new(ErrorKind::Other, "cannot make another address space")
                .cause(format!("there are no more {what}"))
                .remedy("let others exit first")
        };
        let table = self.tables.new_root()?.ok_or_else(|| none("addresses for page tables"))?;
        let asid = self.asids.take().ok_or_else(|| none("address-space tags"))?;
        let asid = Asid::new(asid as u16).expect("below the number of tags");
        let id = SpaceId(self.spaces.len() as u32);
        self.spaces.push(Space {
            id,
            name: name.into(),
            root: Root { table, asid },
            vmas: Default::default(),
            uncached,
            watched: false,
            trapped: false,
            cpus: CpuSet::default(),
            alive: true,
            resident: vec![0; self.frames.tiers()],
        });
        if uncached > 0 {
            self.tables.announce(table, id);
        }
        self.change();
        self.charge_tables();
        Ok(id)
    }

    /// The space of that id, if it is alive.
    pub(super) fn space(&self, id: SpaceId) -> Option<&Space> {
        self.spaces.get(id.0 as usize).filter(|space| space.alive)
    }

    fn space_mut(&mut self, id: SpaceId) -> &mut Space {
        &mut self.spaces[id.0 as usize]
    }

    fn alive(&self, id: SpaceId) -> Result<&Space> {
        self.space(id).ok_or_else(|| {
            Error::new(ErrorKind::Gone, format!("{id} cannot be changed"))
                .cause("it is gone or never was")
                .remedy("take its number from the machine's mappings")
        })
    }

    /// mmap(2).
    pub(super) fn map(&mut self, id: SpaceId, map: &Map) -> Result<Range> {
        let space = self.alive(id)?;
        let refuse = |cause: String, remedy: &str| {
            Err(Error::new(ErrorKind::Usage, format!("cannot map {} bytes", map.bytes))
                .cause(cause)
                .remedy(remedy))
        };
        // A 2 MiB page needs its own alignment, and a hugetlbfs mapping whole pages.
        let grain = if map.pages == PageSize::G1 { map.pages.bytes() } else { 4096 };
        if map.bytes == 0 || !map.bytes.is_multiple_of(grain) {
            return refuse(format!("it is no multiple of {grain}"), "map whole pages");
        }
        let Some(start) = map.at.or_else(|| space.room(map.bytes, map.pages.bytes())) else {
            return refuse("the address space is full".into(), "unmap something");
        };
        let top = 1u64 << (11 + 9 * u32::from(self.tables.levels()));
        let end = start.checked_add(map.bytes).filter(|end| *end <= top);
        let Some(end) = end.filter(|_| start.is_multiple_of(grain)) else {
            return refuse(format!("{start:#x} is no place for it"), "stay below the top, aligned");
        };
        if space.overlaps(start, end) {
            return refuse("something is mapped there".into(), "unmap it first");
        }
        let Some(first_page) = self.pages.give(map.bytes >> 12, id, start) else {
            return refuse("page numbers of 32 bits do not reach".into(), "map less");
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
    pub(super) fn unmap(&mut self, range: Range, now: Time) -> Result<Stale> {
        self.alive(range.space)?;
        let range = Level::PTE.align(&range);
        self.cut(range)?;
        let mut stale = self.zap(range);
        self.forget_swapped(&range);
        let space = self.space_mut(range.space);
        let gone: Vec<u64> =
            space.vmas.range(range.start..range.end).map(|(start, _)| *start).collect();
        for start in gone {
            let vma = self.space_mut(range.space).vmas.remove(&start).expect("it was there");
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
            let size = PageSize::of_level(leaf.level).expect("a leaf's");
            self.tables.put(leaf.address, 0);
            self.release(range.space, leaf.entry, size);
            stale.add(size);
            from = linear + size.bytes();
        }
        stale
    }

    /// exit_mmap: unmaps everything and frees the space.
    pub(super) fn destroy(&mut self, id: SpaceId, now: Time) -> Result<Stale> {
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
    pub(super) fn protect(&mut self, range: Range, writable: bool) -> Result<Stale> {
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
    pub(super) fn lock(&mut self, range: Range, on: bool) -> Result<()> {
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
    pub(super) fn is_locked(&self, id: SpaceId, linear: u64) -> bool {
        self.space(id).and_then(|space| space.vma(linear)).is_some_and(|(_, vma)| vma.locked)
    }

    /// madvise(2) with `MADV_DONTNEED`: frees pages and parts of huge pages, and keeps mappings.
    /// Locked pages are kept, and 1 GiB pages that the range does not cover completely.
    pub(super) fn discard(&mut self, range: Range, now: Time) -> Result<Stale> {
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
            let size = PageSize::of_level(leaf.level).expect("a leaf's");
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

    /// Drops the swapped-out pages of the range; returns their number.
    fn forget_swapped(&mut self, range: &Range) -> u64 {
        let pages = self.swapped.take(range);
        if pages > 0 {
            self.swapped.fit_pool(&mut self.frames, self.fastest);
        }
        pages
    }

    /// Reclaims the page of a leaf; returns whether it has to be written first. `None` for a
    /// hugetlbfs page, which cannot be reclaimed.
    pub(super) fn give_back(
        &mut self,
        id: SpaceId,
        (linear, leaf): (u64, Located),
        now: Time,
    ) -> Option<bool> {
        let size = PageSize::of_level(leaf.level).filter(|size| *size != PageSize::G1)?;
        let (_, vma) = self.space(id)?.vma(linear)?;
        let written = vma.backing != Backing::File || leaf.entry & DIRTY != 0;
        let range = Range::new(id, linear, linear + size.bytes());
        self.tables.put(leaf.address, 0);
        self.release(id, leaf.entry, size);
        self.swapped.put(&range, written);
        self.swapped.fit_pool(&mut self.frames, self.fastest);
        self.unused.moved.reclaimed += size.bytes();
        self.events.push(PageEvent { time: now, range, kind: PageEventKind::Freed });
        Some(written)
    }

    /// The physical address of a linear one, through a leaf that is present or armed.
    pub(super) fn physical(&self, id: SpaceId, linear: u64) -> Option<u64> {
        let found = self.tables.locate(self.space(id)?.root, linear, Level::PTE);
        let within = linear & (found.level.entry_bytes() - 1);
        found.is_leaf().then_some((found.entry & FRAME_MASK) + within)
    }

    /// Makes the mapped leaves of the range fault at their next access (mm/mprotect.c,
    /// `change_prot_numa`).
    pub(super) fn arm(&mut self, range: Range) -> Stale {
        self.each_leaf(range, |entry| (entry & !PRESENT) | ARMED)
    }

    /// Rewrites the leaves of a range; returns the changed ones.
    fn each_leaf(&mut self, range: Range, rewrite: impl Fn(u64) -> u64) -> Stale {
        let mut stale = Stale::nothing(range);
        let mut from = range.start;
        while let Some((linear, leaf)) = self.next_leaf(range, from) {
            let size = PageSize::of_level(leaf.level).expect("a leaf's");
            let entry = rewrite(leaf.entry);
            if entry != leaf.entry {
                self.tables.put(leaf.address, entry);
                stale.add(size);
            }
            from = linear + size.bytes();
        }
        stale
    }

    /// The first leaf of the range at or after `from`, and its first address.
    pub(super) fn next_leaf(&self, range: Range, from: u64) -> Option<(u64, Located)> {
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
        space.vmas.get_mut(&start).expect("it was there").end = at;
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

    /// Frees the page of an entry.
    fn release(&mut self, id: SpaceId, entry: u64, size: PageSize) {
        let frame = (entry & FRAME_MASK) >> 12;
        let tier = self.frames.tier_of(frame);
        self.space_mut(id).resident[usize::from(tier.0)] -= size.bytes() >> 12;
        if self.tables.is_data(frame) {
            return self.tables.free_data(frame);
        }
        self.unused.free(frame, size);
        self.frames.give(frame, size);
    }

    /// Places the pages of a mapping in the uncached region for good, so that accesses to them are
    /// seen on the bus (PTAT, section 7).
    pub(super) fn watch(&mut self, range: Range) {
        let space = self.space_mut(range.space);
        space.watched = true;
        if let Some(vma) = space.vmas.get_mut(&range.start) {
            (vma.watched, vma.locked) = (true, true);
        }
    }

    /// Whether the space's walks are trapped, and the physical window that bypasses the caches.
    #[inline]
    pub(super) fn beside_caches(&self, space: SpaceId) -> (bool, (Window, u64)) {
        let space = &self.spaces[space.0 as usize];
        let region = if space.watched { self.tables.data() } else { Default::default() };
        (space.trapped, region)
    }

    /// A frame for a page of a mapping.
    fn take_for(&mut self, hole: &Hole<'_>, page: u64, size: PageSize) -> Option<u64> {
        if hole.vma.watched && size == PageSize::K4 {
            let reserved = self.tables.new_data(hole.root);
            return reserved.or_else(|| self.take(&hole.vma.placement, page, size));
        }
        self.take(&hole.vma.placement, page, size)
    }

    /// Allocates a frame for the page at `linear` according to the placement.
    fn take(&mut self, placement: &Placement, linear: u64, size: PageSize) -> Option<u64> {
        match placement {
            Placement::Bind(tier) => self.frames.take(*tier, size),
            Placement::Interleave(tiers) => {
                let turn = (linear >> size.shift()) as usize % tiers.len();
                let first = tiers[turn];
                let fits = self.frames.stays_above(first, size, |marks| marks.low);
                let taken = if fits { self.frames.take(first, size) } else { None };
                taken.or_else(|| self.take_first(size))
            }
            Placement::FirstTouch => self.take_first(size),
        }
    }

    fn take_first(&mut self, size: PageSize) -> Option<u64> {
        let tiers = self.fastest..self.frames.tiers() as u8;
        for mark in [(|marks| marks.low) as fn(&Watermarks) -> u64, |marks| marks.min] {
            for tier in tiers.clone().map(Tier) {
                if self.frames.stays_above(tier, size, mark)
                    && let Some(frame) = self.frames.take(tier, size)
                {
                    return Some(frame);
                }
            }
        }
        None
    }

    /// Resolves a page fault.
    pub(super) fn fault(
        &mut self,
        id: SpaceId,
        linear: u64,
        store: bool,
        now: Time,
    ) -> Result<Result<Resolved, Denied>> {
        let Some(space) = self.space(id) else { return Ok(Err(Denied::Unmapped)) };
        let Some((start, vma)) = space.vma(linear) else { return Ok(Err(Denied::Unmapped)) };
        if store && !vma.writable {
            return Ok(Err(Denied::ReadOnly));
        }
        let found = self.tables.locate(space.root, linear, Level::PTE);
        if found.is_leaf() {
            if found.entry & PRESENT != 0 {
                return Ok(Ok(Resolved::Spurious));
            }
            self.tables.put(found.address, (found.entry & !ARMED) | PRESENT | ACCESSED);
            return Ok(Ok(Resolved::Hint));
        }
        let (vma, uncached) = (vma.clone(), space.uncached_of(vma));
        let root = space.root;
        let hole = Hole { id, root, linear, start, vma: &vma, uncached, level: found.level };
        self.make_page(&hole, ACCESSED, now)
    }

    /// Makes sure that a page is present, as a fault would, but without an access: a new page is
    /// old.
    pub(super) fn fetch(
        &mut self,
        id: SpaceId,
        linear: u64,
        now: Time,
    ) -> Result<Result<Resolved, Denied>> {
        let Some(space) = self.space(id) else { return Ok(Err(Denied::Unmapped)) };
        let Some((start, vma)) = space.vma(linear) else { return Ok(Err(Denied::Unmapped)) };
        let found = self.tables.locate(space.root, linear, Level::PTE);
        if found.is_leaf() {
            return Ok(Ok(Resolved::Spurious));
        }
        let (vma, uncached, root) = (vma.clone(), space.uncached_of(vma), space.root);
        let hole = Hole { id, root, linear, start, vma: &vma, uncached, level: found.level };
        self.make_page(&hole, 0, now)
    }

    /// Allocates every missing page of a range without an access: old and clean, as are the entries
    /// above.
    pub(super) fn populate(&mut self, range: Range) -> Result<Result<(), Denied>> {
        let filled = self.fill_holes(range, 0)?;
        if filled.is_ok() {
            self.age_above(range);
        }
        Ok(filled)
    }

    /// Allocates every missing page of a range as if it was written: young and dirty.
    pub(super) fn write_all(&mut self, range: Range) -> Result<Result<(), Denied>> {
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
            let interleaved = matches!(hole.vma.placement, Placement::Interleave(_));
            if !interleaved && !hole.vma.watched && self.populate_table(hole, flags)? {
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

    /// Allocates a page for an address that has none.
    fn make_page(
        &mut self,
        hole: &Hole<'_>,
        young: u64,
        now: Time,
    ) -> Result<Result<Resolved, Denied>> {
        let (size, tier) = match self.place_page(hole, young)? {
            Ok(made) => made,
            Err(denied) => return Ok(Err(denied)),
        };
        let page = hole.linear & !(size.bytes() - 1);
        let range = Range::new(hole.id, page, page + size.bytes());
        self.events.push(PageEvent { time: now, range, kind: PageEventKind::Allocated(tier) });
        Ok(Ok(match self.forget_swapped(&range) {
            0 => Resolved::Page(size),
            pages => Resolved::Read(size, pages),
        }))
    }

    /// Maps the largest page that the mapping and its neighbours allow, young or old.
    fn place_page(
        &mut self,
        hole: &Hole<'_>,
        young: u64,
    ) -> Result<Result<(PageSize, Tier), Denied>> {
        for size in [PageSize::G1, PageSize::M2, PageSize::K4] {
            let page = hole.linear & !(size.bytes() - 1);
            if !hole.takes(size, page) {
                continue;
            }
            let Some(frame) = self.take_for(hole, page, size) else { continue };
            let address = self.tables.reach(hole.root, page, size.level(), hole.uncached)?;
            self.charge_tables();
            let Some(address) = address else {
                match self.tables.is_data(frame) {
                    true => self.tables.free_data(frame),
                    false => self.frames.give(frame, size),
                }
                return Ok(Err(Denied::OutOfMemory));
            };
            let huge = if size == PageSize::K4 { 0 } else { HUGE };
            let writable = if hole.vma.writable { WRITABLE } else { 0 };
            self.tables.put(address, frame << 12 | PRESENT | young | writable | huge);
            let tier = self.frames.tier_of(frame);
            self.space_mut(hole.id).resident[usize::from(tier.0)] += size.bytes() >> 12;
            return Ok(Ok((size, tier)));
        }
        Ok(Err(Denied::OutOfMemory))
    }

    /// Takes memory for page tables in 2 MiB blocks, from the fastest tier that has one. A full
    /// machine gives none; the kernel would run its OOM killer.
    fn charge_tables(&mut self) {
        let tiers = self.frames.tiers() as u8;
        while self.table_blocks << 21 < self.tables.bytes() {
            let _ = (0..tiers).find_map(|tier| self.frames.take(Tier(tier), PageSize::M2));
            self.table_blocks += 1;
        }
    }

    /// Splits the 2 MiB page at the address, if there is one, into 512 entries with its flags
    /// (mm/huge_memory.c, `__split_huge_pmd_locked`).
    pub(super) fn split_at(&mut self, id: SpaceId, linear: u64) -> Result<Option<Stale>> {
        let Some(space) = self.space(id) else { return Ok(None) };
        let (root, uncached) = (space.root, space.uncached);
        let found = self.tables.locate(root, linear, Level::PMD);
        if found.level != Level::PMD || !found.is_leaf() {
            return Ok(None);
        }
        let Some(table) = self.tables.new_leaf(root, linear, uncached)? else { return Ok(None) };
        let first = found.entry & !HUGE;
        self.unused.split((first & FRAME_MASK) >> 12);
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
    pub(super) fn collapse_at(
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

    /// Moves the page of a leaf to a tier: a new frame, the same flags, present.
    pub(super) fn move_leaf(&mut self, id: SpaceId, leaf: Located, tier: Tier) -> Option<u64> {
        let size = PageSize::of_level(leaf.level)?;
        let frame = self.frames.take(tier, size)?;
        let flags = (leaf.entry & !FRAME_MASK & !ARMED) | PRESENT;
        self.tables.put(leaf.address, frame << 12 | flags);
        self.release(id, leaf.entry, size);
        self.space_mut(id).resident[usize::from(tier.0)] += size.bytes() >> 12;
        Some(frame)
    }

    /// The mappings of all spaces; rebuilt only after a change.
    pub(super) fn layout(&mut self, now: Time) -> Arc<Mappings> {
        if std::mem::take(&mut self.changed) {
            let alive = || self.spaces.iter().filter(|space| space.alive);
            let spaces =
                alive().map(|s| tierscope_core::Space { id: s.id, name: Arc::clone(&s.name) });
            let of = |space: &Space, (start, vma): (&u64, &Vma)| Mapping {
                range: space.range(*start, vma.end),
                backing: vma.backing,
                name: Arc::clone(&vma.name),
                writable: vma.writable,
            };
            let mappings =
                alive().flat_map(|space| space.vmas.iter().map(move |vma| of(space, vma)));
            let new =
                Mappings { taken: now, spaces: spaces.collect(), mappings: mappings.collect() };
            self.mappings = Arc::new(new);
        }
        Arc::clone(&self.mappings)
    }
}
