//! Page faults: allocates the missing page in a tier that the placement allows, and maps it.

use tierscope_core::{Level, PageEvent, PageEventKind, Range, Result, SpaceId, Tier, Time};
use tierscope_hw::entry::{ACCESSED, HUGE, PRESENT, WRITABLE};
use tierscope_hw::{PageSize, Root};

use super::line::ARMED;
use super::os::Os;
use super::space::Vma;
use crate::placement::{Placement, TierMap, Watermarks};

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
pub(in crate::exact) enum Resolved {
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
pub(super) struct Hole<'a> {
    pub(super) id: SpaceId,
    pub(super) root: Root,
    pub(super) linear: u64,
    /// Start of the mapping that contains the address.
    pub(super) start: u64,
    pub(super) vma: &'a Vma,
    pub(super) uncached: u8,
    /// The level of the missing entry.
    pub(super) level: Level,
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

impl Os {
    /// Resolves a page fault.
    pub(in crate::exact) fn fault(
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
    pub(in crate::exact) fn fetch(
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
    pub(super) fn place_page(
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
                match self.tables.layout.is_data(frame) {
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

    /// A frame for a page of a mapping.
    fn take_for(&mut self, hole: &Hole<'_>, page: u64, size: PageSize) -> Option<u64> {
        if hole.vma.watched && size == PageSize::K4 {
            let reserved = self.tables.new_data(hole.root);
            return reserved.or_else(|| self.take(&hole.vma.placement, page, size));
        }
        self.take(&hole.vma.placement, page, size)
    }

    /// Allocates a frame for the page at `linear` according to the placement.
    pub(super) fn take(
        &mut self,
        placement: &Placement,
        linear: u64,
        size: PageSize,
    ) -> Option<u64> {
        match placement {
            Placement::Bind(tier) => self.frames.take(*tier, size),
            Placement::Interleave(tiers) => {
                let turn = (linear >> size.shift()) as usize % tiers.len();
                let first = tiers[turn];
                let fits = self.frames.stays_above(first, size, |marks| marks.low);
                let taken = if fits { self.frames.take(first, size) } else { None };
                taken.or_else(|| self.take_first(size))
            }
            Placement::Known(map) => self.take_known(map.at(linear).0, size),
            Placement::FirstTouch => self.take_first(size),
        }
    }

    fn take_known(&mut self, first: Tier, size: PageSize) -> Option<u64> {
        let mut instead = TierMap::instead(first, self.frames.tiers());
        let above = instead.find_map(|tier| {
            let fits = self.frames.stays_above(tier, size, |marks| marks.low);
            if fits { self.frames.take(tier, size) } else { None }
        });
        above.or_else(|| self.take_first(size))
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
}
