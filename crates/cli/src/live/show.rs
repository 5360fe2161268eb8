//! The loop of the live screen: prepare, draw, wait for events.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tierscope_core::{Error, ErrorKind, Result, Time};
use tierscope_report::live::Live;

use super::events::Event;
use super::terminal::Screen;
use crate::record::Done;

/// Shortest time between two frames of a replay.
const FRAME: Duration = Duration::from_millis(33);
/// Shortest and longest polling interval for a recording that another process writes.
const POLL: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));
/// Timeout of a wait while nothing is due.
const IDLE: Duration = Duration::from_secs(3600);

/// Display latencies of the windows shown, for the closing message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shown {
    /// Time from the end of each window until it was on the screen.
    lags: Vec<Duration>,
}

impl Shown {
    /// The closing message: number of windows and their latencies.
    pub(crate) fn line(&self) -> String {
        let mut sorted = self.lags.clone();
        sorted.sort_unstable();
        let rank = |percent: usize| sorted.get((sorted.len() * percent).div_ceil(100).max(1) - 1);
        match (rank(50), rank(95), sorted.last()) {
            (Some(half), Some(most), Some(last)) => format!(
                "showed {} windows after {} ms (median; 95 % within {} ms, all within {} ms)",
                sorted.len(),
                half.as_millis(),
                most.as_millis(),
                last.as_millis(),
            ),
            _ => "showed no window".into(),
        }
    }
}

/// Result of the recording, if one was made, and the display latencies.
pub(crate) struct Outcome {
    pub(crate) recorded: Option<Result<Done>>,
    pub(crate) shown: Shown,
}

/// Source of new windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Windows {
    /// Windows are committed by this process, announced by events, and timed by this host's clock.
    Told,
    /// Windows are written by another process, or all complete already; they are found by polling.
    Found,
}

/// Shows `live` until the user quits or a signal requests a stop.
///
/// # Errors
/// The terminal cannot be written to.
pub(crate) fn show(
    live: &mut Live,
    screen: &mut Screen,
    events: &Receiver<Event>,
    windows: Windows,
) -> Result<Outcome> {
    let mut outcome = Outcome { recorded: None, shown: Shown::default() };
    let mut latest: Option<Time> = None;
    let mut before = Instant::now();
    let (mut whole, mut changed) = (false, true);
    loop {
        if changed || live.is_behind() {
            whole = draw(live, screen, latest.take(), &mut outcome.shown)?;
        }
        let wait = if whole { pause(live, windows) } else { Duration::ZERO };
        let first = match events.recv_timeout(wait) {
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Event::Stop),
        };
        changed = first.is_some() || !whole;
        for event in first.into_iter().chain(events.try_iter()) {
            match event {
                Event::Key(key) => live.update(key),
                Event::Window(end) => latest = Some(end),
                Event::Ended(done) => {
                    say_end(live, &done);
                    outcome.recorded = Some(*done);
                }
                Event::Stop => return Ok(outcome),
                Event::Resized => {}
            }
        }
        if latest.is_some() || windows == Windows::Found && live.grows() {
            changed |= refresh(live);
        }
        live.advance(before.elapsed());
        before = Instant::now();
        if live.quits() {
            return Ok(outcome);
        }
    }
}

/// Draws a frame; `ended` is the end of the newest window, if it is new. Returns whether the frame
/// is complete.
fn draw(
    live: &mut Live,
    screen: &mut Screen,
    ended: Option<Time>,
    shown: &mut Shown,
) -> Result<bool> {
    let size = screen.terminal.size().map_err(gone)?;
    let before = live.shown();
    let whole = live.prepare(size.width, size.height);
    let ended = ended.filter(|_| live.shown() != before);
    if let Some(ended) = ended {
        live.set_lag(Some(now().since(ended)));
    }
    screen.terminal.draw(|frame| live.draw(frame)).map_err(gone)?;
    shown.lags.extend(ended.map(|ended| now().since(ended)));
    Ok(whole)
}

/// Time until the next frame or poll is due, if no event arrives.
fn pause(live: &Live, windows: Windows) -> Duration {
    let due = live.due().map(|due| due.max(FRAME));
    let look = (windows == Windows::Found && live.grows())
        .then(|| (live.recording().meta().window / 4).clamp(POLL.0, POLL.1));
    due.into_iter().chain(look).min().unwrap_or(IDLE)
}

/// Reads new windows of the recording; returns whether the screen has to be redrawn.
fn refresh(live: &mut Live) -> bool {
    let grew = live.grows();
    match live.refresh() {
        Ok(new) => new || live.grows() != grew,
        Err(error) => {
            live.say(error.to_string());
            true
        }
    }
}

fn say_end(live: &mut Live, done: &Result<Done>) {
    refresh(live);
    live.end(match done {
        Ok(_) => "the target has ended; q quits".to_string(),
        Err(error) => format!("{error} (q quits)"),
    });
}

/// The current CLOCK_MONOTONIC time, which times the windows of this host.
fn now() -> Time {
    let now = clock_gettime(ClockId::Monotonic);
    Time(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

fn gone(error: io::Error) -> Error {
    Error::new(ErrorKind::Io, "cannot draw on the terminal")
        .cause(error)
        .remedy("check that it is still there")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_how_late_windows_were() {
        let lags = (1..=20).map(Duration::from_millis).collect();
        let line = Shown { lags }.line();
        assert_eq!(
            line,
            "showed 20 windows after 10 ms (median; 95 % within 19 ms, all within 20 ms)"
        );
        assert_eq!(Shown::default().line(), "showed no window");
    }
}
