//! Command-line definition: all commands and their flags, with help texts.

use std::ffi::OsString;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::bench::BenchCommand;
use crate::compare::CompareArgs;
use crate::doctor::DoctorArgs;
use crate::exit;
use crate::export::ExportArgs;
use crate::import::ImportArgs;
use crate::list::ListCommand;
use crate::live::args::LiveArgs;
use crate::nemo::NemoCommand;
use crate::plan::RecordArgs;
use crate::qos::QosArgs;
use crate::reclaim::args::ReclaimArgs;
use crate::report::ReportCommand;
use crate::reproduce::ReproduceArgs;
use crate::serve::ServeArgs;
use crate::sim::SimCommand;
use crate::tier::args::TierArgs;
use crate::tlb::TlbCommand;
use crate::trace::TraceCommand;
use crate::whatif::WhatifArgs;

/// See which memory of a Linux machine is hot and which is cold.
#[derive(Debug, Parser)]
#[command(name = "tierscope", version, arg_required_else_help = false)]
pub struct Cli {
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// Commands of `tierscope`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Watch processes, cgroups or a command, and record which of their memory is hot
    Record(RecordArgs),
    /// Show a report of a recording
    #[command(subcommand, arg_required_else_help = false)]
    Report(ReportCommand),
    /// Show live on one screen which memory is hot, or replay a recording in the same view
    Live(LiveArgs),
    /// Let a policy move memory of processes between fast and slow nodes
    Tier(Box<TierArgs>),
    /// Let a policy reclaim cold memory of processes, to swap or zswap
    Reclaim(Box<ReclaimArgs>),
    /// Compare a recording with the ground truth that a toucher wrote
    Compare(CompareArgs),
    /// Check which features this machine supports, and how to enable the rest
    Doctor(DoctorArgs),
    /// Write a recording as Parquet, CSV or damo's JSON
    Export(ExportArgs),
    /// Convert recordings of damo or perf to a recording of tierscope
    Import(ImportArgs),
    /// Inspect access traces of programs, and convert them
    #[command(subcommand, arg_required_else_help = false)]
    Trace(TraceCommand),
    /// Attribute TLB misses, and estimate the effect of other page sizes or TLBs
    #[command(subcommand, arg_required_else_help = false)]
    Tlb(TlbCommand),
    /// Serve a web page and OpenMetrics of a recording, live or finished
    Serve(ServeArgs),
    /// List policies or instruments: what each tracks, and at what cost
    #[command(subcommand, arg_required_else_help = false)]
    List(ListCommand),
    /// Simulate a machine, and record it
    #[command(subcommand, arg_required_else_help = false)]
    Sim(SimCommand),
    /// Run benchmarks on simulated machines
    #[command(subcommand, arg_required_else_help = false)]
    Bench(BenchCommand),
    /// Estimate the cost of telemetry in the memory controller
    #[command(subcommand, arg_required_else_help = false)]
    Nemo(NemoCommand),
    /// Cap the memory bandwidth of cgroups by limiting their CPU time
    Qos(QosArgs),
    /// Estimate the effect of policies and fast-tier sizes, from a recording or a trace
    Whatif(WhatifArgs),
    /// Run the papers' experiments, and compare their claims with our results
    Reproduce(ReproduceArgs),
}

/// The command line; every help text ends with the exit codes.
#[must_use]
pub fn command() -> clap::Command {
    let with_codes = |command: clap::Command| command.after_help(exit::help());
    with_codes(Cli::command())
        .mut_subcommands(|sub| with_codes(sub).mut_subcommands(|sub| sub.after_help(exit::help())))
}

/// Parses a command line.
///
/// # Errors
/// As clap; requests for help or version are returned as "errors" too.
pub fn parse<I: IntoIterator<Item = OsString>>(line: I) -> Result<Cli, clap::Error> {
    Cli::from_arg_matches(&command().try_get_matches_from(line)?)
}

/// Clap's message on an invalid command line, as one line in our form.
#[must_use]
pub fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let said = text.split("\n\nUsage:").next().unwrap_or_default();
    let said = said.split("\n\nFor more information").next().unwrap_or_default();
    let words: Vec<&str> = said.trim_start_matches("error: ").split_whitespace().collect();
    format!("cannot understand the command line: {}; see `tierscope --help`", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Result<Cli, clap::Error> {
        parse(line.split(' ').map(OsString::from))
    }

    #[test]
    fn the_table_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn one_kind_of_target_at_least() {
        assert!(words("tierscope record -p 1 -o d").is_ok());
        assert!(words("tierscope record -o d -- sleep 1").is_ok());
        assert!(words("tierscope record -o d").is_err());
        assert!(words("tierscope record -p 1 --cgroup x -o d").is_ok());
        assert!(words("tierscope record -p 1 -o d -- sleep 1").is_err());
        assert!(words("tierscope record --cgroup x --children -o d").is_err());
        assert!(words("tierscope record -p -1 -o d").is_err());
    }

    #[test]
    fn errors_of_clap_are_one_line() {
        for line in ["tierscope", "tierscope record -p 1", "tierscope record --sampling 5"] {
            let text = one_line(&words(line).unwrap_err());
            assert!(!text.contains('\n') && text.contains("; see `tierscope"), "{text}");
        }
        assert!(one_line(&words("tierscope").unwrap_err()).contains("requires a subcommand"));
        let text = one_line(&words("tierscope record -p 1 -o d --sampling 5").unwrap_err());
        assert!(text.contains("like 5ms"), "{text}");
    }
}
