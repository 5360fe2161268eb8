//! Processes actions batch by batch. The mover's thread runs this; tests run it without a thread.
//!
//! A batch lies within 2 MiB. All limits are checked before each batch, so that a kill switch, a
//! limit or the target's exit stops a move of any size within 2 MiB.

use std::collections::{BTreeMap, VecDeque};

use tierscope_core::{
    Action, ActionKind, Failure, Level, Node, Outcome, PAGE_SIZE, Range, SpaceId, Tier, Time,
};

use super::account::{Account, Cause};
use super::batch::{BatchResult, Fate, carry};
use super::brake::Brake;
use super::brakes::Switch;
use super::kernel::Kernel;
use super::limits::{BATCH, Limits};
use super::paging;
use super::rate::Rate;
use super::refaults::Refaults;
use super::repeat::Repeats;
use super::users::{self, Lead};
use crate::space_owners::User;

/// State shared between the mover's owner and its thread.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub(crate) waiting: VecDeque<Action>,
    /// Bytes that may still be moved before the next submission.
    pub(crate) budget: u64,
    pub(crate) outcomes: Vec<Outcome>,
    pub(crate) account: Account,
    /// Ranges that moved and are not yet invalidated in the page-tier map.
    pub(crate) moved: Vec<Range>,
    pub(crate) limits: Limits,
    /// Whether the limits have changed.
    pub(crate) changed: bool,
    /// Whether the mover has to stop.
    pub(crate) stop: bool,
}

/// Most actions that wait: while a brake holds, a policy may go on ordering for hours.
const MOST_WAITING: usize = 1 << 16;

impl Queue {
    /// Takes orders; those for which there is no room fail at once.
    pub(crate) fn order(&mut self, actions: &[Action], now: Time) {
        for action in actions {
            let bytes = action.range.bytes();
            self.account.submitted += bytes;
            if self.waiting.len() < MOST_WAITING {
                self.account.waiting += bytes;
                self.waiting.push_back(*action);
                continue;
            }
            self.account.fail(Cause::TooMany, bytes);
            self.account.actions += 1;
            let why = Some(Cause::TooMany.failure());
            self.outcomes.push(Outcome { id: action.id, time: now, done: 0, failed: bytes, why });
        }
    }
}

/// Runs a closure with the shared state locked.
pub(crate) type LockedQueue<'a> = dyn Fn(&mut dyn FnMut(&mut Queue)) + 'a;

/// What the caller has to do after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Call `step` again.
    Go,
    /// Wait until this time, a submission or a change.
    At(Time),
    /// Wait for a submission or a change: there is nothing to do.
    Idle,
    /// End the thread.
    Done,
}

/// Nodes of each tier, with their low watermarks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Nodes by tier, with the bytes that the kernel keeps free on each.
    pub(crate) tiers: Vec<Vec<(Node, u64)>>,
}

impl Layout {
    /// The tier of a node; `None` for an error number, or for a node in no tier.
    pub(crate) fn tier_of(&self, node: i32) -> Option<u8> {
        let is_it = |(known, _): &(Node, u64)| i32::try_from(known.0) == Ok(node);
        let tier = self.tiers.iter().position(|nodes| nodes.iter().any(is_it))?;
        u8::try_from(tier).ok()
    }
}

/// An action being processed.
#[derive(Clone, Debug)]
struct Job {
    action: Action,
    /// Start of the unprocessed rest of the range.
    from: u64,
    done: u64,
    failed: BTreeMap<Cause, u64>,
    /// Whether a page was found so far.
    found_page: bool,
}

impl Job {
    fn outcome(&self, time: Time) -> Outcome {
        let most = self.failed.iter().max_by_key(|(_, bytes)| **bytes).map(|(cause, _)| *cause);
        let nothing = (!self.found_page).then_some(Failure::Unmapped);
        Outcome {
            id: self.action.id,
            time,
            done: self.done,
            failed: self.failed.values().sum(),
            why: most.map(Cause::failure).or(nothing),
        }
    }
}

/// A page of a batch: its address, and how many of its bytes were ordered.
#[derive(Clone, Copy, Debug)]
struct Page {
    at: u64,
    bytes: u64,
    tier: u8,
}

