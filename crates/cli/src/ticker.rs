//! Progress line for long conversions, shown on a terminal after a delay.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Delay before the first line: shorter conversions show none.
const PATIENCE: Duration = Duration::from_secs(2);
/// Interval of updates.
const PAUSE: Duration = Duration::from_millis(200);

/// A status line on stderr that overwrites itself; silent if stderr is not a terminal.
pub(crate) struct Ticker {
    what: &'static str,
    due: Instant,
    shown: bool,
    terminal: bool,
    line: fn(u64, u64) -> String,
}

impl Ticker {
    /// Starts the delay. `line` formats the amounts done and total.
    pub(crate) fn new(what: &'static str, line: fn(u64, u64) -> String) -> Self {
        let terminal = io::stderr().is_terminal();
        Self { what, due: Instant::now() + PATIENCE, shown: false, terminal, line }
    }

    /// Updates the line if it is due.
    pub(crate) fn tick(&mut self, done: u64, all: u64) {
        if !self.terminal || Instant::now() < self.due {
            return;
        }
        self.due = Instant::now() + PAUSE;
        self.shown = true;
        let line = (self.line)(done, all);
        // Errors of the terminal are ignored: they are no reason to stop.
        let _ = write!(io::stderr(), "\r{}: {line}\x1b[K", self.what);
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// Formats progress in windows.
pub(crate) fn windows(done: u64, all: u64) -> String {
    format!("{done} of {all} windows")
}

/// Formats progress in bytes.
pub(crate) fn bytes(done: u64, all: u64) -> String {
    use crate::units::about_size;
    format!("{} of {}", about_size(done), about_size(all))
}
