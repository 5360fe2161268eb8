//! Flags of `tierscope tier`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::instrument_args::InstrumentArgs;
use crate::target_args::TargetArgs;
use crate::units;

/// Flags of `tierscope tier`.
#[derive(Debug, Args)]
pub struct TierArgs {
    /// The processes whose memory is placed.
    #[command(flatten)]
    pub target: TargetArgs,

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
