//! What the programs that run in the guest have in common.

pub mod leaks;
pub mod unload;
