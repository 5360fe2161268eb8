//! `tierscope sim run`: runs of an experiment, one for each instrument and one without.

use std::path::PathBuf;

use clap::Args;
use tierscope_core::{Error, ErrorKind, Result};
use tierscope_evaluate::runs::{self, Job};
use tierscope_evaluate::{Watch, watches};
use tierscope_sim::experiment::{Experiment, Mode};

use super::overrides::{OverrideArgs, experiment, experiments};
use super::run_table::write;
use crate::plan::check_output;
use crate::print::print_report;
use crate::simulations::{runner, warn_if_stopped};

/// Flags of `tierscope sim run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// A ready-made experiment or a TOML file
    #[arg(value_name = "EXPERIMENT", help = experiments())]
    pub experiment: String,

    /// Run only this instrument of the experiment, or this contender of `bench accuracy`; can be
    /// given more than once
    #[arg(long = "instrument", value_name = "NAME")]
    pub instruments: Vec<String>,

    /// Directory to record to, new or empty; several instruments get a subdirectory each. By
    /// default nothing is recorded
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,

    /// Overrides of the experiment's settings.
    #[command(flatten)]
    pub overrides: OverrideArgs,

    /// Skip the baseline run without instrument, and so the slowdown
    #[arg(long)]
    pub no_baseline: bool,

    /// Print the account as JSON
    #[arg(long)]
    pub json: bool,
}

/// Runs `tierscope sim run`.
///
/// # Errors
/// An invalid experiment or output, reported before any run; or the first error of a run.
pub(super) fn run(args: &RunArgs, line: &str) -> Result<()> {
    let experiment = experiment(&args.experiment, &args.overrides, &[])?;
    let watches = watches(&experiment, &args.instruments)?;
    let jobs = jobs(&experiment, watches, args)?;
    let runner = runner()?;
    let report = runs::run(&experiment, &jobs, line, &runner);
    warn_if_stopped(&runner);
    print_report(&report?, args.json, write)
}

/// One run for each instrument, and the baseline run without instrument.
fn jobs(experiment: &Experiment, watches: Vec<Watch>, args: &RunArgs) -> Result<Vec<Job>> {
    let alone = watches.len() == 1;
    let mut jobs = Vec::new();
    // A density machine keeps no exact counts of accesses, so a baseline run has nothing to
    // compare.
    let baseline = experiment.mode == Mode::Exact && !args.no_baseline;
    if baseline || watches.is_empty() {
        jobs.push(Job { watch: None, output: None });
    }
    for watch in watches {
        let output = match &args.output {
            Some(dir) if alone => Some(dir.clone()),
            Some(dir) => Some(dir.join(&watch.name)),
            None => None,
        };
        if let Some(dir) = &output {
            check_output(dir)?;
        }
        jobs.push(Job { watch: Some(watch), output });
    }
    if args.output.is_some() && jobs.iter().all(|job| job.watch.is_none()) {
        return Err(Error::new(ErrorKind::Usage, "there is nothing to record")
            .cause("the experiment names no instrument")
            .remedy("name one with --instrument"));
    }
    Ok(jobs)
}
