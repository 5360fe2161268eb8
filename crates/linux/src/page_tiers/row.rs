//! The pages of a mapping in blocks of 2 MiB, with the tier of each as of the last query.

use tierscope_core::{PAGE_SHIFT, PAGE_SIZE, Range, Tier};

/// Size of a block in bytes.
pub(super) const BLOCK: u64 = 2 << 20;
/// Number of pages in a block.
pub(super) const PAGES: usize = 512;
pub(super) use crate::tiers::MOST_TIERS as TIERS;
/// Tier of a page that is not resident, or on a node of no tier.
pub(super) const NO_TIER: u8 = u8::MAX;

/// Tiers of a block's pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// All in one tier, or none resident.
    Uniform { tier: u8, huge: bool },
    /// Tier of each page of the block.
    Mixed(Box<[u8; PAGES]>),
}

#[derive(Clone, Debug)]
pub(super) struct Block {
    state: State,
    /// Time of the last query, in hundredths of a second from 1 on; 0 for never.
    queried: u32,
    /// Number of consecutive queries without a change.
    unchanged: u8,
}

/// A mapping. The first and the last block may be covered partially.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) range: Range,
    /// Id of its first page, and number of ids reserved; assigned when the first page is found.
    pub(super) ids: Option<(u32, u32)>,
    blocks: Vec<Block>,
    /// Resident bytes by tier.
    resident: [u64; TIERS],
}

impl Row {
    pub(super) fn new(range: Range) -> Self {
        let mut row = Self { range, ids: None, blocks: Vec::new(), resident: [0; TIERS] };
        row.fit();
        row
    }

    fn fit(&mut self) {
        let count = (self.range.end.div_ceil(BLOCK) - self.range.start / BLOCK) as usize;
        let never = Block {
            state: State::Uniform { tier: NO_TIER, huge: false },
            queried: 0,
            unchanged: 0,
        };
        for gone in self.blocks.split_off(self.blocks.len().min(count)) {
            subtract(&mut self.resident, &gone.state, PAGES as u64);
        }
        self.blocks.resize(count, never);
    }

    /// Changes the end of the mapping. The blocks at its old and its new end become unknown.
    pub(super) fn end_at(&mut self, end: u64) {
        self.reset(self.blocks.len().saturating_sub(1));
        if end < self.range.end {
            self.reset(self.block_of(end - 1));
        }
        self.range.end = end;
        self.fit();
    }

    /// Makes the state of a block unknown.
    fn reset(&mut self, block: usize) {
        let never = State::Uniform { tier: NO_TIER, huge: false };
        let pages = self.pages_of(block).len() as u64;
        if let Some(known) = self.blocks.get_mut(block) {
            subtract(&mut self.resident, &known.state, pages);
            *known = Block { state: never, queried: 0, unchanged: 0 };
        }
    }

    pub(super) fn pages(&self) -> u64 {
        self.range.bytes() >> PAGE_SHIFT
    }

    pub(super) fn blocks(&self) -> usize {
        self.blocks.len()
    }

    pub(super) fn block_of(&self, at: u64) -> usize {
        (at / BLOCK - self.range.start / BLOCK) as usize
    }

    /// Start address of a block, which may be below the mapping's.
    pub(super) fn start_of(&self, block: usize) -> u64 {
        (self.range.start / BLOCK + block as u64) * BLOCK
    }

    /// The pages of a block that belong to the mapping.
    pub(super) fn pages_of(&self, block: usize) -> std::ops::Range<usize> {
        let start = self.start_of(block);
        let page = |at: u64| (at.clamp(start, start + BLOCK) - start) as usize / PAGE_SIZE as usize;
        page(self.range.start)..page(self.range.end)
    }

    /// Time of a block's last query; 0 for never.
    pub(super) fn queried(&self, block: usize) -> u32 {
        self.blocks[block].queried
    }

    /// Number of consecutive queries of a block without a change.
    pub(super) fn unchanged(&self, block: usize) -> u8 {
        self.blocks[block].unchanged
    }

    /// Invalidates a block; its old state remains until the next query.
    pub(super) fn invalidate(&mut self, block: usize) {
        self.blocks[block].queried = 0;
    }

    /// Stores the result of a query: the tiers of the block's pages that belong to the mapping, in
    /// order.
    pub(super) fn store(&mut self, block: usize, tiers: &[u8], huge: bool, when: u32) {
        let pages = self.pages_of(block);
        debug_assert_eq!(pages.len(), tiers.len());
        let first = tiers.first().copied().unwrap_or(NO_TIER);
        let state = if tiers.iter().all(|tier| *tier == first) {
            State::Uniform { tier: first, huge: huge && first != NO_TIER }
        } else {
            let mut all = Box::new([NO_TIER; PAGES]);
            all[pages.clone()].copy_from_slice(tiers);
            State::Mixed(all)
        };
        let known = &self.blocks[block];
        let unchanged = if known.state == state { known.unchanged.saturating_add(1) } else { 0 };
        subtract(&mut self.resident, &known.state, pages.len() as u64);
        add(&mut self.resident, &state, pages.len() as u64);
        self.blocks[block] = Block { state, queried: when, unchanged };
    }

    /// Whether the page at `at` belongs to a huge page.
    pub(super) fn is_huge(&self, at: u64) -> bool {
        let block = &self.blocks[self.block_of(at)];
        matches!(block.state, State::Uniform { huge: true, .. })
    }

    pub(super) fn tier_at(&self, at: u64) -> Option<Tier> {
        let index = self.block_of(at);
        let tier = match &self.blocks[index].state {
            State::Uniform { tier, .. } => *tier,
            State::Mixed(tiers) => tiers[((at - self.start_of(index)) / PAGE_SIZE) as usize],
        };
        (tier != NO_TIER).then_some(Tier(tier))
    }

    /// Bytes of the whole mapping in a tier.
    pub(super) fn total(&self, tier: Tier) -> u64 {
        self.resident.get(usize::from(tier.0)).copied().unwrap_or(0)
    }

    /// Bytes of a part of a block in a tier. `part` lies within the mapping.
    pub(super) fn resident(&self, block: usize, part: &Range, tier: Tier) -> u64 {
        let start = self.start_of(block);
        let (from, to) = (part.start.max(start), part.end.min(start + BLOCK));
        match &self.blocks[block].state {
            State::Uniform { tier: here, .. } if *here == tier.0 => to.saturating_sub(from),
            State::Uniform { .. } => 0,
            State::Mixed(tiers) => {
                let page = |at: u64| ((at - start) / PAGE_SIZE) as usize;
                let end = (to - start).div_ceil(PAGE_SIZE) as usize;
                let here = tiers[page(from)..end].iter().filter(|here| **here == tier.0);
                (here.count() as u64 * PAGE_SIZE).min(to - from)
            }
        }
    }
}

fn each(state: &State, pages: u64, mut count: impl FnMut(usize, u64)) {
    match state {
        State::Uniform { tier, .. } => count(usize::from(*tier), pages * PAGE_SIZE),
        State::Mixed(tiers) => {
            tiers.iter().for_each(|tier| count(usize::from(*tier), PAGE_SIZE));
        }
    }
}

fn add(sums: &mut [u64; TIERS], state: &State, pages: u64) {
    each(state, pages, |tier, bytes| {
        if let Some(sum) = sums.get_mut(tier) {
            *sum += bytes;
        }
    });
}

fn subtract(sums: &mut [u64; TIERS], state: &State, pages: u64) {
    each(state, pages, |tier, bytes| {
        if let Some(sum) = sums.get_mut(tier) {
            *sum -= bytes;
        }
    });
}
