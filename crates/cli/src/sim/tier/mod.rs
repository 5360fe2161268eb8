//! `tierscope sim tier`: compares placement policies, each on its own copy of a simulated machine.

pub(crate) mod chart;
pub mod contestant;
pub mod outcome;
pub(crate) mod table;
mod watched;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tierscope_core::{Error, ErrorKind, Result};
use tierscope_sim::experiment::{Change, Experiment, Mode};

use super::{Otherwise, experiment, experiment_of};
use crate::bench::race::{side_by_side, stop_flag};
use crate::bench::save;
use crate::report::print_report;
use crate::units;

pub use contestant::Contestant;
pub use outcome::Outcome;

use contestant::contestants;
use outcome::{Record, place};

/// Default simulated time.
const TIME: Duration = Duration::from_secs(20);

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
    /// regions; rates by default
    #[arg(long = "policy", value_name = "P")]
    pub policies: Vec<String>,

    /// Warm-up: start of the measurement, as simulated time; by default the experiment's
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub warm_up: Option<Duration>,

    /// Overrides of the experiment's settings.
    #[command(flatten)]
    pub otherwise: Otherwise,

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
    Ok((name.to_owned(), units::bytes(size)?))
}

/// Results of all policies of an experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Name of the experiment.
    pub experiment: String,
    /// Description of the experiment.
    pub about: String,
    /// Source of its parameters.
    pub source: String,
    /// Simulation mode: `exact` or `density`.
    pub mode: &'static str,
    /// Name of the simulated hardware.
    pub hardware: String,
    /// Tiers of the hardware, fastest first: names and bytes.
    pub tiers: Vec<(String, u64)>,
    /// Bytes that the processes map.
    pub mapped_bytes: u64,
    /// Requested simulated time, in seconds.
    pub seconds: f64,
    /// Seconds of warm-up at the start, which are not measured.
    pub warm_up_seconds: f64,
    /// Seed of all draws.
    pub seed: u64,
    /// Ordered as the policies; those not begun when the user stopped are missing.
    pub outcomes: Vec<Outcome>,
}

impl Report {
    /// Makes the report of an experiment from its outcomes.
    pub(crate) fn new(experiment: &Experiment, outcomes: Vec<Outcome>) -> Self {
        let hardware = &experiment.setup.hardware;
        Self {
            experiment: experiment.name.clone(),
            about: experiment.about.clone(),
            source: experiment.source.clone(),
            mode: experiment.mode.name(),
            hardware: hardware.name.clone(),
            tiers: hardware.tiers.iter().map(|t| (t.name.clone(), t.mib << 20)).collect(),
            mapped_bytes: experiment.bytes(),
            seconds: experiment.time.as_secs_f64(),
            warm_up_seconds: experiment.warm_up.as_secs_f64(),
            seed: experiment.seed,
            outcomes,
        }
    }

    /// The baseline that rates are compared with: static tiering, or else the first policy.
    #[must_use]
    pub fn reference(&self) -> Option<&Outcome> {
        let still = self.outcomes.iter().find(|outcome| outcome.policy == "static");
        still.or(self.outcomes.first())
    }

    /// A policy's rate relative to that of [`Report::reference`].
    #[must_use]
    pub fn over(&self, outcome: &Outcome) -> Option<f64> {
        let rate = self.reference()?.operations_per_second;
        (rate > 0.0).then(|| outcome.operations_per_second / rate)
    }
}

/// Runs `tierscope sim tier`.
///
/// # Errors
/// An invalid experiment or policy, reported before any run; or a file that cannot be written.
pub(super) fn run(args: &TierArgs, line: &str) -> Result<()> {
    let experiment = wanted(args)?;
    let contestants = contestants(&experiment, &args.policies)?;
    let dirs = dirs(args.output.as_deref(), &contestants)?;
    let stop = stop_flag()?;
    let nanos = vec![experiment.time.as_nanos() as u64; contestants.len()];
    let work = |index: usize, reached: &AtomicU64| {
        let record = dirs.get(index).map(|dir| Record { dir, line });
        place(&experiment, &contestants[index], record, &stop, reached)
    };
    let outcomes = side_by_side(&nanos, &stop, work)?.into_iter().flatten().collect();
    if stop.load(Ordering::Relaxed) {
        eprintln!("tierscope: stopped; what was measured until then is kept");
    }
    let report = Report::new(&experiment, outcomes);
    publish(&[report], args.json, args.svg.as_ref(), args.html.as_ref())
}

