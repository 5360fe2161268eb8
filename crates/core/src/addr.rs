//! Addresses and ranges. Both carry the space they live in, so that no two spaces ever mix.

use std::fmt;

/// An address space: a process's virtual one, or the physical one of a node.
///
/// Ids are dense, given by the machine in order of appearance, and never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpaceId(pub u32);

impl fmt::Display for SpaceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "space {}", self.0)
    }
}

/// A byte address in a space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Addr {
    /// The space that the address belongs to.
    pub space: SpaceId,
    /// Byte offset from the start of the space.
    pub at: u64,
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:#x}", self.space.0, self.at)
    }
}

/// A half-open range of bytes `start..end` of one space; `start <= end`.
///
/// Ranges order by space, then start, then end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Range {
    /// The space that the range belongs to.
    pub space: SpaceId,
    /// First byte of the range.
    pub start: u64,
    /// One past the last byte of the range.
    pub end: u64,
}

impl Range {
    /// The range `start..end` of `space`.
    ///
    /// # Panics
    /// If `start > end`.
    #[must_use]
    #[inline]
    pub fn new(space: SpaceId, start: u64, end: u64) -> Self {
        assert!(start <= end, "range ends before it starts: {start:#x}..{end:#x}");
        Self { space, start, end }
    }

    /// Length of the range in bytes.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.end - self.start
    }

    /// Whether the range holds no byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Whether `addr` lies inside the range.
    #[must_use]
    #[inline]
    pub fn contains(&self, addr: Addr) -> bool {
        self.space == addr.space && self.start <= addr.at && addr.at < self.end
    }

    /// Whether every byte of `other` lies inside the range.
    #[must_use]
    #[inline]
    pub fn covers(&self, other: &Range) -> bool {
        self.space == other.space && self.start <= other.start && other.end <= self.end
    }

    /// The bytes common to both; `None` if there are none.
    #[must_use]
    #[inline]
    pub fn intersect(&self, other: &Range) -> Option<Range> {
        let start = self.start.max(other.start);
        let end = self.end.min(other.end);
        (self.space == other.space && start < end).then_some(Range {
            space: self.space,
            start,
            end,
        })
    }

    /// Whether `next` begins where this range ends, in the same space.
    #[must_use]
    #[inline]
    pub fn touches(&self, next: &Range) -> bool {
        self.space == next.space && self.end == next.start
    }

    /// The address `offset` bytes into the range.
    #[must_use]
    #[inline]
    pub fn at(&self, offset: u64) -> Addr {
        debug_assert!(offset < self.bytes());
        Addr { space: self.space, at: self.start + offset }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:#x}-{:#x}", self.space.0, self.start, self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn r(start: u64, end: u64) -> Range {
        Range::new(SpaceId(1), start, end)
    }

    #[test]
    fn intersection_is_the_common_part() {
        assert_eq!(r(10, 20).intersect(&r(15, 30)), Some(r(15, 20)));
        assert_eq!(r(10, 20).intersect(&r(20, 30)), None);
        assert_eq!(r(10, 20).intersect(&Range::new(SpaceId(2), 10, 20)), None);
    }

    #[test]
    fn spaces_never_mix() {
        let other = Addr { space: SpaceId(2), at: 12 };
        assert!(!r(10, 20).contains(other));
        assert!(!r(10, 20).touches(&Range::new(SpaceId(2), 20, 30)));
    }
}