pub(crate) struct Worker<K> {
    pub(crate) kernel: K,
    layout: Layout,
    limits: Limits,
    rate: Rate,
    brake: Brake,
    repeats: Repeats,
    refaults: Refaults,
    job: Option<Job>,
}

impl<K: Kernel> Worker<K> {
    pub(crate) fn new(kernel: K, layout: Layout, limits: Limits) -> Self {
        let (rate, span) = (Rate::new(limits.bytes_per_second), limits.ping_pong);
        let (brake, repeats) = (Brake::default(), Repeats::new(span));
        let refaults = Refaults::default();
        Self { kernel, layout, limits, rate, brake, repeats, refaults, job: None }
    }

    /// Processes one batch, or returns when to try again. `queue` locks the shared state.
    pub(crate) fn step(&mut self, queue: &LockedQueue<'_>) -> Next {
        let (mut stop, mut budget) = (false, 0);
        queue(&mut |queue| {
            if std::mem::take(&mut queue.changed) {
                self.take_limits(&queue.limits);
            }
            (stop, budget) = (queue.stop, queue.budget);
            if self.job.is_none() {
                self.job = queue.waiting.pop_front().map(begin);
            }
        });
        self.check_refaults(queue);
        let Some(mut job) = self.job.take() else {
            if stop {
                let back = self.refaults.check_all(&mut self.kernel);
                queue(&mut |queue| queue.account.refaulted += back);
                return Next::Done;
            }
            return match self.refaults.due() {
                Some(due) => Next::At(due),
                None => Next::Idle,
            };
        };
        let mut batch = Account::default();
        let from = job.from;
        let next = self.work(&mut job, stop, budget, &mut batch);
        self.publish(job, from, &batch, queue);
        next
    }

    fn check_refaults(&mut self, queue: &LockedQueue<'_>) {
        let back = self.refaults.check(&mut self.kernel, self.limits.refaults);
        if back > 0 {
            queue(&mut |queue| queue.account.refaulted += back);
        }
    }

    fn take_limits(&mut self, limits: &Limits) {
        if limits.bytes_per_second != self.limits.bytes_per_second {
            self.rate.set_limit(limits.bytes_per_second);
        }
        self.repeats.set_span(limits.ping_pong);
        self.brake.reset();
        self.limits = limits.clone();
    }

    /// Publishes the results of a step; an unfinished job continues in the next step.
    fn publish(&mut self, job: Job, from: u64, batch: &Account, queue: &LockedQueue<'_>) {
        let over = job.from >= job.action.range.end;
        let outcome = over.then(|| job.outcome(self.kernel.now()));
        queue(&mut |queue| {
            queue.account.take_in(batch, job.from - from);
            let touched = batch.moved() + batch.reclaimed;
            queue.budget = queue.budget.saturating_sub(touched - batch.carried);
            if touched > 0 {
                let range = Range { start: from, end: job.from, ..job.action.range };
                queue.moved.push(range);
            }
            if let Some(outcome) = outcome {
                queue.account.actions += 1;
                queue.outcomes.push(outcome);
            }
        });
        self.job = (!over).then_some(job);
    }

    fn work(&mut self, job: &mut Job, stop: bool, budget: u64, account: &mut Account) -> Next {
        let now = self.kernel.now();
        let to = match job.action.kind {
            ActionKind::Move(tier) => Some(tier),
            ActionKind::Reclaim => None,
            _ => return give_up(job, account, Cause::Unsupported),
        };
        if stop {
            return give_up(job, account, Cause::Stopped);
        }
        let switch = self.limits.kill_switch.as_deref().map(|path| self.kernel.switch(path));
        match switch {
            None | Some(Switch::Off) => {}
            Some(Switch::On) => return give_up(job, account, Cause::Switched),
            Some(Switch::Unreadable(_)) => return give_up(job, account, Cause::SwitchUnreadable),
        }
        if to.is_some_and(|to| usize::from(to.0) >= self.layout.tiers.len()) {
            return give_up(job, account, Cause::UnknownTier);
        }
        let kernel = &mut self.kernel;
        if let Some(until) = self.brake.until(now, self.limits.stalled, || kernel.stalled()) {
            return Next::At(until);
        }
        if to.is_none()
            && let Some(until) = self.refaults.until(now)
        {
            return Next::At(until);
        }
        if budget < PAGE_SIZE {
            return Next::Idle;
        }
        let users = self.kernel.users(&whole_pages(&next_batch(job)));
        if users.is_empty() {
            return self.skip(job, account);
        }
        match to {
            Some(to) => self.batch(job, &users, to, budget, account),
            None => self.page_out(job, &users, budget, account),
        }
    }

