//! Follows recordings, window by window, and renders the last window.

use std::time::Duration;

use tierscope_core::{CpuTime, Result};
use tierscope_record::{Commit, Recording};

use super::families;
use super::figures::figures;
use super::text::Text;
use crate::windows::is_late;

/// Cumulative counters over all recordings that were followed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Counters {
    pub(super) windows: u64,
    /// Windows that took much longer than configured ([`is_late`]).
    pub(super) late: u64,
    /// Windows that would have fitted into the gaps between consecutive windows.
    pub(super) lost: u64,
    /// CPU time since the machine was opened, from the recordings.
    pub(super) cpu: CpuTime,
}

impl Counters {
    /// Counts one window; `window` is the configured length.
    fn take(&mut self, before: Option<&Commit>, row: &Commit, window: Duration) {
        self.windows += 1;
        self.late += u64::from(is_late(row, window));
        if let Some(before) = before {
            let gap = (row.start - before.end).as_nanos();
            self.lost += gap.checked_div(window.as_nanos()).unwrap_or(0) as u64;
        }
        self.cpu = row.cpu;
    }
}

/// Follows a recording, or a sequence of recordings.
#[derive(Clone, Debug, Default)]
pub struct Collector {
    counters: Counters,
    /// Number of windows already counted of the current recording.
    taken: usize,
}

impl Collector {
    /// Starts the next recording; the counters are kept.
    pub fn begin(&mut self) {
        self.taken = 0;
    }

    /// Counts the windows of `recording` committed since the last call.
    pub fn advance(&mut self, recording: &Recording) {
        let (commits, window) = (recording.commits(), recording.meta().window);
        for index in self.taken..commits.len() {
            let before = index.checked_sub(1).map(|before| &commits[before]);
            self.counters.take(before, &commits[index], window);
        }
        self.taken = commits.len();
    }

    /// The last window of `recording` and the counters as OpenMetrics text. Before the first window
    /// there are counters and facts only.
    ///
    /// # Errors
    /// If the window cannot be read.
    pub fn render(&self, recording: &Recording) -> Result<String> {
        let mut text = Text::default();
        families::about(&mut text, recording);
        families::counters(&mut text, &self.counters);
        if let Some(last) = recording.commits().len().checked_sub(1) {
            let (snapshot, layout) = (recording.snapshot(last)?, recording.layout(last)?);
            let window = recording.meta().window.as_secs_f64();
            let figures = figures(&snapshot, &layout, window);
            families::spaces(&mut text, &families::labelled(&figures, &layout));
            let metrics = recording.metrics(last)?;
            families::residence(&mut text, &metrics, &layout, recording.meta());
            families::not_resident(&mut text, &metrics, &layout);
            families::series(&mut text, &metrics, &layout);
        }
        Ok(text.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::drive::{Sink, Window};
    use tierscope_core::{Snapshot, Time};
    use tierscope_record::{Memory, Meta, Recorder};

    /// A recording of windows with these start and end times in milliseconds, configured for 200
    /// ms.
    fn recording(windows: &[(u64, u64)]) -> Recording {
        let mut memory = Memory::default();
        let meta = Meta { window: Duration::from_millis(200), ..Meta::default() };
        let mut recorder = Recorder::create_in(&mut memory, &meta).unwrap();
        for (start, end) in windows {
            let at = |millis: u64| Time(millis * 1_000_000);
            let snapshot =
                Snapshot { start: at(*start), end: at(*end), samples: 40, regions: Vec::new() };
            let cpu = CpuTime { profiler: Duration::from_millis(*end / 10), ..CpuTime::default() };
            recorder.window(&Window { cpu, ..Window::of(&snapshot) }).unwrap();
        }
        recorder.finish().unwrap();
        Recording::from_source(Box::new(memory)).unwrap()
    }

    // The third window is late (301 of 200 ms), and after it a gap of 450 ms: two windows are lost.
    #[test]
    fn late_and_lost_windows_are_counted() {
        let recording = recording(&[(0, 200), (200, 500), (500, 801), (1251, 1451)]);
        let mut collector = Collector::default();
        collector.advance(&recording);
        collector.advance(&recording);
        let Counters { windows, late, lost, cpu } = collector.counters;
        assert_eq!((windows, late, lost), (4, 1, 2));
        assert_eq!(cpu.profiler, Duration::from_millis(145));
    }

    #[test]
    fn counting_goes_on_with_the_next_recording() {
        let mut collector = Collector::default();
        for _ in 0..2 {
            collector.begin();
            collector.advance(&recording(&[(0, 200), (200, 400)]));
        }
        assert_eq!(collector.counters.windows, 4);
    }

    #[test]
    fn a_recording_without_a_window_has_counters() {
        let text = Collector::default().render(&recording(&[])).unwrap();
        assert!(text.contains("\ntierscope_windows_total 0\n"), "{text}");
        assert!(text.ends_with("# EOF\n"));
    }
}
