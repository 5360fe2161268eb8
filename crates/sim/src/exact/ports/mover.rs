//! The mover: a kernel thread with a clock of its own, so that moves never block sampling.

use std::sync::Arc;

use tierscope_core::mover::Job;
use tierscope_core::{ActionKind, BusObserver, Failure, Level, Range, Tier, Time};
use tierscope_hw::PageSize;
use tierscope_hw::entry::FRAME_MASK;

use crate::config::MoveCosts;
use crate::exact::Machine;
use crate::exact::memory::Direction;
use crate::exact::mm::{Located, Stale};
use crate::exact::units::{NS, SECOND, duration};
use crate::mover::{Mover, SharedQueue, lock};

/// The machine's side of the mover.
pub(in crate::exact) struct Moves {
    queue: SharedQueue,
    job: Option<Job>,
    time: u64,
    costs: MoveCosts,
}

impl Moves {
    pub(in crate::exact) fn new(costs: &MoveCosts) -> Self {
        Self { queue: Arc::default(), job: None, time: 0, costs: costs.clone() }
    }

    pub(in crate::exact) fn handle(&self) -> Mover {
        Mover::of(&self.queue)
    }

    /// Time of the mover's next batch; `None` without work or budget.
    pub(in crate::exact) fn due(&self, now: u64) -> Option<u64> {
        let queue = lock(&self.queue);
        let busy = self.job.is_some() || !queue.is_empty();
        (busy && queue.budget() > 0).then_some(self.time.max(now))
    }
}

/// Result of one batch.
#[derive(Default)]
struct Batch {
    pages: u64,
    done: u64,
    failed: u64,
    why: Option<Failure>,
    time: u64,
}

impl Batch {
    fn fail(&mut self, bytes: u64, why: Failure) {
        self.failed += bytes;
        self.why = self.why.or(Some(why));
    }
}

impl<B: BusObserver> Machine<B> {
    /// Executes one batch of the current action.
    pub(in crate::exact) fn step_mover(&mut self) {
        let started = self.moves.time.max(self.now);
        self.moves.time = started;
        let mut job = match self.moves.job.take() {
            Some(job) => job,
            None => match lock(&self.moves.queue).start() {
                Some(job) => job,
                None => return,
            },
        };
        let batch = self.carry_out(&mut job);
        job.done += batch.done;
        if let Some(why) = batch.why {
            job.fail(batch.failed, why);
        }
        self.moves.time += batch.time;
        self.spent.mover += duration(batch.time);
        lock(&self.moves.queue).spend(batch.done);
        if !job.is_over() {
            self.moves.job = Some(job);
            return;
        }
        let outcome = job.outcome(Time(self.moves.time / NS));
        if let Some(why) = outcome.why.filter(|_| outcome.failed > 0) {
            self.os.promotion_reuse.moved.fails(why, outcome.failed);
        }
        lock(&self.moves.queue).finish(outcome);
    }

    fn carry_out(&mut self, job: &mut Job) -> Batch {
        let range = job.action.range;
        let fail = |job: &mut Job, why| {
            job.give_up(why);
            Batch::default()
        };
        if self.os.space(range.space).is_none() {
            return fail(job, Failure::Gone);
        }
        match job.action.kind {
            ActionKind::Move(tier) if usize::from(tier.0) >= self.os.frames.tiers() => {
                fail(job, Failure::NoRoom)
            }
            ActionKind::Move(tier) => self.move_some(job, tier),
            ActionKind::Split => self.split_next(job),
            ActionKind::Collapse => self.collapse_next(job),
            ActionKind::Reclaim => self.reclaim_some(job),
        }
    }

    /// The job's next page, with its entry and size; `None` at the end of its range. Advances the
    /// job past the page.
    fn next_page(&self, job: &mut Job) -> Option<(u64, Located, PageSize)> {
        let range = job.action.range;
        let Some((linear, leaf)) = self.os.next_leaf(range, job.from) else {
            job.from = range.end;
            return None;
        };
        let size = PageSize::of_level(leaf.level).expect("levels of leaves have page sizes");
        job.from = linear + size.bytes();
        job.met = true;
        Some((linear, leaf, size))
    }

