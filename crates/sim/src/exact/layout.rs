//! Layout of physical memory: the tiers in its lower half, page tables in its upper half.
//!
//! Level-1 tables occupy the third quarter of the address space, upper tables the fourth, so that a
//! shift finds a table from its address.
//!
//! A part of the third quarter may be *uncached*: page-table reads from there go to the bus (PTAT,
//! section 4.1: a reserved region of 256 MB). A control block of 4 KB precedes every table there
//! and holds its allocation state. The region may also hold data pages (PTAT, section 7).

use tierscope_hw::config::MemoryTier;
use tierscope_wire::ptat::Window;

/// Frames of 1 GiB.
const GIGA: u64 = 1 << 18;

/// Entries hold 32-bit frame numbers, and the uncached region is beyond them: its data pages have
/// the last of these numbers, which no memory has, counted from the region's first page.
pub(super) const DATA: u64 = (1 << 32) - DATA_PAGES;
/// Largest number of data pages in the region.
pub(super) const DATA_PAGES: u64 = 1 << 20;

/// Bytes of the window of tags, at the end of physical memory.
const TAGS: u64 = 1 << 20;

/// First frame and number of frames of each tier: tier after tier from zero on, each aligned to 1
/// GiB.
pub(super) fn tier_frames(tiers: &[MemoryTier]) -> impl Iterator<Item = (u64, u64)> + '_ {
    let mut next = 0;
    tiers.iter().map(move |tier| {
        let (first, frames) = (next, tier.mib << 8);
        next = (first + frames).next_multiple_of(GIGA);
        (first, frames)
    })
}

/// The physical frame of an entry's frame number, where the uncached region begins at `base`.
pub(super) fn true_frame(base: u64, frame: u64) -> u64 {
    if (DATA..1 << 32).contains(&frame) { (base >> 12) + (frame - DATA) } else { frame }
}

/// Physical addresses of page tables.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableLayout {
    /// Address of the first level-1 table, and of the uncached region if there is one.
    pub(super) leaf_base: u64,
    /// Address of the first upper table.
    pub(super) upper_base: u64,
    /// Pages of the uncached region: twice the number of tables that fit.
    pub(super) uncached_pages: u32,
    /// Tables that fit into a quarter of the address space.
    room: u32,
}

impl TableLayout {
    /// Layout for physical addresses of `physical_bits` bits, with at most `uncached` tables in the
    /// uncached region.
    pub(super) fn new(physical_bits: u32, uncached: u32) -> Self {
        let quarter = 1u64 << (physical_bits - 2);
        let room = u32::try_from(quarter >> 12).unwrap_or(u32::MAX);
        let uncached_pages = 2 * uncached.min(room / 4);
        Self { leaf_base: 2 * quarter, upper_base: 3 * quarter, uncached_pages, room }
    }

    /// Number of level-1 tables outside of the uncached region.
    pub(super) fn cached_tables(&self) -> u32 {
        self.room - self.uncached_pages
    }

    /// Number of upper tables outside of the uncached region.
    pub(super) fn upper_tables(&self) -> u32 {
        self.room - (TAGS >> 12) as u32
    }

    /// Whether reads of the entry bypass the caches.
    #[inline(always)]
    pub(super) fn is_uncached(&self, address: u64) -> bool {
        address >= self.leaf_base && address - self.leaf_base < u64::from(self.uncached_pages) << 12
    }

    /// The uncached region.
    pub(super) fn region(&self) -> Window {
        Window { start: self.leaf_base, bytes: u64::from(self.uncached_pages) << 12 }
    }

    /// Window whose reads tag the moment at which reported changes take effect.
    pub(super) fn tags(&self) -> Window {
        let end = self.upper_base + (self.upper_base - self.leaf_base);
        Window { start: end - TAGS, bytes: TAGS }
    }

    /// Whether a frame number is that of a data page in the uncached region.
    #[inline(always)]
    pub(super) fn is_data(&self, frame: u64) -> bool {
        self.uncached_pages > 0 && frame >= DATA
    }

    /// Window of the region's data pages in addresses as entries hold them, and the shift to bus
    /// addresses.
    pub(super) fn data(&self) -> (Window, u64) {
        let start = DATA << 12;
        (Window { start, bytes: DATA_PAGES << 12 }, self.leaf_base.wrapping_sub(start))
    }

    /// The first frame number without memory, if the uncached region may hold data.
    pub(super) fn first_reserved(&self) -> u64 {
        if self.uncached_pages > 0 { DATA } else { u64::MAX }
    }
}
