//! Recordings in the formats of others, and theirs as recordings.
//!
//! Out: [`csv`] and `parquet` (a feature) table by table, `partitions` of many machines' tables, [`damo`]'s JSON as one file. In:
//! [`import()`] reads what damo wrote, DAMON's tracepoint as text, and sampled accesses of
//! `perf script`. Everything streams: memory is bounded by the largest window, not by the length of a
//! recording. What comes in is somebody else's: each reader answers with an error that carries
//! file and place, and never falls over.
//!
//! Invariant: nothing here appears under its final name before it is whole ([`Partial`]).

pub mod csv;
pub mod damo;
mod import;
mod inflate;
mod merge;
#[cfg(feature = "parquet")]
pub mod parquet;
mod partial;
#[cfg(feature = "parquet")]
pub mod partitions;
mod perf;
mod place;
mod quantity;
mod spool;
mod tables;

pub use import::{Format, Imported, Options, import, read};
pub use partial::{Partial, PartialDir};
pub use spool::Scratch;
pub use tables::{Failure, Tick};
