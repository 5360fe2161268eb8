//! The `tierscope` command as a library: flags, their meaning, and what is done with them. The
//! binary adds nothing but `main`.

pub mod args;
pub mod compare;
pub mod exit;
pub mod how;
pub mod keep;
pub mod kernel_damon;
pub mod man;
pub mod newest;
mod output;
pub mod plan;
pub mod progress;
pub mod record;
pub mod report;
pub mod serve;
pub mod units;