    /// Skips a batch that no process maps; ends the job if none maps the rest of it either.
    fn skip(&mut self, job: &mut Job, account: &mut Account) -> Next {
        let rest = Range { start: job.from, ..job.action.range };
        if self.kernel.users(&whole_pages(&rest)).is_empty() {
            return give_up(job, account, Cause::Gone);
        }
        let batch = next_batch(job);
        account.absent += batch.bytes();
        job.from = batch.end;
        Next::Go
    }

    /// Reclaims the next batch of a job.
    fn page_out(
        &mut self,
        job: &mut Job,
        users: &[User],
        budget: u64,
        account: &mut Account,
    ) -> Next {
        let (now, space) = (self.kernel.now(), job.action.range.space);
        let mut range = next_batch(job);
        let mut wanted = pages(&range);
        let Some(Lead { user, pages }) = self.lead(users, &wanted) else {
            return give_up(job, account, Cause::Gone);
        };
        range.end = wanted.get(pages).map_or(range.end, |page| page.at);
        // Pages that the process does not map at all are before or behind its part.
        if range.start < user.range.start {
            account.absent += user.range.start - range.start;
            job.from = user.range.start;
            return Next::Go;
        }
        range.end = range.end.min(user.range.end);
        wanted.retain(|page| page.at < range.end);
        let first = user.address(range.start & !(PAGE_SIZE - 1));
        let all = wanted.len() as u64 * PAGE_SIZE;
        // A batch is not split: a huge page is reclaimed as a whole, and a smaller call costs as
        // much.
        let allowed = self.rate.allows(now).min(budget.max(BATCH));
        if allowed < all {
            return Next::At(self.rate.when(now, all));
        }
        let count = wanted.len() as u64;
        let dry = self.limits.dry_run;
        let done = match paging::reclaim(&mut self.kernel, user.owner.pid, (first, count), dry) {
            Ok(done) => done,
            Err(cause) => return give_up(job, account, cause),
        };
        account.calls += u64::from(done.calls);
        let end = self.kernel.now();
        for (page, fate) in wanted.iter().zip(&done.fates) {
            match fate {
                paging::Fate::Absent => account.absent += page.bytes,
                paging::Fate::Already => {
                    account.already += page.bytes;
                    job.found_page = true;
                }
                paging::Fate::Stayed(cause) => job.fail(account, *cause, page.bytes),
                paging::Fate::Out => {
                    account.reclaimed += page.bytes;
                    job.done += page.bytes;
                    job.found_page = true;
                    self.refaults.reclaimed(space, page.at, end);
                }
            }
        }
        self.rate.spend(end, account.reclaimed);
        job.from = range.end;
        Next::Go
    }

    /// The process through which the first of the pages are reclaimed.
    fn lead(&mut self, users: &[User], wanted: &[Page]) -> Option<Lead> {
        if let [user] = users {
            return Some(Lead { user: *user, pages: wanted.len() });
        }
        let addresses: Vec<u64> = wanted.iter().map(|page| page.at).collect();
        users::mapped(&mut self.kernel, users, &addresses).lead(users, &addresses)
    }

