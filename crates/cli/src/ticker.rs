//! Tells on a terminal how far a long conversion came, once it has taken a while.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// What takes less is done before anybody wonders.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time between two lines.
const PAUSE: Duration = Duration::from_millis(200);

/// A line on stderr that is written over and over; nothing where stderr is no terminal.
pub(crate) struct Ticker {
    what: &'static str,
    due: Instant,
    shown: bool,
    terminal: bool,
    line: fn(u64, u64) -> String,
}

impl Ticker {
    /// Begins now. `line` makes text of what is done and what is to do.
    pub(crate) fn new(what: &'static str, line: fn(u64, u64) -> String) -> Self {
        let terminal = io::stderr().is_terminal();
        Self { what, due: Instant::now() + PATIENCE, shown: false, terminal, line }
    }

    /// Shows how far it came, if it is time to.
    pub(crate) fn tick(&mut self, done: u64, all: u64) {
        if !self.terminal || Instant::now() < self.due {
            return;
        }
        self.due = Instant::now() + PAUSE;
        self.shown = true;
        let line = (self.line)(done, all);
        // A terminal that went away is no reason to stop.
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

/// Windows of windows.
pub(crate) fn windows(done: u64, all: u64) -> String {
    format!("{done} of {all} windows")
}

/// Bytes of bytes.
pub(crate) fn bytes(done: u64, all: u64) -> String {
    use crate::units::show_bytes;
    format!("{} of {}", show_bytes(done), show_bytes(all))
}
