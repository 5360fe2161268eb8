//! `tierscope sim`: experiments on the simulated machine, recorded like live targets.
//!
//! Each instrument runs on its own copy of the machine, with the same initial state, because
//! instruments that clear ACCESSED bits would take them from each other. One more copy runs without
//! instrument, as the baseline for the slowdown.

pub mod account;
mod run;
mod table;
pub mod tier;
mod vary;

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::{Args, Subcommand};
use tierscope_core::{Error, ErrorKind, Result};
use tierscope_sim::experiment::{Change, Experiment, Mode, read_file as experiment_text};

use crate::bench::race::stop_flag;
use crate::report::print_report;
use crate::reproduce::{nemo, placement, reclaim};
use crate::units;
use crate::watch::{Watch, watches};
use crate::work::{about, read_workload};

pub use account::{Completed, Figures, LatencyFigures, Report, Run, TierFigures};
pub use run::Ran;

use run::{Job, run_all};
use tier::TierArgs;
use vary::VaryArgs;

/// Subcommands of `tierscope sim`.
#[derive(Debug, Subcommand)]
pub enum SimCommand {
    /// Run an experiment: record what its instruments see, and account for what the machine did
    #[command(long_about = about("Run an experiment: record what its instruments see, and account \
                                  for what the machine did"))]
    Run(RunArgs),
    /// Let placement policies run side by side, each on a machine of its own that begins alike
    #[command(long_about = about("Let placement policies run side by side, each on a machine of its \
                                  own that begins alike"))]
    Tier(TierArgs),
    /// Run an experiment repeatedly with one parameter changed, and judge its instruments
    Vary(VaryArgs),
}

/// The ready-made experiments: name and TOML text.
const READY_MADE: [(&str, &str); 2] = [
    ("two-tiers", include_str!("../../../../experiments/exact/two-tiers.toml")),
    ("tick", include_str!("../../../../experiments/exact/tick.toml")),
];

fn experiments() -> String {
    let names: Vec<&str> = READY_MADE.iter().map(|(name, _)| *name).collect();
    format!("A ready-made experiment ({}) or a TOML file", names.join(", "))
}

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
    pub otherwise: Otherwise,

    /// Skip the baseline run without instrument, and so the slowdown
    #[arg(long)]
    pub no_baseline: bool,

    /// Print the account as JSON
    #[arg(long)]
    pub json: bool,
}

/// Overrides of an experiment's settings.
#[derive(Debug, Args)]
pub struct Otherwise {
    /// Simulate for this time instead of the experiment's
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub time: Option<Duration>,

    /// Seed of all draws instead of the experiment's
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,

    /// Change a parameter, as simulation.exact.tick=1ms, costs.access_bits.probe_ns=100 or
    /// hardware.tiers.optane.read_ns=170; can be given more than once
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = change)]
    pub changes: Vec<Change>,
}

/// Parses `KEY=VALUE`.
///
/// # Errors
/// A message with the expected form, if there is no `=`, or no key before it.
pub(crate) fn change(text: &str) -> Result<Change, String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => {
            Ok(Change { key: key.into(), value: value.into() })
        }
        _ => Err("give it like simulation.exact.tick=1ms".into()),
    }
}

/// Runs a subcommand.
///
/// # Errors
/// The experiment cannot be read or is invalid, or the output cannot be written: reported before
/// any run. Later the first error of a run; recordings up to then are kept.
pub fn run(command: &SimCommand, line: &str) -> Result<()> {
    match command {
        SimCommand::Run(args) => run_once(args, line),
        SimCommand::Tier(args) => tier::run(args, line),
        SimCommand::Vary(args) => vary::run(args),
    }
}

fn run_once(args: &RunArgs, line: &str) -> Result<()> {
    let experiment = experiment(&args.experiment, &args.otherwise, &[])?;
    let watches = watches(&experiment, &args.instruments)?;
    let jobs = jobs(&experiment, watches, args)?;
    let stop = stop_flag()?;
    let ran = run_all(&experiment, &jobs, line, &stop);
    if stop.load(Ordering::Relaxed) {
        eprintln!("tierscope: stopped; what was measured until then is kept");
    }
    let ran = ran?;
    let report = account::report(&experiment, ran);
    print_report(&report, args.json, table::write)
}

/// Loads an experiment by name, with overrides and further changes applied.
pub(crate) fn experiment(name: &str, wanted: &Otherwise, more: &[Change]) -> Result<Experiment> {
    let ready = READY_MADE.iter().find(|(known, _)| *known == name);
    let ready = ready.map(|(_, text)| (*text).to_owned());
    let told = || {
        placement::experiment_text(name)
            .or_else(|| nemo::experiment_text(name))
            .or_else(|| reclaim::experiment_text(name))
    };
    let text = match ready.or_else(told) {
        Some(text) => text,
        None => experiment_text(Path::new(name))?,
    };
    experiment_of(name, &text, wanted, more)
}

/// Parses an experiment's text, with overrides and further changes applied.
pub(crate) fn experiment_of(
    name: &str,
    text: &str,
    wanted: &Otherwise,
    more: &[Change],
) -> Result<Experiment> {
    let changes = [&wanted.changes[..], more].concat();
    let mut experiment = Experiment::changed(name, text, &changes, read_workload)?;
    if let Some(time) = wanted.time {
        if time < experiment.window {
            return Err(Error::new(ErrorKind::Usage, "the time is too short")
                .cause(format!("it does not hold a window of {:?}", experiment.window))
                .remedy("simulate longer"));
        }
        experiment.time = time;
    }
    if let Some(seed) = wanted.seed {
        experiment.reseed(seed);
    }
    Ok(experiment)
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
            crate::plan::check_output(dir)?;
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
