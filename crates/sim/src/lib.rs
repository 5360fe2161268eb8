//! The simulated machine: terabytes that nobody has on a desk, reproducible to the bit.
//!
//! Two modes with one interface, [`tierscope_core::Ports`]. In [`exact`] every access goes through
//! TLBs, walker, caches and tiers. In [`density`] accesses are densities over ranges and time, and a
//! bit is drawn when asked for. Both are made of the same [`config`].
//!
//! Invariant: the same configuration, workload and seed give the same run, whatever the host.

mod account;
pub mod config;
pub mod density;
mod desk;
pub mod exact;
pub mod experiment;
mod latency;
mod placement;
mod truth;

pub use truth::{Touched, Truth};
