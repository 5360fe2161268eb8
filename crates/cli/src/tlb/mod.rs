//! `tierscope tlb`: TLB misses of programs, their causes, and the effect of larger pages or other
//! TLBs.

mod capture;
mod export;
mod import;
mod record;
mod report;
mod source;
mod whatif;

use clap::Subcommand;
use tierscope_core::Result;

pub use capture::CaptureArgs;
pub use import::ImportArgs;
pub use record::RecordArgs;
pub use report::ReportArgs;
pub use whatif::WhatifArgs;

/// Subcommands of `tierscope tlb`.
#[derive(Debug, Subcommand)]
pub enum TlbCommand {
    /// Run an unmodified program, and send its every access through a model of a machine's TLBs, or
    /// into a file
    Record(RecordArgs),
    /// Report which mappings, objects and functions miss the TLB, and how much larger pages would
    /// save
    Report(ReportArgs),
    /// Compare other TLBs, page sizes and placements of page tables on one trace
    Whatif(WhatifArgs),
    /// Simulate a machine with a bus monitor that watches its page tables, and write the monitor's
    /// capture
    Capture(CaptureArgs),
    /// Convert walks recorded by the instrumented virtual machine to a capture, for `tierscope tlb
    /// report`
    Import(ImportArgs),
}

/// Runs a subcommand.
///
/// # Errors
/// [`tierscope_core::ErrorKind::Data`] with the position of the damage in a trace; the readable
/// part was used.
pub fn run(command: &TlbCommand) -> Result<()> {
    match command {
        TlbCommand::Record(args) => record::run(args),
        TlbCommand::Report(args) => report::run(args),
        TlbCommand::Whatif(args) => whatif::run(args),
        TlbCommand::Capture(args) => capture::run(args),
        TlbCommand::Import(args) => import::run(args),
    }
}
