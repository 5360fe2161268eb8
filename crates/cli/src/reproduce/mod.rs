//! `tierscope reproduce`: reruns the papers' experiments, and compares their claims with our
//! results.
//!
//! An experiment is a scenario and the claims that a paper makes about it, as TOML in
//! `experiments/`. Claims are never targets: parameters come from cited sources and are not fitted
//! to them.

mod claims;
mod experiment;
mod frequencies;
mod kinds;
pub(crate) mod nemo;
mod page;
pub(crate) mod placement;
mod ptat;
pub(crate) mod reclaim;
mod sensitivity;
mod verdict;

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use clap::Args;
use tierscope_core::{Error, ErrorKind, Result};

use crate::bench::Scenario;
use crate::bench::judge::{Asked, Outcome};
use crate::bench::race::{Job, race, stop_flag};
use crate::bench::save;
use crate::report::print;

use sensitivity::Variant;

pub use experiment::{Claim, Experiment, Figure};
pub use sensitivity::Varied;
pub use verdict::{Judgement, Verdict};

/// Precision and recall from which a hot set counts as detected.
const BAR: f64 = 0.9;

/// Flags of `tierscope reproduce`.
#[derive(Debug, Args)]
pub struct ReproduceArgs {
    /// Experiments to run, by name; by default all on telemetry. Groups: `placement`, all on
    /// placement policies, takes many minutes; `reclaim`, all on reclaim policies; both write parts
    /// of the same page. `nemo`, all on counters in the memory controller, and `ptat`, optionally
    /// followed by names, on TLB misses, write pages of their own
    #[arg(value_name = "EXPERIMENT")]
    pub experiments: Vec<String>,

    /// Write the page into this file instead of stdout
    #[arg(short, long, value_name = "FILE", conflicts_with = "check")]
    pub output: Option<PathBuf>,

    /// Skip the sensitivity of verdicts to assumed parameters: takes a tenth of the time
    #[arg(long)]
    pub quick: bool,

    /// Fail unless this page contains the experiments' sections exactly as they would be written
    /// now
    #[arg(long, value_name = "FILE")]
    pub check: Option<PathBuf>,
}

/// Results of an experiment.
#[derive(Debug)]
pub struct Ran {
    /// The experiment.
    pub experiment: Experiment,
    /// Outcomes, unordered.
    pub outcomes: Vec<Outcome>,
    /// Outcomes with one parameter changed at a time; empty if these runs were skipped.
    pub varied: Vec<Varied>,
}

/// An experiment, and its variants with changed parameters.
struct Planned {
    experiment: Experiment,
    variants: Vec<Variant>,
}

impl Planned {
    fn new(experiment: Experiment, quick: bool) -> Result<Self> {
        let variants = match quick {
            true => Vec::new(),
            false => sensitivity::variants(&experiment.scenario)?,
        };
        Ok(Self { experiment, variants })
    }

    /// One run for each contender of the scenario, then of each variant.
    fn jobs(&self) -> impl Iterator<Item = Job<'_>> {
        let varied = self.variants.iter().map(|variant| &variant.scenario);
        let scenarios = std::iter::once(&self.experiment.scenario).chain(varied);
        scenarios.flat_map(|scenario| {
            let watches = scenario.contenders.iter().cloned();
            watches.map(move |watch| Job { experiment: scenario, watch, asked: Asked::bar(BAR) })
        })
    }

    /// Takes this experiment's outcomes from `all`, in the order of its jobs.
    fn finish(self, all: &mut impl Iterator<Item = Outcome>) -> Ran {
        let mut next = |scenario: &Scenario| -> Vec<Outcome> {
            all.by_ref().take(scenario.contenders.len()).collect()
        };
        let outcomes = next(&self.experiment.scenario);
        let varied = self.variants.into_iter().map(|variant| {
            let mut changed = next(&variant.scenario);
            for plain in &outcomes {
                if changed.iter().all(|outcome| outcome.contender != plain.contender) {
                    changed.push(plain.clone());
                }
            }
            Varied { label: variant.label, outcomes: changed }
        });
        Ran { varied: varied.collect(), outcomes, experiment: self.experiment }
    }
}

