//! Follows a recording in progress, and keeps its metrics exposition ready for scrapes.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tierscope_core::Result;
use tierscope_record::Recording;
use tierscope_record::series::{is_series, members, newest};
use tierscope_report::html;
use tierscope_report::metrics::Collector;

/// The state that requests are answered from.
#[derive(Clone, Debug)]
pub(super) struct Ready {
    /// The newest recording that has a window; if none has one, the newest.
    pub(super) recording: PathBuf,
    /// Name of the preceding recording of the series, if it still exists.
    pub(super) before: Option<String>,
    /// The exposition of its last window.
    pub(super) metrics: Arc<[u8]>,
    /// Entity tag; changes with every window.
    pub(super) tag: String,
}

/// Result of the last poll: nothing recorded yet, a state, or an error.
pub(super) type Found = Result<Option<Ready>>;

/// The result of the last poll and its time, shared with the server's threads.
#[derive(Debug)]
pub(super) struct Board(Mutex<(Found, Instant)>);

impl Board {
    pub(super) fn new() -> Self {
        Self(Mutex::new((Ok(None), Instant::now())))
    }

    fn lock(&self) -> MutexGuard<'_, (Found, Instant)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn read(&self) -> Found {
        self.lock().0.clone()
    }

    /// When the last poll ended.
    pub(super) fn polled(&self) -> Instant {
        self.lock().1
    }

    fn write(&self, found: Found) {
        self.lock().0 = found;
    }
}

/// Follower of a recording, or of the newest recording of a series.
pub(super) struct Follower {
    place: PathBuf,
    now: Option<(PathBuf, Recording)>,
    /// The recording that the page shows, and its predecessor in the series.
    shown: Option<(PathBuf, Option<PathBuf>)>,
    collector: Collector,
}

impl Follower {
    pub(super) fn new(place: PathBuf) -> Self {
        Self { place, now: None, shown: None, collector: Collector::default() }
    }

    /// Polls the recording and updates the board. The calling thread only reads the last window; it
    /// neither blocks the recorder nor waits for it.
    pub(super) fn look(&mut self, board: &Board) {
        match self.found() {
            // Nothing new: the board keeps its state, unless that is an error.
            Ok(None) if board.read().is_ok() => {}
            Ok(None) => board.write(self.ready()),
            found => board.write(found),
        }
        board.lock().1 = Instant::now();
    }

    /// The new state, if there are new windows.
    fn found(&mut self) -> Found {
        let begun = self.move_on()?;
        let Some((_, recording)) = &mut self.now else { return Ok(None) };
        if recording.refresh()? == 0 && !begun {
            return Ok(None);
        }
        self.collector.advance(recording);
        self.ready()
    }

    fn ready(&mut self) -> Found {
        let Some((path, recording)) = &self.now else { return Ok(None) };
        // A recording without a window has nothing to show: the page keeps the previous recording
        // until the first window.
        let shown = match self.shown.take() {
            Some(shown) if shown.0 == *path || recording.commits().is_empty() => shown,
            _ => (path.clone(), predecessor(&self.place, path)?),
        };
        let name = |path: &PathBuf| Some(path.file_name()?.to_str()?.to_owned());
        let before = shown.1.as_ref().and_then(name);
        let newest = self.shown.insert(shown).0.clone();
        let metrics = self.collector.render(recording)?.into_bytes().into();
        Ok(Some(Ready { recording: newest, before, metrics, tag: html::tag(recording) }))
    }

    /// Opens the recordings after the current one, counting each to its end. Returns whether there
    /// were any.
    fn move_on(&mut self) -> Result<bool> {
        let mut begun = false;
        for path in &self.following()? {
            let recording = match Recording::open(path) {
                Ok(recording) => recording,
                // It is being created: the next poll will open it.
                Err(_) if self.now.is_some() => break,
                Err(error) => return Err(error),
            };
            if let Some((_, before)) = &mut self.now {
                before.refresh()?;
                self.collector.advance(before);
            }
            self.collector.begin();
            self.collector.advance(&recording);
            self.now = Some((path.clone(), recording));
            begun = true;
        }
        Ok(begun)
    }

    /// Recordings to be opened, in order.
    fn following(&self) -> Result<Vec<PathBuf>> {
        let at = self.now.as_ref().map(|(path, _)| path.as_path());
        if !is_series(&self.place) {
            // A series is created lock first: until then the directory may be empty.
            let there = at.is_none() && self.place.join("windows.arrows").exists();
            return Ok(if there { vec![self.place.clone()] } else { Vec::new() });
        }
        let mut paths: Vec<PathBuf> = members(&self.place)?
            .into_iter()
            .map(|member| member.path)
            .filter(|path| path.join("windows.arrows").exists())
            .collect();
        match at {
            Some(at) => paths.retain(|path| path.as_path() > at),
            None => {
                let newest = newest(&self.place)?;
                paths.retain(|path| Some(path) == newest.as_ref());
            }
        }
        Ok(paths)
    }
}

/// The recording of the series that precedes the one at `path`.
fn predecessor(place: &Path, path: &Path) -> Result<Option<PathBuf>> {
    let earlier = by_name(place)?.into_iter().map(|(_, member)| member.path);
    Ok(earlier.take_while(|earlier| earlier != path).last())
}

