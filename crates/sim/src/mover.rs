//! The handle by which a policy's mover reaches a machine's queue of actions.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tierscope_core::mover::Queue;
use tierscope_core::{Action, Budget, Outcome, Result};

/// A queue that a machine and its handles share.
pub(crate) type SharedQueue = Arc<Mutex<Queue>>;

/// Submits actions to a machine, and returns their outcomes.
#[derive(Clone, Debug)]
pub struct Mover(SharedQueue);

impl Mover {
    pub(crate) fn of(queue: &SharedQueue) -> Self {
        Self(Arc::clone(queue))
    }
}

impl tierscope_core::Mover for Mover {
    fn submit(&mut self, actions: &[Action], budget: Budget) -> Result<()> {
        lock(&self.0).submit(actions, budget);
        Ok(())
    }

    fn poll(&mut self, out: &mut Vec<Outcome>) -> Result<()> {
        lock(&self.0).poll(out);
        Ok(())
    }
}

/// Locks a queue.
pub(crate) fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}
