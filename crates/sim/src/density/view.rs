//! Where pages are, for policies.

use tierscope_core::{
    PAGE_SHIFT, PAGE_SIZE, PageId, PlacementView, Pressure, Range, Tier, TierPressure, TierUse,
};

use super::machine::Machine;
use super::world::SPACE;

impl Machine {
    pub(super) fn pressure_of_tiers(&self) -> Pressure {
        let places = &self.world.places;
        let tiers = places.tiers().zip(places.watermarks()).map(|(of, marks)| TierPressure {
            tier: of.tier,
            free: of.capacity - of.used,
            low: marks.low << PAGE_SHIFT,
            high: marks.high << PAGE_SHIFT,
        });
        Pressure { tiers: tiers.collect(), stalled: 0.0 }
    }
}

/// Pages are numbered through all mappings, in order of address; numbers reach 16 TiB far.
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
                let number = before + ((range.start - mapping.range.start) >> PAGE_SHIFT);
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
                return Some(Range::new(SPACE, start, start + PAGE_SIZE));
            }
            left -= pages;
        }
        None
    }

    fn resident(&self, range: &Range, tier: Tier) -> u64 {
        let (pages, out) = (self.world.places.pages(range), self.out_by_tier(range));
        let there = pages.iter().zip(out).map(|(pages, out)| (pages << PAGE_SHIFT) - out);
        there.collect::<Vec<u64>>().get(usize::from(tier.0)).copied().unwrap_or(0)
    }
}