/// Names and recordings of a series; empty for a single recording.
pub(super) fn by_name(place: &Path) -> Result<Vec<(String, tierscope_record::series::Member)>> {
    if !is_series(place) {
        return Ok(Vec::new());
    }
    let named = |member: tierscope_record::series::Member| {
        let name = member.path.file_name()?.to_str()?.to_owned();
        Some((name, member))
    };
    Ok(members(place)?.into_iter().filter_map(named).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};
    use tierscope_core::drive::{Sink, Window};
    use tierscope_core::{Snapshot, Time};
    use tierscope_record::series::{Retention, SeriesRecorder};
    use tierscope_record::{Meta, Recorder};

    fn pass(sink: &mut dyn Sink, index: u64) {
        let at = |second: u64| Time(second * 1_000_000_000);
        let snapshot = Snapshot { start: at(index), end: at(index + 1), ..Snapshot::default() };
        sink.window(&Window::of(&snapshot)).unwrap();
    }

    /// Number of windows in the exposition on the board.
    fn counted(board: &Board) -> Option<u64> {
        let ready = board.read().unwrap()?;
        let text = std::str::from_utf8(&ready.metrics).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("tierscope_windows_total "));
        line.unwrap().parse().ok()
    }

    #[test]
    fn there_is_nothing_until_something_begins() {
        let dir = tempfile::tempdir().unwrap();
        let (board, mut follower) = (Board::new(), Follower::new(dir.path().join("later")));
        follower.look(&board);
        assert_eq!(counted(&board), None);
        let mut recorder = Recorder::create(dir.path().join("later"), &Meta::default()).unwrap();
        follower.look(&board);
        assert_eq!(counted(&board), Some(0));
        pass(&mut recorder, 0);
        follower.look(&board);
        assert_eq!(counted(&board), Some(1));
        let tag = |board: &Board| board.read().unwrap().unwrap().tag;
        let before = tag(&board);
        follower.look(&board);
        assert_eq!(tag(&board), before, "nothing new");
    }

    // A retention of 48 s makes recordings of 2 s. Three recordings begin between two polls.
    #[test]
    fn no_window_of_a_series_is_missed() {
        let dir = tempfile::tempdir().unwrap();
        let keep = Retention { age: Some(Duration::from_secs(48)), bytes: None };
        let wall = || UNIX_EPOCH;
        let mut series = SeriesRecorder::create(dir.path(), &Meta::default(), keep, wall).unwrap();
        let (board, mut follower) = (Board::new(), Follower::new(dir.path().into()));
        (0..1).for_each(|index| pass(&mut series, index));
        follower.look(&board);
        assert_eq!(counted(&board), Some(1));
        (1..9).for_each(|index| pass(&mut series, index));
        follower.look(&board);
        assert_eq!(counted(&board), Some(9));
        let newest = board.read().unwrap().unwrap().recording;
        assert_eq!(Some(newest), tierscope_record::series::newest(dir.path()).unwrap());
        assert_eq!(by_name(dir.path()).unwrap().len(), 5);
    }

    // Two recorders, one after the other: the second begins a new recording.
    #[test]
    fn a_page_stays_until_the_next_recording_has_a_window() {
        let dir = tempfile::tempdir().unwrap();
        let keep = Retention { age: Some(Duration::from_secs(48)), bytes: None };
        let wall = || UNIX_EPOCH;
        let mut series = SeriesRecorder::create(dir.path(), &Meta::default(), keep, wall).unwrap();
        let (board, mut follower) = (Board::new(), Follower::new(dir.path().into()));
        pass(&mut series, 0);
        follower.look(&board);
        let shown = || board.read().unwrap().unwrap();
        let first = shown();
        assert_eq!(first.before, None);
        drop(series);
        let mut next = SeriesRecorder::create(dir.path(), &Meta::default(), keep, wall).unwrap();
        follower.look(&board);
        assert_eq!(shown().recording, first.recording, "the next one has nothing to show yet");
        pass(&mut next, 1);
        follower.look(&board);
        let name = first.recording.file_name().unwrap().to_str().unwrap().to_owned();
        assert_ne!(shown().recording, first.recording);
        assert_eq!(shown().before, Some(name));
    }

    // What a power cut leaves of a recording that had just begun.
    #[test]
    fn the_newest_recording_with_a_window_is_served() {
        let dir = tempfile::tempdir().unwrap();
        let keep = Retention { age: Some(Duration::from_secs(48)), bytes: None };
        let wall = || UNIX_EPOCH;
        let mut series = SeriesRecorder::create(dir.path(), &Meta::default(), keep, wall).unwrap();
        pass(&mut series, 0);
        series.finish().unwrap();
        let torn = dir.path().join("20261120T191500.000Z");
        std::fs::create_dir(&torn).unwrap();
        std::fs::write(torn.join("windows.arrows"), [0; 4096]).unwrap();
        let (board, mut follower) = (Board::new(), Follower::new(dir.path().into()));
        follower.look(&board);
        assert_eq!(counted(&board), Some(1));
        follower.look(&board);
        assert_eq!(counted(&board), Some(1), "it is passed over again");
    }

    #[test]
    fn a_directory_without_a_recording_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("windows.arrows"), "no").unwrap();
        let (board, mut follower) = (Board::new(), Follower::new(dir.path().into()));
        follower.look(&board);
        assert_eq!(board.read().unwrap_err().kind(), tierscope_core::ErrorKind::Data);
    }
}
