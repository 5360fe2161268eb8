//! The simulated machine: terabytes of memory on any host, reproducible to the bit.
//!
//! Two modes with one interface, [`tierscope_core::Ports`]. In [`exact`] every access goes through
//! TLBs, walker, caches and tiers. In [`density`] accesses are densities over ranges and time, and
//! an ACCESSED bit is drawn when it is probed. Both are built from the same [`config`].
//!
//! Invariant: the same configuration, workload and seed give the same run on every host.

mod account;
pub mod config;
pub mod density;
pub mod exact;
pub mod experiment;
mod latency;
mod look;
mod mover;
pub mod open;
mod placement;
mod truth;
mod window;

pub use look::LookPrice;
pub use truth::{Touched, Truth};
