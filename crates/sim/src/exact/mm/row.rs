//! Entries of 128 pages of 4 KiB with consecutive frames, in one cache line of the host.
//!
//! Most tables qualify: memory that was populated, or touched from beginning to end, has
//! consecutive frames for consecutive pages. Such a table takes a ninth of one with scattered
//! frames, and a terabyte takes 128 MiB, so that the host's own TLB covers more of it.

use tierscope_hw::entry::{ACCESSED, DIRTY, PRESENT, WRITABLE};

use crate::exact::arena::Zeroable;

/// Entries of a row.
pub(super) const ENTRIES: usize = 128;
/// Rows of a table.
pub(super) const ROWS: usize = 512 / ENTRIES;

/// Mapped entries are present, and either all or none of them are writable.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Row {
    mapped: [u64; 2],
    accessed: [u64; 2],
    dirty: [u64; 2],
    /// The frame of entry 0, modulo 2^32; entry 0 itself may be unmapped.
    first: u32,
    writable: u32,
    _spare: u64,
}

// SAFETY: integers only, 6 x 8 + 4 + 4 + 8 = 64 bytes.
unsafe impl Zeroable for Row {}

impl Row {
    /// A row with all entries mapped: `first`, present, and the pages after it with the same flags.
    pub(super) fn full(first: u64) -> Self {
        let all = |flag: u64| [u64::from(first & flag != 0).wrapping_neg(); 2];
        Self {
            mapped: [u64::MAX; 2],
            accessed: all(ACCESSED),
            dirty: all(DIRTY),
            first: (first >> 12) as u32,
            writable: u32::from(first & WRITABLE != 0),
            _spare: 0,
        }
    }

    /// The entry as hardware would see it.
    #[inline(always)]
    pub(super) fn entry(&self, at: usize) -> u64 {
        let (word, bit) = (at / 64 % 2, at % 64);
        let frame = u64::from(self.first.wrapping_add(at as u32));
        let entry = frame << 12
            | PRESENT
            | u64::from(self.writable) << 1
            | (self.accessed[word] >> bit & 1) << 5
            | (self.dirty[word] >> bit & 1) << 6;
        entry & (self.mapped[word] >> bit & 1).wrapping_neg()
    }

    /// Writes an entry, 0 for none; false if the row cannot represent it together with the others.
    #[inline]
    pub(super) fn put(&mut self, at: usize, entry: u64) -> bool {
        let (word, bit) = (at / 64 % 2, 1u64 << (at % 64));
        if entry == 0 {
            self.mapped[word] &= !bit;
            self.accessed[word] &= !bit;
            self.dirty[word] &= !bit;
            return true;
        }
        let first = ((entry >> 12) as u32).wrapping_sub(at as u32);
        let writable = (entry >> 1 & 1) as u32;
        if entry & PRESENT == 0 {
            return false;
        }
        if (self.first, self.writable) != (first, writable) {
            let others = self.mapped[word] & !bit | self.mapped[1 - word];
            if others != 0 {
                return false;
            }
            (self.first, self.writable) = (first, writable);
        }
        let to = |bits: &mut u64, set: bool| *bits = if set { *bits | bit } else { *bits & !bit };
        to(&mut self.mapped[word], true);
        to(&mut self.accessed[word], entry >> 5 & 1 == 1);
        to(&mut self.dirty[word], entry >> 6 & 1 == 1);
        true
    }

    /// Sets ACCESSED, DIRTY or both.
    #[inline(always)]
    pub(super) fn mark(&mut self, at: usize, flags: u64) {
        let (word, bit) = (at / 64 % 2, at % 64);
        self.accessed[word] |= (flags >> 5 & 1) << bit;
        self.dirty[word] |= (flags >> 6 & 1) << bit;
    }

    /// Bitmap of the young entries of a half.
    #[inline(always)]
    pub(super) fn young(&self, half: usize) -> u64 {
        self.accessed[half]
    }

    /// Clears ACCESSED of the entries of a half whose bits are set.
    #[inline(always)]
    pub(super) fn clear_young(&mut self, half: usize, which: u64) {
        self.accessed[half] &= !which;
    }

    /// Bitmap of the mapped entries of a half.
    #[inline(always)]
    pub(super) fn mapped(&self, half: usize) -> u64 {
        self.mapped[half]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_a_line_of_the_host() {
        assert_eq!((size_of::<Row>(), ROWS), (64, 4));
    }

    //   page   3   4   64   127        frames 1003 1004 1064 1127
    #[test]
    fn consecutive_frames_fit_into_a_row() {
        let mut row = Row::default();
        let flags = [WRITABLE, WRITABLE | ACCESSED, WRITABLE | DIRTY, WRITABLE | ACCESSED | DIRTY];
        let entries = [3, 4, 64, 127].into_iter().zip(flags);
        let entries = entries.map(|(at, flags)| (at, (1000 + at as u64) << 12 | PRESENT | flags));
        for (at, entry) in entries.clone() {
            assert!(row.put(at, entry));
        }
        entries.for_each(|(at, entry)| assert_eq!(row.entry(at), entry, "{at}"));
        assert_eq!((row.entry(5), row.mapped(0), row.mapped(1)), (0, 0b11000, 1 | 1 << 63));
        assert_eq!((row.young(0), row.young(1)), (1 << 4, 1 << 63));
        row.clear_young(1, 1 << 63);
        row.mark(3, ACCESSED | DIRTY);
        assert_eq!(row.entry(127) & ACCESSED, 0);
        assert_eq!(row.entry(3), 1003 << 12 | PRESENT | WRITABLE | ACCESSED | DIRTY);
    }

    #[test]
    fn an_entry_that_does_not_fit_changes_nothing() {
        let mut row = Row::default();
        let entry = |frame: u64| frame << 12 | PRESENT;
        assert!(row.put(100, entry(5)), "the first frame would be before zero");
        assert!(row.put(101, entry(6)));
        assert!(!row.put(102, entry(8)), "not in a row");
        assert!(!row.put(102, entry(7) | WRITABLE), "others are not writable");
        assert!(!row.put(102, super::super::line::ARMED | 7 << 12), "not present");
        assert_eq!([100, 101, 102].map(|at| row.entry(at)), [entry(5), entry(6), 0]);
        assert!(row.put(101, 0) && row.put(100, entry(9) | WRITABLE), "it is the only one");
        assert_eq!([100, 101].map(|at| row.entry(at)), [entry(9) | WRITABLE, 0]);
    }
}
