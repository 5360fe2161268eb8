//! The live machine: a Linux process or cgroup as a target, its `/proc`, and the kernel module that
//! tests and clears ACCESSED bits.
//!
//! Invariant: nothing here depends on the simulated machine, an instrument or a recording.

#[cfg(test)]
extern crate self as tierscope_linux;

pub mod abi;
mod alarm;
mod bit_consumers;
mod bits;
mod caps;
mod cgroup_memory;
mod clock;
mod cpus;
pub mod device;
pub mod doctor;
mod frames;
mod guest_memory;
pub mod heap;
mod host_clock;
pub mod kernel_damon;
mod latest;
mod left_out;
mod machine;
mod maker;
pub mod memory_controller;
pub mod module;
mod mover;
mod name_pattern;
mod numa_usage;
mod open;
mod page_tiers;
pub mod pagemap_scan;
pub mod perf;
pub mod pidfd;
pub mod proc;
mod process;
pub mod reclaim;
mod reread_file;
mod roots;
mod selection;
mod selftest_page;
mod shared_memory;
mod signing;
mod space_owners;
mod spawn;
mod stop;
pub mod tenants;
pub mod tiering;
mod tiers;

pub use bits::Scans;
pub use host_clock::HostClock;
pub use machine::LiveMachine;
pub use name_pattern::NamePattern;
pub use open::{Sources, check_needs};
pub use selection::Selection;
pub use stop::StopSignals;
