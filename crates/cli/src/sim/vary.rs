//! `tierscope sim vary`: accuracy and cost of instruments as single parameters change.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};

use clap::{ArgGroup, Args};
use serde::Serialize;
use tierscope_core::Result;
use tierscope_sim::experiment::{Change, Experiment};

use super::{Otherwise, experiment, experiments};
use crate::bench::Scenario;
use crate::bench::judge::{Asked, Outcome, judge};
use crate::bench::race::{side_by_side, stop_flag};
use crate::report::print_report;
use crate::units;
use crate::watch::{Watch, watches};

/// Flags of `tierscope sim vary`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("what").required(true).multiple(true).args(["keys", "ranges"])))]
pub struct VaryArgs {
    /// A ready-made experiment or a TOML file
    #[arg(value_name = "EXPERIMENT", help = experiments())]
    pub experiment: String,

    /// Values of a parameter to try, as simulation.exact.tick=never,1ms,4ms; can be given more than
    /// once
    #[arg(long = "key", value_name = "KEY=VALUE,…", value_parser = values)]
    pub keys: Vec<Values>,

    /// Try the smallest and the largest value of every uncertain parameter of hardware and costs
    #[arg(long)]
    pub ranges: bool,

    /// Run only this instrument of the experiment, or this contender of `bench accuracy`; can be
    /// given more than once
    #[arg(long = "instrument", value_name = "NAME")]
    pub instruments: Vec<String>,

    /// Overrides of the experiment's settings, in every run.
    #[command(flatten)]
    pub otherwise: Otherwise,

    /// Precision and recall from which a hot set counts as detected
    #[arg(long, value_name = "SHARE", default_value = "0.9", value_parser = units::share)]
    pub bar: f64,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// A parameter, and its values to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Values {
    key: String,
    values: Vec<String>,
}

fn values(text: &str) -> Result<Values, String> {
    match text.split_once('=') {
        Some((key, values)) if !key.is_empty() && !values.is_empty() => {
            Ok(Values { key: key.into(), values: values.split(',').map(str::to_owned).collect() })
        }
        _ => Err("give it like simulation.exact.tick=never,1ms,4ms".into()),
    }
}

/// Result of an instrument with one parameter changed.
#[derive(Clone, Debug, Serialize)]
struct Row {
    /// The parameter; `None` for the unchanged experiment.
    key: Option<String>,
    /// Value of the parameter.
    value: Option<String>,
    /// Name of the instrument.
    instrument: String,
    /// Precision after detection, or over all windows if nothing was detected (METRICS.md).
    precision: Option<f64>,
    /// Recall over the same windows.
    recall: Option<f64>,
    /// F1 over the same windows.
    f1: Option<f64>,
    /// Time of the slowest detection; `None` if one failed.
    detected_seconds: Option<f64>,
    /// Simulated CPU time of the profiler relative to simulated time, 1 is one CPU.
    profiler_cpu: f64,
    /// Whether the run reached its end.
    complete: bool,
}

/// Results of all runs.
#[derive(Clone, Debug, Serialize)]
struct Report {
    experiment: String,
    about: String,
    source: String,
    mode: &'static str,
    hardware: String,
    seed: u64,
    seconds: f64,
    bar: f64,
    rows: Vec<Row>,
}

/// One run: the experiment with one parameter changed, and an instrument.
struct Job {
    change: Option<Change>,
    experiment: Experiment,
    watch: Watch,
}

