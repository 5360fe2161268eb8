//! A set of pages: those of memory that several processes map and any of them has in memory.

use std::collections::BTreeMap;

use tierscope_core::PAGE_SHIFT;

/// Pages of a block, a bit each.
type Block = [u64; 8];
/// log2 of the pages of a block.
const BLOCK_BITS: u32 = 9;

/// A set of pages.
#[derive(Debug, Default)]
pub(super) struct PageSet(BTreeMap<u64, Block>);

impl PageSet {
    /// Adds the pages of the bytes `start..end`.
    pub(super) fn add(&mut self, start: u64, end: u64) {
        let (mut page, end) = (start >> PAGE_SHIFT, end >> PAGE_SHIFT);
        while page < end {
            let number = page >> BLOCK_BITS;
            let next = ((number + 1) << BLOCK_BITS).min(end);
            let block = self.0.entry(number).or_default();
            for page in page..next {
                let bit = page & ((1 << BLOCK_BITS) - 1);
                block[(bit / 64) as usize] |= 1 << (bit % 64);
            }
            page = next;
        }
    }

    /// The parts of the bytes `start..end` that are not all in the set, in blocks, in order.
    pub(super) fn incomplete(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let (mut page, end) = (start >> PAGE_SHIFT, end >> PAGE_SHIFT);
        let mut parts: Vec<(u64, u64)> = Vec::new();
        while page < end {
            let number = page >> BLOCK_BITS;
            let next = ((number + 1) << BLOCK_BITS).min(end);
            if !self.0.get(&number).is_some_and(|block| (page..next).all(|page| holds(block, page)))
            {
                let (from, to) = (page << PAGE_SHIFT, next << PAGE_SHIFT);
                match parts.last_mut() {
                    Some(last) if last.1 == from => last.1 = to,
                    _ => parts.push((from, to)),
                }
            }
            page = next;
        }
        parts
    }

    /// Runs of adjacent pages inside of blocks, in order, as ranges of bytes.
    pub(super) fn runs(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().flat_map(|(number, block)| {
            let first = number << BLOCK_BITS;
            if *block == [u64::MAX; 8] {
                return vec![(first << PAGE_SHIFT, (first + (1 << BLOCK_BITS)) << PAGE_SHIFT)];
            }
            let pages: Vec<u64> = (0..1 << BLOCK_BITS).filter(|bit| holds(block, *bit)).collect();
            let runs = pages.chunk_by(|a, b| a + 1 == *b);
            let run = |run: &[u64]| {
                let end = run[0] + run.len() as u64;
                ((first + run[0]) << PAGE_SHIFT, (first + end) << PAGE_SHIFT)
            };
            runs.map(run).collect::<Vec<_>>()
        })
    }
}

/// Whether a block has a page; pages have the same place in each block.
fn holds(block: &Block, page: u64) -> bool {
    let bit = page & ((1 << BLOCK_BITS) - 1);
    block[(bit / 64) as usize] >> (bit % 64) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    // Blocks of 512 pages: the first is complete, the second lacks a page, of the third the first
    // half is there.
    #[test]
    fn complete_blocks_are_left_out() {
        let mut set = PageSet::default();
        for (start, end) in [(0, 600), (601, 1280)] {
            set.add(start << 12, end << 12);
        }
        let incomplete = |start: u64, end: u64| {
            let parts = set.incomplete(start << 12, end << 12).into_iter();
            parts.map(|(start, end)| (start >> 12, end >> 12)).collect::<Vec<_>>()
        };
        assert_eq!(incomplete(10, 1280), [(512, 1024)]);
        assert_eq!(incomplete(700, 1300), [(1024, 1300)]);
        assert_eq!(incomplete(0, 512), []);
        assert_eq!(incomplete(3000, 3001), [(3000, 3001)]);
    }

    proptest! {
        #[test]
        fn a_set_holds_the_union(ranges in prop::collection::vec((0u64..2000, 0u64..900), 0..9)) {
            let (mut set, mut naive) = (PageSet::default(), BTreeSet::new());
            for (start, length) in ranges {
                set.add(start << 12, (start + length) << 12);
                naive.extend(start..start + length);
            }
            let found: Vec<u64> = set.runs().flat_map(|(start, end)| start >> 12..end >> 12).collect();
            prop_assert_eq!(found, naive.into_iter().collect::<Vec<_>>());
        }
    }
}
