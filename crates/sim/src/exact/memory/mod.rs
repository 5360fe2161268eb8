//! Memory below translation: last-level cache, prefetcher, tiers and bus.

mod bus;
mod hierarchy;
mod line_place;
mod memory_mode;
mod tier;

pub(crate) use hierarchy::{CacheResult, Memory};
pub(crate) use line_place::LinePlace;
pub(crate) use tier::Direction;
