//! Access traces.
//!
//! A [`Source`] yields the [`Access`]es of a program, batch by batch, in bounded memory: [`open`]
//! detects the format of a file from its content (Valgrind's lackey, DynamoRIO's drmemtrace,
//! ChampSim, CSV, `perf script`) and decompresses it. [`compact`] is our own format, for traces of
//! any length. [`replay`] turns a trace into a program for the simulated machine.
//!
//! Invariant: no input crashes a reader or makes it use unbounded memory. Damage is reported with
//! its position, and everything before it is kept.

pub mod access;
pub mod compact;
pub mod csv;
pub mod import;
pub mod input;
mod order;
pub mod pages;
pub mod place;
pub mod replay;
pub mod summary;
mod text;

pub use access::{Access, BATCH, Batch, Event, Kind, Source, read_all};
pub use import::{Format, Options, Trace, of_input, open, perf_script};
pub use input::{Input, Progress};
pub use replay::Replay;
pub use summary::{Summary, Tally};
