//! The command line of the toucher.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use tierscope_core::{Error, ErrorKind, Result, units};
use tierscope_workloads::description::Area;
use tierscope_workloads::masim::Mode;
use tierscope_workloads::{Work, Workload, generate, programs, work};

use crate::memory::{Backing, default_chunk};

/// Touch memory as a workload describes, and record the ground truth of hot memory over time.
///
/// WORKLOAD is a TOML file, a masim configuration, or a generator's line, as in
/// `stairs:space=1TiB,hot=10GiB,steps=4,every=4s`.
///
/// It can also be a program that computes, as `bfs:scale=20,graph=kron` or
/// `silo:keys=1000000,ycsb=a`: its truth consists of the pages touched over time, as it declares no
/// memory hot.
///
/// Ends with the workload, or on SIGTERM or SIGINT, and then prints accesses and rate as JSON. Exit
/// codes: 0 done, 1 failed, 2 wrong use or description, 3 not enough memory or no filler.
#[derive(Parser)]
#[command(version, after_help = names())]
pub(crate) struct Args {
    /// TOML file, masim configuration or NAME:key=value,…
    #[arg(value_name = "WORKLOAD")]
    pub(crate) text: String,
    /// How closely to follow masim's behaviour.
    #[arg(long, value_enum, default_value_t = MasimMode::Correct)]
    pub(crate) masim: MasimMode,
    /// Threads, each with a stream of its own; 1 by default, or the number that a program requests.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) threads: Option<u32>,
    /// Accesses a second over all threads; overrides the rates of the phases.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    pub(crate) rate: Option<u64>,
    /// Seed of the accesses.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Backing of the memory.
    #[arg(long, value_enum, default_value_t = BackingName::Anon)]
    pub(crate) backing: BackingName,
    /// Bytes of the memory file that memfd maps repeatedly; default 64MiB, more for many terabytes.
    #[arg(long, value_parser = units::size)]
    pub(crate) chunk: Option<u64>,
    /// Let the kernel use huge pages (anon only).
    #[arg(long)]
    pub(crate) huge: bool,
    /// Directory to write the truth to.
    #[arg(long, value_name = "DIR")]
    pub(crate) truth: Option<PathBuf>,
    /// Time resolution of the access counts in the truth.
    #[arg(long, value_parser = parse_grain, default_value = "50ms")]
    pub(crate) grain: Duration,
    /// Number of passes through all phases; 0 for unlimited.
    #[arg(long, default_value_t = 1)]
    pub(crate) passes: u32,
    /// End after this time; phases repeat until then.
    #[arg(long, value_parser = units::time)]
    pub(crate) time: Option<Duration>,
    /// When the first phase begins.
    #[arg(long, value_enum, default_value_t = Start::Now)]
    pub(crate) start: Start,
    /// File to write a line of JSON to, once all is populated and, with --start now, touched.
    #[arg(long, value_name = "FILE")]
    pub(crate) ready: Option<PathBuf>,
    /// File descriptor to write the same line to.
    #[arg(long, value_name = "FD", value_parser = clap::value_parser!(i32).range(0..))]
    pub(crate) ready_fd: Option<i32>,
    /// Print the required memory and end.
    #[arg(long)]
    pub(crate) check: bool,
    /// Print the workload as TOML and end.
    #[arg(long)]
    pub(crate) toml: bool,
}

/// How closely masim's behaviour is followed.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum MasimMode {
    /// As masim draws: 10^6 precomputed 31-bit values, 131072 accesses per pick.
    Faithful,
    /// Every byte of a region is reachable.
    Correct,
}

/// Backing of the memory.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BackingName {
    /// Anonymous memory: every page has a page frame of its own.
    Anon,
    /// One small memory file, mapped repeatedly.
    Memfd,
    /// The lab's filler module.
    Filler,
}

/// When the first phase begins.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Start {
    /// As soon as the memory is populated.
    Now,
    /// On SIGUSR1.
    Signal,
}

fn names() -> String {
    let [generators, programs] =
        [work::listed(generate::NAMES.into_iter()), work::listed(programs::names())];
    format!("Generators: {generators}\nPrograms: {programs}")
}

fn parse_grain(text: &str) -> std::result::Result<Duration, String> {
    let grain = units::time(text)?;
    if grain < Duration::from_millis(1) {
        return Err("a grain is at least 1ms".into());
    }
    Ok(grain)
}

impl Args {
    pub(crate) fn work(&self) -> Result<Work> {
        let mode = match self.masim {
            MasimMode::Faithful => Mode::Faithful,
            MasimMode::Correct => Mode::Correct,
        };
        work::load(&self.text, mode)
    }

    pub(crate) fn backing(&self, areas: &[Area]) -> Result<Backing> {
        let chunk = self.chunk.unwrap_or_else(|| default_chunk(areas));
        if chunk == 0 || !chunk.is_multiple_of(2 << 20) {
            return Err(Error::new(ErrorKind::Usage, "--chunk")
                .cause("it is not a multiple of 2MiB")
                .remedy("take 64MiB"));
        }
        if self.backing != BackingName::Anon
            && let Some(area) = areas.iter().find(|area| area.content.is_some())
        {
            return Err(Error::new(
                ErrorKind::Usage,
                format!("area `{}` has a content", area.name),
            )
            .cause("all its pages would share the same memory")
            .remedy("use --backing anon"));
        }
        Ok(match self.backing {
            BackingName::Anon => Backing::Anonymous { huge: self.huge },
            BackingName::Memfd => Backing::Memfd { chunk },
            BackingName::Filler => Backing::Filler,
        })
    }

    /// Before anything is mapped, refuses to overwrite a truth, and removes the ready file of an
    /// earlier run.
    pub(crate) fn check_outputs(&self, file: &str) -> Result<()> {
        if let Some(dir) = self.truth.as_deref().filter(|dir| dir.join(file).exists()) {
            return Err(Error::new(ErrorKind::Usage, format!("--truth {}", dir.display()))
                .cause("it holds a truth already, which is never overwritten")
                .remedy("choose a new directory, or remove this one first"));
        }
        match self.ready.as_deref().map(std::fs::remove_file) {
            Some(Err(e)) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::new(ErrorKind::Io, "--ready: cannot remove the file of an earlier run")
                    .cause(e))
            }
            _ => Ok(()),
        }
    }

    /// Time after which the run ends by itself.
    pub(crate) fn limit(&self, workload: &Workload) -> Duration {
        let passes = match (self.passes, self.time) {
            (_, Some(time)) => return time,
            (0, None) => return Duration::from_nanos(u64::MAX >> 2),
            (passes, None) => passes,
        };
        workload.duration().saturating_mul(passes)
    }
}
