//! Access traces.
//!
//! A [`Source`] hands out the [`Access`]es of a program, batch by batch, in bounded memory: [`open`] tells the format of
//! a file by its content (Valgrind's lackey, DynamoRIO's drmemtrace, ChampSim, CSV, `perf script`) and
//! looks through compression. [`compact`] is the format of our own, for traces of any length.
//! [`replay`] makes a trace a program for the simulated machine.
//!
//! Invariant: no input brings a reader down or makes it take memory without bounds. What is wrong is told with its
//! place, and what came before it stands.

pub mod access;
pub mod compact;
pub mod csv;
pub mod import;
pub mod input;
pub mod mappings;
pub mod pages;
mod place;
pub mod ptat;
pub mod replay;
pub mod summary;
mod text;

pub use access::{Access, BATCH, Batch, Event, Kind, Source, read_all};
pub use import::{Format, Options, Trace, of_input, open, perf_script};
pub use input::{Input, Progress};
pub use replay::Replay;
pub use summary::{Summary, Tally};
pub use tierscope_wire::elf;
