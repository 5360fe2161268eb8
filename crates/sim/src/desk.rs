//! The queue between a policy's mover and a machine: pending actions and unread outcomes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tierscope_core::{Action, Budget, Failure, Outcome, Result, Time};

/// Pending actions and unread outcomes.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    pub(crate) waiting: VecDeque<Action>,
    /// Bytes that may still be moved until the next submission.
    pub(crate) budget: u64,
    pub(crate) outcomes: Vec<Outcome>,
}

/// Submits actions to a machine, and returns their outcomes.
#[derive(Clone, Debug)]
pub struct Mover(Arc<Mutex<Desk>>);

impl Mover {
    pub(crate) fn of(desk: &Arc<Mutex<Desk>>) -> Self {
        Self(Arc::clone(desk))
    }
}

impl tierscope_core::Mover for Mover {
    /// Queues actions. Each submission resets the budget; actions that exceed it wait for the next
    /// submission.
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

/// Locks the mover's queue.
pub(crate) fn desk(shared: &Mutex<Desk>) -> MutexGuard<'_, Desk> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The action in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) action: Action,
    /// First address that is not done yet.
    pub(crate) from: u64,
    pub(crate) done: u64,
    pub(crate) failed: u64,
    pub(crate) why: Option<Failure>,
    /// Whether any page was found, even one that needs no change.
    pub(crate) met: bool,
}

impl Job {
    /// Starts the oldest pending action; `None` if there is none.
    pub(crate) fn next(shared: &Mutex<Desk>) -> Option<Self> {
        let action = desk(shared).waiting.pop_front()?;
        Some(Self { action, from: action.range.start, done: 0, failed: 0, why: None, met: false })
    }

    pub(crate) fn is_over(&self) -> bool {
        self.from >= self.action.range.end
    }

    /// Fails the rest of the action.
    pub(crate) fn give_up(&mut self, why: Failure) {
        self.failed += self.action.range.end - self.from;
        self.why = self.why.or(Some(why));
        self.from = self.action.range.end;
    }

    /// Result of the action.
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
