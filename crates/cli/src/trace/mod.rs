//! `tierscope trace`: converts access traces between formats, and summarizes them.

mod convert;
mod info;
mod input;
mod parquet;

use clap::Subcommand;
use tierscope_core::Result;

pub use convert::ConvertArgs;
pub use info::InfoArgs;
pub(crate) use input::{Read, formats, read};

/// Subcommands of `tierscope trace`.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Write a trace in tierscope's compact format, as CSV, or as Parquet
    Convert(ConvertArgs),
    /// Summarize a trace: accesses, threads, footprint, reads and writes
    Info(InfoArgs),
}

/// Runs a subcommand.
///
/// # Errors
/// [`tierscope_core::ErrorKind::Data`] with the position of the damage in a trace; the readable
/// part was used.
pub fn run(command: &TraceCommand) -> Result<()> {
    match command {
        TraceCommand::Convert(args) => convert::run(args),
        TraceCommand::Info(args) => info::run(args),
    }
}
