//! Resident memory, counted by tier.

use tierscope_core::{
    Level, Node, OnNode, PAGE_SIZE, Placed, Range, Residence, SpaceId, SpaceResidence, Tier, Time,
};
use tierscope_hw::entry::FRAME_MASK;

use super::os::Os;
use super::space::Space;

impl Os {
    /// Resident memory of living spaces. Each tier is one node with the same number.
    pub(in crate::exact) fn residence(&self, taken: Time) -> Residence {
        let of = |(id, space): (u32, &Space)| {
            let on = |(node, pages): (u32, &u64)| OnNode { node: Node(node), bytes: pages << 12 };
            let nodes: Vec<OnNode> = (0..).zip(&space.resident).map(on).collect();
            let bytes = nodes.iter().map(|on| on.bytes).sum();
            let placed = Some(Placed { taken, nodes, drawn: 0 });
            SpaceResidence { space: SpaceId(id), taken, bytes, placed, extents: None }
        };
        let alive = (0..).zip(&self.spaces).filter(|(_, space)| space.alive);
        Residence {
            tiers: (0..self.frames.tiers() as u32).map(|tier| vec![Node(tier)]).collect(),
            spaces: alive.map(of).collect(),
            zswapped: None,
            charges: Vec::new(),
        }
    }

    /// Bytes of the range in the tier, counted page by page.
    pub(in crate::exact) fn count(&self, range: &Range, tier: Tier) -> u64 {
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
