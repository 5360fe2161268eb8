//! Placement of pages, as policies query it.

use std::time::Duration;

use tierscope_core::{
    Level, PAGE_SHIFT, PAGE_SIZE, PageId, PlacementView, Pressure, Range, Tier, TierPressure,
    TierUse,
};

use crate::account::duration;

use super::machine::Machine;
use super::space::SPACE;

impl Machine {
    pub(super) fn pressure_of_tiers(&self) -> Pressure {
        let (places, counts) = (&self.world.places, self.settled_account().counts);
        let tiers = &self.config.hardware.tiers;
        let idle = |tier: Tier| Duration::from_nanos(tiers[usize::from(tier.0)].read_ns.into());
        let tiers = places.tiers().zip(places.watermarks()).map(|(of, marks)| TierPressure {
            tier: of.tier,
            free: of.capacity - of.used,
            low: marks.low << PAGE_SHIFT,
            high: marks.high << PAGE_SHIFT,
            reads: Some(counts.reads(of.tier, idle(of.tier))),
        });
        let tiers = tiers.collect();
        let cores_stalled = Some(duration(counts.stalled));
        Pressure { tiers, stalled: 0.0, cores_stalled }
    }
}

impl Machine {
    /// The huge page that holds an address; `None` if the memory is not in a huge page.
    fn huge_page(&self, at: u64) -> Option<Range> {
        let size = Level::PMD.entry_bytes();
        let start = at & !(size - 1);
        if !self.config.huge || self.split.contains(&(start / size)) {
            return None;
        }
        let block = Range::new(SPACE, start, start + size);
        let mut mappings = self.world.mappings.mappings.iter();
        let whole = |range: &Range| range.start <= block.start && block.end <= range.end;
        mappings.any(|mapping| whole(&mapping.range)).then_some(block)
    }

    /// Splits the huge pages of the range into small ones.
    pub(super) fn split_pages(&mut self, range: &Range) {
        let size = Level::PMD.entry_bytes();
        let before = self.split.len();
        for page in range.start / size..range.end.div_ceil(size) {
            if self.split.insert(page) {
                // The small entries inherit the huge page's stamp.
                let stamp = self.stamps.get(SPACE, Level::PMD, page);
                self.stamps.set_all(SPACE, Level::PTE, page, stamp);
            }
        }
        self.promotion_reuse.moved.split += (self.split.len() - before) as u64 * size;
    }
}

/// Pages are numbered through all mappings, in order of address; the numbers cover 16 TiB.
impl PlacementView for Machine {
    fn tiers(&self) -> &[TierUse] {
        &self.tiers
    }

    fn tier_of(&self, page: PageId) -> Option<Tier> {
        let range = self.range_of(page)?;
        let is_out = !self.swapped_within(&range).is_empty();
        self.world.places.tier_of(range.start).filter(|_| !is_out)
    }

    fn page_at(&self, range: &Range) -> Option<PageId> {
        let mut before = 0;
        for mapping in &self.world.mappings.mappings {
            if mapping.range.space == range.space
                && (mapping.range.start..mapping.range.end).contains(&range.start)
            {
                let head = self.huge_page(range.start).map_or(range.start, |block| block.start);
                let number = before + ((head - mapping.range.start) >> PAGE_SHIFT);
                return u32::try_from(number).ok().map(PageId);
            }
            before += mapping.range.bytes() >> PAGE_SHIFT;
        }
        None
    }

    fn range_of(&self, page: PageId) -> Option<Range> {
        let mut left = u64::from(page.0);
        for mapping in &self.world.mappings.mappings {
            let pages = mapping.range.bytes() >> PAGE_SHIFT;
            if left < pages {
                let start = mapping.range.start + (left << PAGE_SHIFT);
                let small = Range::new(SPACE, start, start + PAGE_SIZE);
                return Some(self.huge_page(start).unwrap_or(small));
            }
            left -= pages;
        }
        None
    }

    /// Physical address in the layout of [`Machine::physical`].
    fn frame_of(&self, range: &Range) -> Option<u64> {
        let tier = self.world.places.tier_of(range.start).filter(|_| range.space == SPACE)?;
        Some(self.frame(range.start, tier))
    }

    fn physical(&self) -> Vec<(u64, u64)> {
        Machine::physical(self)
    }

    fn resident(&self, range: &Range, tier: Tier) -> u64 {
        let (pages, out) = (self.world.places.pages(range), self.out_by_tier(range));
        let there = pages.iter().zip(out).map(|(pages, out)| (pages << PAGE_SHIFT) - out);
        there.collect::<Vec<u64>>().get(usize::from(tier.0)).copied().unwrap_or(0)
    }
}
