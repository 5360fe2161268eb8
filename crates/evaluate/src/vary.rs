//! Accuracy and cost of instruments as single parameters change.

use serde::Serialize;
use tierscope_core::Result;
use tierscope_sim::experiment::{Change, Experiment};

use crate::accuracy::{Job, JudgeSettings, Outcome, Scenario, race};
use crate::experiments::{Overrides, load};
use crate::runner::Runner;
use crate::watch::{Watch, watches};

/// What to vary, and how to judge.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'a> {
    /// A built-in experiment, or a file.
    pub experiment: &'a str,
    /// Overrides of the experiment's settings, in every run.
    pub overrides: &'a Overrides,
    /// Parameters, and their values to try.
    pub keys: &'a [Values],
    /// Whether to try the smallest and the largest value of every uncertain parameter.
    pub ranges: bool,
    /// Instruments by name; those of the experiment if empty.
    pub instruments: &'a [String],
    /// Precision and recall from which a hot set counts as detected.
    pub bar: f64,
}

/// A parameter, and its values to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Values {
    /// The parameter: a dotted key of the experiment.
    pub key: String,
    /// Its values.
    pub values: Vec<String>,
}

/// Result of an instrument with one parameter changed.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The parameter; `None` for the unchanged experiment.
    pub key: Option<String>,
    /// Value of the parameter.
    pub value: Option<String>,
    /// Name of the instrument.
    pub instrument: String,
    /// Precision after detection, or over all windows if nothing was detected (METRICS.md).
    pub precision: Option<f64>,
    /// Recall over the same windows.
    pub recall: Option<f64>,
    /// F1 over the same windows.
    pub f1: Option<f64>,
    /// Time of the slowest detection; `None` if one failed.
    pub detected_seconds: Option<f64>,
    /// Simulated CPU time of the profiler relative to simulated time, 1 is one CPU.
    pub profiler_cpu: f64,
    /// Whether the run reached its end.
    pub complete: bool,
}

/// Results of all runs.
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
    /// Seed of all draws.
    pub seed: u64,
    /// Simulated time of a run, in seconds.
    pub seconds: f64,
    /// Precision and recall from which a hot set counts as detected.
    pub bar: f64,
    /// The unchanged experiment, then each change; an instrument a row.
    pub rows: Vec<Row>,
}

/// One run: the experiment with one parameter changed, and an instrument.
struct Varied {
    change: Option<Change>,
    experiment: Experiment,
    watch: Watch,
}

/// Runs the unchanged experiment, then each change, and judges its instruments.
///
/// # Errors
/// An invalid experiment or change, reported before any run; or the first error of a run.
pub fn run(settings: &Settings<'_>, runner: &Runner<'_>) -> Result<Report> {
    let base = Scenario::of(load(settings.experiment, settings.overrides, &[])?)?;
    let varied = varied(settings, &base)?;
    let jobs: Vec<Job<'_>> = varied
        .iter()
        .map(|varied| Job {
            experiment: &varied.experiment,
            watch: varied.watch.clone(),
            asked: JudgeSettings::bar(settings.bar),
        })
        .collect();
    let outcomes = race(&jobs, runner)?;
    let rows = varied.iter().zip(&outcomes);
    let rows = rows.filter_map(|(varied, outcome)| Some(row(varied, outcome.as_ref()?)));
    Ok(Report {
        experiment: base.name.clone(),
        about: base.about.clone(),
        source: base.source.clone(),
        mode: base.mode.name(),
        hardware: base.setup.hardware.name.clone(),
        seed: base.seed,
        seconds: base.time.as_secs_f64(),
        bar: settings.bar,
        rows: rows.collect(),
    })
}

/// Runs of the unchanged experiment, then of each change.
fn varied(settings: &Settings<'_>, base: &Scenario) -> Result<Vec<Varied>> {
    let mut changes: Vec<Option<Change>> = vec![None];
    for Values { key, values } in settings.keys {
        let change = |value: &String| Change { key: key.clone(), value: value.clone() };
        changes.extend(values.iter().map(|value| Some(change(value))));
    }
    if settings.ranges {
        for one in base.uncertain() {
            let [least, most] = one.range;
            let others = [least, most].into_iter().filter(|value| *value != one.value);
            let change = |value: u64| Change { key: one.key.clone(), value: value.to_string() };
            changes.extend(others.map(|value| Some(change(value))));
        }
    }
    let mut all = Vec::new();
    for change in changes {
        let experiment = load(settings.experiment, settings.overrides, change.as_slice())?;
        let watches = match settings.instruments.is_empty() {
            true => base.contenders.clone(),
            false => watches(&experiment, settings.instruments)?,
        };
        for watch in watches {
            let (change, experiment) = (change.clone(), experiment.clone());
            all.push(Varied { change, experiment, watch });
        }
    }
    Ok(all)
}

fn row(job: &Varied, outcome: &Outcome) -> Row {
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
