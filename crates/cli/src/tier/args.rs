//! Flags of `tierscope tier`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args};

use crate::how::HowArgs;
use crate::units;

/// Flags of `tierscope tier`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("target").args(["pid", "cgroup"])))]
pub struct TierArgs {
    /// Move memory of the process PID
    #[arg(short, long, value_name = "PID")]
    pub pid: Option<u32>,

    /// With -p: and of its descendants, including future ones
    #[arg(long, requires = "pid", conflicts_with = "cgroup")]
    pub children: bool,

    /// Move memory of all processes of a cgroup (version 2) and of its descendants
    #[arg(long, value_name = "PATH")]
    pub cgroup: Option<PathBuf>,

    /// Policy that decides, and its settings: NAME or NAME:key=value,…; by default the
    /// configuration's
    #[arg(long, value_name = "POLICY")]
    pub policy: Option<String>,

    /// Policy, tiers and limits; SIGHUP reloads the limits
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Only check whether configuration and machine are suitable
    #[arg(long)]
    pub check: bool,

    /// Decide, observe and account, but move nothing
    #[arg(long)]
    pub dry_run: bool,

    /// Instrument that finds hot memory, for a policy that works on regions.
    #[command(flatten)]
    pub how: HowArgs,

    /// Duration; by default until the target ends, or until Ctrl-C
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub duration: Option<Duration>,

    /// Record regions, actions and outcomes into this directory; must be new or empty
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,

    /// Print the account as JSON on stdout
    #[arg(long)]
    pub json: bool,
}
