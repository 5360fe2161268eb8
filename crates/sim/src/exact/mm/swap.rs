//! Reclaimed pages: which of them have to be read again at a refault.
//!
//! Pages are swapped to a device of unlimited size, or to zswap, which keeps them compressed in
//! memory. Anonymous and dirty pages are written there first; a clean file page is dropped
//! (mm/vmscan.c, `shrink_folio_list`).

use std::collections::BTreeMap;

use tierscope_core::{Backing, PageEvent, PageEventKind, Range, SpaceId, Tier, Time};
use tierscope_hw::PageSize;
use tierscope_hw::entry::DIRTY;

use super::frames::Frames;
use super::os::Os;
use super::tables::Located;

/// Reclaimed 4 KiB pages, by space and number.
#[derive(Clone, Debug, Default)]
pub(super) struct Swapped {
    /// Whether each page was written; otherwise it was dropped.
    pages: BTreeMap<(SpaceId, u64), bool>,
    written: u64,
    /// Compression ratio in hundredths; `None` if nothing is kept in memory.
    ratio_percent: Option<u64>,
    /// Frames of the zswap pool.
    pool: Vec<u64>,
}

fn numbers(range: &Range) -> std::ops::Range<(SpaceId, u64)> {
    (range.space, range.start >> 12)..(range.space, range.end.div_ceil(4096))
}

impl Swapped {
    /// No reclaimed pages; `ratio_percent` is zswap's compression ratio in hundredths, `None`
    /// without zswap.
    pub(super) fn new(ratio_percent: Option<u64>) -> Self {
        Self { ratio_percent, ..Self::default() }
    }

    /// Reclaims all pages of the range, written or dropped.
    pub(super) fn put(&mut self, range: &Range, written: bool) {
        let pages = range.start >> 12..range.end >> 12;
        self.pages.extend(pages.clone().map(|page| ((range.space, page), written)));
        self.written += if written { pages.end - pages.start } else { 0 };
    }

    /// Whether any page of the range is reclaimed.
    pub(super) fn holds(&self, range: &Range) -> bool {
        !self.pages.is_empty() && self.pages.range(numbers(range)).next().is_some()
    }

    /// Removes the pages of the range, which are in memory again or unmapped; returns their number.
    pub(super) fn take(&mut self, range: &Range) -> u64 {
        if !self.holds(range) {
            return 0;
        }
        let out: Vec<_> = self.pages.range(numbers(range)).map(|(page, _)| *page).collect();
        for page in &out {
            self.written -= u64::from(self.pages.remove(page) == Some(true));
        }
        out.len() as u64
    }

    /// Number of frames that the pool needs.
    fn wanted(&self) -> usize {
        let kept = |ratio| (self.written * 100).div_ceil(ratio);
        self.ratio_percent.map_or(0, kept) as usize
    }

    /// Grows or shrinks the pool to the size needed. Its frames come from the fastest tier that has
    /// one, even below the watermarks, since each page written out frees one. A full machine gives
    /// none; the next call tries again.
    pub(super) fn fit_pool(&mut self, frames: &mut Frames, fastest: u8) {
        let wanted = self.wanted();
        while self.pool.len() > wanted {
            let frame = self.pool.pop().expect("its length exceeds another");
            frames.give(frame, PageSize::K4);
        }
        let tiers = fastest..frames.tiers() as u8;
        while self.pool.len() < wanted {
            let mut each = tiers.clone();
            match each.find_map(|tier| frames.take(Tier(tier), PageSize::K4)) {
                Some(frame) => self.pool.push(frame),
                None => return,
            }
        }
    }
}

impl Os {
    /// Reclaims the page of a leaf; returns whether it has to be written first. `None` for a
    /// hugetlbfs page, which cannot be reclaimed.
    pub(in crate::exact) fn reclaim(
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
        self.promotion_reuse.moved.reclaimed += size.bytes();
        self.events.push(PageEvent { time: now, range, kind: PageEventKind::Freed });
        Some(written)
    }

    /// Drops the swapped-out pages of the range; returns their number.
    pub(super) fn forget_swapped(&mut self, range: &Range) -> u64 {
        let pages = self.swapped.take(range);
        if pages > 0 {
            self.swapped.fit_pool(&mut self.frames, self.fastest);
        }
        pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(space: u32, from: u64, to: u64) -> Range {
        Range::new(SpaceId(space), from << 12, to << 12)
    }

    #[test]
    fn reclaimed_pages_are_swapped_in_once() {
        let mut swapped = Swapped::default();
        swapped.put(&range(0, 10, 14), true);
        swapped.put(&range(1, 10, 11), true);
        assert!(swapped.holds(&range(0, 13, 20)) && !swapped.holds(&range(0, 14, 20)));
        assert_eq!(swapped.take(&range(0, 12, 30)), 2);
        assert_eq!((swapped.take(&range(0, 12, 30)), swapped.take(&range(0, 0, 99))), (0, 2));
        assert!(swapped.holds(&range(1, 0, 99)));
    }

    // Seven written pages at 3:1 fill two frames and a third of one; two dropped pages take none.
    #[test]
    fn the_zswap_pool_takes_frames_of_the_fastest_tier() {
        let (mut swapped, mut frames) =
            (Swapped::new(Some(300)), super::super::frames::toy(&[2, 2]));
        let before = frames.free(Tier(0));
        swapped.put(&range(0, 10, 17), true);
        swapped.put(&range(0, 20, 22), false);
        swapped.fit_pool(&mut frames, 0);
        assert_eq!(frames.free(Tier(0)), before - 3);
        assert_eq!(swapped.take(&range(0, 20, 22)), 2);
        swapped.fit_pool(&mut frames, 0);
        assert_eq!(frames.free(Tier(0)), before - 3, "these were dropped");
        assert_eq!(swapped.take(&range(0, 10, 16)), 6);
        swapped.fit_pool(&mut frames, 0);
        assert_eq!(frames.free(Tier(0)), before - 1);
        assert_eq!(swapped.take(&range(0, 16, 17)), 1);
        swapped.fit_pool(&mut frames, 0);
        assert_eq!(frames.free(Tier(0)), before);
    }

    #[test]
    fn the_pool_overflows_to_the_next_tier_until_the_machine_is_full() {
        let (mut swapped, mut frames) =
            (Swapped::new(Some(100)), super::super::frames::toy(&[2, 2]));
        while frames.free(Tier(0)) > 1 {
            frames.take(Tier(0), PageSize::K4);
        }
        swapped.put(&range(0, 0, 3), true);
        swapped.fit_pool(&mut frames, 0);
        assert_eq!((frames.free(Tier(0)), frames.free(Tier(1))), (0, 510));
        swapped.put(&range(0, 3, 600), true);
        swapped.fit_pool(&mut frames, 0);
        assert_eq!((frames.free(Tier(1)), swapped.pool.len()), (0, 513));
        swapped.take(&range(0, 0, 600));
        swapped.fit_pool(&mut frames, 0);
        assert_eq!((frames.free(Tier(0)), frames.free(Tier(1))), (1, 512));
    }

    #[test]
    fn a_device_keeps_nothing_in_memory() {
        let (mut swapped, mut frames) = (Swapped::new(None), super::super::frames::toy(&[2]));
        let before = frames.free(Tier(0));
        swapped.put(&range(0, 10, 17), true);
        swapped.fit_pool(&mut frames, 0);
        assert_eq!(frames.free(Tier(0)), before);
    }
}