/// Prints the reports on stdout, and writes charts and page into files.
pub(crate) fn publish(
    reports: &[Report],
    json: bool,
    svg: Option<&PathBuf>,
    html: Option<&PathBuf>,
) -> Result<()> {
    if let (Some(path), Some(report)) = (svg, reports.first()) {
        save(path, &chart::draw(report))?;
    }
    if let Some(path) = html {
        save(path, &chart::page(reports))?;
    }
    match reports {
        [report] => print_report(report, json, table::write),
        _ => print_report(reports, json, |reports, out| {
            reports.iter().try_for_each(|report| table::write(report, out))
        }),
    }
}

/// Recording directory of each policy, checked; empty without an output.
fn dirs(output: Option<&Path>, contestants: &[Contestant]) -> Result<Vec<PathBuf>> {
    let Some(dir) = output else { return Ok(Vec::new()) };
    let plain = |text: &str| text.replace(|c: char| !c.is_ascii_alphanumeric() && c != '-', "_");
    let dirs: Vec<PathBuf> = match contestants {
        [_] => vec![dir.to_owned()],
        several => several.iter().map(|one| dir.join(plain(&one.text))).collect(),
    };
    dirs.iter().try_for_each(|dir| crate::plan::check_output(dir))?;
    Ok(dirs)
}

/// The experiment that the flags describe.
fn wanted(args: &TierArgs) -> Result<Experiment> {
    let mut experiment = match (&args.experiment, &args.workload) {
        (Some(name), _) => experiment(name, &args.otherwise, &[])?,
        (None, Some(workload)) => {
            let told = Told {
                workload,
                machine: &args.machine,
                tiers: &args.tiers,
                threads: args.threads,
                mode: if args.density { Mode::Density } else { Mode::Exact },
                populate: true,
            };
            experiment_of("the command line", &told.text(), &args.otherwise, &[])?
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

/// An experiment of one process, described by command-line flags.
pub(crate) struct Told<'a> {
    pub(crate) workload: &'a str,
    pub(crate) machine: &'a str,
    pub(crate) tiers: &'a [(String, u64)],
    pub(crate) threads: Option<u32>,
    pub(crate) mode: Mode,
    pub(crate) populate: bool,
}

impl Told<'_> {
    /// The equivalent TOML file.
    pub(crate) fn text(&self) -> String {
        use std::fmt::Write;
        let quoted = |text: &str| toml_string(text);
        let mut text = format!(
            "name = \"tier\"\nabout = {}\nsource = \"the command line\"\ntime = \"{}s\"\n\n\
             [machine]\nhardware = {}\n",
            quoted(&format!("{} on {}", self.workload, self.machine)),
            TIME.as_secs(),
            quoted(self.machine)
        );
        for (name, bytes) in self.tiers {
            // Writing to a string cannot fail, here and below.
            let _ =
                writeln!(text, "\n[[machine.tier]]\nname = {}\nsize = \"{bytes}B\"", quoted(name));
        }
        let Self { workload, populate, .. } = self;
        let _ =
            writeln!(text, "\n[[process]]\nworkload = {}\npopulate = {populate}", quoted(workload));
        if let Some(threads) = self.threads {
            let _ = writeln!(text, "threads = {threads}");
        }
        let _ = writeln!(text, "\n[simulation]\nmode = \"{}\"", self.mode.name());
        text
    }
}

/// Quotes a text as a TOML string.
fn toml_string(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

/// Change that sets the size of the tier called `name`.
pub(crate) fn sized(name: &str, bytes: u64) -> Change {
    Change { key: format!("hardware.tiers.{name}.mib"), value: (bytes >> 20).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_make_an_experiment() {
        let tiers = [("dram".to_owned(), 64 << 20), ("optane".to_owned(), 256 << 20)];
        let told = Told {
            workload: "contiguous:space=128MiB,hot=8MiB",
            machine: "xeon-gold-6238m",
            tiers: &tiers,
            threads: Some(2),
            mode: Mode::Exact,
            populate: true,
        };
        let experiment =
            Experiment::parse("t", &told.text()).unwrap_or_else(|error| panic!("{error}"));
        let sizes: Vec<u64> = experiment.setup.hardware.tiers.iter().map(|t| t.mib).collect();
        assert_eq!((sizes, experiment.processes[0].threads), (vec![64, 256], 2));
        assert_eq!(experiment.time, TIME);
    }

    #[test]
    fn a_tier_has_a_name_and_a_size() {
        assert_eq!(tier_size("dram=1.5G"), Ok(("dram".into(), 3 << 29)));
        assert!(tier_size("dram").is_err() && tier_size("dram=much").is_err());
    }
}
