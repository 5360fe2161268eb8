//! Flags of `tierscope serve`.

use std::path::PathBuf;

use clap::{ArgGroup, Args};
use tierscope_http::Address;

use crate::instrument_args::InstrumentArgs;
use crate::retention_args::RetentionArgs;
use crate::target_args::{TARGETS, TargetArgs};

/// Flags of `tierscope serve`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("source").required(true).multiple(true).args(TARGETS).arg("recording")))]
pub struct ServeArgs {
    /// Serve this recording, or the newest one of this series; it may be in progress
    #[arg(value_name = "DIR", conflicts_with_all = TARGETS, conflicts_with = "children")]
    pub recording: Option<PathBuf>,

    /// The processes to record as a series, and to serve.
    #[command(flatten)]
    pub target: TargetArgs,

    /// With a target: directory of the series; by default a temporary directory that keeps at
    /// most 1G and is removed at the end
    #[arg(short, long, value_name = "DIR", conflicts_with = "recording")]
    pub output: Option<PathBuf>,

    /// Address to listen on: ADDRESS:PORT, or unix:/PATH for a Unix socket. Every client that can
    /// connect, every user of this machine at a port, sees the target's mappings and their heat,
    /// unless there is a token
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9464")]
    pub listen: Address,

    /// Permissions of the Unix socket
    #[arg(long, value_name = "MODE", default_value = "660", value_parser = mode)]
    pub socket_mode: u32,

    /// Answer requests for this name, too; others than IP addresses and localhost are refused, so
    /// that no web site can read from here through a browser
    #[arg(long, value_name = "NAME")]
    pub host: Vec<String>,

    /// Answer only requests with the token in FILE (`Authorization: Bearer TOKEN`)
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// With a target: retention of the series.
    #[command(flatten)]
    pub keep: RetentionArgs,

    /// With a target: the instrument and its settings.
    #[command(flatten)]
    pub how: InstrumentArgs,
}

/// Permissions in octal digits.
fn mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| "permissions are three octal digits, like 660".into())
}
