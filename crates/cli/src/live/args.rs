//! Flags of `tierscope live`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args};
use tierscope_report::live::SPEEDS;

use crate::color::When;
use crate::instrument_args::InstrumentArgs;
use crate::target_args::{TARGETS, TargetArgs};
use crate::units;

/// Flags of `tierscope live`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("what").required(true).multiple(true).args(TARGETS).args(["replay", "program"])))]
pub struct LiveArgs {
    /// The processes to watch.
    #[command(flatten)]
    pub target: TargetArgs,

    /// Start COMMAND and watch it with all its descendants; if it is still running at the end, it
    /// is ended with SIGTERM. Its standard input is empty
    #[arg(last = true, value_name = "COMMAND")]
    #[arg(conflicts_with_all = TARGETS, conflicts_with = "children")]
    pub program: Vec<OsString>,

    /// Show a recording instead; a recording in progress is followed
    #[arg(long, value_name = "DIR")]
    #[arg(conflicts_with_all = TARGETS, conflicts_with_all = ["children", "program"])]
    pub replay: Option<PathBuf>,

    /// With --replay: start position, as time since the recording began
    #[arg(short, long, value_name = "TIME", value_parser = units::time)]
    #[arg(conflicts_with_all = TARGETS, conflicts_with = "program")]
    pub time: Option<Duration>,

    /// With --replay: speed relative to the recording
    #[arg(long, value_name = "N", default_value = "1", value_parser = speed)]
    #[arg(conflicts_with_all = TARGETS, conflicts_with = "program")]
    pub speed: f64,

    /// Keep the recording in this directory, which must be new or empty; by default the recording
    /// is in a temporary directory (TMPDIR) and removed at the end
    #[arg(short, long, value_name = "DIR", conflicts_with = "replay")]
    pub output: Option<PathBuf>,

    /// File for the output of COMMAND; by default it is discarded, because the screen is in use
    #[arg(long, value_name = "FILE", conflicts_with_all = TARGETS, conflicts_with = "replay")]
    pub command_output: Option<PathBuf>,

    /// The instrument and its settings.
    #[command(flatten)]
    pub how: InstrumentArgs,

    /// Use colours; without them characters show the density
    #[arg(
        long,
        value_enum,
        value_name = "WHEN",
        num_args = 0..=1,
        require_equals = true,
        default_value = "auto",
        default_missing_value = "always"
    )]
    pub color: When,
}

/// Parses the speed of a replay: `1`, `0.5`, `20`.
fn speed(text: &str) -> Result<f64, String> {
    let speed = text.parse::<f64>().ok().filter(|speed| SPEEDS.contains(speed));
    speed.ok_or_else(|| {
        format!("not a speed: give a number from {} to {}", SPEEDS.start, SPEEDS.end)
    })
}

#[cfg(test)]
mod tests {
    use crate::args::{Command, parse};

    fn live(flags: &str) -> Result<super::LiveArgs, clap::Error> {
        let line = format!("tierscope live {flags}");
        match parse(line.split_whitespace().map(Into::into))?.command {
            Command::Live(args) => Ok(args),
            _ => unreachable!("it says live"),
        }
    }

    #[test]
    fn a_target_or_a_recording_is_shown() {
        for right in [
            "-p 1",
            "--cgroup x --name y",
            "--all",
            "-- sleep 1",
            "--replay d -t 3m --speed 0.5",
            "-p 1 -o d",
        ] {
            assert!(live(right).is_ok(), "{right}");
        }
        for wrong in [
            "",
            "-p 1 --replay d",
            "--all --replay d",
            "--replay d -- sleep 1",
            "--name x -- sleep 1",
            "--name x --command-output f",
            "-p 1 -t 3m",
            "--replay d -o e",
            "--replay d --speed 0",
            "--replay d --speed nan",
            "-p 1 --speed 2",
            "-p 1 --command-output f",
        ] {
            assert!(live(wrong).is_err(), "{wrong}");
        }
        assert_eq!(live("--replay d --speed 20").unwrap().speed, 20.0);
    }
}
