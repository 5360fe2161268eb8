//! Accuracy of instruments: each contender of a scenario watches its own copy of a simulated
//! machine, and is judged window by window.

mod chart;
mod figures;
mod judge;
mod scenario;

use std::sync::atomic::AtomicU64;

use serde::Serialize;
use tierscope_core::Result;
use tierscope_sim::experiment::{Experiment, Mode};

use crate::runner::Runner;
use crate::watch::Watch;

pub use chart::{draw, page};
pub use figures::{Figures, Spread, Summary, Worst};
pub use judge::{Detection, JudgeSettings, Outcome, Row, Shares};
pub use scenario::Scenario;

pub(crate) use judge::judge;

/// Results of the contenders in a scenario.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Name of the scenario.
    pub scenario: String,
    /// Description of the scenario.
    pub about: String,
    /// Source of its parameters.
    pub source: String,
    /// Hardware whose caches are simulated.
    pub hardware: String,
    /// Simulation mode.
    pub mode: Mode,
    /// Bytes mapped.
    pub mapped_bytes: u64,
    /// Simulated time, in seconds.
    pub seconds: f64,
    /// Seconds between flushes of all TLBs; `None` for no flushes.
    pub flush_seconds: Option<f64>,
    /// Seed of all draws; with several seeds the first one.
    pub seed: u64,
    /// Number of consecutive seeds.
    pub seeds: u16,
    /// Precision and recall from which a hot set counts as detected.
    pub bar: f64,
    /// Ordered as in the scenario; those not begun when the user stopped are missing.
    pub outcomes: Vec<Outcome>,
    /// Each contender's figures at the requested times: worst and best over all seeds.
    pub worst: Vec<Summary>,
}

/// One run of an instrument on an experiment.
pub(crate) struct Job<'a> {
    pub(crate) experiment: &'a Experiment,
    pub(crate) watch: Watch,
    pub(crate) asked: JudgeSettings,
}

/// Runs all jobs and returns their outcomes in the same order. After a stop, runs end early, and
/// those not begun are `None`.
///
/// # Errors
/// The first error of a run.
pub(crate) fn race(jobs: &[Job<'_>], runner: &Runner<'_>) -> Result<Vec<Option<Outcome>>> {
    let nanos: Vec<u64> = jobs.iter().map(|job| job.experiment.time.as_nanos() as u64).collect();
    runner.side_by_side(&nanos, |index: usize, reached: &AtomicU64| {
        let job = &jobs[index];
        judge(job.experiment, &job.watch, &job.asked, runner.stop(), reached)
    })
}

/// Runs the contenders of all scenarios, each with this many consecutive seeds.
///
/// # Errors
/// The first error of a run.
pub fn run(
    scenarios: &[Scenario],
    seeds: u16,
    asked: &JudgeSettings,
    runner: &Runner<'_>,
) -> Result<Vec<Report>> {
    let all: Vec<Vec<Scenario>> = scenarios.iter().map(|s| seeded(s, seeds)).collect();
    let jobs: Vec<Job<'_>> = all.iter().flatten().flat_map(|s| jobs(s, asked)).collect();
    let mut outcomes = race(&jobs, runner)?.into_iter();
    let report = |scenario: &Scenario| {
        let mine = outcomes.by_ref().take(scenario.contenders.len() * usize::from(seeds));
        report(scenario, seeds, asked.bar, mine.flatten().collect())
    };
    Ok(scenarios.iter().map(report).collect())
}

/// Copies of the scenario with consecutive seeds.
pub(crate) fn seeded(scenario: &Scenario, seeds: u16) -> Vec<Scenario> {
    let with = |shift: u16| {
        let mut scenario = scenario.clone();
        *scenario.experiment_mut() = scenario.reseeded(shift);
        scenario
    };
    (0..seeds).map(with).collect()
}

fn jobs<'a>(scenario: &'a Scenario, asked: &'a JudgeSettings) -> impl Iterator<Item = Job<'a>> {
    let job =
        |watch: &Watch| Job { experiment: scenario, watch: watch.clone(), asked: asked.clone() };
    scenario.contenders.iter().map(job)
}

fn report(scenario: &Scenario, seeds: u16, bar: f64, outcomes: Vec<Outcome>) -> Report {
    Report {
        scenario: scenario.name.clone(),
        about: scenario.about.clone(),
        source: scenario.source.clone(),
        hardware: scenario.setup.hardware.name.clone(),
        mode: scenario.mode,
        mapped_bytes: scenario.bytes(),
        seconds: scenario.time.as_secs_f64(),
        flush_seconds: scenario.setup.flush.map(|every| every.as_secs_f64()),
        seed: scenario.seed,
        seeds,
        bar,
        worst: figures::summaries(&outcomes),
        outcomes,
    }
}
