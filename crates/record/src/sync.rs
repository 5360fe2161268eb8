//! Forces a recording to the medium at intervals: a power cut loses the last seconds only.
//!
//! Sampling must not wait for a disk. The recorder gives orders to a thread, one at a time, and
//! learns later how many windows are safe.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tierscope_core::Time;

use crate::store::{Medium, sync_all};

/// Recorded time from one sync to the next. A sync that takes longer is followed by one at once.
pub(crate) const EVERY: Duration = Duration::from_secs(10);

/// An order to sync a recording; void once its recorder is gone, so that orders that wait for a
/// disk keep no files open.
pub(crate) struct Order {
    medium: Weak<dyn Medium>,
    windows: u64,
    progress: Arc<Mutex<Progress>>,
}

impl Order {
    /// Waits for the medium, and once more if a sync became due in the meantime.
    pub(crate) fn carry_out(self) {
        let mut next = Some(self.windows);
        while let Some(windows) = next {
            let Some(medium) = self.medium.upgrade() else { return };
            let synced = sync_all(medium.as_ref());
            let mut progress = lock(&self.progress);
            match synced {
                Ok(()) => progress.windows = windows,
                Err(error) => progress.error = Some(error),
            }
            next = progress.due.take();
            progress.waiting = next.is_some();
        }
    }
}

#[derive(Debug, Default)]
struct Progress {
    /// Windows on the medium.
    windows: u64,
    /// Whether an order is not carried out yet.
    waiting: bool,
    /// Windows of the sync that became due while one was carried out.
    due: Option<u64>,
    error: Option<io::Error>,
}

/// Passes orders to the thread that carries them out; never blocks.
pub(crate) type Pass = Box<dyn Fn(Order) + Send>;

/// Gives orders for one recording.
pub(crate) struct Syncing {
    medium: Arc<dyn Medium>,
    pass: Pass,
    progress: Arc<Mutex<Progress>>,
    /// End of the last window that an order covers.
    last: Option<Time>,
}

impl Syncing {
    /// Orders the first sync, of a recording without a window.
    pub(crate) fn begin(medium: Arc<dyn Medium>, pass: Pass) -> Self {
        let syncing = Self { medium, pass, progress: Arc::default(), last: None };
        syncing.order(0);
        syncing
    }

    /// Windows known to be on the medium.
    ///
    /// # Errors
    /// A sync failed, so that the recording may have lost windows.
    pub(crate) fn windows(&self) -> io::Result<u64> {
        let mut progress = lock(&self.progress);
        progress.error.take().map_or(Ok(progress.windows), Err)
    }

    /// Orders a sync if one is due after the window that ended at `end`, the last of `windows`.
    pub(crate) fn after(&mut self, windows: u64, end: Time) {
        let last = *self.last.get_or_insert(end);
        if end - last < EVERY {
            return;
        }
        self.last = Some(end);
        let mut progress = lock(&self.progress);
        if progress.waiting {
            progress.due = Some(windows);
        } else {
            drop(progress);
            self.order(windows);
        }
    }

    fn order(&self, windows: u64) {
        lock(&self.progress).waiting = true;
        let (medium, progress) = (Arc::downgrade(&self.medium), Arc::clone(&self.progress));
        (self.pass)(Order { medium, windows, progress });
    }
}

fn lock(progress: &Mutex<Progress>) -> MutexGuard<'_, Progress> {
    progress.lock().unwrap_or_else(PoisonError::into_inner)
}
