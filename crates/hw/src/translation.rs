//! A TLB entry's translation, and the tag of its address space.

use crate::config::PageSize;
use crate::entry::{FRAME_MASK, GLOBAL, WRITABLE};

/// Address space tag: a PCID on Intel, an ASID elsewhere. 12 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Asid(u16);

impl Asid {
    /// Number of address space tags (Intel SDM volume 3, section 4.10.1: PCIDs have 12 bits).
    pub const COUNT: u16 = 1 << 12;

    /// The only tag in use without PCIDs (CR4.PCIDE clear).
    pub const ZERO: Asid = Asid(0);

    /// The address space tag with this number; `None` from [`Asid::COUNT`] on.
    #[must_use]
    pub fn new(number: u16) -> Option<Asid> {
        (number < Self::COUNT).then_some(Asid(number))
    }

    /// Number of the address space tag.
    #[must_use]
    pub fn number(self) -> u16 {
        self.0
    }
}

/// Translation of one page: physical address, size and flags as cached by a TLB (Intel SDM volume
/// 3, section 4.10.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Translation(u64);

impl Translation {
    const SIZE_SHIFT: u32 = 9;
    const DIRTY: u64 = crate::entry::DIRTY;

    /// A clean, read-only, local page of `size` at the physical address `frame`.
    #[must_use]
    pub fn new(frame: u64, size: PageSize) -> Self {
        debug_assert!(frame & !(FRAME_MASK & !(size.bytes() - 1)) == 0, "{frame:#x} for {size:?}");
        Self(frame | (size as u64) << Self::SIZE_SHIFT)
    }

    /// Sets whether the page is writable: the AND over all entries of the walk.
    #[must_use]
    pub fn writable(self, writable: bool) -> Self {
        self.with(WRITABLE, writable)
    }

    /// Sets whether the translation is valid in all address spaces.
    #[must_use]
    pub fn global(self, global: bool) -> Self {
        self.with(GLOBAL, global)
    }

    /// Sets whether the leaf is known to be dirty, so that a store needs no walk.
    #[must_use]
    pub fn dirty(self, dirty: bool) -> Self {
        self.with(Self::DIRTY, dirty)
    }

    fn with(self, flag: u64, set: bool) -> Self {
        Self(if set { self.0 | flag } else { self.0 & !flag })
    }

    /// Physical address of the page.
    #[inline(always)]
    #[must_use]
    pub fn frame(self) -> u64 {
        self.0 & FRAME_MASK
    }

    /// Size of the page.
    #[inline(always)]
    #[must_use]
    pub fn size(self) -> PageSize {
        let [small, large, largest] = PageSize::ALL;
        [small, large, largest, largest][(self.0 >> Self::SIZE_SHIFT & 3) as usize]
    }

    /// Whether every entry of the walk permits stores.
    #[inline(always)]
    #[must_use]
    pub fn is_writable(self) -> bool {
        self.0 & WRITABLE != 0
    }

    /// Whether the leaf is known to be dirty.
    #[inline(always)]
    #[must_use]
    pub fn is_dirty(self) -> bool {
        self.0 & Self::DIRTY != 0
    }

    /// Whether a store needs no walk: the page is writable, and known to be dirty.
    #[inline(always)]
    #[must_use]
    pub fn takes_stores(self) -> bool {
        self.0 & (WRITABLE | Self::DIRTY) == WRITABLE | Self::DIRTY
    }

    /// Whether the translation is valid in every address space.
    #[inline(always)]
    #[must_use]
    pub fn is_global(self) -> bool {
        self.0 & GLOBAL != 0
    }

    /// Physical address of the linear address `linear` within the page.
    #[inline(always)]
    #[must_use]
    pub fn physical(self, linear: u64) -> u64 {
        let shift = 12 + 9 * (self.0 >> Self::SIZE_SHIFT & 3);
        self.frame() | linear & ((1 << shift) - 1)
    }

    #[inline(always)]
    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    #[inline(always)]
    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_translation_keeps_its_fields() {
        let page = Translation::new(0x4020_0000, PageSize::M2).writable(true).dirty(true);
        assert_eq!((page.frame(), page.size()), (0x4020_0000, PageSize::M2));
        assert!(page.is_writable() && page.is_dirty() && !page.is_global());
        assert_eq!(page.physical(0x7f12_3456), 0x4032_3456);
        assert!(!page.dirty(false).is_dirty());
    }

    #[test]
    fn tags_have_twelve_bits() {
        assert_eq!(Asid::new(4095).map(Asid::number), Some(4095));
        assert_eq!(Asid::new(4096), None);
    }
}
