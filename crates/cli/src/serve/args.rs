//! Flags of `tierscope serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{ArgGroup, Args};

use crate::instrument_args::InstrumentArgs;
use crate::retention_args::RetentionArgs;
use crate::target_args::TargetArgs;

/// Flags of `tierscope serve`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("source").required(true).args(["recording", "pid", "cgroup"])))]
pub struct ServeArgs {
    /// Serve this recording, or the newest one of this series; it may be in progress
    #[arg(value_name = "DIR")]
    pub recording: Option<PathBuf>,

    /// The processes to record as a series, and to serve.
    #[command(flatten)]
    pub target: TargetArgs,

    /// With -p or --cgroup: directory of the series; by default a temporary directory that keeps at
    /// most 1G and is removed at the end
    #[arg(short, long, value_name = "DIR", conflicts_with = "recording")]
    pub output: Option<PathBuf>,

    /// Address to listen on. Every client that can connect sees the target's mappings and their
    /// heat
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9464")]
    pub listen: SocketAddr,

    /// With -p or --cgroup: retention of the series.
    #[command(flatten)]
    pub keep: RetentionArgs,

    /// With -p or --cgroup: the instrument and its settings.
    #[command(flatten)]
    pub how: InstrumentArgs,
}
