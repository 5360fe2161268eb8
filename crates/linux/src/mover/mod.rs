//! Moves pages of live processes by move_pages(2), and reclaims them by process_madvise(2), on its
//! own thread, so that sampling never blocks on migration.
//!
//! | file | contents |
//! | --- | --- |
//! | `kernel.rs` | the kernel calls, as a trait |
//! | `batch.rs` | migration of one batch to one node, with the outcome of each page |
//! | `paging.rs`, `refaults.rs` | reclaim to swap; refaults of reclaimed pages |
//! | `users.rs` | the process through which pages of shared memory are moved |
//! | `worker.rs` | processes actions batch by batch, subject to all limits |
//! | `rate.rs`, `brake.rs`, `repeat.rs` | bytes per second; pressure; ping-pong |
//! | `brakes.rs` | kill switch and PSI have to be readable |
//! | `limits.rs`, `account.rs` | configured limits; outcome of every byte |
//!
//! The leaves have been checked before a promotion: page-granular policies decide by leaf bits or
//! by sampled accesses, and `hot-region` verifies regions that its instrument is not sure of.

mod account;
mod batch;
mod brake;
pub mod brakes;
#[cfg(test)]
pub(crate) mod fake;
pub(crate) mod kernel;
mod limits;
mod paging;
mod rate;
mod refaults;
mod repeat;
pub(crate) mod users;
mod worker;

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tierscope_core::{Action, Budget, Error, ErrorKind, Mover, Outcome, Range, Result};

pub use account::{Account, Cause};
use kernel::{Kernel, RunningKernel};
pub use limits::Limits;
pub(crate) use worker::Layout;
use worker::{Next, Queue, Worker};

use crate::clock;
use crate::space_owners::SpaceOwners;

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// Wakes the thread after a submission or a change.
    wakeup: Condvar,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The mover. Dropping this stops it: queued actions are discarded, completed moves remain.
#[derive(Debug)]
pub struct LiveMover {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// Access to a mover that a drive loop owns.
#[derive(Clone, Debug)]
pub struct MoverHandle(Arc<Shared>);

impl MoverHandle {
    /// Outcome of all bytes so far.
    #[must_use]
    pub fn account(&self) -> Account {
        self.0.queue().account.clone()
    }

    /// Replaces the limits, from the next batch on.
    ///
    /// # Errors
    /// If the new limits are invalid; the old ones remain in force.
    pub fn set_limits(&self, limits: Limits) -> Result<()> {
        limits.check()?;
        brakes::check(&limits)?;
        let mut queue = self.0.queue();
        (queue.limits, queue.changed) = (limits, true);
        self.0.wakeup.notify_all();
        Ok(())
    }

