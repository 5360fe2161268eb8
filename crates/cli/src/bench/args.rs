//! Flags of `tierscope bench`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use tierscope_sim::experiment::Change;

use super::contender::{ALL, Contender};
use super::scenario::READY_MADE;
use crate::sim::change;
use crate::units;
use crate::work::about;

/// Subcommands of `tierscope bench`.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// All instruments side by side on a simulated machine: precision, recall, detection, cost
    #[command(long_about = about("All instruments side by side on a simulated machine: precision, \
                                  recall, detection, cost"))]
    Accuracy(AccuracyArgs),
    /// Cost of a walk over page tables as mapped memory grows while the accessed part stays
    /// constant: reclaim policies, on simulated machines
    ScanCost(ScanCostArgs),
}

fn scenarios() -> String {
    let names: Vec<&str> = READY_MADE.iter().map(|(name, _)| *name).collect();
    format!("Ready-made scenarios ({}) or TOML files", names.join(", "))
}

fn contenders() -> String {
    let names: Vec<&str> = ALL.iter().map(|contender| contender.name).collect();
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
    let period = units::duration(text).map_err(|error| format!("{error}, or never"))?;
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
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
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
    #[arg(long, value_name = "TIME,…", value_delimiter = ',', default_value = "4s,8s,10s", value_parser = units::duration)]
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

/// Flags of `tierscope bench scan-cost`.
#[derive(Debug, Args)]
pub struct ScanCostArgs {
    /// Sizes of mapped memory, ascending
    #[arg(value_name = "SIZE,…", value_delimiter = ',', default_value = "1G,4G,16G,64G,256G,1T", value_parser = units::bytes)]
    pub sizes: Vec<u64>,

    /// A reclaim policy, as NAME:key=value,…; can be given more than once
    #[arg(long = "policy", value_name = "P", default_values = ["mglru-linear", "mglru", "mglru-telescope"])]
    pub policies: Vec<String>,

    /// Accessed bytes, the same for each size
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = units::bytes)]
    pub hot: u64,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// Draw milliseconds per walk against mapped bytes into this file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
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
