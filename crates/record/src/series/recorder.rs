//! Writes a series, window by window.

use std::path::Path;
use std::time::SystemTime;

use tierscope_core::drive::{Sink, Window};
use tierscope_core::session::WindowStore;
use tierscope_core::{Mappings, Result, Time};

use super::directory::Directory;
use super::janitor::Janitor;
use super::retention::Retention;
use crate::meta::Meta;
use crate::recorder::Recorder;
use crate::store::DirStore;

/// Source of wall time, for the names and ages of recordings.
type Wall = Box<dyn FnMut() -> SystemTime + Send>;

/// Writes a series: a [`Sink`] that periodically begins a new recording and has old ones removed.
///
/// It never blocks sampling: a thread of its own flushes ended recordings to the medium and removes
/// old ones.
pub struct SeriesRecorder {
    directory: Directory,
    meta: Meta,
    retention: Retention,
    wall: Wall,
    current: Recorder<DirStore>,
    /// Start of the current recording's first window, by the machine's clock.
    began: Option<Time>,
    /// The mappings in force: every recording begins with them.
    layout: Option<Mappings>,
    janitor: Janitor,
}

impl SeriesRecorder {
    /// Begins or continues the series in the directory `dir`.
    ///
    /// # Errors
    /// [`tierscope_core::ErrorKind::Usage`] if the directory is no series, or another process
    /// records into it; `Io` if it cannot be written to.
    pub fn create(
        dir: impl AsRef<Path>,
        meta: &Meta,
        retention: Retention,
        mut wall: impl FnMut() -> SystemTime + Send + 'static,
    ) -> Result<Self> {
        let directory = Directory::take(dir.as_ref())?;
        directory.sweep();
        let now = wall();
        let current = begin(&directory, meta, now)?;
        let janitor = Janitor::start(directory.path().into(), retention, now)?;
        Ok(Self {
            directory,
            meta: meta.clone(),
            retention,
            wall: Box::new(wall),
            current,
            began: None,
            layout: None,
            janitor,
        })
    }

    /// Ends the last recording cleanly.
    ///
    /// # Errors
    /// As for [`Recorder::finish`].
    pub fn finish(mut self) -> Result<()> {
        self.janitor.finish((self.wall)());
        self.current.finish()
    }

    fn is_full(&self, end: Time) -> bool {
        let old = self.began.is_some_and(|began| end - began > self.retention.span());
        self.current.committed() > 0
            && (old || self.current.bytes() >= self.retention.piece_bytes())
    }

    fn rotate(&mut self) -> Result<()> {
        let now = (self.wall)();
        let next = begin(&self.directory, &self.meta, now)?;
        self.janitor.take(std::mem::replace(&mut self.current, next), now);
        self.began = None;
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
        let first = self.current.committed() == 0;
        let layout = self.layout.as_ref().filter(|_| first);
        self.current.window(&Window { mappings: layout.or(window.mappings), ..*window })?;
        self.began.get_or_insert(window.snapshot.start);
        Ok(())
    }
}

fn begin(directory: &Directory, meta: &Meta, now: SystemTime) -> Result<Recorder<DirStore>> {
    let meta = Meta { started: now, ..meta.clone() };
    Recorder::create_in(DirStore::create(&directory.next(now)?)?, &meta)
}
