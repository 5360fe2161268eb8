//! The set of touched pages; its memory grows with the number of pages, not of accesses.

use std::collections::BTreeMap;

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// log2 of the bytes of a block of pages: 2 MiB.
const BLOCK: u32 = 21;
/// Bytes of a block.
pub const BLOCK_BYTES: u64 = 1 << BLOCK;
/// Words of a block's bitmap.
const WORDS: usize = 8;
/// Initial slots of the cache of blocks.
const NEAR: usize = 64;
/// An empty cache slot; no block has this number.
const NONE: (u64, usize) = (u64::MAX, 0);

/// The touched pages of one address space.
#[derive(Clone, Debug)]
pub struct Pages {
    /// Index of each block in [`Pages::bits`], by block number.
    places: BTreeMap<u64, usize>,
    bits: Vec<[u64; WORDS]>,
    /// Direct-mapped cache of block number and index, by the lowest bits of the number. It has at
    /// least twice as many slots as there are blocks, so that neighbouring blocks do not collide.
    near: Vec<(u64, usize)>,
}

impl Default for Pages {
    fn default() -> Self {
        Self { places: BTreeMap::new(), bits: Vec::new(), near: vec![NONE; NEAR] }
    }
}

impl Pages {
    /// Marks the pages of `bytes` from `address` on as touched; pages beyond the end of the address
    /// space are ignored.
    #[inline]
    pub fn touch(&mut self, address: u64, bytes: u16) {
        self.touch_page(address);
        let last = address.saturating_add(u64::from(bytes).saturating_sub(1));
        let mut page = address / PAGE;
        while page < last / PAGE {
            page += 1;
            self.touch_page(page * PAGE);
        }
    }

    #[inline]
    fn touch_page(&mut self, address: u64) {
        let block = address >> BLOCK;
        let near = self.near[self.slot(block)];
        let place = if near.0 == block { near.1 } else { self.find(block) };
        let page = (address / PAGE) as usize % (WORDS * 64);
        self.bits[place][page / 64] |= 1 << (page % 64);
    }

    /// The slot of a block in [`Pages::near`], whose length is a power of two.
    #[inline]
    fn slot(&self, block: u64) -> usize {
        block as usize & (self.near.len() - 1)
    }

    #[cold]
    fn find(&mut self, block: u64) -> usize {
        let place = *self.places.entry(block).or_insert_with(|| {
            self.bits.push([0; WORDS]);
            self.bits.len() - 1
        });
        if self.bits.len() * 2 > self.near.len() {
            self.near = vec![NONE; self.near.len() * 2];
        }
        let slot = self.slot(block);
        self.near[slot] = (block, place);
        place
    }

    /// Numbers of the blocks with touched pages, in ascending order, and the pages in each.
    pub fn blocks(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let pages =
            |place: &usize| self.bits[*place].iter().map(|word| u64::from(word.count_ones()));
        self.places.iter().map(move |(block, place)| (*block, pages(place).sum()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn an_access_may_reach_into_the_next_page() {
        let mut pages = Pages::default();
        pages.touch(4095, 1);
        pages.touch(BLOCK_BYTES - 1, 2);
        pages.touch(u64::MAX, 9);
        pages.touch(8192, 0);
        let expected = [(0, 3), (1, 1), (u64::MAX >> BLOCK, 1)];
        assert_eq!(pages.blocks().collect::<Vec<_>>(), expected);
    }

    proptest! {
        #[test]
        fn pages_are_counted_once(
            touches in prop::collection::vec((0u64..1 << 34, 0u16..9000), 0..200),
        ) {
            let mut pages = Pages::default();
            let mut naive = BTreeSet::new();
            for (address, bytes) in touches {
                pages.touch(address, bytes);
                naive.extend(address / PAGE..=(address + u64::from(bytes.max(1)) - 1) / PAGE);
            }
            let mut blocks = std::collections::BTreeMap::<u64, u64>::new();
            naive.iter().for_each(|page| *blocks.entry(page / 512).or_default() += 1);
            prop_assert_eq!(pages.blocks().collect::<Vec<_>>(), blocks.into_iter().collect::<Vec<_>>());
        }
    }
}