    /// Moves pages until the batch is full; the copies take bandwidth from both tiers.
    fn move_some(&mut self, job: &mut Job, tier: Tier) -> Batch {
        let range = job.action.range;
        let mut batch = Batch::default();
        let mut stale = Stale::nothing(Range { start: job.from, ..range });
        while batch.pages < self.moves.costs.batch {
            let Some((linear, leaf, size)) = self.next_page(job) else { break };
            let from = self.os.frames.tier_of((leaf.entry & FRAME_MASK) >> 12);
            if from == tier {
                continue;
            }
            batch.pages += 1;
            if self.os.is_locked(range.space, linear) {
                batch.fail(size.bytes(), Failure::Busy);
                continue;
            }
            match self.os.move_leaf(range.space, leaf, tier) {
                None => batch.fail(size.bytes(), Failure::NoRoom),
                Some(frame) => {
                    let now = Time((self.moves.time + batch.time) / NS);
                    let page = (range.space, linear);
                    self.os.promotion_reuse.moves(page, (frame, size), (from, tier), now);
                    stale.range.start = if stale.pages == 0 { linear } else { stale.range.start };
                    stale.add(size);
                    batch.done += size.bytes();
                    batch.time += self.copy(self.moves.time + batch.time, from, tier, size);
                }
            }
        }
        stale.range.end = job.from.max(stale.range.start);
        batch.time += self.shoot(stale);
        batch
    }

    /// Reclaims pages until the batch is full; dirty pages are written out one after another.
    fn reclaim_some(&mut self, job: &mut Job) -> Batch {
        let range = job.action.range;
        let mut batch = Batch::default();
        let mut stale = Stale::nothing(Range { start: job.from, ..range });
        while batch.pages < self.moves.costs.batch {
            let Some((linear, leaf, size)) = self.next_page(job) else { break };
            batch.pages += 1;
            if self.os.is_locked(range.space, linear) {
                batch.fail(size.bytes(), Failure::Busy);
                continue;
            }
            let now = Time((self.moves.time + batch.time) / NS);
            let Some(written) = self.os.reclaim(range.space, (linear, leaf), now) else {
                batch.fail(size.bytes(), Failure::Unsupported);
                continue;
            };
            stale.range.start = if stale.pages == 0 { linear } else { stale.range.start };
            stale.add(size);
            batch.done += size.bytes();
            let costs = &self.costs.swap;
            let write = costs.write_ns * NS + size.bytes() * (SECOND >> 20) / costs.write_mib_s;
            batch.time += self.moves.costs.page_ns * NS + if written { write } else { 0 };
        }
        stale.range.end = job.from.max(stale.range.start);
        batch.time += self.shoot(stale);
        batch
    }

    /// Time of one page move: kernel work plus the copy.
    fn copy(&mut self, now: u64, from: Tier, to: Tier, size: PageSize) -> u64 {
        let lines = size.bytes() / 64;
        let [from, to] = [from, to].map(|tier| usize::from(tier.0));
        self.memory.lines[0][from] += lines;
        self.memory.lines[1][to] += lines;
        self.memory.copied[0][from] += lines;
        self.memory.copied[1][to] += lines;
        let waits = [
            self.memory.tiers[from].book_lines((now, now), Direction::Read, lines),
            self.memory.tiers[to].book_lines((now, now), Direction::Write, lines),
        ];
        let alone = size.bytes() * (SECOND >> 20) / self.moves.costs.copy_mib_s;
        self.moves.costs.page_ns * NS + alone.max(waits[0]).max(waits[1])
    }

    /// Splits the next 2 MiB; small pages are left as they are.
    fn split_next(&mut self, job: &mut Job) -> Batch {
        let (at, end) = next_huge(job);
        let space = job.action.range.space;
        let mut batch = Batch::default();
        let here = Range::new(space, job.from, end);
        let leaf = self.os.next_leaf(here, job.from).map(|(_, leaf)| leaf.level);
        job.met |= leaf.is_some();
        if leaf == Some(Level::PUD) {
            // A hugetlbfs page is never split.
            batch.fail(end - at, Failure::Unsupported);
        } else {
            match self.os.split_at(space, at) {
                Ok(Some(stale)) => {
                    batch.done = end - at;
                    self.os.promotion_reuse.moved.split += end - at;
                    batch.time = self.moves.costs.split_ns * NS + self.shoot(stale);
                }
                Ok(None) => {}
                Err(error) => self.broken = Some(error),
            }
        }
        job.from = end;
        batch
    }

    /// Collapses the next 2 MiB; a huge page is left as it is.
    fn collapse_next(&mut self, job: &mut Job) -> Batch {
        let (at, end) = next_huge(job);
        let costs = &self.moves.costs;
        let copy = PageSize::M2.bytes() * (SECOND >> 20) / costs.copy_mib_s;
        let mut batch = Batch { time: costs.collapse_ns * NS, ..Batch::default() };
        match self.os.collapse_at(job.action.range.space, at) {
            Ok(Some(stale)) => {
                batch.done = end - at;
                batch.time += copy + self.shoot(stale);
            }
            Ok(None) => {
                batch.time = 0;
                job.met = true;
            }
            Err(why) => batch.fail(end - at, why),
        }
        job.from = end;
        batch
    }
}

/// The next 2 MiB of a split or collapse.
fn next_huge(job: &Job) -> (u64, u64) {
    let at = job.from & !(Level::PMD.entry_bytes() - 1);
    (at, (at + Level::PMD.entry_bytes()).min(job.action.range.end.max(at + 1)))
}
