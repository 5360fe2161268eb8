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

    /// With -p: and of its descendants, those to come included
    #[arg(long, requires = "pid", conflicts_with = "cgroup")]
    pub children: bool,

    /// Move memory of all processes of a cgroup (version 2) and of those below it
    #[arg(long, value_name = "PATH")]
    pub cgroup: Option<PathBuf>,

    /// Policy that decides, and its settings: NAME or NAME:key=value,…; without it, the configuration's
    #[arg(long, value_name = "POLICY")]
    pub policy: Option<String>,

    /// Policy, tiers and limits; SIGHUP reads the limits anew
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Only tell whether configuration and machine will do
    #[arg(long)]
    pub check: bool,

    /// Decide, look and account, and move nothing
    #[arg(long)]
    pub dry_run: bool,

    /// How to see what is hot, for a policy that works on regions.
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
