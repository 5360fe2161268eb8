//! `tierscope reproduce`: reruns the papers' experiments, and compares their claims with our
//! results.

use std::path::PathBuf;

use clap::Args;
use tierscope_core::Result;
use tierscope_evaluate::claims::{CHAPTERS, To, reproduce};

use crate::print::print;
use crate::simulations::runner;

/// Flags of `tierscope reproduce`.
#[derive(Debug, Args)]
pub struct ReproduceArgs {
    /// Experiments to run, by name; by default all on telemetry. Groups: `telemetry`, `tiering`
    /// and `reclaim`, all of Telescope; `placement`, all of MULTI-CLOCK, takes many minutes;
    /// `nemo`, all on counters in the memory controller; `ptat`, all on TLB misses
    #[arg(value_name = "EXPERIMENT")]
    pub experiments: Vec<String>,

    /// Write a page into this file instead of stdout, a part for each group; into a directory, a
    /// page for each group
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

/// Runs experiments and writes, or checks, the page.
///
/// # Errors
/// An unknown experiment; a file that cannot be read or written;
/// [`tierscope_core::ErrorKind::Data`] if a page to check is not current.
pub fn run(args: &ReproduceArgs) -> Result<()> {
    let print = &mut |text: &str| print(text);
    let mut to = match (&args.check, &args.output) {
        (Some(path), _) => To::Check(path),
        (None, Some(path)) => To::Page(path),
        (None, None) => To::Print(print),
    };
    reproduce(&CHAPTERS, &args.experiments, args.quick, &mut to, &runner()?)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use tierscope_evaluate::claims::deciding_commands;

    use crate::args::{Cli, Command};

    // A reason that no experiment decided is not given; the experiment is a command that runs.
    #[test]
    fn the_commands_behind_reasons_can_be_run() {
        let commands = deciding_commands();
        assert!(!commands.is_empty());
        for command in commands {
            let words: Vec<&str> = command.split_whitespace().collect();
            let read = Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{error}"));
            let Command::Reproduce(args) = read.command else { continue };
            for name in &args.experiments {
                assert!(tierscope_evaluate::catalogue::experiment(name).is_some(), "{command}");
            }
        }
    }
}
