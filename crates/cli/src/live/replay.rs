//! `tierscope live --replay DIR`: shows a recording on the live screen.

use std::path::Path;

use tierscope_core::Result;
use tierscope_record::Recording;
use tierscope_report::live::{Live, Start};

use super::args::LiveArgs;
use super::events;
use super::show::{Windows, show};
use super::terminal::{self, Screen};
use crate::newest;

/// Shows the recording in `dir`.
///
/// # Errors
/// [`Data`](tierscope_core::ErrorKind::Data) if `dir` is not a recording.
pub(crate) fn run(dir: &Path, args: &LiveArgs) -> Result<()> {
    let recording = Recording::open(newest::resolve(dir)?)?;
    let instead = format!("try `tierscope report heatmap {}`", dir.display());
    let color = terminal::check(args.color, &instead)?;
    let start = Start::Replay { from: args.time.unwrap_or_default(), speed: args.speed };
    let mut live = Live::new(recording, start, color);
    let (sender, receiver) = events::queue()?;
    let mut screen = Screen::enter()?;
    events::listen(sender);
    show(&mut live, &mut screen, &receiver, Windows::Found).map(drop)
}
