//! The `tierscope` command as a library: flags, their meaning, and what is done with them. The
//! binary adds nothing but `main`.

pub mod args;
pub mod bench;
pub mod compare;
pub mod doctor;
pub mod exit;
pub mod export;
pub mod how;
pub mod import;
pub mod keep;
pub mod kernel_damon;
pub mod list;
pub mod live;
pub mod man;
pub mod nemo;
pub mod newest;
mod output;
pub mod plan;
mod plot;
pub mod progress;
pub mod qos;
pub mod reclaim;
pub mod record;
pub mod report;
pub mod reproduce;
mod scratch;
pub mod serve;
pub mod sim;
mod stop;
mod ticker;
pub mod tier;
pub mod tlb;
pub mod trace;
pub mod units;
pub mod watch;
pub mod whatif;
mod work;
