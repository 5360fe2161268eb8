//! Flags of `tierscope reclaim`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, ValueEnum};
use tierscope_linux::reclaim;

use crate::how::HowArgs;
use crate::units;

/// Where memory goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Into {
    /// Compressed in memory; zswap must be on
    Zswap,
    /// Whatever swap is on
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
#[command(group(ArgGroup::new("target").required(true).args(["pid", "cgroup"])))]
pub struct ReclaimArgs {
    /// Give memory of the process PID back
    #[arg(short, long, value_name = "PID")]
    pub pid: Option<u32>,

    /// With -p: and of its descendants, those to come included
    #[arg(long, requires = "pid", conflicts_with = "cgroup")]
    pub children: bool,

    /// Give memory of all processes of a cgroup (version 2) and of those below it back
    #[arg(long, value_name = "PATH")]
    pub cgroup: Option<PathBuf>,

    /// Policy that decides, and its settings: NAME or NAME:key=value,…; kernel for memory.reclaim of the cgroup
    #[arg(long, value_name = "POLICY", default_value = "mglru-telescope")]
    pub policy: String,

    /// Share of the memory to give back, and to keep back; all that is cold otherwise
    #[arg(long = "target", value_name = "SHARE", value_parser = percent)]
    pub share: Option<f64>,

    /// Nothing is given back while tasks wait for memory for more than this share of the time (PSI)
    #[arg(long, value_name = "SHARE", value_parser = percent)]
    pub until_psi: Option<f64>,

    /// Bytes to give back a second, at most
    #[arg(long, value_name = "BYTES", value_parser = rate)]
    pub rate: Option<u64>,

    /// Share of what went in ten seconds that may come back in them before it pauses
    #[arg(long, value_name = "SHARE", value_parser = percent, default_value = "5%")]
    pub refaults: f64,

    /// Where it goes
    #[arg(long, value_enum, default_value = "zswap")]
    pub into: Into,

    /// Nothing is given back while this file is there
    #[arg(long, value_name = "FILE")]
    pub hold: Option<PathBuf>,

    /// Decide, look and account, and give nothing back
    #[arg(long)]
    pub dry_run: bool,

    /// Let an instrument's regions guide mglru-telescope: cold regions first
    #[arg(long)]
    pub guided: bool,

    /// How to see what is cold, for a policy that works on regions.
    #[command(flatten)]
    pub how: HowArgs,

    /// How long; without it until the target ends, or until Ctrl-C
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub duration: Option<Duration>,

    /// Record regions, actions and outcomes into this directory; must be new or empty
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,

    /// Print the account as JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// `30%` or `0.3`.
fn percent(text: &str) -> Result<f64, String> {
    let share = match text.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>().ok().map(|percent| percent / 100.0),
        None => text.parse().ok(),
    };
    let share = share.filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "not a share: give it like 30% or 0.3, 100% at most".into())
}

/// `100MB/s`, `100M`.
fn rate(text: &str) -> Result<u64, String> {
    let bytes = text.strip_suffix("/s").unwrap_or(text);
    units::bytes(bytes).map_err(|_| "not a rate: give it like 100MB/s or 64MiB".into())
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
        assert_eq!((rate("64MiB/s"), rate("64MiB")), (Ok(64 << 20), Ok(64 << 20)));
        assert!(rate("fast").is_err());
    }
}
