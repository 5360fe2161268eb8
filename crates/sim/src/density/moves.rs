//! The mover: a kernel thread with a clock of its own, so that moves never block sampling.
//!
//! Like exact mode's mover (`exact/ports/mover.rs`), but for ranges of any size at once: the number
//! of pages moved within a time follows from the cost of a page.

use std::time::Duration;

use tierscope_core::mover::Job;
use tierscope_core::{ActionKind, Failure, PAGE_SHIFT, PAGE_SIZE, Range, Tier, Time};

use super::machine::Machine;
use super::places::Moved;
use super::space::SPACE;
use crate::account::TIERS;
use crate::mover::{Mover, SharedQueue, lock};

/// Interval at which rates are recomputed while pages move, in nanoseconds: half of a usual window.
const SLICE: u64 = 100_000_000;
/// Lines of a page.
const LINES: u64 = PAGE_SIZE / 64;

/// The machine's side of the mover.
#[derive(Debug, Default)]
pub(super) struct Moves {
    pub(super) queue: SharedQueue,
    job: Option<Job>,
    /// Time up to which the mover has worked, in nanoseconds.
    time: u64,
    /// Lines a second that the mover currently reads and writes, by tier.
    pub(super) lines: [[f64; TIERS]; 2],
}

impl Moves {
    fn is_busy(&self) -> bool {
        let queue = lock(&self.queue);
        queue.budget() > 0 && (self.job.is_some() || !queue.is_empty())
    }
}

impl Machine {
    /// A handle that executes actions on this machine, in the time of a kernel thread.
    #[must_use]
    pub fn mover(&self) -> Mover {
        Mover::of(&self.moves.queue)
    }

    /// Pages moved so far by the mover, and the expected share that was accessed afterwards.
    #[must_use]
    pub fn moved(&self) -> tierscope_core::metrics::moves::Moved {
        self.promotion_reuse.account(self.now)
    }

    /// Bytes promoted and demoted so far.
    #[must_use]
    pub fn moved_bytes(&self) -> [u64; 2] {
        [self.promotion_reuse.moved.promoted, self.promotion_reuse.moved.demoted]
    }

    /// Advances the clock to `to`, while pages move.
    pub(super) fn pass(&mut self, to: u64) {
        while self.now.0 < to && self.moves.is_busy() {
            self.settle();
            let end = to.min(self.now.0 + SLICE);
            self.feed_monitors();
            self.move_within(end);
            self.now = Time(end);
            self.look_for_refaults();
        }
        if self.moves.lines != [[0.0; TIERS]; 2] && self.now.0 < to {
            self.carry([[0.0; TIERS]; 2]);
        }
        self.now = self.now.max(Time(to));
        self.look_for_refaults();
    }

    /// Moves pages from now until `end`, and loads the tiers with these copies for the same time.
    fn move_within(&mut self, end: u64) {
        // The batch in progress continues.
        if self.moves.time >= end {
            return;
        }
        let started = self.moves.time.max(self.now.0);
        let moved = self.move_until(end);
        // The last batch may end after `end`.
        let seconds = (end.max(self.moves.time) - started) as f64 / 1e9;
        self.carry(moved.map(|way| way.map(|lines| lines as f64 / seconds)));
    }

    /// From now on tiers carry these lines a second of moves, at the present placement.
    fn carry(&mut self, lines: [[f64; TIERS]; 2]) {
        self.settle();
        self.moves.lines = lines;
        self.world.repace(self.now.0, &lines);
    }

