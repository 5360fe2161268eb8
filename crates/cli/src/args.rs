//! Command-line definition: all commands and their flags, with help texts.

use std::ffi::OsString;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use crate::bench::BenchCommand;
use crate::doctor::DoctorArgs;
use crate::export::ExportArgs;
use crate::how::HowArgs;
use crate::import::ImportArgs;
use crate::keep::KeepArgs;
use crate::list::ListCommand;
use crate::live::args::LiveArgs;
use crate::nemo::NemoCommand;
use crate::qos::QosArgs;
use crate::reclaim::args::ReclaimArgs;
use crate::reproduce::ReproduceArgs;
use crate::serve::ServeArgs;
use crate::sim::SimCommand;
use crate::tier::args::TierArgs;
use crate::tlb::TlbCommand;
use crate::trace::TraceCommand;
use crate::whatif::WhatifArgs;
use crate::{exit, units};

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
    /// Watch a process, a cgroup or a command, and record which of its memory is hot
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

/// Flags of `tierscope record`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("target").required(true).args(["pid", "cgroup", "program"])))]
pub struct RecordArgs {
    /// Watch the process PID
    #[arg(short, long, value_name = "PID")]
    pub pid: Option<u32>,

    /// With -p: watch its descendants as well, including future ones
    #[arg(long, requires = "pid", conflicts_with_all = ["cgroup", "program"])]
    pub children: bool,

    /// Watch all processes of a cgroup (version 2) and of its descendants
    #[arg(long, value_name = "PATH")]
    pub cgroup: Option<PathBuf>,

    /// Start COMMAND and watch it with all its descendants; if it is still running at the end, it
    /// is ended with SIGTERM
    #[arg(last = true, value_name = "COMMAND")]
    pub program: Vec<OsString>,

    /// Directory to write the recording to; must be new or empty, or hold a series to continue
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,

    /// The instrument and its settings.
    #[command(flatten)]
    pub how: HowArgs,

    /// Duration of the recording; by default until the target ends, or until Ctrl-C
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub duration: Option<Duration>,

    /// Retention of a series.
    #[command(flatten)]
    pub keep: KeepArgs,

    /// An annotation to store in the recording; can be given more than once
    #[arg(long, value_name = "KEY=VALUE", value_parser = annotation)]
    pub annotate: Vec<(String, String)>,

    /// Print a summary of the recording as JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// Reports on a recording.
#[derive(Debug, Subcommand)]
pub enum ReportCommand {
    /// The target, how much of its memory is hot, and the cost of watching
    Summary(ReportArgs),
    /// Heat over addresses and time
    Heatmap(ReportArgs),
    /// Regions of the last window, with the names of their mappings
    Regions(ReportArgs),
    /// Bytes accessed, and bytes hot, in a window: percentiles over all windows
    Wss(ReportArgs),
    /// Bytes by age: for how long memory has been hot or cold
    Ages(ReportArgs),
}

impl ReportCommand {
    /// Flags of the chosen report.
    #[must_use]
    pub fn args(&self) -> &ReportArgs {
        match self {
            Self::Summary(args)
            | Self::Heatmap(args)
            | Self::Regions(args)
            | Self::Wss(args)
            | Self::Ages(args) => args,
        }
    }
}

/// Flags of `tierscope report`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("format").args(["json", "html", "svg"])))]
pub struct ReportArgs {
    /// The recording
    #[arg(value_name = "DIR")]
    pub recording: PathBuf,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// Write all reports as one self-contained page for a browser, with a heatmap to zoom and pan
    #[arg(long)]
    pub html: bool,

    /// Draw an SVG for print: heatmap, wss or ages
    #[arg(long)]
    pub svg: bool,

    /// Write into FILE instead of on stdout
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Only this interval, since the recording began, like 2s..10s
    #[arg(long, value_name = "FROM..TO", value_parser = units::time_range)]
    pub time: Option<Range<Duration>>,

    /// Only these addresses, like 0x7f0000000000..0x7f8000000000, or mappings of this name: heap,
    /// stack, anon, file, a path or its last part
    #[arg(long, alias = "addr", value_name = "FROM..TO|NAME", value_parser = units::place)]
    pub range: Option<units::Place>,

    /// Only the address space with this number
    #[arg(long, value_name = "N")]
    pub space: Option<u32>,

    /// Use colours; --color alone is --color=always
    #[arg(
        long,
        value_enum,
        value_name = "WHEN",
        num_args = 0..=1,
        require_equals = true,
        default_value = "auto",
        default_missing_value = "always"
    )]
    pub color: When,

    /// Width in columns; by default the terminal's
    #[arg(long, value_name = "COLUMNS", value_parser = clap::value_parser!(u16).range(40..=1000))]
    pub width: Option<u16>,
}

/// Flags of `tierscope compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// The recording
    #[arg(value_name = "DIR")]
    pub recording: PathBuf,

    /// The directory with the ground truth
    #[arg(value_name = "TRUTH")]
    pub truth: PathBuf,

    /// Precision and recall from which a hot set counts as detected
    #[arg(long, value_name = "SHARE", default_value = "0.9", value_parser = units::share)]
    pub bar: f64,

    /// Skip the page-granular truth, which takes another pass over all accesses
    #[arg(long)]
    pub no_pages: bool,

    /// Print JSON, including every window
    #[arg(long)]
    pub json: bool,

    /// Draw precision, recall and false-hot share over time into this file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum When {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

fn annotation(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.into(), value.into())),
        _ => Err("give it like KEY=VALUE".into()),
    }
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
    fn one_target_and_no_more() {
        assert!(words("tierscope record -p 1 -o d").is_ok());
        assert!(words("tierscope record -o d -- sleep 1").is_ok());
        assert!(words("tierscope record -o d").is_err());
        assert!(words("tierscope record -p 1 --cgroup x -o d").is_err());
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
