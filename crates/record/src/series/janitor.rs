//! Slow operations, kept off the sampling thread: flushing ended recordings to the medium, removing
//! old ones.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::SystemTime;

use tierscope_core::{Error, ErrorKind, Result};

use super::directory::{members, remove};
use super::retention::Retention;
use crate::recorder::Recorder;
use crate::store::DirStore;

/// Ended recordings that may be queued while a disk is slow. Further ones are not finished: they
/// are complete up to their last window, but without their end marker.
const WAITING: usize = 4;

/// An ended recording, and the time of its end.
type Ended = (Recorder<DirStore>, SystemTime);

/// The background thread, and its queue.
pub(super) struct Janitor {
    dir: PathBuf,
    retention: Retention,
    ended: SyncSender<Ended>,
    thread: JoinHandle<()>,
}

impl Janitor {
    /// Starts the thread, which first removes expired recordings.
    pub(super) fn start(dir: PathBuf, retention: Retention, now: SystemTime) -> Result<Self> {
        let (ended, queue) = sync_channel(WAITING);
        let for_thread = dir.clone();
        let work = move || work(&for_thread, &retention, now, &queue);
        let thread = thread::Builder::new().name("janitor".into()).spawn(work).map_err(|e| {
            Error::new(ErrorKind::Other, "cannot start a thread")
                .cause(e)
                .remedy("raise the limit of processes with `ulimit -u`")
        })?;
        Ok(Self { dir, retention, ended, thread })
    }

    /// Queues an ended recording; never blocks.
    pub(super) fn take(&self, recorder: Recorder<DirStore>, now: SystemTime) {
        // If the queue is full the recorder is dropped, which closes its files.
        let _ = self.ended.try_send((recorder, now));
    }

    /// Waits until the queue is empty, then removes expired recordings.
    pub(super) fn finish(self, now: SystemTime) {
        drop(self.ended);
        let _ = self.thread.join();
        prune(&self.dir, &self.retention, now);
    }
}

fn work(dir: &Path, retention: &Retention, now: SystemTime, queue: &Receiver<Ended>) {
    prune(dir, retention, now);
    for (recorder, now) in queue {
        // The error is ignored: if the medium fails, the current recorder will report it.
        let _ = recorder.finish();
        prune(dir, retention, now);
    }
}

/// Removes expired recordings. A failed removal is retried after the next recording.
fn prune(dir: &Path, retention: &Retention, now: SystemTime) {
    let Ok(members) = members(dir) else { return };
    for member in &members[..retention.doomed(&members, now)] {
        let _ = remove(&member.path);
    }
}
