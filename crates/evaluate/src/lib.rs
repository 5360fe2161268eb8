//! Evaluation of instruments, policies and traces on simulated machines and recordings, as a
//! library: everything that `tierscope bench`, `sim`, `whatif`, `compare` and `reproduce` compute.
//!
//! A caller makes an experiment ([`experiments`], or by name from the [`catalogue`]), and hands a
//! [`Runner`] to one of the evaluations. Each returns a report that serialises; charts and pages
//! are drawn here as well, tables for a terminal are not.

pub mod accuracy;
pub mod catalogue;
pub mod claims;
pub mod compare;
mod contender;
pub mod contest;
mod devices;
pub mod experiments;
mod runner;
pub mod runs;
mod save;
pub mod scan_cost;
pub mod vary;
mod watch;
pub mod whatif;
mod workload;

pub use contender::Contender;
pub use runner::{Done, Progress, Runner};
pub use save::save;
pub use watch::{Watch, watches};
pub use workload::read_workload;
