//! Moves of pages between tiers.

use tierscope_core::{SpaceId, Tier};
use tierscope_hw::PageSize;
use tierscope_hw::entry::{FRAME_MASK, PRESENT};

use super::line::ARMED;
use super::os::Os;
use super::tables::Located;

impl Os {
    /// Moves the page of a leaf to a tier: a new frame, the same flags, present.
    pub(in crate::exact) fn move_leaf(
        &mut self,
        id: SpaceId,
        leaf: Located,
        tier: Tier,
    ) -> Option<u64> {
        let size = PageSize::of_level(leaf.level)?;
        let frame = self.frames.take(tier, size)?;
        let flags = (leaf.entry & !FRAME_MASK & !ARMED) | PRESENT;
        self.tables.put(leaf.address, frame << 12 | flags);
        self.release(id, leaf.entry, size);
        self.space_mut(id).resident[usize::from(tier.0)] += size.bytes() >> 12;
        Some(frame)
    }
}
