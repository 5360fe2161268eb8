//! Writes a series, window by window.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use tierscope_core::drive::{Sink, Window};
use tierscope_core::session::WindowStore;
use tierscope_core::{ErrorKind, Mappings, Result, Time};

use super::ages::Pace;
use super::directory::{Directory, remove};
use super::janitor::{Ended, Janitor, Keeper, Pass, Work};
use super::retention::Retention;
use crate::access::Access;
use crate::meta::Meta;
use crate::recorder::Recorder;

/// Source of wall time, for the names and ages of recordings.
type Wall = Box<dyn FnMut() -> SystemTime + Send>;

/// Writes a series: a [`Sink`] that periodically begins a new recording and has old ones removed.
///
/// It never blocks sampling: a thread of its own syncs and ends recordings, and removes old ones.
pub struct SeriesRecorder {
    directory: Directory,
    meta: Meta,
    retention: Retention,
    wall: Wall,
    pace: Pace,
    current: Recorder,
    path: PathBuf,
    /// From the start of the current recording's first window to the end of its last one, by the
    /// machine's clock.
    time: Option<(Time, Time)>,
    /// The mappings in force: every recording begins with them.
    layout: Option<Mappings>,
    pass: Pass,
    janitor: Janitor,
}

impl SeriesRecorder {
    /// Begins or continues the series in the directory `dir`, for its owner only.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if the directory is no series, or another process records into it;
    /// [`ErrorKind::Io`] if it cannot be written to.
    pub fn create(
        dir: impl AsRef<Path>,
        meta: &Meta,
        retention: Retention,
        wall: impl FnMut() -> SystemTime + Send + 'static,
    ) -> Result<Self> {
        Self::create_for(dir, meta, retention, wall, Access::default())
    }

    /// Begins or continues a series as [`SeriesRecorder::create`] does, with that access. Expired
    /// recordings are removed first; a failed start leaves nothing behind.
    ///
    /// # Errors
    /// As there; [`ErrorKind::Permission`] if the files cannot be given to the group.
    pub fn create_for(
        dir: impl AsRef<Path>,
        meta: &Meta,
        retention: Retention,
        wall: impl FnMut() -> SystemTime + Send + 'static,
        access: Access,
    ) -> Result<Self> {
        let directory = Directory::take(dir.as_ref(), access)?;
        match Start::of(&directory, meta, retention, Box::new(wall), Janitor::start) {
            Ok(start) => Ok(start.series(directory, meta, retention)),
            Err(error) => {
                directory.undo();
                Err(error)
            }
        }
    }

    /// Ends the last recording cleanly; without a window it is removed.
    ///
    /// # Errors
    /// As for [`Recorder::finish`].
    pub fn finish(self) -> Result<()> {
        let Self { current, path, time, pass, janitor, .. } = self;
        let finished = current.finish();
        drop(pass);
        if let Some(mut keeper) = janitor.finish() {
            let ended = |(first, end)| Ended { path: path.clone(), first, end, wall: None };
            keeper.finish(time.map(ended));
        }
        if time.is_none() {
            // What is left is removed at the next start.
            let _ = remove(&path);
        }
        finished
    }

    fn is_full(&self, end: Time) -> bool {
        let Some((began, _)) = self.time else { return false };
        end - began > self.retention.span() || self.current.bytes() >= self.retention.piece_bytes()
    }

    fn rotate(&mut self) -> Result<()> {
        let now = (self.wall)();
        let (path, next) = begin(&self.directory, &self.meta, now)?;
        let path = std::mem::replace(&mut self.path, path);
        // Closes the files of the old one: the janitor opens them again to end it.
        self.current = synced(next, Arc::clone(&self.pass));
        if let Some((first, end)) = self.time.take() {
            let wall = self.pace.kept(now, end, self.retention.span()).then_some(now);
            (self.pass)(Work::End(Ended { path, first, end, wall }));
        }
        Ok(())
    }
}

impl WindowStore for SeriesRecorder {
    fn finish(self) -> Result<()> {
        SeriesRecorder::finish(self)
    }
}

impl Sink for SeriesRecorder {
    fn window(&mut self, window: &Window<'_>) -> Result<()> {
        if let Some(changed) = window.mappings {
            self.layout = Some(changed.clone());
        }
        if self.is_full(window.snapshot.end) {
            self.rotate()?;
        }
        let layout = self.layout.as_ref().filter(|_| self.time.is_none());
        self.current.window(&Window { mappings: layout.or(window.mappings), ..*window })?;
        let began = self.time.map_or(window.snapshot.start, |time| time.0);
        self.time = Some((began, window.snapshot.end));
        Ok(())
    }
}

/// The parts of a series that has just begun.
pub(super) struct Start {
    wall: Wall,
    path: PathBuf,
    current: Recorder,
    janitor: Janitor,
}

impl Start {
    /// Removes what expired, begins the first recording of a run, and waits until it is on the
    /// medium. Only the directory is left behind by an error.
    pub(super) fn of(
        directory: &Directory,
        meta: &Meta,
        retention: Retention,
        mut wall: Wall,
        janitor: impl FnOnce(Keeper) -> Result<Janitor>,
    ) -> Result<Self> {
        directory.sweep();
        let mut keeper = Keeper::new(directory.path(), retention);
        let now = wall();
        keeper.begin(now);
        let (path, current) = begin_first(directory, meta, now, &mut keeper)?;
        let started = current.sync().and_then(|()| janitor(keeper));
        let janitor = started.inspect_err(|_| drop(remove(&path)))?;
        let current = synced(current, janitor.pass());
        Ok(Self { wall, path, current, janitor })
    }

    pub(super) fn series(
        self,
        directory: Directory,
        meta: &Meta,
        retention: Retention,
    ) -> SeriesRecorder {
        let Self { wall, path, current, janitor } = self;
        SeriesRecorder {
            directory,
            meta: meta.clone(),
            retention,
            wall,
            pace: Pace::default(),
            current,
            path,
            time: None,
            layout: None,
            pass: janitor.pass(),
            janitor,
        }
    }
}

fn synced(recorder: Recorder, pass: Pass) -> Recorder {
    recorder.synced_by(Box::new(move |order| pass(Work::Sync(order))))
}

/// Begins the first recording of a run. If the disk is full, recordings that expired by the wall
/// clock make room.
fn begin_first(
    directory: &Directory,
    meta: &Meta,
    now: SystemTime,
    keeper: &mut Keeper,
) -> Result<(PathBuf, Recorder)> {
    loop {
        match begin(directory, meta, now) {
            Err(error) if error.kind() == ErrorKind::Io && keeper.make_room(now) > 0 => {}
            begun => return begun,
        }
    }
}

fn begin(directory: &Directory, meta: &Meta, now: SystemTime) -> Result<(PathBuf, Recorder)> {
    let path = directory.next(now)?;
    let meta = Meta { started: now, ..meta.clone() };
    let recorder = Recorder::create_for(&path, &meta, directory.access())?;
    Ok((path, recorder))
}
