//! `tierscope bench accuracy`: instruments side by side on simulated machines.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tierscope_core::{Error, ErrorKind, Result};
use tierscope_evaluate::accuracy::{self, JudgeSettings, Scenario};
use tierscope_evaluate::catalogue::{self, Kind};
use tierscope_evaluate::experiments::change;
use tierscope_evaluate::{Contender, Watch, save};
use tierscope_sim::experiment::Change;

use super::accuracy_table::write;
use crate::print::print_report;
use crate::simulations::{runner, warn_if_stopped};
use crate::units;

fn scenarios() -> String {
    let names: Vec<&str> = catalogue::of(Kind::Accuracy).map(|entry| entry.name).collect();
    format!("Ready-made scenarios ({}) or TOML files", names.join(", "))
}

fn contenders() -> String {
    let names: Vec<&str> = Contender::ALL.iter().map(|contender| contender.name).collect();
    format!("Run only this one; can be given more than once ({})", names.join(", "))
}

fn contender(text: &str) -> Result<Contender, String> {
    Contender::named(text).map_err(|error| error.to_string())
}

/// Time between two flushes of all TLBs; `None` for no flushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flush(pub Option<Duration>);

fn flush(text: &str) -> Result<Flush, String> {
    if text == "never" {
        return Ok(Flush(None));
    }
    let period = units::time(text).map_err(|error| format!("{error}, or never"))?;
    match period < Duration::from_micros(1) {
        true => Err("a flush is due every 1us at most, or never".into()),
        false => Ok(Flush(Some(period))),
    }
}

/// Flags of `tierscope bench accuracy`.
#[derive(Debug, Args)]
pub struct AccuracyArgs {
    /// Ready-made scenarios or TOML files
    #[arg(value_name = "SCENARIO", required = true, help = scenarios())]
    pub scenarios: Vec<String>,

    /// Run only this contender
    #[arg(long = "only", value_name = "NAME", value_parser = contender, help = contenders())]
    pub only: Vec<Contender>,

    /// Simulate for this time instead of the scenario's
    #[arg(long, value_name = "TIME", value_parser = units::time)]
    pub time: Option<Duration>,

    /// Seed of all draws instead of the scenario's
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,

    /// Number of consecutive seeds to run with; figures are the worst of them
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub seeds: u16,

    /// Interval of TLB flushes instead of the scenario's: a period, or never
    #[arg(long, value_name = "PERIOD", value_parser = flush)]
    pub flush: Option<Flush>,

    /// Change a parameter of the scenarios, as process.0.workload=needle:space=1TiB or
    /// simulation.mode=exact; can be given more than once
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = change)]
    pub changes: Vec<Change>,

    /// Share of one CPU that an instrument with a budget may take
    #[arg(long, value_name = "SHARE", value_parser = units::share)]
    pub cpu: Option<f64>,

    /// Simulated times whose figures are shown, in addition to the end
    #[arg(long, value_name = "TIME,…", value_delimiter = ',', default_value = "4s,8s,10s", value_parser = units::time)]
    pub at: Vec<Duration>,

    /// Precision and recall from which a hot set counts as detected
    #[arg(long, value_name = "SHARE", default_value = "0.9", value_parser = units::share)]
    pub bar: f64,

    /// Print JSON, including every window
    #[arg(long)]
    pub json: bool,

    /// Draw F1 over time into this file, for one scenario
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,

    /// Write a page with tables and charts of all scenarios into this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Runs `tierscope bench accuracy`.
///
/// # Errors
/// A scenario cannot be read or is invalid, reported before any run; or a file cannot be written.
pub(super) fn run(args: &AccuracyArgs) -> Result<()> {
    let scenarios = wanted(args)?;
    if args.svg.is_some() && scenarios.len() != 1 {
        return Err(Error::new(ErrorKind::Usage, "cannot draw --svg")
            .cause("there is more than one scenario")
            .remedy("name one scenario, or take --html"));
    }
    let runner = runner()?;
    let asked = JudgeSettings { bar: args.bar, at: args.at.clone() };
    let reports = accuracy::run(&scenarios, args.seeds, &asked, &runner)?;
    warn_if_stopped(&runner);
    if let Some(path) = &args.svg {
        save(path, &accuracy::draw(&reports[0]))?;
    }
    if let Some(path) = &args.html {
        save(path, &accuracy::page(&reports))?;
    }
    print_report(&reports, args.json, |reports, out| {
        reports.iter().try_for_each(|report| write(report, out))
    })
}

fn wanted(args: &AccuracyArgs) -> Result<Vec<Scenario>> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_has_a_period_or_never_comes() {
        assert_eq!(flush("never"), Ok(Flush(None)));
        assert_eq!(flush("5ms"), Ok(Flush(Some(Duration::from_millis(5)))));
        assert!(flush("often").is_err_and(|error| error.contains("or never")));
        assert!(flush("0s").is_err() && flush("10ns").is_err());
    }
}
