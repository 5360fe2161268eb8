//! Sets of bytes as sorted, disjoint ranges.

use crate::Range;

/// A set of bytes over any number of spaces: sorted, disjoint, no two ranges touch, none empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet(Vec<Range>);

impl RangeSet {
    /// The ranges of the set, in order.
    #[must_use]
    pub fn as_slice(&self) -> &[Range] {
        &self.0
    }

    /// Bytes in the set.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(Range::bytes).sum()
    }

    /// Whether the set holds no byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes that are in both sets.
    #[must_use]
    pub fn intersect(&self, other: &RangeSet) -> RangeSet {
        let (mut mine, mut theirs) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut both = Vec::new();
        while let (Some(a), Some(b)) = (mine.peek(), theirs.peek()) {
            both.extend(a.intersect(b));
            if (a.space, a.end) <= (b.space, b.end) {
                mine.next();
            } else {
                theirs.next();
            }
        }
        RangeSet(both)
    }

    /// Bytes of `self` that are not in `other`.
    #[must_use]
    pub fn minus(&self, other: &RangeSet) -> RangeSet {
        let mut left = Vec::new();
        let mut holes = other.0.as_slice();
        for range in &self.0 {
            while holes.first().is_some_and(|h| (h.space, h.end) <= (range.space, range.start)) {
                holes = &holes[1..];
            }
            let mut rest = *range;
            for hole in holes.iter().map_while(|h| h.intersect(range)) {
                if rest.start < hole.start {
                    left.push(Range { end: hole.start, ..rest });
                }
                rest.start = hole.end;
            }
            if !rest.is_empty() {
                left.push(rest);
            }
        }
        RangeSet(left)
    }
}

/// From ranges in any order, overlapping or not.
impl FromIterator<Range> for RangeSet {
    fn from_iter<I: IntoIterator<Item = Range>>(ranges: I) -> Self {
        let mut ranges: Vec<Range> = ranges.into_iter().filter(|r| !r.is_empty()).collect();
        ranges.sort_unstable();
        let mut set: Vec<Range> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match set.last_mut() {
                Some(last) if last.space == range.space && range.start <= last.end => {
                    last.end = last.end.max(range.end);
                }
                _ => set.push(range),
            }
        }
        RangeSet(set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SpaceId;
    use proptest::prelude::*;

    fn set(ranges: &[(u64, u64)]) -> RangeSet {
        ranges.iter().map(|&(s, e)| Range::new(SpaceId(0), s, e)).collect()
    }

    #[test]
    fn ranges_that_touch_become_one() {
        assert_eq!(set(&[(20, 30), (10, 20), (40, 40)]).as_slice(), set(&[(10, 30)]).as_slice());
    }

    #[test]
    fn a_hole_splits() {
        assert_eq!(set(&[(0, 100)]).minus(&set(&[(10, 20), (90, 200)])), set(&[(0, 10), (20, 90)]));
        assert_eq!(set(&[(0, 10), (20, 30)]).minus(&set(&[(5, 25)])), set(&[(0, 5), (25, 30)]));
    }

    /// A set over two spaces of 64 bytes each, as one bool per byte.
    fn bits(set: &RangeSet) -> Vec<bool> {
        let mut bits = vec![false; 128];
        for r in set.as_slice() {
            let base = u64::from(r.space.0) * 64;
            bits[(base + r.start) as usize..(base + r.end) as usize].fill(true);
        }
        bits
    }

    prop_compose! {
        fn any_set()(ranges in prop::collection::vec((0u32..2, 0u64..64, 0u64..20), 0..12)) -> RangeSet {
            ranges.into_iter().map(|(s, a, n)| Range::new(SpaceId(s), a, (a + n).min(64))).collect()
        }
    }

    proptest! {
        #[test]
        fn set_algebra_equals_bit_algebra(a in any_set(), b in any_set()) {
            let (x, y) = (bits(&a), bits(&b));
            let both: Vec<bool> = x.iter().zip(&y).map(|(x, y)| *x && *y).collect();
            let left: Vec<bool> = x.iter().zip(&y).map(|(x, y)| *x && !*y).collect();
            prop_assert_eq!(bits(&a.intersect(&b)), both);
            prop_assert_eq!(bits(&a.minus(&b)), left);
            prop_assert_eq!(a.bytes() as usize, x.iter().filter(|x| **x).count());
        }
    }
}
