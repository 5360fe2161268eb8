//! Mapped memory in numbered blocks of 2 MiB.
//!
//! For policies that manage only huge pages. A block keeps its number as long as it is mapped;
//! numbers are never reused.

use tierscope_core::{Addr, Mappings, PlacementView, Range, RangeSet, Tier};

/// log2 of a block's bytes.
const SHIFT: u32 = 21;
/// Bytes of a block.
pub(crate) const BLOCK: u64 = 1 << SHIFT;

/// Adjacent blocks with consecutive numbers, from `first` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row {
    range: Range,
    first: u32,
}

impl Row {
    fn block_at(&self, at: u64) -> u32 {
        self.first + ((at - self.range.start) >> SHIFT) as u32
    }

    fn blocks(&self) -> std::ops::Range<u32> {
        self.first..self.block_at(self.range.end)
    }
}

/// All mapped blocks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Blocks {
    /// Rows of blocks, sorted by address.
    rows: Vec<Row>,
    next: u32,
}

/// Block numbers unmapped and newly mapped by an update.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changed {
    pub(crate) gone: Vec<std::ops::Range<u32>>,
    pub(crate) new: Vec<std::ops::Range<u32>>,
}

impl Blocks {
    /// Applies mappings of at least `least` bytes; 2 MiB blocks only partly inside a mapping are
    /// left out.
    pub(crate) fn map(&mut self, mappings: &Mappings, least: u64) -> Changed {
        let whole = |range: Range| {
            let inner = Range {
                start: range.start.div_ceil(BLOCK) * BLOCK,
                end: range.end & !(BLOCK - 1),
                ..range
            };
            (inner.start < inner.end).then_some(inner)
        };
        let large = mappings.mappings.iter().map(|mapping| mapping.range);
        let wanted: RangeSet =
            large.filter(|range| range.bytes() >= least).filter_map(whole).collect();
        let known: RangeSet = self.rows.iter().map(|row| row.range).collect();
        let gone = self.drop(&known.minus(&wanted));
        let new = self.add(&wanted.minus(&known));
        self.rows.sort_unstable_by_key(|row| row.range);
        Changed { gone, new }
    }

    fn drop(&mut self, gone: &RangeSet) -> Vec<std::ops::Range<u32>> {
        let mut numbers = Vec::new();
        for range in gone.as_slice() {
            let mut left = Vec::with_capacity(self.rows.len() + 1);
            for row in &self.rows {
                let Some(part) = row.range.intersect(range) else {
                    left.push(*row);
                    continue;
                };
                numbers.push(row.block_at(part.start)..row.block_at(part.end));
                let below = Range { end: part.start, ..row.range };
                let above = Range { start: part.end, ..row.range };
                left.extend(
                    [below, above]
                        .into_iter()
                        .filter(|part| !part.is_empty())
                        .map(|part| Row { range: part, first: row.block_at(part.start) }),
                );
            }
            self.rows = left;
        }
        numbers
    }

    fn add(&mut self, new: &RangeSet) -> Vec<std::ops::Range<u32>> {
        let mut numbers = Vec::new();
        for range in new.as_slice() {
            let row = Row { range: *range, first: self.next };
            // u32 numbers suffice for 8 PiB mapped over the policy's lifetime.
            let Some(next) = self.next.checked_add((range.bytes() >> SHIFT) as u32) else { break };
            self.next = next;
            numbers.push(row.blocks());
            self.rows.push(row);
        }
        numbers
    }

    /// Number of the block that contains an address.
    #[inline]
    pub(crate) fn at(&self, at: Addr) -> Option<u32> {
        let next =
            self.rows.partition_point(|row| (row.range.space, row.range.end) <= (at.space, at.at));
        self.rows.get(next).filter(|row| row.range.contains(at)).map(|row| row.block_at(at.at))
    }

    /// Address range of a block.
    pub(crate) fn range(&self, block: u32) -> Option<Range> {
        let row = self.rows.iter().find(|row| row.blocks().contains(&block))?;
        let start = row.range.start + (u64::from(block - row.first) << SHIFT);
        Some(Range::new(row.range.space, start, start + BLOCK))
    }
}

/// The tier that holds most of a range; `None` if none of it is resident.
pub(crate) fn tier_of(view: &dyn PlacementView, range: &Range) -> Option<Tier> {
    let held = view.tiers().iter().map(|tier| (view.resident(range, tier.tier), tier.tier));
    let most = held.max_by_key(|(bytes, tier)| (*bytes, std::cmp::Reverse(*tier)))?;
    (most.0 > 0).then_some(most.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::{Mapping, SpaceId};

    fn r(start: u64, end: u64) -> Range {
        Range::new(SpaceId(0), start << 20, end << 20)
    }

    trait Concat {
        fn concat(self) -> Vec<u32>;
    }

    impl Concat for Vec<std::ops::Range<u32>> {
        fn concat(self) -> Vec<u32> {
            self.into_iter().flatten().collect()
        }
    }

    fn mappings(ranges: &[Range]) -> Mappings {
        Mappings {
            mappings: ranges.iter().copied().map(Mapping::anonymous).collect(),
            ..Default::default()
        }
    }

    fn at(mib: u64) -> Addr {
        Addr { space: SpaceId(0), at: mib << 20 }
    }

    // In MiB: 1..9 contains the blocks at 2, 4 and 6; the 3 MiB at 20 are below the minimum size.
    #[test]
    fn blocks_are_whole_and_keep_their_numbers() {
        let mut blocks = Blocks::default();
        let changed = blocks.map(&mappings(&[r(1, 9), r(20, 23)]), 4 << 20);
        assert_eq!((changed.gone, changed.new.concat()), (vec![], vec![0, 1, 2]));
        assert_eq!((blocks.at(at(1)), blocks.at(at(3)), blocks.at(at(8))), (None, Some(0), None));
        assert_eq!(blocks.range(2), Some(r(6, 8)));
        // The middle block is unmapped, and the mapping grows at its end.
        let changed = blocks.map(&mappings(&[r(0, 4), r(6, 12)]), 4 << 20);
        assert_eq!((changed.gone.concat(), changed.new.concat()), (vec![1], vec![3, 4, 5]));
        assert_eq!(
            (blocks.at(at(6)), blocks.at(at(9)), blocks.at(at(4))),
            (Some(2), Some(4), None)
        );
        assert_eq!((blocks.range(1), blocks.range(3)), (None, Some(r(0, 2))));
    }
}
