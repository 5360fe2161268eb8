//! Simulated runs of an experiment: one without instrument, and one for each instrument, recorded
//! like live targets.
//!
//! Each instrument runs on its own copy of the machine, with the same initial state, because
//! instruments that clear ACCESSED bits would take them from each other. One more copy runs without
//! instrument, as the baseline for the slowdown.

mod account;
mod run;

use tierscope_core::Result;
use tierscope_sim::experiment::Experiment;

use crate::runner::Runner;

pub use account::{Completed, Figures, LatencyFigures, Report, Run, TierFigures};
pub use run::Job;

pub(crate) use run::meta;

/// Runs all jobs; those not begun when the user stops are left out. `line` is the command line to
/// store in recordings.
///
/// # Errors
/// The first error of a run; recordings up to then are kept.
pub fn run(
    experiment: &Experiment,
    jobs: &[Job],
    line: &str,
    runner: &Runner<'_>,
) -> Result<Report> {
    run::run_all(experiment, jobs, line, runner).map(|ran| account::report(experiment, ran))
}
