//! Moves pages of live processes by move_pages(2), and gives them back by process_madvise(2), in a thread of its own: whoever samples waits for nothing.
//!
//! | file | holds |
//! | --- | --- |
//! | `kernel.rs` | the few calls, as a trait |
//! | `batch.rs` | one batch to one node: what became of each page |
//! | `paging.rs`, `refaults.rs` | pages given back to swap; what of them comes back |
//! | `worker.rs` | batch after batch, and all that may speak against one |
//! | `rate.rs`, `brake.rs`, `repeat.rs` | bytes a second; pressure; pages that move to and fro |
//! | `limits.rs`, `account.rs` | what it keeps to; what became of every byte |
//!
//! Before a promotion the leaves have been looked at: page-granular policies judge by leaf bits or by sampled
//! accesses, and `hot_region` verifies regions that its instrument is not sure of.

mod account;
mod batch;
mod brake;
#[cfg(test)]
pub(crate) mod fake;
pub(crate) mod kernel;
mod limits;
mod paging;
mod rate;
mod refaults;
mod repeat;
mod worker;

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tierscope_core::{Action, Budget, Error, ErrorKind, Mover, Outcome, Range, Result};

pub use account::{Account, Cause};
use kernel::{Kernel, Roll, RunningKernel};
pub use limits::Limits;
pub(crate) use worker::Layout;
use worker::{Desk, Next, Worker};

#[derive(Debug, Default)]
struct Shared {
    desk: Mutex<Desk>,
    /// Something was submitted or changed.
    bell: Condvar,
}

impl Shared {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The mover. Dropping it stops it: what is in the queue is not moved, and what was moved stays.
#[derive(Debug)]
pub struct LiveMover {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What of a mover may be used while a drive loop has it.
#[derive(Clone, Debug)]
pub struct MoverHandle(Arc<Shared>);

impl MoverHandle {
    /// What became of all bytes so far.
    #[must_use]
    pub fn account(&self) -> Account {
        self.0.desk().account.clone()
    }

    /// Other limits, from the next batch on.
    ///
    /// # Errors
    /// They make no sense; the old ones stay.
    pub fn set_limits(&self, limits: Limits) -> Result<()> {
        limits.check()?;
        let mut desk = self.0.desk();
        (desk.limits, desk.changed) = (limits, true);
        self.0.bell.notify_all();
        Ok(())
    }

    /// Where something moved since the last call, and how much is to stay free on every node.
    pub(crate) fn take_moved(&self) -> (Vec<Range>, u64) {
        let mut desk = self.0.desk();
        (std::mem::take(&mut desk.moved), desk.limits.keep_free)
    }
}

impl LiveMover {
    pub(crate) fn start(roll: Roll, layout: Layout, limits: Limits) -> Result<Self> {
        limits.check()?;
        let desk = Mutex::new(Desk { limits: limits.clone(), ..Desk::default() });
        let shared = Arc::new(Shared { desk, bell: Condvar::new() });
        let worker = Worker::new(RunningKernel::new(roll), layout, limits);
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

    /// What others may use of it.
    #[must_use]
    pub fn handle(&self) -> MoverHandle {
        MoverHandle(Arc::clone(&self.shared))
    }

    /// Stops after the batch under way; returns what became of every byte, and outcomes that nobody has asked
    /// for yet.
    pub fn finish(mut self) -> (Account, Vec<Outcome>) {
        self.stop();
        let mut desk = self.shared.desk();
        (desk.account.clone(), std::mem::take(&mut desk.outcomes))
    }

    fn stop(&mut self) {
        self.shared.desk().stop = true;
        self.shared.bell.notify_all();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so.
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
        let mut desk = self.shared.desk();
        let bytes: u64 = actions.iter().map(|action| action.range.bytes()).sum();
        desk.account.submitted += bytes;
        desk.account.waiting += bytes;
        desk.waiting.extend(actions);
        desk.budget = budget.bytes;
        self.shared.bell.notify_all();
        Ok(())
    }

    fn poll(&mut self, out: &mut Vec<Outcome>) -> Result<()> {
        out.append(&mut self.shared.desk().outcomes);
        match self.thread.as_ref().is_some_and(JoinHandle::is_finished) {
            true => Err(Error::new(ErrorKind::Other, "the mover has ended")
                .cause("its thread panicked")
                .remedy("report it with what stands above")),
            false => Ok(()),
        }
    }
}

/// The thread.
fn work(mut worker: Worker<RunningKernel>, shared: &Shared) {
    loop {
        let next = worker.step(&|with| with(&mut shared.desk()));
        let until = match next {
            Next::Go => continue,
            Next::Done => return,
            Next::Idle => None,
            Next::At(time) => Some(time.since(worker.kernel.now())),
        };
        wait(shared, until);
    }
}

/// Until the bell rings or the time is over.
fn wait(shared: &Shared, time: Option<Duration>) {
    /// A bell that rang before we listened is heard this late.
    const LATE: Duration = Duration::from_millis(20);
    let desk = shared.desk();
    if desk.stop || desk.changed {
        return;
    }
    let time = match time {
        Some(time) => time,
        None if desk.waiting.is_empty() => Duration::from_secs(3600),
        None => LATE,
    };
    drop(shared.bell.wait_timeout(desk, time));
}

#[cfg(test)]
mod tests {
    use tierscope_core::{ActionId, ActionKind, Node, SpaceId, Tier};

    use super::kernel::Member;
    use super::*;
    use crate::proc::Proc;

    /// A node that no machine has.
    const NOWHERE: Node = Node(1000);

    /// Orders a page of our own to a tier; what became of it.
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

    // The running kernel and a thread: a page that is where it is to be, and one whose node is not there.
    #[test]
    fn the_running_kernel_is_asked() {
        let pid = std::process::id();
        let started = Proc::default().stat(pid).unwrap().unwrap().started;
        let roll = Roll::default();
        roll.lock().unwrap().push(Member { space: SpaceId(0), pid, started });
        let data = vec![1u8; 2 * 4096];
        let at = (data.as_ptr() as u64 + 4095) & !4095;
        let mut node = [-1];
        let mut kernel = RunningKernel::new(Roll::clone(&roll));
        if kernel.locate(pid, &[at], &mut node).is_err() {
            eprintln!("skipped: the kernel has no NUMA");
            return;
        }
        let here = Node(u32::try_from(node[0]).unwrap());
        let layout = Layout { tiers: vec![vec![(here, 0)], vec![(NOWHERE, 0)]] };
        let mut mover = LiveMover::start(roll, layout, Limits::default()).unwrap();
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
