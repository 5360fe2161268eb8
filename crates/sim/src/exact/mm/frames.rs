//! Physical memory: free 4 KiB frames, tier by tier.
//!
//! Allocation takes the lowest address that fits. Small pages come from 2 MiB blocks that are
//! already broken, if there are any, so that blocks stay whole for huge pages (the aim of the
//! kernel's buddy allocator, mm/page_alloc.c) and a run is predictable.

use std::collections::BTreeMap;

use tierscope_core::Tier;
use tierscope_hw::PageSize;
use tierscope_hw::config::MemoryTier;

use crate::exact::layout::tier_frames;
use crate::placement::Watermarks;

/// Frames of a block.
const BLOCK: u64 = 512;
/// Blocks of a 1 GiB page.
const GIGA: u64 = 512;

/// The frames of one tier.
struct Pool {
    /// First frame of the tier.
    first: u64,
    frames: u64,
    free: u64,
    watermarks: Watermarks,
    /// Bitmap of blocks without a used frame.
    whole: Vec<u64>,
    /// Words before this one contain no whole block.
    from: usize,
    /// Free frames of partly used blocks.
    broken: BTreeMap<u64, [u64; 8]>,
}

impl Pool {
    fn new(first: u64, frames: u64, watermarks: Watermarks) -> Self {
        let blocks = frames / BLOCK;
        let mut whole = vec![u64::MAX; blocks.div_ceil(64) as usize];
        if let Some(last) = whole.last_mut().filter(|_| !blocks.is_multiple_of(64)) {
            *last = (1 << (blocks % 64)) - 1;
        }
        Self {
            first,
            frames,
            free: blocks * BLOCK,
            watermarks,
            whole,
            from: 0,
            broken: BTreeMap::new(),
        }
    }

    fn take(&mut self, size: PageSize) -> Option<u64> {
        let frame = match size {
            PageSize::K4 => self.take_small()?,
            PageSize::M2 => self.take_block()? * BLOCK,
            PageSize::G1 => self.take_giga()? * BLOCK,
        };
        self.free -= size.bytes() >> 12;
        Some(self.first + frame)
    }

    fn take_small(&mut self) -> Option<u64> {
        if self.broken.is_empty() {
            let block = self.take_block()?;
            self.broken.insert(block, [u64::MAX; 8]);
        }
        let mut entry = self.broken.first_entry()?;
        let (block, map) = (*entry.key(), entry.get_mut());
        let word = map.iter().position(|word| *word != 0)?;
        let bit = map[word].trailing_zeros();
        map[word] &= map[word] - 1;
        if map.iter().all(|word| *word == 0) {
            entry.remove();
        }
        Some(block * BLOCK + word as u64 * 64 + u64::from(bit))
    }

    fn take_block(&mut self) -> Option<u64> {
        while *self.whole.get(self.from)? == 0 {
            self.from += 1;
        }
        let bit = self.whole[self.from].trailing_zeros();
        self.whole[self.from] &= self.whole[self.from] - 1;
        Some(self.from as u64 * 64 + u64::from(bit))
    }

    fn take_giga(&mut self) -> Option<u64> {
        let lead = (self.first / BLOCK).next_multiple_of(GIGA) - self.first / BLOCK;
        let blocks = self.frames / BLOCK;
        let mut at = lead;
        while at + GIGA <= blocks {
            if (at..at + GIGA).all(|block| self.is_whole(block)) {
                (at..at + GIGA)
                    .for_each(|block| self.whole[block as usize / 64] &= !(1 << (block % 64)));
                return Some(at);
            }
            at += GIGA;
        }
        None
    }

    fn is_whole(&self, block: u64) -> bool {
        self.whole[block as usize / 64] >> (block % 64) & 1 == 1
    }

    fn give(&mut self, frame: u64, size: PageSize) {
        let frame = frame - self.first;
        self.free += size.bytes() >> 12;
        if size == PageSize::K4 {
            return self.give_small(frame);
        }
        let blocks = (size.bytes() >> 12) / BLOCK;
        (frame / BLOCK..frame / BLOCK + blocks).for_each(|block| self.give_block(block));
    }

    fn give_small(&mut self, frame: u64) {
        let (block, within) = (frame / BLOCK, frame % BLOCK);
        let map = self.broken.entry(block).or_default();
        debug_assert!(map[within as usize / 64] >> (within % 64) & 1 == 0, "freed twice");
        map[within as usize / 64] |= 1 << (within % 64);
        if map.iter().all(|word| *word == u64::MAX) {
            self.broken.remove(&block);
            self.give_block(block);
        }
    }

    fn give_block(&mut self, block: u64) {
        debug_assert!(!self.is_whole(block), "freed twice");
        self.whole[block as usize / 64] |= 1 << (block % 64);
        self.from = self.from.min(block as usize / 64);
    }
}

/// The frames of all tiers.
pub(in crate::exact) struct Frames {
    pools: Vec<Pool>,
    /// Frames from here on belong to no tier: reserved memory, counted as memory of the fastest.
    reserved: u64,
}

