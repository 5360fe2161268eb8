//! The `tierscope` command as a library: flags, their checks, and the commands. The binary adds
//! only `main`.

// `println!` and `eprintln!` panic if the pipe's reader has ended.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod args;
pub mod bench;
mod color;
pub mod compare;
pub mod doctor;
pub mod exit;
pub mod export;
pub mod import;
pub mod instrument_args;
mod instruments;
pub mod kernel_damon;
pub mod list;
pub mod live;
pub mod man;
pub mod nemo;
pub mod newest;
mod output;
pub mod plan;
pub mod print;
pub mod progress;
pub mod qos;
pub mod reclaim;
pub mod record;
pub mod report;
pub mod reproduce;
pub mod retention_args;
mod scratch;
pub mod serve;
pub mod sim;
mod simulations;
mod stop;
pub mod target_args;
mod ticker;
pub mod tier;
pub mod tlb;
pub mod trace;
pub mod units;
pub mod whatif;
