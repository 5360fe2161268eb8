//! Placement of pages, as policies query it.

use tierscope_core::{BusObserver, PAGE_SIZE, PageId, PlacementView, Range, Tier, TierUse};
use tierscope_hw::PageSize;
use tierscope_hw::entry::FRAME_MASK;

use crate::exact::Machine;

impl<B: BusObserver> Machine<B> {
    pub(super) fn tier_use(&self) -> Vec<TierUse> {
        let of = |tier: Tier| {
            let (capacity, free) = (self.os.frames.capacity(tier), self.os.frames.free(tier));
            TierUse { tier, capacity: capacity << 12, used: (capacity - free) << 12 }
        };
        (0..self.os.frames.tiers() as u8).map(|number| of(Tier(number))).collect()
    }
}

impl<B: BusObserver> PlacementView for Machine<B> {
    fn tiers(&self) -> &[TierUse] {
        &self.tiers
    }

    fn tier_of(&self, page: PageId) -> Option<Tier> {
        let (space, at) = self.os.pages.place(page)?;
        let range = Range::new(space, at, at + PAGE_SIZE);
        let (_, leaf) = self.os.next_leaf(range, at)?;
        Some(self.os.frames.tier_of((leaf.entry & FRAME_MASK) >> 12))
    }

    fn page_at(&self, range: &Range) -> Option<PageId> {
        let space = self.os.space(range.space)?;
        let at = range.start & !(PAGE_SIZE - 1);
        let (head, _) = self.os.next_leaf(Range::new(range.space, at, at + PAGE_SIZE), at)?;
        let (start, vma) = space.vma(at)?;
        Some(PageId(vma.first_page.0 + ((head.max(start) - start) >> 12) as u32))
    }

    fn range_of(&self, page: PageId) -> Option<Range> {
        let (space, at) = self.os.pages.place(page)?;
        let (head, leaf) = self.os.next_leaf(Range::new(space, at, at + PAGE_SIZE), at)?;
        let size = PageSize::of_level(leaf.level)?;
        Some(Range::new(space, head, head + size.bytes()))
    }

    fn frame_of(&self, range: &Range) -> Option<u64> {
        let (head, leaf) = self.os.next_leaf(*range, range.start)?;
        let inside = range.start.checked_sub(head)?;
        Some((leaf.entry & FRAME_MASK) + inside)
    }

    fn physical(&self) -> Vec<(u64, u64)> {
        let frames = &self.os.frames;
        let of =
            |(tier, first): (u8, u64)| (first << 12, (first + frames.capacity(Tier(tier))) << 12);
        (0..).zip(frames.firsts()).map(of).collect()
    }

    fn resident(&self, range: &Range, tier: Tier) -> u64 {
        let Some(space) = self.os.space(range.space) else { return 0 };
        let ends = space.vmas.first_key_value().zip(space.vmas.last_key_value());
        let Some(((first, _), (_, last))) = ends else { return 0 };
        if range.start <= *first && last.end <= range.end {
            return space.resident[usize::from(tier.0)] << 12;
        }
        self.os.count(range, tier)
    }
}