impl Frames {
    pub(super) fn new(tiers: &[MemoryTier], marks: &[Watermarks]) -> Self {
        let pools = tier_frames(tiers).zip(marks);
        let pools = pools.map(|((first, frames), marks)| Pool::new(first, frames, *marks));
        let mut frames = Self { pools: pools.collect(), reserved: u64::MAX };
        // Frame 0 means "none" in page tables; on a PC it belongs to the firmware.
        let zero = frames.pools[0].take(PageSize::K4);
        debug_assert_eq!(zero, Some(0));
        frames
    }

    /// Frames from this one on belong to no tier: page tables, and the uncached region.
    pub(super) fn reserve(&mut self, from: u64) {
        self.reserved = from;
    }

    /// One past the last frame of the last tier.
    pub(super) fn end(&self) -> u64 {
        self.pools.last().map_or(0, |pool| pool.first + pool.frames)
    }

    /// Allocates a page in the tier, even below its watermarks.
    pub(super) fn take(&mut self, tier: Tier, size: PageSize) -> Option<u64> {
        self.pools[usize::from(tier.0)].take(size)
    }

    /// Whether the tier would stay above a watermark after giving out a page of that size.
    pub(super) fn stays_above(
        &self,
        tier: Tier,
        size: PageSize,
        mark: fn(&Watermarks) -> u64,
    ) -> bool {
        let pool = &self.pools[usize::from(tier.0)];
        pool.free >= mark(&pool.watermarks) + (size.bytes() >> 12)
    }

    /// Frees a page.
    pub(super) fn give(&mut self, frame: u64, size: PageSize) {
        let tier = self.tier_of(frame);
        self.pools[usize::from(tier.0)].give(frame, size);
    }

    /// The tier of a frame.
    #[inline(always)]
    pub(in crate::exact) fn tier_of(&self, frame: u64) -> Tier {
        let mut tier = 0;
        if frame >= self.reserved {
            return Tier(tier);
        }
        for pool in &self.pools[1..] {
            tier += u8::from(frame >= pool.first);
        }
        Tier(tier)
    }

    /// First frames of the tiers, the fastest first.
    pub(in crate::exact) fn firsts(&self) -> impl Iterator<Item = u64> + '_ {
        self.pools.iter().map(|pool| pool.first)
    }

    pub(in crate::exact) fn tiers(&self) -> usize {
        self.pools.len()
    }

    pub(in crate::exact) fn free(&self, tier: Tier) -> u64 {
        self.pools[usize::from(tier.0)].free
    }

    pub(in crate::exact) fn capacity(&self, tier: Tier) -> u64 {
        self.pools[usize::from(tier.0)].frames
    }

    pub(in crate::exact) fn watermarks(&self, tier: Tier) -> Watermarks {
        self.pools[usize::from(tier.0)].watermarks
    }
}

/// Frames of tiers with these sizes in MiB.
#[cfg(test)]
pub(super) fn toy(mib: &[u64]) -> Frames {
    let tiers = crate::placement::toy_tiers(mib);
    let marks = mib.iter().map(|mib| Watermarks::of(mib << 8, mib << 8, 10, None));
    Frames::new(&tiers, &marks.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: Tier = Tier(0);

    //   6 MiB: blocks 0 1 2; frame 0 is taken, so block 0 is broken
    #[test]
    fn small_pages_fill_broken_blocks_first() {
        let mut frames = toy(&[6]);
        assert_eq!(frames.take(FAST, PageSize::M2), Some(512));
        assert_eq!(frames.take(FAST, PageSize::K4), Some(1));
        assert_eq!(frames.take(FAST, PageSize::M2), Some(1024));
        assert_eq!(frames.take(FAST, PageSize::M2), None, "block 0 is broken");
        frames.give(512, PageSize::M2);
        assert_eq!((frames.take(FAST, PageSize::K4), frames.free(FAST)), (Some(2), 509 + 512));
    }

    #[test]
    fn a_block_is_whole_again_when_its_last_frame_is_freed() {
        let mut frames = toy(&[4]);
        let small: Vec<u64> =
            (0..511 + 512).map_while(|_| frames.take(FAST, PageSize::K4)).collect();
        assert_eq!((small.len(), frames.free(FAST)), (1023, 0));
        assert_eq!(frames.take(FAST, PageSize::K4), None);
        (512..1024).for_each(|frame| frames.give(frame, PageSize::K4));
        assert_eq!(frames.take(FAST, PageSize::M2), Some(512));
    }

    #[test]
    fn tiers_begin_at_gigabytes_and_contain_their_frames() {
        let mut frames = toy(&[6, 2048]);
        assert_eq!(frames.take(Tier(1), PageSize::G1), Some(1 << 18));
        assert_eq!(frames.take(Tier(1), PageSize::K4), Some(2 << 18));
        assert_eq!([0, (1 << 18) - 1, 1 << 18].map(|f| frames.tier_of(f).0), [0, 0, 1]);
        assert_eq!(frames.end(), 3 << 18);
    }
}
