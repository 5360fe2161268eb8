//! A mapping's pages by blocks of 2 MiB, and the tier of each as it was when last looked at.

use tierscope_core::{PAGE_SHIFT, PAGE_SIZE, Range, Tier};

/// Bytes of a block.
pub(super) const BLOCK: u64 = 2 << 20;
/// Pages of a block.
pub(super) const PAGES: usize = 512;
pub(super) use crate::tiers::MOST_TIERS as TIERS;
/// No page is there, or it is on a node of no tier.
pub(super) const NOWHERE: u8 = u8::MAX;

/// Where a block's pages are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// All in one tier, or nowhere.
    Alike { tier: u8, huge: bool },
    /// By page of the block.
    Mixed(Box<[u8; PAGES]>),
}

#[derive(Clone, Debug)]
pub(super) struct Block {
    state: State,
    /// When it was looked at, in hundredths of a second from 1 on; 0 for never.
    looked: u32,
    /// How many looks in a row found what was known.
    calm: u8,
}

/// A mapping. The first and the last block may lie in it by a part.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) range: Range,
    /// Number of its first page, and how many are set aside; given when the first page is found.
    pub(super) numbers: Option<(u32, u32)>,
    blocks: Vec<Block>,
    /// Bytes by tier.
    resident: [u64; TIERS],
}

impl Row {
    pub(super) fn new(range: Range) -> Self {
        let mut row = Self { range, numbers: None, blocks: Vec::new(), resident: [0; TIERS] };
        row.fit();
        row
    }

    fn fit(&mut self) {
        let count = (self.range.end.div_ceil(BLOCK) - self.range.start / BLOCK) as usize;
        let never =
            Block { state: State::Alike { tier: NOWHERE, huge: false }, looked: 0, calm: 0 };
        for gone in self.blocks.split_off(self.blocks.len().min(count)) {
            subtract(&mut self.resident, &gone.state, PAGES as u64);
        }
        self.blocks.resize(count, never);
    }

    /// The mapping ends elsewhere now. The blocks at its old end and at its new one are to be looked at anew.
    pub(super) fn end_at(&mut self, end: u64) {
        self.forget(self.blocks.len().saturating_sub(1));
        if end < self.range.end {
            self.forget(self.block_of(end - 1));
        }
        self.range.end = end;
        self.fit();
    }

    /// Nothing is known of a block any more.
    fn forget(&mut self, block: usize) {
        let never = State::Alike { tier: NOWHERE, huge: false };
        let pages = self.pages_of(block).len() as u64;
        if let Some(known) = self.blocks.get_mut(block) {
            subtract(&mut self.resident, &known.state, pages);
            *known = Block { state: never, looked: 0, calm: 0 };
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

    /// Where a block begins, be it before the row.
    pub(super) fn start_of(&self, block: usize) -> u64 {
        (self.range.start / BLOCK + block as u64) * BLOCK
    }

    /// Which pages of a block are the row's.
    pub(super) fn pages_of(&self, block: usize) -> std::ops::Range<usize> {
        let start = self.start_of(block);
        let page = |at: u64| (at.clamp(start, start + BLOCK) - start) as usize / PAGE_SIZE as usize;
        page(self.range.start)..page(self.range.end)
    }

    /// When a block was looked at; 0 for never.
    pub(super) fn looked(&self, block: usize) -> u32 {
        self.blocks[block].looked
    }

    /// How many looks in a row found a block as it was known.
    pub(super) fn calm(&self, block: usize) -> u8 {
        self.blocks[block].calm
    }

    /// A block is to be looked at anew; what was known of it stands until then.
    pub(super) fn outdate(&mut self, block: usize) {
        self.blocks[block].looked = 0;
    }

    /// A block was looked at: tiers of its pages of this row, in order.
    pub(super) fn note(&mut self, block: usize, tiers: &[u8], huge: bool, when: u32) {
        let pages = self.pages_of(block);
        debug_assert_eq!(pages.len(), tiers.len());
        let first = tiers.first().copied().unwrap_or(NOWHERE);
        let state = if tiers.iter().all(|tier| *tier == first) {
            State::Alike { tier: first, huge: huge && first != NOWHERE }
        } else {
            let mut all = Box::new([NOWHERE; PAGES]);
            all[pages.clone()].copy_from_slice(tiers);
            State::Mixed(all)
        };
        let known = &self.blocks[block];
        let calm = if known.state == state { known.calm.saturating_add(1) } else { 0 };
        subtract(&mut self.resident, &known.state, pages.len() as u64);
        add(&mut self.resident, &state, pages.len() as u64);
        self.blocks[block] = Block { state, looked: when, calm };
    }

    /// Whether the page at `at` is part of a huge one.
    pub(super) fn is_huge(&self, at: u64) -> bool {
        let block = &self.blocks[self.block_of(at)];
        matches!(block.state, State::Alike { huge: true, .. })
    }

    pub(super) fn tier_at(&self, at: u64) -> Option<Tier> {
        let index = self.block_of(at);
        let tier = match &self.blocks[index].state {
            State::Alike { tier, .. } => *tier,
            State::Mixed(tiers) => tiers[((at - self.start_of(index)) / PAGE_SIZE) as usize],
        };
        (tier != NOWHERE).then_some(Tier(tier))
    }

    /// Bytes of the whole row in a tier.
    pub(super) fn total(&self, tier: Tier) -> u64 {
        self.resident.get(usize::from(tier.0)).copied().unwrap_or(0)
    }

    /// Bytes of a part of a block in a tier. `part` lies within the row.
    pub(super) fn resident(&self, block: usize, part: &Range, tier: Tier) -> u64 {
        let start = self.start_of(block);
        let (from, to) = (part.start.max(start), part.end.min(start + BLOCK));
        match &self.blocks[block].state {
            State::Alike { tier: here, .. } if *here == tier.0 => to.saturating_sub(from),
            State::Alike { .. } => 0,
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
        State::Alike { tier, .. } => count(usize::from(*tier), pages * PAGE_SIZE),
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