/// Runs `tierscope sim vary`.
///
/// # Errors
/// An invalid experiment or change, reported before any run; or the first error of a run.
pub(super) fn run(args: &VaryArgs) -> Result<()> {
    let base = Scenario::of(experiment(&args.experiment, &args.otherwise, &[])?)?;
    let jobs = jobs(args, &base)?;
    let stop = stop_flag()?;
    let nanos = vec![base.time.as_nanos() as u64; jobs.len()];
    let work = |index: usize, reached: &AtomicU64| {
        let job = &jobs[index];
        judge(&job.experiment, &job.watch, &Asked::bar(args.bar), &stop, reached)
    };
    let outcomes = side_by_side(&nanos, &stop, work)?;
    if stop.load(Ordering::Relaxed) {
        eprintln!("tierscope: stopped; what was measured until then is kept");
    }
    let rows =
        jobs.iter().zip(&outcomes).filter_map(|(job, outcome)| Some(row(job, outcome.as_ref()?)));
    let report = Report {
        experiment: base.name.clone(),
        about: base.about.clone(),
        source: base.source.clone(),
        mode: base.mode.name(),
        hardware: base.setup.hardware.name.clone(),
        seed: base.seed,
        seconds: base.time.as_secs_f64(),
        bar: args.bar,
        rows: rows.collect(),
    };
    print_report(&report, args.json, table)
}

/// Runs of the unchanged experiment, then of each change.
fn jobs(args: &VaryArgs, base: &Scenario) -> Result<Vec<Job>> {
    let mut changes: Vec<Option<Change>> = vec![None];
    for Values { key, values } in &args.keys {
        let change = |value: &String| Change { key: key.clone(), value: value.clone() };
        changes.extend(values.iter().map(|value| Some(change(value))));
    }
    if args.ranges {
        for one in base.uncertain() {
            let [least, most] = one.range;
            let others = [least, most].into_iter().filter(|value| *value != one.value);
            let change = |value: u64| Change { key: one.key.clone(), value: value.to_string() };
            changes.extend(others.map(|value| Some(change(value))));
        }
    }
    let mut jobs = Vec::new();
    for change in changes {
        let more = change.as_slice();
        let experiment = experiment(&args.experiment, &args.otherwise, more)?;
        let watches = match args.instruments.is_empty() {
            true => base.contenders.clone(),
            false => watches(&experiment, &args.instruments)?,
        };
        for watch in watches {
            jobs.push(Job { change: change.clone(), experiment: experiment.clone(), watch });
        }
    }
    Ok(jobs)
}

fn row(job: &Job, outcome: &Outcome) -> Row {
    let quoted = outcome.quoted();
    Row {
        key: job.change.as_ref().map(|change| change.key.clone()),
        value: job.change.as_ref().map(|change| change.value.clone()),
        instrument: outcome.contender.clone(),
        precision: quoted.precision,
        recall: quoted.recall,
        f1: quoted.f1,
        detected_seconds: outcome.slowest_detection(),
        profiler_cpu: outcome.profiler_cpu,
        complete: outcome.complete,
    }
}

fn table(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let Report { experiment, about, mode, hardware, seed, seconds, bar, .. } = report;
    writeln!(out, "{experiment}: {about}")?;
    writeln!(out, "simulated, {mode}: {seconds} s, {hardware}, seed {seed}\n")?;
    let wide = |row: &Row| label(row).chars().count();
    let width = report.rows.iter().map(wide).max().unwrap_or(0);
    writeln!(
        out,
        "{:width$} {:18} {:>9} {:>9} {:>9} {:>10} {:>9}",
        "", "", "precision", "recall", "F1", "detected", "CPU %"
    )?;
    for row in &report.rows {
        let shares = [row.precision, row.recall, row.f1];
        let [p, r, f] = shares.map(|share| share.map_or("-".into(), |share| format!("{share:.3}")));
        let detected = row.detected_seconds.map_or("never".into(), |s| format!("{s:.2} s"));
        let stopped = if row.complete { "" } else { "  stopped" };
        writeln!(
            out,
            "{:width$} {:18} {p:>9} {r:>9} {f:>9} {detected:>10} {:>9.3}{stopped}",
            label(row),
            row.instrument,
            row.profiler_cpu * 100.0
        )?;
    }
    writeln!(
        out,
        "\nShares once detected, over all windows where nothing was. Detected: the slowest time until \
         precision and recall\nreach {bar} for four windows. CPU: of one CPU, at cited costs."
    )
}

fn label(row: &Row) -> String {
    match (&row.key, &row.value) {
        (Some(key), Some(value)) => format!("{key}={value}"),
        _ => "(as it is)".into(),
    }
}
