//! Units and sizes that all parts of the machine share. Times are in picoseconds.

use tierscope_core::Level;

pub(super) use crate::account::duration;

/// Picoseconds in a nanosecond.
pub(super) const NS: u64 = 1000;
/// Picoseconds in a second.
pub(super) const SECOND: u64 = 1_000_000_000_000;
/// Bytes of a cache line.
pub(super) const LINE: u64 = 64;
/// Entries of a page table.
pub(super) const FANOUT: usize = Level::FANOUT as usize;
