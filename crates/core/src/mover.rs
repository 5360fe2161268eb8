//! The queue between a policy's mover and the code that carries its actions out.

use std::collections::VecDeque;

use crate::{Action, Budget, Failure, Outcome, Time};

/// Pending actions and unread outcomes.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    waiting: VecDeque<Action>,
    budget: u64,
    outcomes: Vec<Outcome>,
}

impl Queue {
    /// Adds actions. Each submission resets the budget; actions that exceed it wait for the next
    /// submission.
    pub fn submit(&mut self, actions: &[Action], budget: Budget) {
        self.waiting.extend(actions);
        self.budget = budget.bytes;
    }

    /// Moves the unread outcomes to `out`.
    pub fn poll(&mut self, out: &mut Vec<Outcome>) {
        out.append(&mut self.outcomes);
    }

    /// Whether no action is pending.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Bytes that may still be moved until the next submission.
    #[must_use]
    pub fn budget(&self) -> u64 {
        self.budget
    }

    /// Subtracts moved bytes from the budget.
    pub fn spend(&mut self, bytes: u64) {
        self.budget = self.budget.saturating_sub(bytes);
    }

    /// Starts the oldest pending action; `None` if there is none.
    pub fn start(&mut self) -> Option<Job> {
        self.waiting.pop_front().map(Job::new)
    }

    /// Adds the outcome of an action.
    pub fn finish(&mut self, outcome: Outcome) {
        self.outcomes.push(outcome);
    }
}

/// An action in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// The action.
    pub action: Action,
    /// First address that is not processed yet.
    pub from: u64,
    /// Bytes done.
    pub done: u64,
    /// Bytes failed.
    pub failed: u64,
    /// Cause of the failures.
    pub why: Option<Failure>,
    /// Whether any page was found, even one that needs no change.
    pub met: bool,
}

impl Job {
    /// The action, with nothing done yet.
    #[must_use]
    pub fn new(action: Action) -> Self {
        Self { action, from: action.range.start, done: 0, failed: 0, why: None, met: false }
    }

    /// Whether the whole range is processed.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.from >= self.action.range.end
    }

    /// Counts bytes as failed; the first cause is kept.
    pub fn fail(&mut self, bytes: u64, why: Failure) {
        self.failed += bytes;
        self.why = self.why.or(Some(why));
    }

    /// Fails the rest of the action.
    pub fn give_up(&mut self, why: Failure) {
        self.fail(self.action.range.end - self.from, why);
        self.from = self.action.range.end;
    }

    /// Result of the action.
    #[must_use]
    pub fn outcome(&self, time: Time) -> Outcome {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ActionId, ActionKind, Range, SpaceId};

    fn action(id: u64) -> Action {
        let range = Range::new(SpaceId(0), 4096, 3 * 4096);
        Action { id: ActionId(id), after: None, range, kind: ActionKind::Reclaim }
    }

    #[test]
    fn actions_start_in_order_and_each_submission_resets_the_budget() {
        let mut queue = Queue::default();
        queue.submit(&[action(1), action(2)], Budget { bytes: 10 });
        queue.spend(25);
        assert_eq!(queue.budget(), 0);
        queue.submit(&[], Budget { bytes: 7 });
        assert_eq!(queue.budget(), 7);
        let started = [(); 3].map(|()| queue.start().map(|job| job.action.id));
        assert_eq!(started, [Some(ActionId(1)), Some(ActionId(2)), None]);
        assert!(queue.is_empty());
    }

    #[test]
    fn an_outcome_is_read_once() {
        let mut queue = Queue::default();
        queue.finish(Job::new(action(1)).outcome(Time(5)));
        let mut out = Vec::new();
        queue.poll(&mut out);
        queue.poll(&mut out);
        assert_eq!(out.len(), 1);
    }

    // Two pages: the first is done, the second fails; of two causes the first is reported.
    #[test]
    fn the_rest_of_a_job_fails_when_it_is_given_up() {
        let mut job = Job::new(action(3));
        (job.from, job.done) = (2 * 4096, 4096);
        job.give_up(Failure::Gone);
        job.fail(0, Failure::Busy);
        let outcome = job.outcome(Time(9));
        assert!(job.is_over());
        assert_eq!((outcome.done, outcome.failed, outcome.why), (4096, 4096, Some(Failure::Gone)));
    }

    #[test]
    fn a_range_without_pages_is_unmapped_and_one_without_work_is_not() {
        let mut job = Job::new(action(4));
        assert_eq!(job.outcome(Time(0)).why, Some(Failure::Unmapped));
        job.met = true;
        assert_eq!(job.outcome(Time(0)).why, None);
    }
}
