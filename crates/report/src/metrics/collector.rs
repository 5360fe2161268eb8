//! Follows recordings, window by window, and renders the last window.

use std::collections::BTreeMap;
use std::time::Duration;

use tierscope_core::{CpuTime, Mappings, Result, Snapshot, SpaceId};
use tierscope_record::{Commit, Fact, Metric, Recording};

use super::families;
use super::figures::{Spaces, add, figures};
use super::text::Text;
use crate::own_rows::OwnRows;
use crate::windows::is_late;

/// Largest number of spaces with series of their own, of some sixty each; the sum of the others is
/// one more. Each exec has a new space.
const MOST_SPACES: usize = 100;

/// Bytes in regions of every space that the window knows.
fn bytes_by_space(
    snapshot: &Snapshot,
    layout: &Mappings,
    metrics: &[Metric],
) -> BTreeMap<SpaceId, u64> {
    let mapped = layout.spaces.iter().map(|space| space.id).chain(layout.shared);
    let known = mapped.chain(metrics.iter().filter_map(|metric| metric.space));
    let mut bytes: BTreeMap<_, _> = known.map(|space| (space, 0)).collect();
    for region in &snapshot.regions {
        add(bytes.entry(region.range.space).or_default(), region.bytes());
    }
    bytes
}

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
    /// Counts one window; `window` is the configured length, if it is known.
    fn take(&mut self, before: Option<&Commit>, row: &Commit, window: Option<Duration>) {
        self.windows += 1;
        self.cpu = row.cpu;
        let Some(window) = window else { return };
        self.late += u64::from(is_late(row, window));
        if let Some(before) = before {
            let gap = (row.start - before.end).as_nanos();
            self.lost += gap.checked_div(window.as_nanos()).unwrap_or(0) as u64;
        }
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
        let (commits, meta) = (recording.commits(), recording.meta());
        let window = meta.has(Fact::Intervals).then_some(meta.window);
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
            // Processes that began in this window have no series yet.
            let (snapshot, layout) = (recording.snapshot(last)?, recording.layout(last)?);
            let metrics = recording.metrics(last)?;
            let own = OwnRows::at(recording, last)?;
            let own = own.at_most(MOST_SPACES, &bytes_by_space(&snapshot, &layout, &metrics));
            let spaces = &Spaces { layout: &layout, own: &own };
            let window = recording.meta().window.as_secs_f64();
            let figures = figures(&snapshot, spaces, window);
            let labelled = families::labelled(&figures, spaces);
            families::spaces(&mut text, &labelled);
            if recording.meta().has(Fact::Ages) {
                families::idle_ages(&mut text, &labelled);
            }
            families::residence(&mut text, &metrics, spaces, recording.meta());
            families::not_resident(&mut text, &metrics, spaces);
            families::charges(&mut text, &metrics);
            families::series(&mut text, &metrics, spaces);
        }
        Ok(text.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::own_rows::OTHER;
    use std::collections::BTreeSet;
    use tierscope_core::drive::{Sink, Window};
    use tierscope_core::{Range, Region, Space, Time};
    use tierscope_record::{Memory, Meta, Recorder};

    /// A recording of windows with these start and end times in milliseconds, configured for 200
    /// ms.
    fn recording(windows: &[(u64, u64)]) -> Recording {
        recording_without(&[], windows)
    }

    /// As [`recording`], imported from a file that lacks these facts.
    fn recording_without(absent: &[Fact], windows: &[(u64, u64)]) -> Recording {
        let mut memory = Memory::default();
        let absent = absent.iter().copied().collect();
        let meta = Meta { window: Duration::from_millis(200), absent, ..Meta::default() };
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
    fn what_a_recording_lacks_is_not_measured() {
        let windows = [(0, 200), (200, 801), (1251, 1451)];
        for (absent, late, has_ages) in
            [(&[][..], 1, true), (&[Fact::Ages, Fact::Intervals], 0, false)]
        {
            let recording = recording_without(absent, &windows);
            let mut collector = Collector::default();
            collector.advance(&recording);
            assert_eq!((collector.counters.windows, collector.counters.late), (3, late));
            let text = collector.render(&recording).unwrap();
            assert_eq!(text.contains("tierscope_idle_age_seconds"), has_ages, "{text}");
        }
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

    /// Values of the label `space` after windows that each have a region of a page in these spaces.
    fn labels(windows: &[Vec<u32>]) -> BTreeSet<String> {
        let mut memory = Memory::default();
        let mut recorder = Recorder::create_in(&mut memory, &Meta::default()).unwrap();
        for (index, spaces) in windows.iter().enumerate() {
            let at = |index: usize| Time(index as u64 * 200_000_000);
            let ranges = spaces.iter().map(|space| Range::new(SpaceId(*space), 0, 4096));
            let regions = ranges.map(|range| Region::sampled(range, 1.0, 40)).collect();
            let snapshot = Snapshot { start: at(index), end: at(index + 1), samples: 40, regions };
            let space = |id: &u32| Space { id: SpaceId(*id), name: format!("x[{id}]").into() };
            let spaces = spaces.iter().map(space).collect();
            let layout = Mappings { spaces, taken: at(index), ..Mappings::default() };
            let mappings = Some(&layout);
            recorder.window(&Window { mappings, ..Window::of(&snapshot) }).unwrap();
        }
        recorder.finish().unwrap();
        let recording = Recording::from_source(Box::new(memory)).unwrap();
        let text = Collector::default().render(&recording).unwrap();
        let label = |line: &str| Some(line.split_once("space=\"")?.1.split_once('"')?.0.to_owned());
        text.lines().filter_map(label).collect()
    }

    // Space 1 is there from the second window to the fifth, like a process between two execs.
    #[test]
    fn series_of_ended_spaces_end() {
        let windows = [vec![0], vec![0, 1], vec![0, 1], vec![0, 1], vec![0, 1], vec![0]];
        let of = |windows: &[Vec<u32>]| labels(windows).into_iter().collect::<Vec<_>>();
        assert_eq!(of(&windows[..5]), ["0", "1"]);
        assert_eq!(of(&windows), ["0"]);
    }

    #[test]
    fn the_number_of_series_is_bounded() {
        let few: Vec<u32> = (0..100).collect();
        assert_eq!(labels(&[few.clone(), few]).len(), MOST_SPACES);
        let many: Vec<u32> = (0..1000).collect();
        let labels = labels(&[many.clone(), many]);
        assert_eq!(labels.len(), MOST_SPACES + 1);
        assert!(labels.contains(OTHER));
    }

    #[test]
    fn a_recording_without_a_window_has_counters() {
        let text = Collector::default().render(&recording(&[])).unwrap();
        assert!(text.contains("\ntierscope_windows_total 0\n"), "{text}");
        assert!(text.ends_with("# EOF\n"));
    }
}