/// Runs experiments and writes, or checks, the page.
///
/// # Errors
/// An unknown experiment; a file that cannot be read or written; [`ErrorKind::Data`] if a page to
/// check is not current.
pub fn run(args: &ReproduceArgs) -> Result<()> {
    if let Some(name) = args.experiments.iter().find(|name| nemo::knows(name)) {
        return match args.experiments.iter().find(|other| !nemo::knows(other)) {
            None => run_nemo(args),
            Some(other) => {
                Err(Error::new(ErrorKind::Usage, format!("cannot run {other} beside {name}"))
                    .cause("NEMO's experiments have a page of their own")
                    .remedy("run them by themselves"))
            }
        };
    }
    if args.experiments.first().is_some_and(|name| name == ptat::GROUP) {
        return ptat::reproduce(args, &args.experiments[1..]);
    }
    let (reclaiming, others): (Vec<String>, Vec<String>) =
        args.experiments.iter().cloned().partition(|name| reclaim::knows(name));
    if !reclaiming.is_empty() {
        if let Some(name) = others.first() {
            let what = format!("cannot run {name} beside {}", reclaiming[0]);
            return Err(Error::new(ErrorKind::Usage, what)
                .cause("one is not known, or is not about giving memory back")
                .remedy("run those on reclaim by themselves"));
        }
        return run_reclaim(args, &reclaiming);
    }
    let (placing, watching): (Vec<String>, Vec<String>) =
        args.experiments.iter().cloned().partition(|name| placement::knows(name));
    if !placing.is_empty() {
        if let Some(name) = watching.first() {
            return Err(Error::new(
                ErrorKind::Usage,
                format!("cannot run {name} beside {}", placing[0]),
            )
            .cause("one is not known, or is about telemetry and the other about placement")
            .remedy("run those on telemetry, and those on placement, by themselves"));
        }
        return run_placement(args, &placing);
    }
    let experiments = experiment::choose(&args.experiments)?.into_iter();
    let planned =
        experiments.map(|e| Planned::new(e, args.quick)).collect::<Result<Vec<Planned>>>()?;
    let stop = stop_flag()?;
    let jobs: Vec<Job<'_>> = planned.iter().flat_map(Planned::jobs).collect();
    let outcomes = race(&jobs, &stop)?;
    if stop.load(Ordering::Relaxed) {
        return Err(stopped());
    }
    let mut outcomes = outcomes.into_iter().flatten();
    let ran: Vec<Ran> = planned.into_iter().map(|plan| plan.finish(&mut outcomes)).collect();
    if let Some(path) = &args.check {
        return ran.iter().try_for_each(|ran| {
            let name = &ran.experiment.scenario.name;
            check(path, name, &page::section(ran), "reproduce")?;
            check(path, name, &page::sensitivity(ran), "reproduce")
        });
    }
    let page = page::page(&ran)?;
    match &args.output {
        // The page's parts on placement and reclaim are kept.
        Some(path) => {
            let old = std::fs::read_to_string(path).unwrap_or_default();
            let (old, given_back) = reclaim::split(&old);
            save(path, &format!("{page}{}{given_back}", placement::part(old)))
        }
        None => print(&page),
    }
}

/// Runs NEMO's experiments, writing the section of each as soon as it is done.
fn run_nemo(args: &ReproduceArgs) -> Result<()> {
    let planned = nemo::choose(&args.experiments)?;
    let whole = args.experiments.iter().any(|name| name == nemo::GROUP);
    let stop = stop_flag()?;
    for plan in planned {
        let Some(section) = plan.run(&stop)? else { return Err(stopped()) };
        match (&args.check, &args.output) {
            (Some(path), _) => nemo::check(path, &section)?,
            (None, Some(path)) => {
                let old = std::fs::read_to_string(path).unwrap_or_default();
                save(path, &nemo::merged(&old, &section)?)?;
            }
            (None, None) => print(&section.text)?,
        }
    }
    if whole && args.check.is_none() && args.output.is_none() {
        print(&nemo::rest()?)?;
    }
    Ok(())
}

/// Runs experiments on placement, writing the section of each as soon as it is done.
fn run_placement(args: &ReproduceArgs, names: &[String]) -> Result<()> {
    let planned = placement::choose(names)?;
    let stop = stop_flag()?;
    for plan in planned {
        let Some(section) = plan.run(&stop)? else { return Err(stopped()) };
        match (&args.check, &args.output) {
            (Some(path), _) => placement::check(path, &section)?,
            (None, Some(path)) => {
                let old = std::fs::read_to_string(path).unwrap_or_default();
                let (old, given_back) = reclaim::split(&old);
                save(path, &format!("{}{given_back}", placement::merged(old, &section)))?;
            }
            (None, None) => print(&section.text)?,
        }
    }
    Ok(())
}

/// Runs experiments on reclaim, and writes their part of the page.
fn run_reclaim(args: &ReproduceArgs, names: &[String]) -> Result<()> {
    let planned = reclaim::choose(names)?;
    let stop = stop_flag()?;
    let ran = reclaim::run(planned, &stop)?;
    if stop.load(Ordering::Relaxed) {
        return Err(stopped());
    }
    match (&args.check, &args.output) {
        (Some(path), _) => reclaim::check(path, &ran),
        (None, Some(path)) => {
            let old = std::fs::read_to_string(path).unwrap_or_default();
            save(path, &reclaim::merged(&old, &ran))
        }
        (None, None) => ran.iter().try_for_each(|ran| print(&reclaim::section(ran))),
    }
}

fn stopped() -> Error {
    Error::new(ErrorKind::Other, "stopped")
        .cause("claims are judged by whole runs only")
        .remedy("name the experiments to run, to run fewer")
}

/// Checks that a page contains the section on `name` exactly as it would be written now; `command`
/// would rewrite it.
///
/// # Errors
/// [`ErrorKind::Data`] if it does not; or the page cannot be read.
fn check(path: &Path, name: &str, section: &str, command: &str) -> Result<()> {
    let page = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| {
        Error::new(ErrorKind::Io, format!("cannot read {page}"))
            .cause(error)
            .remedy("name a page that `tierscope reproduce -o` wrote")
    })?;
    if text.contains(section) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Data, format!("{page} is not current"))
        .cause(format!("its section on {name} differs"))
        .remedy(format!("run `tierscope {command} -o {page}`")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_current_if_it_holds_the_section() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("page.md");
        std::fs::write(&path, "# head\n\n## a\none\n").expect("it can be written");
        let told = |section: &str| check(&path, "a", section, "reproduce a");
        assert!(told("## a\none\n").is_ok());
        let error = told("## a\ntwo\n").expect_err("it says something else");
        assert_eq!(error.kind(), ErrorKind::Data);
        assert!(error.to_string().contains("`tierscope reproduce a -o "), "{error}");
        std::fs::remove_file(&path).expect("it is there");
        assert_eq!(told("").expect_err("it is gone").kind(), ErrorKind::Io);
    }
}
