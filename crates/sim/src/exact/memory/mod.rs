//! Memory below translation: last-level cache, prefetcher, tiers and bus.

mod bus;
mod hierarchy;
mod line_place;
mod memory_mode;
mod meter;
mod tier;
mod units;

pub(super) use hierarchy::{CacheResult, Memory, Served};
pub(super) use line_place::LinePlace;
pub(super) use tier::Direction;
