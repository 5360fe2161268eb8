//! Memory below translation: last-level cache, prefetcher, tiers and bus.

mod bus;
mod hierarchy;
mod line_place;
mod memory_mode;
mod tier;

pub(super) use hierarchy::{CacheResult, Memory};
pub(super) use line_place::LinePlace;
pub(super) use tier::Direction;
