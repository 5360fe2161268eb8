//! Placement policies, one per file or folder, each to be compared with its paper or source.
//!
//! A policy consumes [`tierscope_core::Evidence`] and emits [`tierscope_core::Orders`]; the drive
//! loop relays them. [`registry`] lists all policies by name.
//!
//! Invariant: no policy names an operating system, a file, the wall clock, global randomness or a
//! process id, and none owns an instrument or a mover.

pub mod amp;
pub mod arming;
pub mod autotiering;
mod balance;
pub mod bandwidth_cap;
mod block_counters;
mod blocks;
pub mod clock;
pub mod cold_regions;
pub mod cost;
pub mod hemem;
pub mod hemem_nemo;
pub mod hot_region;
pub mod memtis;
pub mod mglru;
pub mod mglru_linear;
pub mod mglru_telescope;
pub mod multi_clock;
pub mod nimble;
pub mod nimble_selection;
mod pages;
pub mod reclaim;
pub mod registry;
pub mod settings;
pub mod static_tiering;
pub mod thermostat;
pub mod tpp;
#[cfg(test)]
mod trace;

pub use pages::MOST_PAGES;
pub use registry::{all, by_name, make};
