//! Result of a scan of leaves, as words of 64 pages.

use tierscope_core::{AccessedSet, PAGE_SHIFT, Range, RangeSet, SpaceId};

use super::generations::{BLOCK, BLOCK_SHIFT, Key, holds};

/// 64 pages of a table, from page `first` on; bit masks of the pages that may be reclaimed, are
/// present, and were young.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) first: usize,
    pub(crate) mapped: u64,
    pub(crate) present: u64,
    pub(crate) young: u64,
}

/// The words of a scan's result, by table.
#[derive(Debug)]
pub(crate) struct Words {
    /// Words with their tables, in ascending order of address.
    words: Vec<(Key, Word)>,
}

impl Words {
    /// Splits a result, which begins and ends at multiples of 64 pages, as all scans ordered by
    /// this policy.
    pub(crate) fn new(set: &AccessedSet, mapped: &RangeSet) -> Self {
        let first = set.range.start >> BLOCK_SHIFT;
        let whole = holds(mapped, &set.range);
        let word = |(number, (young, present)): (u64, (&u64, &u64))| {
            let mask = if whole { u64::MAX } else { mask(set.range.space, number, mapped) };
            let word = Word {
                first: (number % 8) as usize * BLOCK,
                mapped: mask,
                present: present & mask,
                young: young & present & mask,
            };
            ((set.range.space, number / 8), word)
        };
        let bits = set.young.iter().zip(&set.present);
        let words = (first..).zip(bits).map(word).filter(|(_, word)| word.mapped != 0);
        Self { words: words.collect() }
    }

    /// Keys of all tables, without duplicates.
    pub(crate) fn keys(&self) -> Vec<Key> {
        let mut keys: Vec<Key> = self.words.iter().map(|(key, _)| *key).collect();
        keys.dedup();
        keys
    }

    /// The words of one table, in order.
    pub(crate) fn of(&self, key: Key) -> impl Iterator<Item = &Word> {
        let from = self.words.partition_point(|(other, _)| *other < key);
        self.words[from..].iter().take_while(move |(other, _)| *other == key).map(|(_, word)| word)
    }
}

/// Bit mask of a block's pages that the set contains.
fn mask(space: SpaceId, number: u64, mapped: &RangeSet) -> u64 {
    let block = Range::new(space, number << BLOCK_SHIFT, (number + 1) << BLOCK_SHIFT);
    if holds(mapped, &block) {
        return u64::MAX;
    }
    let here = [block].into_iter().collect::<RangeSet>().intersect(mapped);
    let bit = |page: u64| 1u64 << (page - (block.start >> PAGE_SHIFT));
    let pages =
        here.as_slice().iter().flat_map(|part| part.start >> PAGE_SHIFT..part.end >> PAGE_SHIFT);
    pages.map(bit).fold(0, |mask, bit| mask | bit)
}

#[cfg(test)]
mod tests {
    use tierscope_core::Level;

    use super::*;

    // Two blocks: of the first all pages but the first are mapped, of the second none.
    #[test]
    fn unmapped_memory_is_not_reported() {
        let page = |n: u64| n << 12;
        let mut set = AccessedSet::default();
        set.reset(&Range::new(SpaceId(0), page(512), page(640)), Level::PTE, true);
        set.young = vec![0b111, 1];
        set.present = vec![0b1011, 1];
        let mapped: RangeSet = [Range::new(SpaceId(0), page(513), page(576))].into_iter().collect();
        let words = Words::new(&set, &mapped);
        assert_eq!(words.keys(), [(SpaceId(0), 1)]);
        let found: Vec<Word> = words.of((SpaceId(0), 1)).copied().collect();
        let mapped = u64::MAX - 1;
        assert_eq!(found, [Word { first: 0, mapped, present: 0b1010, young: 0b10 }]);
    }
}
