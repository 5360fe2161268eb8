//! Flags of `tierscope serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{ArgGroup, Args};

use crate::how::HowArgs;
use crate::keep::KeepArgs;

/// Flags of `tierscope serve`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("source").required(true).args(["recording", "pid", "cgroup"])))]
pub struct ServeArgs {
    /// Serve this recording, or the newest of this series; it may still be written
    #[arg(value_name = "DIR")]
    pub recording: Option<PathBuf>,

    /// Record the process PID as a series, and serve that
    #[arg(short, long, value_name = "PID")]
    pub pid: Option<u32>,

    /// With -p: watch its descendants as well, those to come included
    #[arg(long, requires = "pid")]
    pub children: bool,

    /// Record all processes of a cgroup (version 2) and of those below it, and serve that
    #[arg(long, value_name = "PATH")]
    pub cgroup: Option<PathBuf>,

    /// With -p or --cgroup: directory of the series; without it, it is in a temporary directory of
    /// which no more than 1G is kept, and that goes in the end
    #[arg(short, long, value_name = "DIR", conflicts_with = "recording")]
    pub output: Option<PathBuf>,

    /// Where to listen. Whoever can connect sees what is mapped where, and how hot it is
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9464")]
    pub listen: SocketAddr,

    /// With -p or --cgroup: how much is kept.
    #[command(flatten)]
    pub keep: KeepArgs,

    /// With -p or --cgroup: the instrument and its settings.
    #[command(flatten)]
    pub how: HowArgs,
}
