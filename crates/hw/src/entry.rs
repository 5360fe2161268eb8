//! Page-table entries as hardware reads them (Intel SDM volume 3, tables 4-15 to 4-20).

/// The entry is valid.
pub const PRESENT: u64 = 1;
/// Stores are allowed, as far as this entry goes.
pub const WRITABLE: u64 = 1 << 1;
/// Hardware used the entry in a walk since software last cleared the flag (section 4.8).
pub const ACCESSED: u64 = 1 << 5;
/// Hardware stored to the page since software last cleared the flag (section 4.8). Leaves only.
pub const DIRTY: u64 = 1 << 6;
/// The entry maps a page although tables could lie beneath: PS, at levels 2 and 3.
pub const HUGE: u64 = 1 << 7;
/// The translation holds in every address space. Leaves only.
pub const GLOBAL: u64 = 1 << 8;
/// The bits of a physical address: 12..52.
pub const FRAME_MASK: u64 = ((1 << 52) - 1) & !0xfff;
/// Bytes of an entry.
pub const ENTRY_BYTES: u64 = 8;
