//! `tierscope reproduce`: the papers' experiments, run anew, and their claims beside our results.
//!
//! An experiment is a scenario and the claims that a paper makes of it, as TOML in `experiments/`.
//! Claims are never targets: parameters come from cited sources and are not fitted to them.

mod experiment;
mod page;
mod verdict;

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use clap::Args;
use tierscope_core::{Error, ErrorKind, Result};

use crate::bench::contender::Contender;
use crate::bench::judge::Outcome;
use crate::bench::race::{Job, race, stop_flag};
use crate::bench::save;
use crate::report::written;

pub use experiment::{Claim, Experiment, Figure};
pub use verdict::{Judgement, Verdict};

/// Precision and recall that count as detected.
const BAR: f64 = 0.9;

/// Flags of `tierscope reproduce`.
#[derive(Debug, Args)]
pub struct ReproduceArgs {
    /// Experiments to run; all unless told
    #[arg(value_name = "EXPERIMENT")]
    pub experiments: Vec<String>,

    /// Write the page into this file instead of stdout
    #[arg(short, long, value_name = "FILE", conflicts_with = "check")]
    pub output: Option<PathBuf>,

    /// Fail unless the experiments' sections of this page are as they would be written now
    #[arg(long, value_name = "FILE")]
    pub check: Option<PathBuf>,
}

/// An experiment and what its contenders came to.
#[derive(Debug)]
pub struct Ran {
    /// The experiment.
    pub experiment: Experiment,
    /// Outcomes, in no order.
    pub outcomes: Vec<Outcome>,
}

/// Runs experiments and writes, or checks, the page.
///
/// # Errors
/// An unknown experiment; a file that cannot be read or written; [`ErrorKind::Data`] if a page to
/// check is not current.
pub fn run(args: &ReproduceArgs) -> Result<()> {
    let experiments = experiment::choose(&args.experiments)?;
    let stop = stop_flag()?;
    let jobs: Vec<Job<'_>> = experiments.iter().flat_map(jobs).collect();
    let outcomes = race(&jobs, &stop)?;
    if stop.load(Ordering::Relaxed) {
        return Err(Error::new(ErrorKind::Other, "stopped")
            .cause("claims are judged by whole runs only")
            .remedy("name the experiments to run, to run fewer"));
    }
    let counts: Vec<usize> =
        experiments.iter().map(|experiment| jobs_of(experiment).len()).collect();
    let mut outcomes = outcomes.into_iter().flatten();
    let ran: Vec<Ran> = experiments
        .into_iter()
        .zip(counts)
        .map(|(experiment, count)| Ran {
            experiment,
            outcomes: outcomes.by_ref().take(count).collect(),
        })
        .collect();
    match (&args.output, &args.check) {
        (_, Some(path)) => check(path, &ran),
        (Some(path), None) => save(path, &page::page(&ran)),
        (None, None) => {
            use std::io::Write as _;
            written(std::io::stdout().lock().write_all(page::page(&ran).as_bytes()))
        }
    }
}

fn jobs_of(experiment: &Experiment) -> &[Contender] {
    &experiment.scenario.contenders
}

fn jobs(experiment: &Experiment) -> impl Iterator<Item = Job<'_>> {
    let scenario = &experiment.scenario;
    jobs_of(experiment).iter().map(move |contender| Job {
        scenario,
        contender: *contender,
        bar: BAR,
    })
}

/// Whether the page holds each experiment's section as it would be written now.
fn check(path: &std::path::Path, ran: &[Ran]) -> Result<()> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Error::new(ErrorKind::Io, format!("cannot read {}", path.display()))
            .cause(error)
            .remedy("name a page that `tierscope reproduce -o` wrote")
    })?;
    match ran.iter().find(|ran| !text.contains(&page::section(ran))) {
        None => Ok(()),
        Some(ran) => Err(Error::new(ErrorKind::Data, format!("{} is not current", path.display()))
            .cause(format!("its section on {} differs", ran.experiment.scenario.name))
            .remedy(format!("run `tierscope reproduce -o {}`", path.display()))),
    }
}
