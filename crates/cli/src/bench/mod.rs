//! `tierscope bench`: compares instruments, and walks of reclaim policies, on simulated machines.

mod args;
mod chart;
pub(crate) mod contender;
mod figures;
pub(crate) mod judge;
pub(crate) mod machine;
pub(crate) mod race;
mod scan_cost;
pub(crate) mod scenario;
mod table;

use std::path::Path;
use std::sync::atomic::Ordering;

use serde::Serialize;
use tierscope_core::{Error, ErrorKind, Result};

use crate::report::print_report;
use crate::watch::Watch;

pub use args::{AccuracyArgs, BenchCommand, Flush, ScanCostArgs};
pub use contender::Contender;
pub use figures::{Figures, Spread, Summary, Worst};
pub use judge::{Detection, Outcome, Row, Shares};
pub use scenario::Scenario;
pub use tierscope_sim::experiment::Mode;

use judge::Asked;
use race::{Job, race, stop_flag};

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

/// Runs a subcommand.
///
/// # Errors
/// A scenario cannot be read or is invalid, reported before any run; or a file cannot be written.
pub fn run(command: &BenchCommand) -> Result<()> {
    match command {
        BenchCommand::Accuracy(args) => accuracy(args),
        BenchCommand::ScanCost(args) => scan_cost::run(args),
    }
}

fn accuracy(args: &AccuracyArgs) -> Result<()> {
    let scenarios = scenarios(args)?;
    if args.svg.is_some() && scenarios.len() != 1 {
        return Err(Error::new(ErrorKind::Usage, "cannot draw --svg")
            .cause("there is more than one scenario")
            .remedy("name one scenario, or take --html"));
    }
    let stop = stop_flag()?;
    let asked = Asked { bar: args.bar, at: args.at.clone() };
    let seeded: Vec<Vec<Scenario>> = scenarios.iter().map(|s| seeded(s, args.seeds)).collect();
    let jobs: Vec<Job<'_>> = seeded.iter().flatten().flat_map(|s| jobs(s, &asked)).collect();
    let mut outcomes = race(&jobs, &stop)?.into_iter();
    let mut reports = Vec::new();
    for scenario in &scenarios {
        let mine = outcomes.by_ref().take(scenario.contenders.len() * usize::from(args.seeds));
        reports.push(report(scenario, args, mine.flatten().collect()));
    }
    if stop.load(Ordering::Relaxed) {
        eprintln!("tierscope: stopped; what was measured until then is kept");
    }
    if let Some(path) = &args.svg {
        save(path, &chart::draw(&reports[0]))?;
    }
    if let Some(path) = &args.html {
        save(path, &chart::page(&reports))?;
    }
    print_report(&reports, args.json, |reports, out| {
        reports.iter().try_for_each(|report| table::write(report, out))
    })
}

fn scenarios(args: &AccuracyArgs) -> Result<Vec<Scenario>> {
    let mut scenarios = args
        .scenarios
        .iter()
        .map(|s| Scenario::changed(s, &args.changes))
        .collect::<Result<Vec<_>>>()?;
    for scenario in &mut scenarios {
        let experiment = scenario.experiment_mut();
        experiment.time = args.time.unwrap_or(experiment.time).max(experiment.window);
        if let Some(seed) = args.seed {
            experiment.reseed(seed);
        }
        if let Some(Flush(every)) = args.flush {
            experiment.setup.flush = every;
            experiment.config.flush = every;
        }
        if !args.only.is_empty() {
            scenario.contenders = args.only.iter().copied().map(Watch::from).collect();
        }
        if let Some(share) = args.cpu {
            scenario.contenders.iter_mut().for_each(|watch| watch.limit_cpu(share));
        }
    }
    Ok(scenarios)
}

/// Copies of the scenario with consecutive seeds.
fn seeded(scenario: &Scenario, seeds: u16) -> Vec<Scenario> {
    let with = |shift: u16| {
        let mut scenario = scenario.clone();
        let seed = scenario.seed.wrapping_add(u64::from(shift));
        scenario.experiment_mut().reseed(seed);
        scenario
    };
    (0..seeds).map(with).collect()
}

fn jobs<'a>(scenario: &'a Scenario, asked: &'a Asked) -> impl Iterator<Item = Job<'a>> {
    let job =
        |watch: &Watch| Job { experiment: scenario, watch: watch.clone(), asked: asked.clone() };
    scenario.contenders.iter().map(job)
}

fn report(scenario: &Scenario, args: &AccuracyArgs, outcomes: Vec<Outcome>) -> Report {
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
        seeds: args.seeds,
        bar: args.bar,
        worst: figures::summaries(&outcomes),
        outcomes,
    }
}

/// Writes a file.
pub(crate) fn save(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(|error| {
        Error::new(ErrorKind::Io, format!("cannot write {}", path.display()))
            .cause(error)
            .remedy("choose a file that you may write to")
    })
}
