//! Code shared by the programs that run in the guest.

pub mod leaks;
pub mod mutations;
pub mod new_tables;
pub mod outcome;
pub mod unload;
