//! The live machine: a Linux process or cgroup as a target, its `/proc`, and the kernel module that
//! tests and clears ACCESSED bits.
//!
//! Invariant: nothing here depends on the simulated machine, an instrument or a recording.

pub mod abi;
mod alarm;
mod bits;
mod caps;
pub mod device;
pub mod doctor;
mod frames;
pub mod heap;
pub mod kernel_damon;
mod living;
mod machine;
pub mod module;
mod mover;
mod open;
pub mod perf;
pub mod pidfd;
mod places;
pub mod proc;
pub mod reclaim;
mod residence;
mod selection;
mod selftest_page;
mod spawn;
mod stop;
pub mod telemetry;
pub mod tenants;
pub mod tiering;
mod tiers;
mod watched;

pub use bits::Scans;
pub use machine::LiveMachine;
pub use open::check_needs;
pub use selection::Selection;
pub use stop::StopSignals;
pub use telemetry::TelemetryDevice;
