//! Code shared by the programs that run in the guest.

pub mod holds;
pub mod leaks;
pub mod mutations;
pub mod new_tables;
pub mod outcome;
pub mod servant;
pub mod unload;
pub mod userfault;
pub mod waits;
