//! `tierscope live`: one screen of a target while it is watched, or of a recording.
//!
//! Both are the same: the screen shows a recording, and watching a target makes one.

pub mod args;
mod events;
mod replay;
mod show;
mod terminal;
mod watch;

use tierscope_core::Result;

use args::LiveArgs;

/// Shows what `args` ask for, until the user quits.
///
/// # Errors
/// [`Usage`](tierscope_core::ErrorKind::Usage) without a terminal that can show it; else as
/// [`crate::record::run`] of a target, as [`crate::report::run`] of a recording.
pub fn run(args: LiveArgs, line: String) -> Result<()> {
    match args.replay.clone() {
        Some(dir) => replay::run(&dir, &args),
        None => watch::run(args, line),
    }
}