    /// Migrates the next batch of a job.
    fn batch(
        &mut self,
        job: &mut Job,
        users: &[User],
        to: Tier,
        budget: u64,
        account: &mut Account,
    ) -> Next {
        let mut range = next_batch(job);
        let mut pages = pages(&range);
        let addresses: Vec<u64> = pages.iter().map(|page| page.at).collect();
        let found = users::locate(&mut self.kernel, users, &addresses);
        if let Some(error) = &found.failed {
            return give_up(job, account, Cause::of_call(error.raw_os_error().unwrap_or(0)));
        }
        let Some(lead) = found.lead(users, &addresses) else {
            return give_up(job, account, Cause::Gone);
        };
        range.end = pages.get(lead.pages).map_or(range.end, |page| page.at);
        pages.truncate(lead.pages);
        let (user, nodes) = (lead.user, found.nodes);
        let there = |node: i32| self.layout.tier_of(node);
        let wanted: Vec<Page> = pages
            .iter()
            .zip(&nodes)
            .filter_map(|(page, node)| Some(Page { tier: there(*node)?, ..*page }))
            .filter(|page| page.tier != to.0)
            .collect();
        let now = self.kernel.now();
        let allowed = self.rate.allows(now);
        let most = (allowed.min(budget) / PAGE_SIZE) as usize;
        // A huge page moves as a whole, even if only a part of it was ordered.
        let huge = wanted
            .first()
            .is_some_and(|page| self.kernel.is_huge(user.owner.pid, user.address(page.at)));
        let cost = if huge { BATCH } else { wanted.len() as u64 * PAGE_SIZE };
        if !wanted.is_empty() && (most == 0 || (huge && allowed < cost)) {
            let enough = if huge { cost } else { cost.min(self.limits.bytes_per_second / 16) };
            return Next::At(self.rate.when(now, enough.max(PAGE_SIZE)));
        }
        // Pages beyond the rate limit are left for the next batch.
        let end = wanted.get(most).map_or(range.end, |page| page.at);
        for (page, node) in pages.iter().zip(&nodes).filter(|(page, _)| page.at < end) {
            match there(*node) {
                Some(tier) if tier == to.0 => account.already += page.bytes,
                Some(_) => continue,
                None if *node >= 0 => job.fail(account, Cause::Unsupported, page.bytes),
                None => {
                    account.absent += page.bytes;
                    continue;
                }
            }
            job.found_page = true;
        }
        let now_wanted: Vec<Page> = wanted.into_iter().filter(|page| page.at < end).collect();
        job.found_page |= !now_wanted.is_empty();
        self.move_some(job, &user, (to, huge), now_wanted, account);
        job.from = end;
        Next::Go
    }

    /// Migrates pages of a batch, unless a limit refuses them.
    fn move_some(
        &mut self,
        job: &mut Job,
        user: &User,
        (to, huge): (Tier, bool),
        wanted: Vec<Page>,
        account: &mut Account,
    ) {
        let (space, now) = (job.action.range.space, self.kernel.now());
        let refused = |page: &Page| self.repeats.judge(space, page.at, now).refused;
        let all = huge && wanted.iter().any(refused);
        let (pages, free): (Vec<Page>, Vec<Page>) =
            wanted.into_iter().partition(|page| all || refused(page));
        let refused: u64 = pages.iter().map(|page| page.bytes).sum();
        job.fail(account, Cause::PingPong, refused);
        if free.is_empty() {
            return;
        }
        let bytes: u64 = free.iter().map(|page| page.bytes).sum();
        let needs = if huge { BATCH } else { free.len() as u64 * PAGE_SIZE };
        let node = match self.room(to, needs) {
            Ok(node) => node,
            Err(cause) => return job.fail(account, cause, bytes),
        };
        if self.limits.dry_run {
            return job.fail(account, Cause::DryRun, bytes);
        }
        let addresses: Vec<u64> = free.iter().map(|page| user.address(page.at)).collect();
        let process = (user.owner.pid, user.with_others);
        let carried = carry(&mut self.kernel, process, &addresses, node);
        account.calls += u64::from(carried.calls);
        self.judge(job, (space, to, huge), &free, &carried, account);
    }

