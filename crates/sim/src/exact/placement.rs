//! Placement of pages, as policies query it.

use tierscope_core::{
    BusObserver, Level, Node, OnNode, PAGE_SIZE, PageId, Placed, PlacementView, Range, Residence,
    SpaceId, SpaceResidence, Tier, TierUse, Time,
};
use tierscope_hw::PageSize;
use tierscope_hw::entry::FRAME_MASK;

use super::machine::Machine;
use super::os::Os;
use super::space::Space;

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

impl Os {
    /// Resident memory of living spaces. Each tier is one node with the same number.
    pub(super) fn residence(&self, taken: Time) -> Residence {
        let of = |(id, space): (u32, &Space)| {
            let on = |(node, pages): (u32, &u64)| OnNode { node: Node(node), bytes: pages << 12 };
            let nodes: Vec<OnNode> = (0..).zip(&space.resident).map(on).collect();
            let bytes = nodes.iter().map(|on| on.bytes).sum();
            let placed = Some(Placed { taken, nodes, drawn: 0 });
            SpaceResidence { space: SpaceId(id), taken, bytes, placed }
        };
        let alive = (0..).zip(&self.spaces).filter(|(_, space)| space.alive);
        Residence {
            tiers: (0..self.frames.tiers() as u32).map(|tier| vec![Node(tier)]).collect(),
            spaces: alive.map(of).collect(),
        }
    }

    /// Bytes of the range in the tier, counted page by page.
    fn count(&self, range: &Range, tier: Tier) -> u64 {
        let Some(space) = self.space(range.space) else { return 0 };
        let mut bytes = 0;
        let mut at = range.start & !(PAGE_SIZE - 1);
        while at < range.end {
            let found = self.tables.locate(space.root, at, Level::PMD);
            let end = (at | (found.level.entry_bytes() - 1)).saturating_add(1);
            let stop = end.min(range.end);
            if found.is_leaf() {
                let here = self.frames.tier_of((found.entry & FRAME_MASK) >> 12);
                bytes += if here == tier { stop - at } else { 0 };
            } else if found.is_table() {
                let pages = (at >> 12) as usize % 512..((stop - 1) >> 12) as usize % 512 + 1;
                let table = found.entry & FRAME_MASK;
                let frames = pages.map(|page| self.tables.entry(table + page as u64 * 8) >> 12);
                let here =
                    frames.filter(|frame| *frame != 0 && self.frames.tier_of(*frame) == tier);
                bytes += here.count() as u64 * PAGE_SIZE;
            }
            at = end;
        }
        bytes
    }
}
