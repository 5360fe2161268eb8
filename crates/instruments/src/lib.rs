//! Telemetry techniques, one per file.
//!
//! Invariant: no instrument names an operating system, a file, the wall clock or a process id. Each
//! step receives the ports of `tierscope-core` as an argument.

mod areas;
mod block_heat;
mod checks;
pub mod chmu;
pub mod damon;
mod hidden;
pub mod hint_fault;
pub mod metronome;
pub mod nemo;
mod paid;
pub mod pebs;
pub mod rates;
pub mod region_source;
pub mod registry;
pub mod scan;
pub mod telescope;
