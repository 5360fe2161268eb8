//! The only address space of a density machine, and searches in sets of its ranges.

use tierscope_core::{Range, RangeSet, SpaceId};

/// The only space.
pub(super) const SPACE: SpaceId = SpaceId(0);

/// The first byte of `range` that is in `set`.
pub(super) fn first_overlap(set: &RangeSet, range: &Range) -> Option<u64> {
    let ranges = set.as_slice();
    let next = ranges.partition_point(|r| (r.space, r.end) <= (range.space, range.start));
    let overlap = ranges.get(next)?.intersect(range)?;
    Some(overlap.start)
}
