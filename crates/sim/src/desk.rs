//! Between a policy's mover and a machine: actions that wait, outcomes that wait to be read.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tierscope_core::{Action, Budget, Failure, Outcome, Result, Time};

/// Actions that wait, and outcomes that wait to be read.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    pub(crate) waiting: VecDeque<Action>,
    /// Bytes that may still be moved before the next submission.
    pub(crate) budget: u64,
    pub(crate) outcomes: Vec<Outcome>,
}

/// Hands actions to a machine, and its outcomes back.
#[derive(Clone, Debug)]
pub struct Mover(Arc<Mutex<Desk>>);

impl Mover {
    pub(crate) fn of(desk: &Arc<Mutex<Desk>>) -> Self {
        Self(Arc::clone(desk))
    }
}

impl tierscope_core::Mover for Mover {
    /// Queues actions. The budget is anew for every submission; what it does not cover waits for
    /// the next.
    fn submit(&mut self, actions: &[Action], budget: Budget) -> Result<()> {
        let mut desk = desk(&self.0);
        desk.waiting.extend(actions);
        desk.budget = budget.bytes;
        Ok(())
    }

    fn poll(&mut self, out: &mut Vec<Outcome>) -> Result<()> {
        out.append(&mut desk(&self.0).outcomes);
        Ok(())
    }
}

/// The desk, for as long as it takes to write something down.
pub(crate) fn desk(shared: &Mutex<Desk>) -> MutexGuard<'_, Desk> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The action that is being carried out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) action: Action,
    /// Everything before is done.
    pub(crate) from: u64,
    pub(crate) done: u64,
    pub(crate) failed: u64,
    pub(crate) why: Option<Failure>,
    /// Whether anything was there, be it as it should be already.
    pub(crate) met: bool,
}

impl Job {
    /// The action that waits longest, begun; `None` if none waits.
    pub(crate) fn next(shared: &Mutex<Desk>) -> Option<Self> {
        let action = desk(shared).waiting.pop_front()?;
        Some(Self { action, from: action.range.start, done: 0, failed: 0, why: None, met: false })
    }

    pub(crate) fn is_over(&self) -> bool {
        self.from >= self.action.range.end
    }

    /// Nothing of what is left will be done.
    pub(crate) fn give_up(&mut self, why: Failure) {
        self.failed += self.action.range.end - self.from;
        self.why = self.why.or(Some(why));
        self.from = self.action.range.end;
    }

    /// What became of it.
    pub(crate) fn outcome(&self, time: Time) -> Outcome {
        let nothing = !self.met && self.done == 0 && self.failed == 0;
        Outcome {
            id: self.action.id,
            time,
            done: self.done,
            failed: self.failed,
            why: self.why.or(nothing.then_some(Failure::Unmapped)),
        }
    }
}
