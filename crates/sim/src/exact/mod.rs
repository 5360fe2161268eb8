//! The machine through which every single access goes.
//!
//! A [`Setup`] makes a [`Machine`]; [`Process`]es run workloads on its cores, each with a clock of its
//! own, and whoever is behind goes on. An access is translated (TLBs, paging-structure caches, a walk
//! through real radix tables that sets ACCESSED and DIRTY where hardware does), goes through the
//! last-level cache and to a tier. Page faults, shootdowns, hint faults, samples and moved pages cost
//! whom they hit.
//!
//! ```text
//! thread ─ops─▶ cpu ─▶ mmu ─▶ tables      os: spaces, frames, faults
//!                │      (walk reads)      │
//!                └──▶ memory: llc, prefetcher ─▶ tiers ─▶ bus observer
//! ```

mod access_bits;
mod arena;
mod armed;
mod below;
mod bus;
mod calls;
mod cpu;
mod cpus;
mod frames;
mod leaves;
mod line;
mod log;
mod machine;
mod memory;
mod mover;
mod near;
mod operations;
mod os;
mod pages;
mod placement;
mod pmu;
mod ports;
mod private;
mod process;
mod quota;
mod row;
mod run;
mod setup;
mod share;
mod shootdown;
mod slots;
mod space;
mod swap;
mod tables;
mod thread;
mod tier;
mod trap;
mod unused;
mod view;
mod watch;
mod window;

pub use crate::account::{Account, Counts, Done, Spent};
pub use crate::desk::Mover;
pub use crate::latency::Latency;
pub use crate::placement::{Placement, Watermarks};
pub use machine::Machine;
pub use os::Denied;
pub use setup::{Detail, Process, Setup};
pub use space::Map;
pub use view::Entry;
