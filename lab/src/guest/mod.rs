//! Code shared by the programs that run in the guest.

pub mod leaks;
pub mod unload;