    /// Executes actions until `until`; returns the lines read and written, by tier.
    fn move_until(&mut self, until: u64) -> [[u64; TIERS]; 2] {
        let mut lines = [[0; TIERS]; 2];
        let started = self.moves.time.max(self.now.0);
        self.moves.time = started;
        while self.moves.time < until && self.moves.is_busy() {
            let next = self.moves.job.take().or_else(|| lock(&self.moves.queue).start());
            let Some(mut job) = next else { break };
            match job.action.kind {
                _ if job.action.range.space != SPACE => job.give_up(Failure::Gone),
                ActionKind::Move(tier)
                    if usize::from(tier.0) < self.config.hardware.tiers.len() =>
                {
                    self.move_some(&mut job, tier, until, &mut lines);
                }
                ActionKind::Move(_) => job.give_up(Failure::NoRoom),
                ActionKind::Split => {
                    self.split_pages(&job.action.range);
                    job.from = job.action.range.end;
                }
                ActionKind::Reclaim => match self.config.swap {
                    Some(swap) => {
                        let began = self.moves.time;
                        self.moves.time = self.reclaim_some(&mut job, swap, began, until);
                        // The others' time; one's is that of the mover.
                        let others = u64::from(self.config.reclaimers) - 1;
                        let spent = (self.moves.time - began) * others;
                        self.ledger.spent.mover += Duration::from_nanos(spent);
                    }
                    None => job.give_up(Failure::Unsupported),
                },
                ActionKind::Collapse => job.give_up(Failure::Unsupported),
            }
            if job.is_over() {
                let outcome = job.outcome(Time(self.moves.time));
                if let Some(why) = outcome.why.filter(|_| outcome.failed > 0) {
                    self.promotion_reuse.moved.fails(why, outcome.failed);
                }
                lock(&self.moves.queue).finish(outcome);
            } else {
                self.moves.job = Some(job);
            }
        }
        self.ledger.spent.mover += Duration::from_nanos(self.moves.time - started);
        lines
    }

    /// Moves as many pages as the time allows, in whole batches.
    fn move_some(&mut self, job: &mut Job, tier: Tier, until: u64, lines: &mut [[u64; TIERS]; 2]) {
        let costs = &self.config.costs;
        let batch = costs.moves.batch;
        let shoot = costs.shootdown.initiator(self.config.cores.into());
        let copy = costs.moves.copy_ns(PAGE_SIZE);
        let each = costs.moves.page_ns as f64 + copy + shoot as f64 / batch as f64;
        let batches = ((until - self.moves.time) as f64 / each / batch as f64).ceil().max(1.0);
        let budget = lock(&self.moves.queue).budget().div_ceil(PAGE_SIZE).div_ceil(batch);
        let most = (batches as u64).min(budget) * batch;
        let range = Range { start: job.from, ..job.action.range };
        let moved = self.world.places.move_pages(&range, tier, most);
        self.note(&moved, tier, batch, lines);
        if self.promotion_reuse.needs_truth() && !moved.parts.is_empty() {
            self.promotion_reuse.set_truth(self.world.truth());
        }
        let now = Time(self.moves.time);
        moved.parts.iter().for_each(|part| self.promotion_reuse.moves(part, now));
        self.moves.time += (moved.pages as f64 * each) as u64;
        job.from = moved.reached;
        job.done += moved.pages << PAGE_SHIFT;
        if moved.failed > 0 {
            job.fail(moved.failed << PAGE_SHIFT, Failure::NoRoom);
        }
        lock(&self.moves.queue).spend(moved.pages << PAGE_SHIFT);
    }

    /// Accounts for moved pages: lines read and written, and one interrupt of every core a batch.
    fn note(&mut self, moved: &Moved, to: Tier, batch: u64, lines: &mut [[u64; TIERS]; 2]) {
        for (tier, pages) in moved.from.iter().enumerate() {
            lines[0][tier] += pages * LINES;
            self.ledger.copied(0, tier, pages * LINES);
        }
        let to = usize::from(to.0);
        lines[1][to] += moved.pages * LINES;
        self.ledger.copied(1, to, moved.pages * LINES);
        self.shoot(moved.pages.div_ceil(batch));
    }

    /// Interrupts every core of the target `times` times for TLB shootdowns.
    pub(super) fn shoot(&mut self, times: u64) {
        let interrupts = times * u64::from(self.config.cores);
        self.ledger.counts.shootdowns += interrupts;
        self.disturb(interrupts * self.config.costs.shootdown.responder_ns);
    }
}
