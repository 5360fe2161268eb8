//! Flags of `tierscope reclaim`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, ValueEnum};
use tierscope_linux::reclaim;

use crate::instrument_args::InstrumentArgs;
use crate::target_args::{TARGETS, TargetArgs};
use crate::units;

/// Where reclaimed memory is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Into {
    /// To compressed memory; zswap must be enabled
    Zswap,
    /// To any enabled swap
    Swap,
}

impl From<Into> for reclaim::Into {
    fn from(into: Into) -> Self {
        match into {
            Into::Zswap => reclaim::Into::Zswap,
            Into::Swap => reclaim::Into::Swap,
        }
    }
}

/// Flags of `tierscope reclaim`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("target").required(true).multiple(true).args(TARGETS)))]
pub struct ReclaimArgs {
    /// The processes whose memory is reclaimed.
    #[command(flatten)]
    pub target: TargetArgs,

    /// Policy that decides, and its settings: NAME or NAME:key=value,…; kernel for memory.reclaim
    /// of the cgroup
    #[arg(long, value_name = "POLICY", default_value = "mglru-telescope")]
    pub policy: String,

    /// Share of the memory to reclaim, and to keep reclaimed; by default all cold memory
    #[arg(long = "target", value_name = "SHARE", value_parser = percent)]
    pub share: Option<f64>,

    /// Pause while tasks wait for memory for more than this share of the time (PSI)
    #[arg(long, value_name = "SHARE", value_parser = percent)]
    pub until_psi: Option<f64>,

    /// Limit on bytes reclaimed per second
    #[arg(long, value_name = "BYTES", value_parser = units::rate)]
    pub rate: Option<u64>,

    /// Pause when refaults exceed this share of the memory reclaimed within ten seconds
    #[arg(long, value_name = "SHARE", value_parser = percent, default_value = "5%")]
    pub refaults: f64,

    /// Where reclaimed memory is written
    #[arg(long, value_enum, default_value = "zswap")]
    pub into: Into,

    /// Pause while this file exists
    #[arg(long, value_name = "FILE")]
    pub hold: Option<PathBuf>,

    /// Decide, observe and account, but reclaim nothing
    #[arg(long)]
    pub dry_run: bool,

    /// Let an instrument's regions guide mglru-telescope: cold regions first
    #[arg(long)]
    pub guided: bool,

    /// Instrument that finds cold memory, for a policy that works on regions.
    #[command(flatten)]
    pub how: InstrumentArgs,

    /// Duration; by default until the target ends, or until Ctrl-C
    #[arg(long, value_name = "TIME", value_parser = units::time)]
    pub duration: Option<Duration>,

    /// Record regions, actions and outcomes into this directory; must be new or empty
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,

    /// Print the account as JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// Parses a share: `30%` or `0.3`.
fn percent(text: &str) -> Result<f64, String> {
    let share = match text.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>().ok().map(|percent| percent / 100.0),
        None => text.parse().ok(),
    };
    let share = share.filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "not a share: give it like 30% or 0.3, 100% at most".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_rates_are_read_as_people_write_them() {
        assert_eq!((percent("30%"), percent("0.3")), (Ok(0.3), Ok(0.3)));
        for text in ["130%", "-1%", "much", "NaN", ""] {
            assert!(percent(text).is_err(), "{text}");
        }
        assert_eq!(units::rate("100MB/s"), Ok(100_000_000), "what the error proposes");
        assert!(units::rate("fast").unwrap_err().contains("100MB/s"));
    }
}
