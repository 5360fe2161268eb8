//! Progress of a placement run: counts windows as they pass, and shows a status line on a terminal.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use tierscope_core::drive::{Sink, Window};
use tierscope_core::{Result, Time};
use tierscope_linux::tiering::MoverHandle;

use crate::progress::{Progress, Tally};
use crate::units::{about_size, exact_time};

/// Interval of updates of the status line.
const PAUSE: Duration = Duration::from_millis(500);

/// Counts windows, and on a terminal shows the bytes moved so far.
pub(super) struct TierProgress {
    progress: Progress<'static>,
    mover: MoverHandle,
    duration: Option<Duration>,
    terminal: bool,
    reclaims: bool,
    began: Option<Time>,
    shown: Option<Time>,
}

impl TierProgress {
    pub(super) fn new(mover: MoverHandle, duration: Option<Duration>, reclaims: bool) -> Self {
        let terminal = io::stderr().is_terminal();
        let progress = Progress::new(None, duration);
        Self { progress, mover, duration, terminal, reclaims, began: None, shown: None }
    }

    /// Clears the status line, and returns the totals.
    pub(super) fn finish(self) -> Tally {
        if self.shown.is_some() {
            write("\r\x1b[K");
        }
        self.progress.finish()
    }

    fn show(&mut self, now: Time) {
        let began = *self.began.get_or_insert(now);
        if !self.terminal || self.shown.is_some_and(|shown| now - shown < PAUSE) {
            return;
        }
        self.shown = Some(now);
        let account = self.mover.account();
        let of = self.duration.map_or(String::new(), |d| format!(" of {}", exact_time(d)));
        let seconds = (now - began).as_secs_f64();
        let failed = about_size(account.failures());
        if self.reclaims {
            return write(&format!(
                "\rreclaiming {seconds:.1} s{of}: {} reclaimed, {} refaulted, {failed} failed\x1b[K",
                about_size(account.reclaimed),
                about_size(account.refaulted),
            ));
        }
        write(&format!(
            "\rplacing {seconds:.1} s{of}: {} up, {} down, {failed} not moved\x1b[K",
            about_size(account.promoted),
            about_size(account.demoted),
        ));
    }
}

/// Errors of the terminal are ignored: they are no reason to stop.
fn write(text: &str) {
    let mut stderr = io::stderr();
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

impl Sink for TierProgress {
    fn window(&mut self, window: &Window<'_>) -> Result<()> {
        self.progress.window(window)?;
        self.show(window.snapshot.end);
        Ok(())
    }
}
