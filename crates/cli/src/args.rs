//! The flag table: every flag of every command, with its help.

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
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Watch a process, a cgroup or a command, and record which of its memory is hot
    Record(RecordArgs),
    /// Show what a recording says
    #[command(subcommand, arg_required_else_help = false)]
    Report(ReportCommand),
    /// Watch on one screen which memory is hot, or replay a recording the same way
    Live(LiveArgs),
    /// Let a policy move the memory of processes between fast and slow nodes
    Tier(Box<TierArgs>),
    /// Let a policy give cold memory of processes back, to swap or zswap
    Reclaim(Box<ReclaimArgs>),
    /// Hold a recording against the truth that a toucher wrote
    Compare(CompareArgs),
    /// Tell what this machine has of what can be used, why the rest is missing, and the remedy
    Doctor(DoctorArgs),
    /// Write a recording as Parquet, CSV or JSON of damo
    Export(ExportArgs),
    /// Make a recording of what damo or perf recorded
    Import(ImportArgs),
    /// Look at access traces of programs, and convert them
    #[command(subcommand, arg_required_else_help = false)]
    Trace(TraceCommand),
    /// Tell who misses the TLB, and what other pages or TLBs would change
    #[command(subcommand, arg_required_else_help = false)]
    Tlb(TlbCommand),
    /// Serve a page and OpenMetrics of what is being recorded, or of a recording
    Serve(ServeArgs),
    /// Tell which policies or instruments there are, what each tracks, and at what cost
    #[command(subcommand, arg_required_else_help = false)]
    List(ListCommand),
    /// Simulate a machine, and record it
    #[command(subcommand, arg_required_else_help = false)]
    Sim(SimCommand),
    /// Simulate, and measure
    #[command(subcommand, arg_required_else_help = false)]
    Bench(BenchCommand),
    /// Tell what telemetry in the memory controller takes
    #[command(subcommand, arg_required_else_help = false)]
    Nemo(NemoCommand),
    /// Hold cgroups to a memory bandwidth, by the CPU time that they get
    Qos(QosArgs),
    /// Tell what policies would do with a recording or a trace, and fast tiers of other sizes
    Whatif(WhatifArgs),
    /// Run the papers' experiments and write their claims beside our results
    Reproduce(ReproduceArgs),
}

/// Flags of `tierscope record`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("target").required(true).args(["pid", "cgroup", "program"])))]
pub struct RecordArgs {
    /// Watch the process PID
    #[arg(short, long, value_name = "PID")]
    pub pid: Option<u32>,

    /// With -p: watch its descendants as well, those to come included
    #[arg(long, requires = "pid", conflicts_with_all = ["cgroup", "program"])]
    pub children: bool,

    /// Watch all processes of a cgroup (version 2) and of those below it
    #[arg(long, value_name = "PATH")]
    pub cgroup: Option<PathBuf>,

    /// Start COMMAND and watch it with all its descendants; if it still runs at the end, it is
    /// ended with SIGTERM
    #[arg(last = true, value_name = "COMMAND")]
    pub program: Vec<OsString>,

    /// Directory to write the recording to; must be new or empty, or hold a series to go on with
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,

    /// The instrument and its settings.
    #[command(flatten)]
    pub how: HowArgs,

    /// How long to record; without it until the target ends, or until Ctrl-C
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub duration: Option<Duration>,

    /// How much is kept.
    #[command(flatten)]
    pub keep: KeepArgs,

    /// A fact to keep with the recording; can be given more than once
    #[arg(long, value_name = "KEY=VALUE", value_parser = annotation)]
    pub annotate: Vec<(String, String)>,

    /// Print what was recorded as JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// The reports.
#[derive(Debug, Subcommand)]
pub enum ReportCommand {
    /// What was watched, how much of it is hot, and what watching cost
    Summary(ReportArgs),
    /// Heat by address and time
    Heatmap(ReportArgs),
    /// The regions of the last window, with the names of their mappings
    Regions(ReportArgs),
    /// How many bytes are accessed and hot in a window: percentiles over windows
    Wss(ReportArgs),
    /// For how long memory has been hot or cold: bytes by age
    Ages(ReportArgs),
}

impl ReportCommand {
    /// Its flags.
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

    /// Write all reports as one page for a browser, with a heatmap to zoom and pan; nothing else
    /// is needed to look at it
    #[arg(long)]
    pub html: bool,

    /// Draw it for print: of heatmap, wss and ages
    #[arg(long)]
    pub svg: bool,

    /// Write into FILE instead of on stdout
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Only this time since the recording began, like 2s..10s
    #[arg(long, value_name = "FROM..TO", value_parser = units::time_range)]
    pub time: Option<Range<Duration>>,

    /// Only these addresses, like 0x7f0000000000..0x7f8000000000, or what is mapped under this
    /// name: heap, stack, anon, file, a path or its last part
    #[arg(long, alias = "addr", value_name = "FROM..TO|NAME", value_parser = units::place)]
    pub range: Option<units::Place>,

    /// Only this space, by its number
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

    /// Columns to fill; the terminal's by default
    #[arg(long, value_name = "COLUMNS", value_parser = clap::value_parser!(u16).range(40..=1000))]
    pub width: Option<u16>,
}

/// Flags of `tierscope compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// The recording
    #[arg(value_name = "DIR")]
    pub recording: PathBuf,

    /// The truth
    #[arg(value_name = "TRUTH")]
    pub truth: PathBuf,

    /// Precision and recall that count as detected
    #[arg(long, value_name = "SHARE", default_value = "0.9", value_parser = units::share)]
    pub bar: f64,

    /// Leave out the page truth, which takes as long as all accesses once more
    #[arg(long)]
    pub no_pages: bool,

    /// Print JSON, with every window
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

/// The command line, with the exit codes in every help.
#[must_use]
pub fn command() -> clap::Command {
    let with_codes = |command: clap::Command| command.after_help(exit::help());
    with_codes(Cli::command())
        .mut_subcommands(|sub| with_codes(sub).mut_subcommands(|sub| sub.after_help(exit::help())))
}

/// Reads a command line.
///
/// # Errors
/// As clap; help and version are "errors" too.
pub fn parse<I: IntoIterator<Item = OsString>>(line: I) -> Result<Cli, clap::Error> {
    Cli::from_arg_matches(&command().try_get_matches_from(line)?)
}

/// What clap says of a wrong command line, as one line in our form.
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
