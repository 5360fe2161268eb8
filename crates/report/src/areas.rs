//! Selects the addresses that a heatmap shows: a target's address space is mostly gaps. The heap is
//! terabytes away from the stack, and one scale over both would show neither (the kernel's DAMON
//! cuts a space into three regions for the same reason: mm/damon/vaddr.c,
//! __damon_va_three_regions). Gaps wider than a row are cut out, widest first.

use tierscope_core::{PAGE_SIZE, Range, RangeSet};

/// A contiguous range of addresses with one scale, cut into rows of equal size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// Addresses of the block.
    pub(crate) range: Range,
    /// Bytes per row; the last row may be shorter.
    pub(crate) row_bytes: u64,
}

impl Block {
    /// The rows, in order of address.
    pub(crate) fn rows(&self) -> impl Iterator<Item = Range> + '_ {
        let range = self.range;
        let count = range.bytes().div_ceil(self.row_bytes);
        (0..count).map(move |index| {
            let start = range.start + index * self.row_bytes;
            Range::new(range.space, start, start.saturating_add(self.row_bytes).min(range.end))
        })
    }
}

/// Blocks that cover all of `shown` in about `rows` rows of the same scale: each block has at least
/// one row.
pub(crate) fn blocks(shown: &RangeSet, rows: usize) -> Vec<Block> {
    let rows = rows.max(1) as u64;
    let areas = areas(shown.as_slice(), rows);
    let total = areas.iter().map(|area| u128::from(area.bytes())).sum::<u128>();
    let row_bytes = round(u64::try_from(total / u128::from(rows)).unwrap_or(u64::MAX));
    areas.into_iter().map(|range| Block { range, row_bytes }).collect()
}

/// Rounds up to 4, 5, 6 or 7 times a power of two, and to whole pages: addresses stay legible, and
/// there are at most a fifth fewer rows than requested.
pub(crate) fn round(bytes: u64) -> u64 {
    let bytes = bytes.clamp(PAGE_SIZE, 1 << 60);
    let step = (bytes.next_power_of_two() / 8).max(PAGE_SIZE);
    bytes.div_ceil(step) * step
}

/// The ranges, joined across gaps that are too small to be cut out.
fn areas(shown: &[Range], rows: u64) -> Vec<Range> {
    let gap = |pair: &[Range]| match pair[0].space == pair[1].space {
        true => pair[1].start - pair[0].end,
        false => u64::MAX,
    };
    let least = least_gap(shown, rows, &gap);
    let joins = |a: &Range, b: &Range| gap(&[*a, *b]) < least;
    shown.chunk_by(joins).map(|run| Range { end: run[run.len() - 1].end, ..run[0] }).collect()
}

/// Minimum size of gaps that are cut out: wider than a row, and at most as many gaps as a third of
/// the rows, so that areas keep room. Borders between spaces are always cut.
fn least_gap(shown: &[Range], rows: u64, gap: &impl Fn(&[Range]) -> u64) -> u64 {
    let mapped = shown.iter().map(|r| u128::from(r.bytes())).sum::<u128>();
    let row = u64::try_from(mapped / u128::from(rows)).unwrap_or(u64::MAX).max(1);
    let mut gaps: Vec<u64> = shown.windows(2).map(gap).filter(|gap| *gap >= row).collect();
    gaps.sort_unstable_by(|a, b| b.cmp(a));
    match gaps.get((rows / 3) as usize) {
        Some(crowded) => crowded.saturating_add(1),
        None => row,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::SpaceId;

    const MIB: u64 = 1 << 20;

    fn set(ranges: &[(u64, u64)]) -> RangeSet {
        ranges.iter().map(|(s, e)| Range::new(SpaceId(0), s * MIB, e * MIB)).collect()
    }

    // A heap of 8 MiB with a hole of 1 MiB, and a stack of 1 MiB far away, in nine rows.
    #[test]
    fn heap_and_stack_get_a_block_each() {
        let blocks = blocks(&set(&[(10, 14), (15, 19), (4096, 4097)]), 9);
        let shown: Vec<_> = blocks
            .iter()
            .map(|b| (b.range.start / MIB, b.range.end / MIB, b.rows().count()))
            .collect();
        assert_eq!(shown, [(10, 14, 4), (15, 19, 4), (4096, 4097, 1)]);
    }

    #[test]
    fn row_sizes_are_round() {
        assert_eq!([1, 4096, 4097, 9 << 20].map(round), [4096, 4096, 8192, 10 << 20]);
        assert_eq!(round(u64::MAX), 1 << 60);
    }

    #[test]
    fn a_hole_smaller_than_a_row_stays_in() {
        let blocks = blocks(&set(&[(0, 40), (41, 80)]), 8);
        assert_eq!(blocks.len(), 1);
        assert_eq!(blocks[0].rows().count(), 8);
        assert_eq!(blocks[0].rows().map(|row| row.bytes()).sum::<u64>(), 80 * MIB);
    }

    #[test]
    fn many_holes_leave_room_for_rows() {
        let ranges: Vec<_> = (0..1000).map(|i| (10 * i, 10 * i + 1)).collect();
        let rows: usize = blocks(&set(&ranges), 30).iter().map(|b| b.rows().count()).sum();
        assert!((1..=45).contains(&rows), "{rows} rows");
    }
}
