//! `tierscope tlb`: TLB misses of programs, by whom they are caused, and what larger pages or other TLBs would change.

pub(crate) mod capture;
mod emulator;
mod export;
mod guests;
mod import;
mod misses;
pub(crate) mod model;
mod nested;
mod objects;
mod places;
mod record;
mod report;
mod source;
pub(crate) mod spread;
mod whatif;

use clap::Subcommand;
use tierscope_core::Result;

pub use capture::CaptureArgs;
pub use import::ImportArgs;
pub use record::RecordArgs;
pub use report::ReportArgs;
pub use whatif::WhatifArgs;

/// What can be done.
#[derive(Debug, Subcommand)]
pub enum TlbCommand {
    /// Run an unmodified program, and send every access of it through a model of a machine's TLBs, or into a file
    Record(RecordArgs),
    /// Tell which mappings, objects and functions miss the TLB, and what larger pages would save
    Report(ReportArgs),
    /// Hold other TLBs, page sizes and places of page tables against each other on one trace
    Whatif(WhatifArgs),
    /// Simulate a machine whose page tables a monitor on the memory bus watches, and write what it sees
    Capture(CaptureArgs),
    /// Make a capture of walks that the instrumented virtual machine recorded, for `tierscope tlb report`
    Import(ImportArgs),
}

/// Runs it.
///
/// # Errors
/// [`tierscope_core::ErrorKind::Data`] with the place for a trace that is damaged; what could be read was used.
pub fn run(command: &TlbCommand) -> Result<()> {
    match command {
        TlbCommand::Record(args) => record::run(args),
        TlbCommand::Report(args) => report::run(args),
        TlbCommand::Whatif(args) => whatif::run(args),
        TlbCommand::Capture(args) => capture::run(args),
        TlbCommand::Import(args) => import::run(args),
    }
}
