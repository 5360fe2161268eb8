//! `tierscope compare`: compares a recording with the ground truth.

mod text;

use std::path::PathBuf;

use clap::Args;
use tierscope_core::Result;
use tierscope_evaluate::compare::{draw, study};
use tierscope_evaluate::save;
use tierscope_record::Recording;
use tierscope_workloads::truth_dir::TruthDir;

use crate::print::{note, print_report};
use crate::units;

/// Flags of `tierscope compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// The recording
    #[arg(value_name = "DIR")]
    pub recording: PathBuf,

    /// The directory with the ground truth
    #[arg(value_name = "TRUTH")]
    pub truth: PathBuf,

    /// Precision and recall from which a hot set counts as detected
    #[arg(long, value_name = "SHARE", default_value = "0.9", value_parser = units::share)]
    pub bar: f64,

    /// Skip the page-granular truth, which takes another pass over all accesses
    #[arg(long)]
    pub no_pages: bool,

    /// Print JSON, including every window
    #[arg(long)]
    pub json: bool,

    /// Draw precision, recall and false-hot share over time into this file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

/// Compares, prints the figures on stdout, and draws a chart if requested.
///
/// # Errors
/// [`tierscope_core::ErrorKind::Data`] if the recording or the truth cannot be read, or if they do
/// not belong together.
pub fn run(args: &CompareArgs) -> Result<()> {
    let recording = Recording::open(&args.recording)?;
    if let Some(damage) = recording.damage() {
        note!("{damage}");
    }
    let truth = TruthDir::open(&args.truth)?;
    if truth.end().is_none() {
        note!("{} has no end: its program was killed, or still runs", truth.name());
    }
    let comparison = study(&recording, &truth, args.bar, !args.no_pages)?;
    if let Some(path) = &args.svg {
        save(path, &draw(&comparison))?;
    }
    print_report(&comparison, args.json, text::write)
}
