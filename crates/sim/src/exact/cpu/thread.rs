//! Threads: sources of the accesses that a core executes, and their pace.

use std::sync::Arc;
use std::time::Duration;

use tierscope_core::SpaceId;
use tierscope_hw::Root;
use tierscope_workloads::{Call, Lane, Next, Stream, Touch, Workload};

use super::operations::Operations;
use crate::exact::units::{NS, SECOND};

/// Number of accesses drawn at a time.
const DRAWN: usize = 256;
/// Number of accesses drawn ahead of the next one, for the host to prefetch.
pub(super) const LOOKAHEAD: usize = 48;

/// Most accesses queued at a time: the lookahead, and a draw in which each touch reads and writes.
const MOST_QUEUED: usize = LOOKAHEAD + 2 * DRAWN;

/// Source of a thread's accesses.
pub(super) enum Source {
    /// A described workload, and this thread's share of it.
    Described(Arc<Workload>, Stream),
    /// A program's own computation.
    Computed(Box<dyn Lane>),
}

/// A request of a program's thread after its accesses are executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThreadRequest {
    /// A system call.
    Call(Call),
    /// Progress of other threads.
    Wait,
    /// To sleep until then.
    Sleep(u64),
    /// The end of the thread.
    End,
}

/// A thread of a process.
pub(in crate::exact) struct Thread {
    pub(in crate::exact) space: SpaceId,
    /// Index of the thread's process among all that were ever started.
    pub(super) process: usize,
    /// The core that the thread runs on.
    pub(super) cpu: usize,
    pub(super) root: Root,
    /// Lines that the thread waits for at a time.
    pub(super) overlap: u64,
    /// The thread's stores bypass the caches.
    pub(super) non_temporal: bool,
    source: Source,
    /// The thread's request after all drawn accesses.
    request: Option<ThreadRequest>,
    /// The thread advanced since the last [`Thread::take_advanced`].
    advanced: bool,
    /// The thread waited for others at the last draw.
    waited: bool,
    /// The process's step count when the thread last waited or advanced.
    pub(super) seen: u64,
    threads: u64,
    /// Start time of the thread's process.
    began: u64,
    repeats: bool,
    pub(super) segment_ends: u64,
    /// Accesses that read or write, but not both.
    ops: Vec<Touch>,
    count: usize,
    at: usize,
    /// Time between two accesses; 0 for no limit.
    pub(super) pace: u64,
    /// Time at which the next access is due.
    pub(super) due: u64,
    touches: Vec<Touch>,
    /// Accesses executed.
    pub(super) carried: u64,
    /// Durations of the thread's operations.
    pub(super) operations: Operations,
}

/// A thread's parameters within its process.
pub(super) struct ThreadConfig {
    pub(super) space: SpaceId,
    pub(super) process: usize,
    pub(super) cpu: usize,
    pub(super) root: Root,
    pub(super) overlap: u64,
    pub(super) non_temporal: bool,
    pub(super) threads: u64,
    pub(super) began: u64,
    pub(super) repeats: bool,
}

impl Thread {
    pub(super) fn new(config: ThreadConfig, source: Source) -> Self {
        let mut thread = Self {
            space: config.space,
            process: config.process,
            cpu: config.cpu,
            root: config.root,
            overlap: config.overlap,
            non_temporal: config.non_temporal,
            source,
            request: None,
            advanced: false,
            waited: false,
            seen: 0,
            threads: config.threads,
            began: config.began,
            repeats: config.repeats,
            segment_ends: 0,
            ops: vec![Touch::default(); MOST_QUEUED + LOOKAHEAD + 1],
            count: 0,
            at: 0,
            pace: 0,
            due: config.began,
            touches: vec![Touch::default(); DRAWN],
            carried: 0,
            operations: Operations::new(config.began),
        };
        thread.enter(config.began);
        thread
    }

    /// Continues with the workload's next segment at `now`; false if it is over.
    pub(super) fn enter(&mut self, now: u64) -> bool {
        self.due = self.due.max(now);
        (self.count, self.at) = (0, 0);
        let Source::Described(workload, stream) = &mut self.source else {
            self.segment_ends = u64::MAX;
            return true;
        };
        let since = Duration::from_nanos((now - self.began) / NS);
        let segment = workload.segment_at(since);
        if segment.pass > 0 && !self.repeats {
            return false;
        }
        stream.enter(&segment);
        let rate = workload.phase(&segment).rate;
        self.segment_ends = self.moment(segment.end);
        self.pace = rate.map_or(0, |rate| {
            (u128::from(SECOND) * u128::from(self.threads) / u128::from(rate)) as u64
        });
        true
    }

