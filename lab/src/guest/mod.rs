//! Code shared by the programs that run in the guest.

pub mod leaks;
pub mod outcome;
pub mod unload;
