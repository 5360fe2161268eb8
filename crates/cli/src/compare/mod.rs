//! `tierscope compare`: compares a recording with the ground truth.

mod chart;
mod study;
mod text;

use tierscope_core::{Error, ErrorKind, Result};
use tierscope_record::Recording;
use tierscope_workloads::truth_dir::TruthDir;

use crate::args::CompareArgs;
use crate::report::print_report;

pub use study::{Comparison, Detection, Figures, Row, Shares, study};

/// Compares, prints the figures on stdout, and draws a chart if requested.
///
/// # Errors
/// [`ErrorKind::Data`] if the recording or the truth cannot be read, or if they do not belong
/// together.
pub fn run(args: &CompareArgs) -> Result<()> {
    let recording = Recording::open(&args.recording)?;
    if let Some(damage) = recording.damage() {
        eprintln!("tierscope: {damage}");
    }
    let truth = TruthDir::open(&args.truth)?;
    if truth.end().is_none() {
        eprintln!("tierscope: {} has no end: its program was killed, or still runs", truth.name());
    }
    let comparison = study(&recording, &truth, args.bar, !args.no_pages)?;
    if let Some(path) = &args.svg {
        std::fs::write(path, chart::draw(&comparison)).map_err(|e| {
            Error::new(ErrorKind::Io, format!("cannot write {}", path.display()))
                .cause(e)
                .remedy("choose a file that you may write to")
        })?;
    }
    print_report(&comparison, args.json, text::write)
}
