//! `tierscope live`: a screen that shows a target while it is watched, or a recording.
//!
//! Both work the same way: the screen shows a recording, and watching a target makes one.

pub mod args;
mod events;
mod replay;
mod show;
mod terminal;
mod watch;

use tierscope_core::Result;

use args::LiveArgs;

/// Shows the target or recording in `args` until the user quits.
///
/// # Errors
/// [`Usage`](tierscope_core::ErrorKind::Usage) without a suitable terminal; otherwise as
/// [`crate::record::run`] for a target, or [`crate::report::run`] for a recording.
pub fn run(args: LiveArgs, line: String) -> Result<()> {
    match args.replay.clone() {
        Some(dir) => replay::run(&dir, &args),
        None => watch::run(args, line),
    }
}
