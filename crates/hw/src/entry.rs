//! Page-table entries in the hardware's format (Intel SDM volume 3, tables 4-15 to 4-20).

/// The entry is present.
pub const PRESENT: u64 = 1;
/// The entry permits stores.
pub const WRITABLE: u64 = 1 << 1;
/// Hardware used the entry in a walk since software last cleared the flag (section 4.8).
pub const ACCESSED: u64 = 1 << 5;
/// Hardware stored to the page since software last cleared the flag (section 4.8). Leaves only.
pub const DIRTY: u64 = 1 << 6;
/// The entry maps a page at a level that also has tables: PS, at levels 2 and 3.
pub const HUGE: u64 = 1 << 7;
/// The translation is valid in every address space. Leaves only.
pub const GLOBAL: u64 = 1 << 8;
/// The bits of a physical page address: 12..52.
pub const FRAME_MASK: u64 = ((1 << 52) - 1) & !0xfff;
/// Size of an entry in bytes.
pub const ENTRY_BYTES: u64 = 8;
