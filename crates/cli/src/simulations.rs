//! Simulations run for a command: a progress line on a terminal, and a stop on Ctrl-C or SIGTERM.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use tierscope_core::Result;
use tierscope_evaluate::{Done, Progress, Runner};
use tierscope_workloads::work::{TRACE, listed, names};

use crate::print::note;
use crate::stop::stop_flag;

/// Delay before the progress line is shown.
const PATIENCE: Duration = Duration::from_secs(2);

/// Progress line on stderr, on a terminal.
struct Line;

impl Line {
    fn is_shown(elapsed: Duration) -> bool {
        elapsed > PATIENCE && std::io::stderr().is_terminal()
    }
}

impl Progress for Line {
    fn at(&self, done: &Done) {
        if Self::is_shown(done.elapsed) {
            let (percent, seconds) = (100.0 * done.share, done.elapsed.as_secs());
            let line = format!("simulated {percent:.0} % of {} runs in {seconds} s", done.runs);
            // Errors of the terminal are no reason to stop.
            let _ = write!(std::io::stderr(), "\r{line}\x1b[K");
        }
    }

    fn over(&self, elapsed: Duration) {
        if Self::is_shown(elapsed) {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

/// A runner that shows progress, and stops when the user requests it.
///
/// # Errors
/// The signal handlers cannot be installed.
pub(crate) fn runner() -> Result<Runner<'static>> {
    Ok(Runner::new(stop_flag()?, &Line))
}

/// Reports on stderr that the result is that of a stopped run.
pub(crate) fn warn_if_stopped(runner: &Runner<'_>) {
    if runner.is_stopped() {
        note!("stopped; completed measurements are kept");
    }
}

/// Long help of a command that takes experiments: `first`, then the list of workloads.
pub(crate) fn about(first: &str) -> String {
    format!(
        "{first}\n\nA process's workload is a TOML file, a masim configuration, {TRACE}FILE with what \
         `tierscope trace convert` wrote, or NAME:key=value,… with one of {}",
        listed(names())
    )
}
