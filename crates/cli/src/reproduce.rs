//! `tierscope reproduce`: reruns the papers' experiments, and compares their claims with our
//! results.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use tierscope_core::{Error, ErrorKind, Result};
use tierscope_evaluate::claims::{CHAPTERS, Checkout, Extent, To, reduced, reproduce, write_pages};
use tierscope_record::civil;

use crate::print::print;
use crate::simulations::runner;

/// Flags of `tierscope reproduce`.
#[derive(Debug, Args)]
pub struct ReproduceArgs {
    /// Experiments to run, by name; by default all on telemetry. Groups: `telescope`, which is
    /// `telemetry`, `tiering` and `reclaim`; `multi-clock`, which takes hours; `nemo`, all on
    /// counters in the memory controller; `ptat`, all on TLB misses
    #[arg(value_name = "EXPERIMENT")]
    pub experiments: Vec<String>,

    /// Store the figures in this checkout of tierscope's repository, and write its pages.
    /// Experiments whose figures are of the present code are left out
    #[arg(short, long, value_name = "DIR", conflicts_with = "check")]
    pub output: Option<PathBuf>,

    /// Run also experiments whose stored figures are current
    #[arg(long, requires = "output")]
    pub again: bool,

    /// Write the pages from the stored figures, and run nothing
    #[arg(long, requires = "output", conflicts_with_all = ["experiments", "again"])]
    pub pages: bool,

    /// Skip the sensitivity of verdicts to assumed parameters: takes a tenth of the time
    #[arg(long)]
    pub quick: bool,

    /// Run two of the five seeds, and compare with the stored figures: fail unless they agree
    #[arg(long, value_name = "DIR")]
    pub check: Option<PathBuf>,

    /// Run two of the five seeds of what takes little time, and print each claim with its stored
    /// figure in this checkout and the new one
    #[arg(long, value_name = "DIR", conflicts_with_all = ["output", "check"])]
    pub reduced: Option<PathBuf>,
}

/// Runs experiments, and prints, stores or compares their figures.
///
/// # Errors
/// An unknown experiment; a file that cannot be read or written;
/// [`tierscope_core::ErrorKind::Data`] if stored figures do not agree.
pub fn run(args: &ReproduceArgs) -> Result<()> {
    let print = &mut |text: &str| print(text);
    let checkout = args.check.as_ref().or(args.output.as_ref()).or(args.reduced.as_ref());
    let checkout = checkout.map(|root| checkout_at(root)).transpose()?;
    let extent = match (&args.check, args.quick) {
        (Some(_), _) => Extent::REDUCED,
        (None, true) => Extent::QUICK,
        (None, false) => Extent::FULL,
    };
    let mut to = match &checkout {
        Some(checkout) if args.pages => return write_pages(&checkout.root),
        Some(checkout) if args.reduced.is_some() => {
            return reduced(&CHAPTERS, &args.experiments, checkout, print, &runner()?);
        }
        Some(checkout) if args.check.is_some() => To::Check(checkout),
        Some(checkout) => To::Store { checkout, again: args.again },
        None => To::Print(print),
    };
    reproduce(&CHAPTERS, &args.experiments, extent, &mut to, &runner()?)
}

/// The checkout in a directory, and the last commit that changed its code or an experiment.
fn checkout_at(root: &Path) -> Result<Checkout> {
    let git = |words: &[&str]| {
        let mut command = Command::new("git");
        let output = command.arg("-C").arg(root).args(words).args(CODE).output();
        output.ok().filter(|output| output.status.success()).map(|output| output.stdout)
    };
    let commit = git(&["log", "-1", "--format=%h", "--abbrev=12"]);
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]);
    let Some((commit, changed)) = commit.zip(changed) else {
        return Err(Error::new(ErrorKind::Usage, format!("no figures in {}", root.display()))
            .cause("it is no checkout of tierscope's repository, or there is no git")
            .remedy("name one; `git clone` makes it"));
    };
    let dirty = if changed.is_empty() { "" } else { "-dirty" };
    let commit = format!("{}{dirty}", String::from_utf8_lossy(&commit).trim());
    let days = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / 86_400;
    let (year, month, day) = civil(days);
    let date = format!("{year}-{month:02}-{day:02}");
    Ok(Checkout { root: root.to_owned(), commit, date })
}

/// What decides figures: code and experiments, as a pathspec of git.
const CODE: [&str; 5] =
    ["--", "crates", "experiments", ":!experiments/*/figures/*", ":!experiments/**.md"];

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
