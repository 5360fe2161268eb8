//! Fourteen page-table entries of 4 KiB pages in one cache line of the host.
//!
//! A terabyte has 2^28 entries: at eight bytes each they would take 2 GiB. Frame numbers of 32 bits
//! reach 16 TiB, and the flags of fourteen entries share the last word: 1.16 GiB a terabyte, and a
//! walk still reads one line.

use tierscope_hw::entry::{GLOBAL, PRESENT};

use crate::exact::arena::Zeroable;

/// A leaf that is mapped but not present, so that the next access faults: the kernel's
/// `_PAGE_PROTNONE`, which is the flag GLOBAL without PRESENT
/// (arch/x86/include/asm/pgtable_types.h).
pub(super) const ARMED: u64 = GLOBAL;

/// Entries of a line.
pub(super) const ENTRIES: usize = 14;
/// Lines of a table.
pub(super) const LINES: usize = 512_usize.div_ceil(ENTRIES);

const FIELD: u64 = (1 << ENTRIES) - 1;
const ACCESSED_AT: usize = 0;
const DIRTY_AT: usize = ENTRIES;
const WRITABLE_AT: usize = 2 * ENTRIES;
const ARMED_AT: usize = 3 * ENTRIES;
/// The flags of entry 0.
const ONE: u64 = 1 << ACCESSED_AT | 1 << DIRTY_AT | 1 << WRITABLE_AT | 1 << ARMED_AT;

/// Entries with frame 0 are not mapped, and have no flags.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Line {
    frames: [u32; ENTRIES],
    flags: u64,
}

// SAFETY: integers only, 14 x 4 + 8 = 64 bytes.
unsafe impl Zeroable for Line {}

impl Line {
    /// The entry as hardware would see it; [`ARMED`] for one that is mapped but not present.
    #[inline(always)]
    pub(super) fn entry(&self, at: usize) -> u64 {
        let frame = u64::from(self.frames[at]);
        let flags = self.flags >> at;
        let armed = flags >> ARMED_AT & 1;
        let present = u64::from(frame != 0) & !armed;
        frame << 12
            | present
            | (flags >> WRITABLE_AT & 1) << 1
            | (flags >> ACCESSED_AT & 1) << 5
            | (flags >> DIRTY_AT & 1) << 6
            | armed << 8
    }

    /// Writes an entry; 0 for none.
    #[inline]
    pub(super) fn put(&mut self, at: usize, entry: u64) {
        debug_assert!(entry & PRESENT != 0 || entry == 0 || entry & ARMED != 0, "{entry:#x}");
        self.frames[at] = (entry >> 12) as u32;
        let armed = if entry & PRESENT == 0 { entry >> 8 & 1 } else { 0 };
        let flags = (entry >> 5 & 1) << ACCESSED_AT
            | (entry >> 6 & 1) << DIRTY_AT
            | (entry >> 1 & 1) << WRITABLE_AT
            | armed << ARMED_AT;
        self.flags = self.flags & !(ONE << at) | flags << at;
    }

    /// Sets ACCESSED, DIRTY or both.
    #[inline(always)]
    pub(super) fn mark(&mut self, at: usize, flags: u64) {
        let marks = (flags >> 5 & 1) << ACCESSED_AT | (flags >> 6 & 1) << DIRTY_AT;
        self.flags |= marks << at;
    }

    /// A bit per entry: present and young.
    #[inline(always)]
    pub(super) fn young(&self) -> u64 {
        self.flags & FIELD
    }

    /// Clears ACCESSED of the entries whose bits are set.
    #[inline(always)]
    pub(super) fn clear_young(&mut self, which: u64) {
        self.flags &= !(which & FIELD);
    }

    /// A bit per entry: mapped, that is present or armed.
    #[inline(always)]
    pub(super) fn mapped(&self) -> u64 {
        let bit = |(at, frame): (usize, &u32)| u64::from(*frame != 0) << at;
        self.frames.iter().enumerate().map(bit).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_hw::entry::{ACCESSED, DIRTY, WRITABLE};

    #[test]
    fn sizes_of_lines_and_tables() {
        assert_eq!(size_of::<Line>(), 64);
        assert_eq!((LINES, LINES * 64), (37, 2368));
    }

    #[test]
    fn every_entry_keeps_its_own_frame_and_flags() {
        let mut line = Line::default();
        let flags = [PRESENT, PRESENT | WRITABLE | DIRTY, ARMED | ACCESSED, PRESENT | ACCESSED, 0];
        let entry = |at: usize| match flags[at % 5] {
            0 => 0,
            flags => (at as u64 + 0x8000_0000) << 12 | flags,
        };
        (0..ENTRIES).rev().for_each(|at| line.put(at, entry(at)));
        (0..ENTRIES).for_each(|at| assert_eq!(line.entry(at), entry(at), "entry {at}"));
        assert_eq!(line.mapped(), 0x3fff & !(1 << 4 | 1 << 9));
    }

    #[test]
    fn marks_are_set_and_cleared_one_by_one() {
        let mut line = Line::default();
        line.put(3, 5 << 12 | PRESENT);
        line.put(13, 6 << 12 | PRESENT);
        line.mark(3, ACCESSED | DIRTY);
        line.mark(13, ACCESSED);
        assert_eq!(line.young(), 1 << 3 | 1 << 13);
        line.clear_young(1 << 3);
        assert_eq!(line.entry(3), 5 << 12 | PRESENT | DIRTY);
        assert_eq!(line.entry(13), 6 << 12 | PRESENT | ACCESSED);
    }
}
