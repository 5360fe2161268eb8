//! Progress of a recording: counts its windows as they pass, and shows a status line on a terminal.

use std::io::Write;
use std::time::Duration;

use tierscope_core::drive::{Sink, Window};
use tierscope_core::metrics::{HOT_FREQUENCY, hot};
use tierscope_core::{CpuTime, Region, Result, Snapshot, Time};

use crate::units::{about_size, exact_time};

/// Interval of updates of the status line.
const PAUSE: Duration = Duration::from_millis(200);

/// Running totals of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of committed windows.
    pub windows: u64,
    /// Start of the first window, and end of the last one.
    pub span: Option<(Time, Time)>,
    /// Number of regions in the last window.
    pub regions: usize,
    /// Hot bytes in the last window (METRICS.md).
    pub hot: u64,
    /// Bytes of the last window whose evidence was too weak to classify them.
    pub unknown: u64,
    /// CPU time at the end of the last window.
    pub cpu: CpuTime,
}

impl Tally {
    /// Time that the windows cover.
    #[must_use]
    pub fn covered(&self) -> Duration {
        self.span.map_or(Duration::ZERO, |(start, end)| end - start)
    }

    /// CPU time of the profiler, including its start-up, relative to the time covered; 1 = one CPU.
    #[must_use]
    pub fn profiler_share(&self) -> f64 {
        let covered = self.covered().as_secs_f64();
        if covered > 0.0 { self.cpu.profiler.as_secs_f64() / covered } else { 0.0 }
    }
}

/// Counts committed windows, and shows a status line on `terminal`.
pub struct Progress<'t> {
    terminal: Option<&'t mut dyn Write>,
    duration: Option<Duration>,
    tally: Tally,
    shown: Option<Time>,
}

impl<'t> Progress<'t> {
    /// Nothing is counted yet. Without a terminal no status line is shown.
    pub fn new(terminal: Option<&'t mut dyn Write>, duration: Option<Duration>) -> Self {
        Self { terminal, duration, tally: Tally::default(), shown: None }
    }

    /// Clears the status line, and returns the totals.
    pub fn finish(mut self) -> Tally {
        if self.shown.is_some() {
            self.write("\r\x1b[K");
        }
        self.tally
    }

    fn show(&mut self, now: Time) {
        let due = self.shown.is_none_or(|shown| now - shown >= PAUSE);
        if self.terminal.is_some() && due {
            self.shown = Some(now);
            let line = line(&self.tally, self.duration);
            self.write(&format!("\r{line}\x1b[K"));
        }
    }

    /// Errors of the terminal are ignored: they are no reason to stop recording.
    fn write(&mut self, text: &str) {
        if let Some(terminal) = &mut self.terminal {
            let _ = terminal.write_all(text.as_bytes()).and_then(|()| terminal.flush());
        }
    }
}

fn unknown(snapshot: &Snapshot) -> u64 {
    let unknown = snapshot.regions.iter().filter(|r| r.is_unknown() && !r.is_unseen());
    unknown.map(Region::bytes).fold(0, u64::saturating_add)
}

/// The status line; it fits into 80 columns.
fn line(tally: &Tally, duration: Option<Duration>) -> String {
    let elapsed = tally.covered().as_secs_f64();
    let of = duration.map_or(String::new(), |d| format!(" of {}", exact_time(d)));
    let unknown = match tally.unknown {
        0 => String::new(),
        bytes => format!(", {} unknown", about_size(bytes)),
    };
    format!(
        "recording {elapsed:.1} s{of}: {} windows, {} regions, {} hot{unknown}",
        tally.windows,
        tally.regions,
        about_size(tally.hot)
    )
}

impl Sink for Progress<'_> {
    fn window(&mut self, window: &Window<'_>) -> Result<()> {
        let snapshot = window.snapshot;
        let start = self.tally.span.map_or(snapshot.start, |(start, _)| start);
        self.tally = Tally {
            windows: self.tally.windows + 1,
            span: Some((start, snapshot.end)),
            regions: snapshot.regions.len(),
            hot: hot(snapshot, HOT_FREQUENCY).bytes(),
            unknown: unknown(snapshot),
            cpu: window.cpu,
        };
        self.show(snapshot.end);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::{Range, SpaceId};

    fn pass(progress: &mut Progress<'_>, start: u64, end: u64) {
        let millis = |ms: u64| Time(ms * 1_000_000);
        let snapshot = Snapshot { start: millis(start), end: millis(end), ..Default::default() };
        let cpu = CpuTime { profiler: Duration::from_millis(end / 10), ..CpuTime::default() };
        progress.window(&Window { cpu, ..Window::of(&snapshot) }).unwrap();
    }

    // Windows end at 100, 200, ..., 500 ms: lines are written at 100, 300 and 500.
    #[test]
    fn shows_a_line_now_and_then_and_takes_it_away() {
        let mut out = Vec::new();
        let duration = Some(Duration::from_secs(1));
        let mut progress = Progress::new(Some(&mut out), duration);
        for end in 1..=5 {
            pass(&mut progress, end * 100 - 100, end * 100);
        }
        let tally = progress.finish();
        assert_eq!((tally.windows, tally.covered()), (5, Duration::from_millis(500)));
        assert!((tally.profiler_share() - 0.1).abs() < 1e-9);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.matches("\rrecording").count(), 3, "{text:?}");
        assert!(text.contains("0.3 s of 1s: 3 windows, 0 regions, 0 B hot"), "{text:?}");
        assert!(text.ends_with("\r\x1b[K"));
    }

    // Two pages unknown, three not watched.
    #[test]
    fn unknown_memory_is_reported() {
        let region = |from: u64, to: u64, samples| Region {
            unknown: Some(tierscope_core::Unknown::Evidence),
            ..Region::sampled(Range::new(SpaceId(0), from * 4096, to * 4096), 0.0, samples)
        };
        let regions = vec![region(0, 2, 40), region(2, 5, 0)];
        let snapshot = Snapshot { regions, end: Time(200_000_000), ..Snapshot::default() };
        let mut out = Vec::new();
        let mut progress = Progress::new(Some(&mut out), None);
        progress.window(&Window::of(&snapshot)).unwrap();
        assert_eq!(progress.finish().unknown, 2 * 4096);
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("2 regions, 0 B hot, 8 KiB unknown"), "{text:?}");
    }

    #[test]
    fn without_a_terminal_it_counts_only() {
        let mut progress = Progress::new(None, None);
        pass(&mut progress, 0, 200);
        assert_eq!(progress.finish().windows, 1);
    }
}
