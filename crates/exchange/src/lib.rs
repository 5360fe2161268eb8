//! Export of recordings to the formats of other tools, and import from them.
//!
//! Export: [`csv`] and `parquet` (a feature) table by table, `partitions` of many machines' tables,
//! [`damo`]'s JSON as one file. Import: [`import()`] reads damo's files, DAMON's tracepoint as
//! text, and sampled accesses printed by `perf script`. Everything streams: memory is bounded by
//! the largest window, not by the length of a recording. Input is untrusted: a reader fails with an
//! error that names file and position, and never panics.
//!
//! Invariant: no file appears under its final name before it is complete ([`Partial`]).

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
mod short_texts;
mod spool;
mod tables;

pub use import::{Format, Imported, Options, SAMPLING, import, read};
pub use partial::{Partial, PartialDir};
pub use spool::{Flaws, Scratch};
pub use tables::{Failure, Tick};
