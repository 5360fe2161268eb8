//! What must not hold up sampling: forcing an ended recording to the medium, removing old ones.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::SystemTime;

use tierscope_core::{Error, ErrorKind, Result};

use super::directory::{members, remove};
use super::retention::Retention;
use crate::recorder::Recorder;
use crate::store::DirStore;

/// Ended recordings that may wait while a disk is slow. Those beyond are left as they are: whole
/// up to their last window, but without their end marker.
const WAITING: usize = 4;

/// A recording that ended, and when that was.
type Ended = (Recorder<DirStore>, SystemTime);

/// The thread, and what it is told.
pub(super) struct Janitor {
    dir: PathBuf,
    retention: Retention,
    ended: SyncSender<Ended>,
    thread: JoinHandle<()>,
}

impl Janitor {
    /// Starts the thread; it removes what is too old already.
    pub(super) fn start(dir: PathBuf, retention: Retention, now: SystemTime) -> Result<Self> {
        let (ended, told) = sync_channel(WAITING);
        let for_thread = dir.clone();
        let work = move || work(&for_thread, &retention, now, &told);
        let thread = thread::Builder::new().name("janitor".into()).spawn(work).map_err(|e| {
            Error::new(ErrorKind::Other, "cannot start a thread")
                .cause(e)
                .remedy("raise the limit of processes with `ulimit -u`")
        })?;
        Ok(Self { dir, retention, ended, thread })
    }

    /// Takes over a recording that ended; never waits.
    pub(super) fn take(&self, recorder: Recorder<DirStore>, now: SystemTime) {
        // What cannot be taken is dropped, and its files are closed.
        let _ = self.ended.try_send((recorder, now));
    }

    /// Waits until everything is done, also for what could not be taken.
    pub(super) fn finish(self, now: SystemTime) {
        drop(self.ended);
        let _ = self.thread.join();
        prune(&self.dir, &self.retention, now);
    }
}

fn work(dir: &Path, retention: &Retention, now: SystemTime, told: &Receiver<Ended>) {
    prune(dir, retention, now);
    for (recorder, now) in told {
        // A medium that fails will fail the recorder as well, which can tell.
        let _ = recorder.finish();
        prune(dir, retention, now);
    }
}

/// What cannot be removed now will be tried again with the next recording.
fn prune(dir: &Path, retention: &Retention, now: SystemTime) {
    let Ok(members) = members(dir) else { return };
    for member in &members[..retention.doomed(&members, now)] {
        let _ = remove(&member.path);
    }
}
