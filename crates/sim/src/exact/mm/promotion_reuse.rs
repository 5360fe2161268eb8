//! Promoted pages, and whether they were accessed afterwards: the benefit of moves (METRICS.md).
//!
//! A moved page is shot down in every core's TLB, so its next access walks. Only walks check the
//! frame here.

use std::collections::{BTreeMap, HashMap};

use tierscope_core::metrics::moves::{Moved, is_ping_pong};
use tierscope_core::{SpaceId, Tier, Time};
use tierscope_hw::PageSize;

/// Promoted pages without an access since, and sums over all moves.
#[derive(Clone, Debug, Default)]
pub(in crate::exact) struct PromotionReuse {
    /// Bitmap of frames: promoted and not accessed since.
    frames: Vec<u64>,
    /// Sizes in frames of the huge pages among them, by first frame.
    huge: BTreeMap<u64, u64>,
    /// Number of set bits.
    count: u64,
    /// Time of each page's last move, by mapped address.
    last: HashMap<(SpaceId, u64), Time>,
    pub(in crate::exact) moved: Moved,
}

impl PromotionReuse {
    /// Whether the frame of this address has not been accessed since its promotion.
    #[inline(always)]
    pub(in crate::exact) fn holds(&self, physical: u64) -> bool {
        let frame = physical >> 12;
        let word = self.frames.get((frame / 64) as usize);
        word.is_some_and(|word| word >> (frame % 64) & 1 == 1)
    }

    /// Records accesses to these addresses.
    #[inline(always)]
    pub(in crate::exact) fn reach(&mut self, reached: &mut Vec<u64>) {
        if !reached.is_empty() {
            reached.drain(..).for_each(|physical| self.touch(physical));
        }
    }

    #[cold]
    fn touch(&mut self, physical: u64) {
        let frame = physical >> 12;
        let (first, frames) = self.page_of(frame);
        self.moved.reaccessed += self.clear(first, frames) << 12;
    }

    /// The first frame of a frame's page, and the number of its frames.
    fn page_of(&self, frame: u64) -> (u64, u64) {
        let huge = self.huge.range(..=frame).next_back();
        let huge = huge.filter(|(first, frames)| frame < *first + *frames);
        huge.map_or((frame, 1), |(first, frames)| (*first, *frames))
    }

    /// A page of that size moved to `frame`.
    pub(in crate::exact) fn moves(
        &mut self,
        page: (SpaceId, u64),
        (frame, size): (u64, PageSize),
        (from, to): (Tier, Tier),
        now: Time,
    ) {
        self.moved.moves(from, to, size.bytes());
        if let Some(before) = self.last.insert(page, now)
            && is_ping_pong(before, now)
        {
            self.moved.ping_pong += size.bytes();
        }
        if to < from {
            self.set(frame, size.bytes() >> 12);
        }
    }

    /// Frees the page that begins at this frame.
    pub(super) fn free(&mut self, frame: u64, size: PageSize) {
        if self.count > 0 {
            self.moved.wasted += self.clear(frame, size.bytes() >> 12) << 12;
        }
    }

    /// Splits the 2 MiB page that begins at this frame into small ones.
    pub(super) fn split(&mut self, frame: u64) {
        self.huge.remove(&frame);
    }

    fn set(&mut self, first: u64, frames: u64) {
        let words = ((first + frames).div_ceil(64)) as usize;
        self.frames.resize(self.frames.len().max(words), 0);
        (first..first + frames).for_each(|frame| {
            self.frames[(frame / 64) as usize] |= 1 << (frame % 64);
        });
        self.count += frames;
        if frames > 1 {
            self.huge.insert(first, frames);
        }
    }

    /// Clears the bits of the frames; returns how many were set.
    fn clear(&mut self, first: u64, frames: u64) -> u64 {
        let mut cleared = 0;
        for frame in first..first + frames {
            let Some(word) = self.frames.get_mut((frame / 64) as usize) else { break };
            cleared += *word >> (frame % 64) & 1;
            *word &= !(1 << (frame % 64));
        }
        self.huge.remove(&first);
        self.count -= cleared;
        cleared
    }

    /// The sums, as if the run ended now.
    pub(in crate::exact) fn account(&self) -> Moved {
        let wasted = self.moved.wasted + (self.count << 12);
        Moved { wasted, ..self.moved.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;
    const UP: (Tier, Tier) = (Tier(1), Tier(0));
    const DOWN: (Tier, Tier) = (Tier(0), Tier(1));

    fn second(n: u64) -> Time {
        Time(n * 1_000_000_000)
    }

    fn at(page: u64) -> (SpaceId, u64) {
        (SpaceId(0), page * PAGE)
    }

    // Pages 1, 2 and 3 are promoted to frames 10, 11 and 12. Page 1 is accessed twice; page 2 is
    // demoted after 30 s without an access; page 3 stays and is never accessed.
    #[test]
    fn promotions_are_reaccessed_wasted_or_ping_pong() {
        let mut reuse = PromotionReuse::default();
        for page in 1..4 {
            reuse.moves(at(page), (9 + page, PageSize::K4), UP, second(0));
        }
        assert!(reuse.holds(10 * PAGE + 17) && !reuse.holds(13 * PAGE));
        reuse.reach(&mut vec![10 * PAGE, 10 * PAGE + 64]);
        reuse.moves(at(2), (99, PageSize::K4), DOWN, second(30));
        reuse.free(11, PageSize::K4);
        let moved = reuse.account();
        assert_eq!((moved.promoted, moved.demoted), (3 * PAGE, PAGE));
        assert_eq!((moved.reaccessed, moved.wasted, moved.ping_pong), (PAGE, 2 * PAGE, PAGE));
        // Promoted again two more minutes later: no ping-pong.
        reuse.moves(at(2), (11, PageSize::K4), UP, second(150));
        assert_eq!(reuse.account().ping_pong, PAGE);
    }

    // An access to any part of a huge page counts for all of it; after a split each part counts
    // alone.
    #[test]
    fn huge_pages_are_touched_as_a_whole_until_they_are_split() {
        let mut reuse = PromotionReuse::default();
        for page in 0..2 {
            reuse.moves(at(512 * page), (512 * page, PageSize::M2), UP, second(0));
        }
        reuse.split(512);
        reuse.reach(&mut vec![77 * PAGE, 600 * PAGE]);
        let moved = reuse.account();
        assert_eq!((moved.reaccessed, moved.wasted), (513 * PAGE, 511 * PAGE));
    }
}
