//! Memory below translation: last-level cache, prefetcher, tiers and bus.

mod bus;
mod hierarchy;
mod line_place;
mod memory_mode;
mod tier;

pub(crate) use hierarchy::{Memory, Reached};
pub(crate) use line_place::Spot;
pub(crate) use tier::Way;
