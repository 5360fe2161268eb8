//! Geometry of the radix page table: which addresses an entry of a level covers.
//!
//! Levels are numbered from the leaves: 1 = PTE (4 KiB), 2 = PMD (2 MiB), 3 = PUD (1 GiB),
//! 4 = PGD or P4D (512 GiB), 5 = PGD of 5-level paging (256 TiB).

use std::fmt;

use crate::{Addr, Range};

/// log2 of the bytes that a level-1 entry covers.
pub const PAGE_SHIFT: u32 = 12;
/// Bytes that a level-1 entry covers.
pub const PAGE_SIZE: u64 = 1 << PAGE_SHIFT;
/// log2 of the entries per table.
const INDEX_BITS: u32 = 9;

/// A level of the page table, 1..=5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level(u8);

impl Level {
    /// Page table entries: 4 KiB each.
    pub const PTE: Level = Level(1);
    /// Page middle directory: 2 MiB an entry.
    pub const PMD: Level = Level(2);
    /// Page upper directory: 1 GiB an entry.
    pub const PUD: Level = Level(3);
    /// P4D, or PGD of 4-level paging: 512 GiB an entry.
    pub const P4D: Level = Level(4);
    /// PGD of 5-level paging: 256 TiB an entry.
    pub const PGD5: Level = Level(5);
    /// Entries per table, at every level.
    pub const FANOUT: u64 = 1 << INDEX_BITS;

    /// The level with this number; `None` outside 1..=5.
    #[must_use]
    #[inline]
    pub fn new(number: u8) -> Option<Level> {
        (1..=5).contains(&number).then_some(Level(number))
    }

    /// The number of the level: 1 for leaves of 4 KiB, up to 5.
    #[must_use]
    #[inline]
    pub fn number(self) -> u8 {
        self.0
    }

    /// log2 of the bytes that an entry covers.
    #[must_use]
    #[inline]
    pub fn shift(self) -> u32 {
        PAGE_SHIFT + INDEX_BITS * (u32::from(self.0) - 1)
    }

    /// Bytes that an entry covers.
    #[must_use]
    #[inline]
    pub fn entry_bytes(self) -> u64 {
        1 << self.shift()
    }

    /// The level of the entries in the tables that this level points to; `None` for level 1.
    #[must_use]
    pub fn below(self) -> Option<Level> {
        Level::new(self.0 - 1)
    }

    /// The next level up; `None` for level 5.
    #[must_use]
    pub fn above(self) -> Option<Level> {
        Level::new(self.0 + 1)
    }

    /// The range covered by the entry for `addr`.
    #[must_use]
    pub fn entry_of(self, addr: Addr) -> Range {
        let start = addr.at & !(self.entry_bytes() - 1);
        Range::new(addr.space, start, start.saturating_add(self.entry_bytes()))
    }

    /// Number of entries that `range` overlaps.
    #[must_use]
    pub fn entries_in(self, range: &Range) -> u64 {
        if range.is_empty() {
            return 0;
        }
        ((range.end - 1) >> self.shift()) - (range.start >> self.shift()) + 1
    }

    /// `range` widened to whole entries.
    #[must_use]
    #[inline]
    pub fn align(self, range: &Range) -> Range {
        let mask = self.entry_bytes() - 1;
        let end = range.end.checked_add(mask).map_or(!mask, |end| end & !mask);
        Range { space: range.space, start: range.start & !mask, end: end.max(range.start & !mask) }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(["PTE", "PMD", "PUD", "P4D", "PGD"][usize::from(self.0) - 1])
    }
}

/// A set of levels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LevelSet(u8);

impl LevelSet {
    /// From bits: bit `level - 1` set means the level is in.
    #[must_use]
    pub fn from_bits(bits: u8) -> Self {
        Self(bits & 0x1f)
    }

    /// As bits, see [`LevelSet::from_bits`].
    #[must_use]
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Whether `level` is in the set.
    #[must_use]
    pub fn contains(self, level: Level) -> bool {
        self.0 & (1 << (level.0 - 1)) != 0
    }

    /// The levels, highest first.
    pub fn highest_first(self) -> impl Iterator<Item = Level> {
        (1..=5).rev().map(Level).filter(move |level| self.contains(*level))
    }
}

/// The page table of a machine: its levels, and those whose ACCESSED bits can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Radix {
    /// Number of levels, 4 or 5.
    pub levels: u8,
    /// Levels whose ACCESSED bits were proven to be set by hardware.
    pub proven: LevelSet,
}

impl Radix {
    /// Four levels, all proven: x86-64 with 48-bit addresses.
    pub const X86_64: Radix = Radix { levels: 4, proven: LevelSet(0b1111) };
    /// Five levels, all proven.
    pub const X86_64_LA57: Radix = Radix { levels: 5, proven: LevelSet(0b11111) };

    /// The highest proven level whose entry at `addr` lies within `range`.
    #[must_use]
    pub fn highest_within(&self, addr: Addr, range: &Range) -> Option<Level> {
        self.proven.highest_first().find(|level| range.covers(&level.entry_of(addr)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SpaceId;

    const GIB: u64 = 1 << 30;

    fn r(start: u64, end: u64) -> Range {
        Range::new(SpaceId(0), start, end)
    }

    fn a(at: u64) -> Addr {
        Addr { space: SpaceId(0), at }
    }

    #[test]
    fn entries_cover_the_bytes_of_the_manual() {
        assert_eq!(Level::PTE.entry_bytes(), 4 << 10);
        assert_eq!(Level::PMD.entry_bytes(), 2 << 20);
        assert_eq!(Level::PUD.entry_bytes(), GIB);
        assert_eq!(Level::P4D.entry_bytes(), 512 * GIB);
        assert_eq!(Level::PGD5.entry_bytes(), 256 << 40);
    }

    //   0        1 GiB      2 GiB      3 GiB
    //   |   ######|##########|####      |       region 0.5 .. 2.5 GiB
    //         ^          ^
    //       PMD fits   PUD fits
    #[test]
    fn level_depends_on_where_the_address_falls() {
        let region = r(GIB / 2, 2 * GIB + GIB / 2);
        let radix = Radix::X86_64;
        assert_eq!(radix.highest_within(a(GIB / 2), &region), Some(Level::PMD));
        assert_eq!(radix.highest_within(a(GIB + 5), &region), Some(Level::PUD));
        assert_eq!(radix.highest_within(a(2 * GIB), &region), Some(Level::PMD));
        assert_eq!(radix.highest_within(a(5), &r(4, 6)), None);
    }

    #[test]
    fn unproven_levels_are_passed_over() {
        let radix = Radix { levels: 4, proven: LevelSet::from_bits(0b0001) };
        assert_eq!(radix.highest_within(a(0), &r(0, 4 * GIB)), Some(Level::PTE));
    }

    #[test]
    fn alignment_widens_to_whole_entries() {
        assert_eq!(Level::PMD.align(&r(1, (2 << 20) + 1)), r(0, 4 << 20));
        assert_eq!(Level::PMD.entries_in(&r(1, (2 << 20) + 1)), 2);
        assert_eq!(Level::PMD.entries_in(&r(7, 7)), 0);
    }
}