    /// Accounts for the outcome of each page of a batch.
    fn judge(
        &mut self,
        job: &mut Job,
        (space, to, huge): (SpaceId, Tier, bool),
        pages: &[Page],
        carried: &BatchResult,
        account: &mut Account,
    ) {
        let (end, mut moved) = (self.kernel.now(), 0);
        for (page, fate) in pages.iter().zip(&carried.fates) {
            match fate {
                Fate::Absent => account.absent += page.bytes,
                Fate::Failed(cause) => job.fail(account, *cause, page.bytes),
                Fate::Moved => {
                    let up = to.0 < page.tier;
                    let verdict = self.repeats.judge(space, page.at, end);
                    account.ping_pong += if verdict.second { page.bytes } else { 0 };
                    let returned = verdict.was_promoted && !up;
                    account.returned += if returned { page.bytes } else { 0 };
                    *(if up { &mut account.promoted } else { &mut account.demoted }) += page.bytes;
                    job.done += page.bytes;
                    moved += PAGE_SIZE;
                    if !huge {
                        let whole = Range::new(space, page.at, page.at + PAGE_SIZE);
                        self.repeats.record(&whole, end, up);
                    }
                }
            }
        }
        if let Some(page) = pages.first().filter(|_| huge && moved > 0) {
            let head = page.at & !(BATCH - 1);
            let whole = Range::new(space, head, head + BATCH);
            self.repeats.record(&whole, end, to.0 < page.tier);
            account.carried += BATCH - moved;
            moved = BATCH;
        }
        self.rate.spend(end, moved);
    }

    /// The node of a tier with the most free memory, if `bytes` fit there.
    fn room(&mut self, tier: Tier, bytes: u64) -> Result<Node, Cause> {
        let mut best: Option<(u64, Node)> = None;
        for (node, mark) in &self.layout.tiers[usize::from(tier.0)] {
            let Some(memory) = self.kernel.memory(*node) else { continue };
            let room = memory.free.saturating_sub(mark + self.limits.keep_free);
            if best.is_none_or(|(most, _)| room > most) {
                best = Some((room, *node));
            }
        }
        match best {
            None => Err(Cause::Offline),
            Some((room, _)) if room < bytes => Err(Cause::NoRoom),
            Some((_, node)) => Ok(node),
        }
    }
}

impl Job {
    fn fail(&mut self, account: &mut Account, cause: Cause, bytes: u64) {
        if bytes > 0 {
            account.fail(cause, bytes);
            *self.failed.entry(cause).or_default() += bytes;
            self.found_page = true;
        }
    }
}

impl Account {
    /// Adds the results of a step, after which `ended` bytes no longer wait.
    fn take_in(&mut self, step: &Account, ended: u64) {
        self.waiting -= ended;
        self.promoted += step.promoted;
        self.demoted += step.demoted;
        self.reclaimed += step.reclaimed;
        self.already += step.already;
        self.absent += step.absent;
        step.failed.iter().for_each(|(cause, bytes)| self.fail(*cause, *bytes));
        self.carried += step.carried;
        self.ping_pong += step.ping_pong;
        self.returned += step.returned;
        self.calls += step.calls;
    }
}

fn begin(action: Action) -> Job {
    Job { from: action.range.start, action, done: 0, failed: BTreeMap::new(), found_page: false }
}

/// Fails the rest of a job.
fn give_up(job: &mut Job, account: &mut Account, cause: Cause) -> Next {
    let left = job.action.range.end - job.from;
    job.fail(account, cause, left);
    job.from = job.action.range.end;
    Next::Go
}

/// The next batch of a job, up to the next multiple of 2 MiB.
fn next_batch(job: &Job) -> Range {
    let end = (job.from | (BATCH - 1)).saturating_add(1);
    Range { start: job.from, end: end.min(job.action.range.end), ..job.action.range }
}

fn whole_pages(range: &Range) -> Range {
    Level::PTE.align(range)
}

/// The pages of a range. The first and the last may be covered partially.
fn pages(range: &Range) -> Vec<Page> {
    let first = range.start & !(PAGE_SIZE - 1);
    let page =
        |at: u64| Page { at, bytes: range.end.min(at + PAGE_SIZE) - range.start.max(at), tier: 0 };
    (first..range.end).step_by(PAGE_SIZE as usize).map(page).collect()
}

#[cfg(test)]
mod tests;
