//! `tierscope sim tier`: compares placement policies, each on its own copy of a simulated machine.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use tierscope_core::{Error, ErrorKind, Result};
use tierscope_evaluate::contest::{self, Contestant, contestants};
use tierscope_evaluate::experiments::{Plain, parse};
use tierscope_sim::experiment::{Experiment, Mode};

use super::overrides::{OverrideArgs, experiment};
use super::tier_table::publish;
use crate::plan::check_output;
use crate::print::note;
use crate::simulations::{runner, warn_if_stopped};
use crate::units;

/// Flags of `tierscope sim tier`.
#[derive(Debug, Args)]
pub struct TierArgs {
    /// A TOML file, or an experiment of `reproduce placement` by name; otherwise give --workload
    #[arg(value_name = "EXPERIMENT", required_unless_present = "workload")]
    pub experiment: Option<String>,

    /// The workload, as in an experiment file
    #[arg(long, value_name = "W", conflicts_with = "experiment")]
    pub workload: Option<String>,

    /// With --workload: the hardware, ready-made or a file
    #[arg(
        long,
        value_name = "M",
        conflicts_with = "experiment",
        default_value = "xeon-gold-6238m"
    )]
    pub machine: String,

    /// With --workload: a tier of the hardware and its size, like dram=1G; can be given more than
    /// once; by default all tiers at full size
    #[arg(long = "tier", value_name = "NAME=SIZE", conflicts_with = "experiment", value_parser = tier_size)]
    pub tiers: Vec<(String, u64)>,

    /// With --workload: number of threads; by default the workload's own
    #[arg(long, value_name = "N", conflicts_with = "experiment")]
    pub threads: Option<u32>,

    /// With --workload: simulate access densities instead of single accesses
    #[arg(long, conflicts_with = "experiment")]
    pub density: bool,

    /// A policy, as NAME:key=value,…@INSTRUMENT, or all, or memory-mode for the first tier as a
    /// cache of the second; can be given more than once. INSTRUMENT feeds a policy that works on
    /// regions; rates by default. The bounds oracle, clairvoyant, all-fast, all-slow and interleave
    /// are always in the table
    #[arg(long = "policy", value_name = "P")]
    pub policies: Vec<String>,

    /// Warm-up: start of the measurement, as simulated time; by default the experiment's
    #[arg(long, value_name = "TIME", value_parser = units::time)]
    pub warm_up: Option<Duration>,

    /// Overrides of the experiment's settings.
    #[command(flatten)]
    pub overrides: OverrideArgs,

    /// Directory to record to, new or empty; several policies get a subdirectory each. By default
    /// nothing is recorded
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,

    /// Print JSON, including all time series
    #[arg(long)]
    pub json: bool,

    /// Draw throughput and fast-tier share over time into this file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,

    /// Write a page with tables and charts into this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

fn tier_size(text: &str) -> Result<(String, u64), String> {
    let (name, size) = text.split_once('=').ok_or("give it like dram=1G")?;
    Ok((name.to_owned(), units::address(size)?))
}

/// Runs `tierscope sim tier`.
///
/// # Errors
/// An invalid experiment or policy, reported before any run; or a file that cannot be written.
pub(super) fn run(args: &TierArgs, line: &str) -> Result<()> {
    let experiment = wanted(args)?;
    experiment.warnings().iter().for_each(|warning| note!("warning: {warning}"));
    let contestants = contestants(&experiment, &args.policies)?;
    let dirs = dirs(args.output.as_deref(), &contestants)?;
    let runner = runner()?;
    let report = contest::run(&experiment, &contestants, &dirs, line, &runner)?;
    warn_if_stopped(&runner);
    publish(&[report], args.json, args.svg.as_ref(), args.html.as_ref())
}

/// Recording directory of each policy, checked; empty without an output. Bounds, which come last,
/// are not recorded.
fn dirs(output: Option<&Path>, contestants: &[Contestant]) -> Result<Vec<PathBuf>> {
    let Some(dir) = output else { return Ok(Vec::new()) };
    let plain = |text: &str| text.replace(|c: char| !c.is_ascii_alphanumeric() && c != '-', "_");
    let policies: Vec<&Contestant> = contestants.iter().filter(|one| !one.is_bound()).collect();
    let dirs: Vec<PathBuf> = match policies[..] {
        [_] => vec![dir.to_owned()],
        _ => policies.iter().map(|one| dir.join(plain(&one.text))).collect(),
    };
    dirs.iter().try_for_each(|dir| check_output(dir))?;
    Ok(dirs)
}

/// The experiment that the flags describe.
fn wanted(args: &TierArgs) -> Result<Experiment> {
    let mut experiment = match (&args.experiment, &args.workload) {
        (Some(name), _) => experiment(name, &args.overrides, &[])?,
        (None, Some(workload)) => {
            let plain = Plain {
                workload,
                machine: &args.machine,
                tiers: &args.tiers,
                threads: args.threads,
                mode: if args.density { Mode::Density } else { Mode::Exact },
                populate: true,
            };
            parse("the command line", &plain.text(), &args.overrides.overrides(), &[])?
        }
        (None, None) => return Err(Error::new(ErrorKind::Usage, "nothing runs")),
    };
    experiment.warm_up = args.warm_up.unwrap_or(experiment.warm_up);
    if experiment.warm_up >= experiment.time {
        return Err(Error::new(ErrorKind::Usage, "nothing is left to measure")
            .cause(format!(
                "the warm-up of {:?} takes all of {:?}",
                experiment.warm_up, experiment.time
            ))
            .remedy("simulate longer with --time, or warm up for less with --warm-up"));
    }
    Ok(experiment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tier_has_a_name_and_a_size() {
        assert_eq!(tier_size("dram=1.5G"), Ok(("dram".into(), 3 << 29)));
        assert!(tier_size("dram").is_err() && tier_size("dram=much").is_err());
    }
}