    /// Begins a program's next run.
    pub(super) fn restart(&mut self, lane: Box<dyn Lane>, now: u64) {
        self.source = Source::Computed(lane);
        (self.began, self.due) = (now, now);
        self.operations.rest(now);
        (self.waited, self.advanced) = (false, false);
    }

    /// Sleeps until `until`.
    pub(super) fn sleep(&mut self, until: u64) {
        self.due = until;
        self.operations.rest(until);
    }

    /// The time that is `since` after the process began, in ps.
    fn moment(&self, since: Duration) -> u64 {
        let nanos = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        nanos.saturating_mul(NS).saturating_add(self.began)
    }

    /// The accesses to come: [`Thread::left`] of them, followed by at least [`LOOKAHEAD`] old ones,
    /// so that the host can look ahead.
    #[inline(always)]
    pub(super) fn ops(&self) -> &[Touch] {
        &self.ops[self.at..]
    }

    /// Number of drawn accesses.
    #[inline(always)]
    pub(super) fn left(&self) -> usize {
        self.count - self.at
    }

    /// Whether [`Thread::draw`] is due.
    #[inline(always)]
    pub(super) fn is_dry(&self) -> bool {
        self.left() < LOOKAHEAD && self.request.is_none()
    }

    /// Takes the thread's request after its accesses are executed.
    pub(super) fn take_request(&mut self) -> Option<ThreadRequest> {
        self.request.take()
    }

    /// Whether the thread has advanced, so that threads waiting for it should retry.
    pub(super) fn take_advanced(&mut self) -> bool {
        std::mem::take(&mut self.advanced)
    }

    /// Operations that the thread completed, in its program's unit.
    pub(super) fn operations(&self) -> u64 {
        match &self.source {
            Source::Described(..) => self.carried,
            Source::Computed(lane) => lane.operations(),
        }
    }

    /// Accesses until one of the thread's operations ends.
    #[inline(always)]
    pub(super) fn until_an_end(&self) -> usize {
        self.operations.left(self.carried)
    }

    /// `count` of the thread's accesses were executed by `now`.
    #[inline(always)]
    pub(super) fn done(&mut self, count: usize, now: u64) {
        self.at += count;
        self.carried += count as u64;
        self.operations.carried(self.carried, now);
    }

    /// Draws the next accesses: afterwards at least [`LOOKAHEAD`] are queued, or a request is
    /// pending.
    pub(super) fn draw(&mut self, now: u64) {
        if let Source::Computed(lane) = &mut self.source {
            // Another core that is ahead may have restarted the program.
            lane.now(Duration::from_nanos(now.saturating_sub(self.began) / NS));
        }
        self.ops.copy_within(self.at..self.count, 0);
        (self.count, self.at) = (self.count - self.at, 0);
        while self.is_dry() {
            let drawn = self.next_touches();
            self.push(drawn);
        }
    }

    /// Fills the front of the touches; returns their number.
    fn next_touches(&mut self) -> usize {
        let lane = match &mut self.source {
            Source::Described(_, stream) => {
                stream.fill(&mut self.touches);
                return DRAWN;
            }
            Source::Computed(lane) => lane,
        };
        let before = lane.steps();
        let next = lane.next(&mut self.touches);
        // Beginning to wait is progress too: another thread may wait for it.
        self.advanced |= next != Next::Waits || !self.waited || lane.steps() != before;
        self.waited = next == Next::Waits;
        match next {
            Next::Touches(count) => return count,
            Next::Call(call) => self.request = Some(ThreadRequest::Call(call)),
            Next::Waits => self.request = Some(ThreadRequest::Wait),
            Next::Until(since) => self.request = Some(ThreadRequest::Sleep(self.moment(since))),
            Next::Ends => self.request = Some(ThreadRequest::End),
        }
        0
    }

    fn push(&mut self, drawn: usize) {
        let mut count = self.count;
        let drawn = &self.touches[..drawn];
        if drawn.iter().all(|touch| touch.is_single()) {
            self.ops[count..][..drawn.len()].copy_from_slice(drawn);
            self.count += drawn.len();
            return;
        }
        for touch in drawn {
            let [read, write] = touch.halves();
            self.ops[count] = read;
            count += usize::from(touch.reads());
            self.ops[count] = if touch.reads() { write } else { *touch };
            count += usize::from(touch.writes());
            if touch.is_last() && (touch.reads() || touch.writes()) {
                self.operations.will_end(self.carried + (count - self.at) as u64);
            }
        }
        self.count = count;
    }
}
