//! Slow operations, kept off the sampling thread: syncing recordings to the medium, ending and
//! removing them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::SystemTime;

use tierscope_core::{Result, Time};

use super::ages::{Ages, is_plausible};
use super::directory::{Member, members, remove};
use super::retention::Retention;
use crate::background::background;
use crate::dir::DirStore;
use crate::store::end;
use crate::sync::Order;

/// Work for the janitor. It holds no open files: while a disk hangs any amount may wait.
pub(super) enum Work {
    /// Sync the recording being written.
    Sync(Order),
    /// End a recording whose files are closed.
    End(Ended),
}

/// A recording that has got its last window.
pub(super) struct Ended {
    /// Its directory.
    pub(super) path: PathBuf,
    /// Start of its first window.
    pub(super) first: Time,
    /// End of its last window.
    pub(super) end: Time,
    /// The wall clock's time, if it counts for ages.
    pub(super) wall: Option<SystemTime>,
}

/// Passes work to the janitor; never blocks.
pub(super) type Pass = Arc<dyn Fn(Work) + Send + Sync>;

/// Ends recordings and removes old ones.
#[derive(Debug)]
pub(super) struct Keeper {
    dir: PathBuf,
    retention: Retention,
    ages: Ages,
}

impl Keeper {
    pub(super) fn new(dir: &Path, retention: Retention) -> Self {
        Self { dir: dir.into(), retention, ages: Ages::default() }
    }

    /// Removes expired recordings before the first one of this run begins.
    pub(super) fn begin(&mut self, now: SystemTime) {
        let Ok(members) = members(&self.dir) else { return };
        self.ages = Ages::after(&members);
        self.prune(&members, is_plausible(&members, now).then_some(now));
    }

    /// Removes some recordings that expired by the wall clock, right or wrong: the disk is full.
    /// Returns their number.
    pub(super) fn make_room(&mut self, now: SystemTime) -> usize {
        members(&self.dir).map_or(0, |members| self.prune(&members, Some(now)))
    }

    /// Carries out work that may wait for the disk.
    pub(super) fn carry_out(&mut self, work: Work) {
        match work {
            Work::Sync(order) => order.carry_out(),
            Work::End(ended) => {
                // The error is ignored: if the medium fails, the current recorder will report it.
                let _ = end_at(&ended.path);
                self.ages.ended(&ended.path, ended.first, ended.end);
                self.prune_all(ended.wall);
            }
        }
    }

    /// Removes expired recordings after the end of the last one.
    pub(super) fn finish(&mut self, last: Option<Ended>) {
        if let Some(Ended { path, first, end, .. }) = last {
            self.ages.ended(&path, first, end);
        }
        self.prune_all(None);
    }

    fn prune_all(&mut self, wall: Option<SystemTime>) {
        if let Ok(members) = members(&self.dir) {
            self.prune(&members, wall);
        }
    }

    /// Removes expired recordings; returns their number. A failed removal is retried after the next
    /// recording.
    fn prune(&mut self, members: &[Member], wall: Option<SystemTime>) -> usize {
        let expired = self.ages.expired(self.retention.age, wall);
        let doomed = self.retention.doomed(members, expired);
        let removed: Vec<_> = doomed.iter().filter(|m| remove(&m.path).is_ok()).collect();
        removed.iter().for_each(|member| self.ages.forget(&member.path));
        removed.len()
    }
}

fn end_at(path: &Path) -> io::Result<()> {
    end(&mut DirStore::reopen(path)?)
}

/// The background thread.
pub(super) struct Janitor {
    pass: Pass,
    thread: Option<JoinHandle<Keeper>>,
}

impl Janitor {
    pub(super) fn start(mut keeper: Keeper) -> Result<Self> {
        let (send, queue) = channel();
        let work = move || {
            queue.into_iter().for_each(|work| keeper.carry_out(work));
            keeper
        };
        let thread = Some(background("janitor", work)?);
        // The thread ends when the last of these is dropped.
        Ok(Self { pass: Arc::new(move |work| drop(send.send(work))), thread })
    }

    /// Passes work on as `pass` does, without a thread.
    #[cfg(test)]
    pub(super) fn by(pass: Pass) -> Self {
        Self { pass, thread: None }
    }

    pub(super) fn pass(&self) -> Pass {
        Arc::clone(&self.pass)
    }

    /// Waits until all work is done; all passes must have been dropped. `None` if the thread broke
    /// down.
    pub(super) fn finish(self) -> Option<Keeper> {
        drop(self.pass);
        self.thread?.join().ok()
    }
}