    /// Ranges that moved since the last call, and the bytes to be kept free on every node.
    pub(crate) fn take_moved(&self) -> (Vec<Range>, u64) {
        let mut queue = self.0.queue();
        (std::mem::take(&mut queue.moved), queue.limits.keep_free)
    }
}

impl LiveMover {
    pub(crate) fn start(owners: SpaceOwners, layout: Layout, limits: Limits) -> Result<Self> {
        limits.check()?;
        let queue = Mutex::new(Queue { limits: limits.clone(), ..Queue::default() });
        let shared = Arc::new(Shared { queue, wakeup: Condvar::new() });
        let worker = Worker::new(RunningKernel::new(owners), layout, limits);
        let of_thread = Arc::clone(&shared);
        let name = "tierscope-mover".to_owned();
        let thread = thread::Builder::new().name(name).spawn(move || work(worker, &of_thread));
        let thread = thread.map_err(|e| {
            Error::new(ErrorKind::Other, "cannot start a thread")
                .cause(e)
                .remedy("raise the limit of processes with `ulimit -u`")
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Returns a handle for use by others.
    #[must_use]
    pub fn handle(&self) -> MoverHandle {
        MoverHandle(Arc::clone(&self.shared))
    }

    /// Stops after the current batch; returns the account of every byte, and outcomes that have not
    /// been polled.
    pub fn finish(mut self) -> (Account, Vec<Outcome>) {
        self.stop();
        let mut queue = self.shared.queue();
        (queue.account.clone(), std::mem::take(&mut queue.outcomes))
    }

    fn stop(&mut self) {
        self.shared.queue().stop = true;
        self.shared.wakeup.notify_all();
        if let Some(thread) = self.thread.take() {
            // The panic of a thread has been reported already.
            let _ = thread.join();
        }
    }
}

impl Drop for LiveMover {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Mover for LiveMover {
    fn submit(&mut self, actions: &[Action], budget: Budget) -> Result<()> {
        let mut queue = self.shared.queue();
        queue.order(actions, clock::monotonic());
        queue.budget = budget.bytes;
        self.shared.wakeup.notify_all();
        Ok(())
    }

    fn poll(&mut self, out: &mut Vec<Outcome>) -> Result<()> {
        out.append(&mut self.shared.queue().outcomes);
        match self.thread.as_ref().is_some_and(JoinHandle::is_finished) {
            true => Err(Error::new(ErrorKind::Other, "the mover has ended")
                .cause("its thread panicked")
                .remedy("report it with the messages above")),
            false => Ok(()),
        }
    }
}

/// Main loop of the mover's thread.
fn work(mut worker: Worker<RunningKernel>, shared: &Shared) {
    loop {
        let next = worker.step(&|with| with(&mut shared.queue()));
        let until = match next {
            Next::Go => continue,
            Next::Done => return,
            Next::Idle => None,
            Next::At(time) => Some(time.since(worker.kernel.now())),
        };
        wait(shared, until);
    }
}

/// Waits for a wakeup or until the time has passed.
fn wait(shared: &Shared, time: Option<Duration>) {
    /// Latency of a wakeup that preceded the wait.
    const LATE: Duration = Duration::from_millis(20);
    let queue = shared.queue();
    if queue.stop || queue.changed {
        return;
    }
    let time = match time {
        Some(time) => time,
        None if queue.waiting.is_empty() => Duration::from_secs(3600),
        None => LATE,
    };
    drop(shared.wakeup.wait_timeout(queue, time));
}

#[cfg(test)]
mod tests {
    use tierscope_core::{ActionId, ActionKind, Node, SpaceId, Tier};

    use super::*;
    use crate::proc::Proc;
    use crate::space_owners::Owner;

    /// A node that no machine has.
    const NOWHERE: Node = Node(1000);

    /// Orders a page of this process to be moved to a tier, and returns the outcome.
    fn order(mover: &mut LiveMover, id: u64, tier: u8, at: u64) -> Outcome {
        let range = Range::new(SpaceId(0), at, at + 4096);
        let kind = ActionKind::Move(Tier(tier));
        let action = Action { id: ActionId(id), after: None, range, kind };
        mover.submit(&[action], Budget { bytes: u64::MAX }).unwrap();
        let mut out = Vec::new();
        while out.is_empty() {
            mover.poll(&mut out).unwrap();
            thread::yield_now();
        }
        out.remove(0)
    }

    // The running kernel and a real thread: one page is already in its tier, the other one's node
    // does not exist.
    #[test]
    fn the_running_kernel_moves_pages() {
        let pid = std::process::id();
        let started = Proc::default().stat(pid).unwrap().unwrap().started;
        let owners = SpaceOwners::default();
        owners.set(&[Owner { space: SpaceId(0), pid, started }], Arc::default());
        let data = vec![1u8; 2 * 4096];
        let at = (data.as_ptr() as u64 + 4095) & !4095;
        let mut node = [-1];
        let mut kernel = RunningKernel::new(owners.clone());
        if kernel.locate(pid, &[at], &mut node).is_err() {
            tierscope_conformance::skip::skipped("the kernel has no NUMA");
            return;
        }
        let here = Node(u32::try_from(node[0]).unwrap());
        let layout = Layout { tiers: vec![vec![(here, 0)], vec![(NOWHERE, 0)]] };
        let mut mover = LiveMover::start(owners, layout, Limits::default()).unwrap();
        let stayed = order(&mut mover, 0, 0, at);
        assert_eq!((stayed.done, stayed.failed, stayed.why), (0, 0, None));
        assert_eq!(order(&mut mover, 1, 1, at).failed, 4096);
        let slow = Limits { bytes_per_second: 1, ..Limits::default() };
        assert!(mover.handle().set_limits(slow).is_err());
        let (account, _) = mover.finish();
        assert_eq!((account.already, account.failed[&Cause::Offline]), (4096, 4096));
        assert!(account.adds_up());
    }
}
