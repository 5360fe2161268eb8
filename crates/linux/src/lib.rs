//! The live machine: a Linux process or cgroup as a target, its `/proc`, and the kernel module
//! that tells and clears ACCESSED bits.
//!
//! Invariant: nothing here knows the simulated machine, an instrument or a recording.

pub mod abi;
mod caps;
pub mod device;
pub mod module;
pub mod pidfd;
pub mod proc;
mod selftest_page;
