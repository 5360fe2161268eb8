//! Contests of placement and reclaim policies: each runs on its own copy of a simulated machine
//! that begins alike.

mod bounds;
mod chart;
mod clairvoyant;
mod contestant;
mod foresight;
mod outcome;
mod watched;

use std::path::PathBuf;
use std::sync::atomic::AtomicU64;

use serde::Serialize;
use tierscope_core::Result;
use tierscope_sim::experiment::{Change, Experiment};

use crate::runner::Runner;

pub use chart::{draw, page};
pub use contestant::{Contestant, contestants};
pub use outcome::{AccessLatency, Failures, Moves, Notes, Outcome, PhaseRow, Row, Shares};

pub(crate) use bounds::Bound;
pub(crate) use clairvoyant::Clairvoyant;
pub(crate) use foresight::{Foresight, WINDOWS, Window};
pub(crate) use outcome::{Record, place};

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

    /// A policy's rate relative to that of [`Report::reference`], in the phase of that index.
    #[must_use]
    pub fn over_in(&self, outcome: &Outcome, phase: usize) -> Option<f64> {
        let rate = |outcome: &Outcome| Some(outcome.phases.get(phase)?.operations_per_second);
        let reference = rate(self.reference()?)?;
        (reference > 0.0).then_some(rate(outcome)? / reference)
    }

    /// A policy's rate relative to that of [`Report::reference`].
    #[must_use]
    pub fn over(&self, outcome: &Outcome) -> Option<f64> {
        let rate = self.reference()?.operations_per_second;
        (rate > 0.0).then(|| outcome.operations_per_second / rate)
    }
}

impl Outcome {
    /// Latencies in ns, as text: P50, P95 and P99; dashes if there are none.
    #[must_use]
    pub fn latencies(&self) -> [String; 3] {
        if let Some(latency) = &self.latency {
            return [latency.p50_ns, latency.p95_ns, latency.p99_ns].map(|ns| ns.to_string());
        }
        let none = || "-".to_owned();
        self.access_latency.map_or_else(
            || [none(), none(), none()],
            |latency| [latency.p50_ns, latency.p95_ns, latency.p99_ns].map(|ns| format!("{ns:.0}")),
        )
    }
}

/// A share as a percentage with one decimal; a dash for `None`.
#[must_use]
pub fn percent(share: Option<f64>) -> String {
    share.map_or("-".into(), |share| format!("{:.1}", share * 100.0))
}

/// Runs all contestants on the experiment. Each is recorded to the directory of the same index, if
/// there is one; `line` is the command line to store there.
///
/// # Errors
/// The first error of a run; recordings up to then are kept.
pub fn run(
    experiment: &Experiment,
    contestants: &[Contestant],
    dirs: &[PathBuf],
    line: &str,
    runner: &Runner<'_>,
) -> Result<Report> {
    let nanos: Vec<u64> =
        contestants.iter().map(|one| one.runs() * experiment.time.as_nanos() as u64).collect();
    let outcomes = runner.side_by_side(&nanos, |index: usize, reached: &AtomicU64| {
        let record = dirs.get(index).map(|dir| Record { dir, line });
        place(experiment, &contestants[index], record, runner.stop(), reached)
    })?;
    Ok(Report::new(experiment, outcomes.into_iter().flatten().collect()))
}

/// Change that sets the size of the tier called `name`.
pub(crate) fn sized(name: &str, bytes: u64) -> Change {
    Change { key: format!("hardware.tiers.{name}.mib"), value: (bytes >> 20).to_string() }
}
