//! Threads: whose accesses a core carries out, and at which pace.

use std::sync::Arc;
use std::time::Duration;

use tierscope_core::SpaceId;
use tierscope_hw::Root;
use tierscope_workloads::{Call, Lane, Next, Stream, Touch, Workload};

use super::operations::Operations;
use super::tier::{NS, SECOND};

/// Accesses that are drawn at a time.
const DRAWN: usize = 256;
/// Accesses that are drawn already, for the host to prefetch, when the next is carried out.
pub(super) const FORESEEN: usize = 48;

/// An access: the address, and whether it stores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Op(u64);

impl Op {
    #[inline(always)]
    pub(super) fn linear(self) -> u64 {
        self.0 >> 1
    }

    #[inline(always)]
    pub(super) fn stores(self) -> bool {
        self.0 & 1 == 1
    }
}

/// Most operations that wait at a time: what was foreseen, and a draw of which each reads and writes.
const HELD: usize = FORESEEN + 2 * DRAWN;

/// Where a thread's accesses come from.
pub(super) enum Source {
    /// A description, and this thread's share of it.
    Described(Arc<Workload>, Stream),
    /// A program's own computation.
    Computed(Box<dyn Lane>),
}

/// What a program's thread asks for once its accesses are carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asks {
    /// A system call.
    Call(Call),
    /// The other threads' progress.
    Others,
    /// To sleep until then.
    Until(u64),
    /// Its end.
    End,
}

/// A thread of a process.
pub(super) struct Thread {
    pub(super) space: SpaceId,
    /// Its process, of those that were ever started.
    pub(super) process: usize,
    /// The core that it runs on.
    pub(super) cpu: usize,
    pub(super) root: Root,
    /// Lines that it waits for at a time.
    pub(super) overlap: u64,
    /// Its stores go past the caches.
    pub(super) non_temporal: bool,
    source: Source,
    /// What it asks for when nothing is left.
    asks: Option<Asks>,
    /// It got on since [`Thread::got_on`] was asked.
    moved: bool,
    /// It waited for others when it was asked last.
    waited: bool,
    /// How far its process had got when it was asked last.
    pub(super) seen: u64,
    threads: u64,
    /// When its process began.
    began: u64,
    repeats: bool,
    pub(super) segment_ends: u64,
    ops: Vec<Op>,
    count: usize,
    at: usize,
    /// Time from one access to the next; 0 for as fast as can be.
    pub(super) pace: u64,
    /// When the next access is due.
    pub(super) due: u64,
    touches: Vec<Touch>,
    /// Accesses carried out.
    pub(super) carried: u64,
    /// How long its operations take.
    pub(super) operations: Operations,
}

/// How a thread takes part.
pub(super) struct Part {
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
    pub(super) fn new(part: Part, source: Source) -> Self {
        let mut thread = Self {
            space: part.space,
            process: part.process,
            cpu: part.cpu,
            root: part.root,
            overlap: part.overlap,
            non_temporal: part.non_temporal,
            source,
            asks: None,
            moved: false,
            waited: false,
            seen: 0,
            threads: part.threads,
            began: part.began,
            repeats: part.repeats,
            segment_ends: 0,
            ops: vec![Op::default(); HELD + FORESEEN + 1],
            count: 0,
            at: 0,
            pace: 0,
            due: part.began,
            touches: vec![Touch::default(); DRAWN],
            carried: 0,
            operations: Operations::new(part.began),
        };
        thread.enter(part.began);
        thread
    }

    /// Goes on with what the workload does at `now`; false if it is over.
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
        (self.waited, self.moved) = (false, false);
    }

    /// It sleeps until then.
    pub(super) fn sleep(&mut self, until: u64) {
        self.due = until;
        self.operations.rest(until);
    }

    /// So long after its process began.
    fn moment(&self, since: Duration) -> u64 {
        let nanos = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        nanos.saturating_mul(NS).saturating_add(self.began)
    }

    /// The accesses to come: [`Thread::left`] of them, and then at least [`FORESEEN`] of the past,
    /// so that the host may look ahead.
    #[inline(always)]
    pub(super) fn ops(&self) -> &[Op] {
        &self.ops[self.at..]
    }

    /// How many accesses are drawn.
    #[inline(always)]
    pub(super) fn left(&self) -> usize {
        self.count - self.at
    }

    /// Whether [`Thread::draw`] is due.
    #[inline(always)]
    pub(super) fn is_dry(&self) -> bool {
        self.left() < FORESEEN && self.asks.is_none()
    }

    /// What it asks for, now that its accesses are carried out.
    pub(super) fn take_asks(&mut self) -> Option<Asks> {
        self.asks.take()
    }

    /// Whether others who wait for it should be asked again.
    pub(super) fn got_on(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }

    /// Operations that it completed, in its program's unit.
    pub(super) fn operations(&self) -> u64 {
        match &self.source {
            Source::Described(..) => self.carried,
            Source::Computed(lane) => lane.operations(),
        }
    }

    /// Accesses until one of its operations ends.
    #[inline(always)]
    pub(super) fn until_an_end(&self) -> usize {
        self.operations.left(self.carried)
    }

    /// So many of them were carried out, at `now`.
    #[inline(always)]
    pub(super) fn done(&mut self, count: usize, now: u64) {
        self.at += count;
        self.carried += count as u64;
        self.operations.carried(self.carried, now);
    }

    /// Draws the next accesses: at least [`FORESEEN`] wait then, or it asks for something.
    pub(super) fn draw(&mut self, now: u64) {
        if let Source::Computed(lane) = &mut self.source {
            // Another core may have begun it anew, and be ahead.
            lane.now(Duration::from_nanos(now.saturating_sub(self.began) / NS));
        }
        self.ops.copy_within(self.at..self.count, 0);
        (self.count, self.at) = (self.count - self.at, 0);
        while self.is_dry() {
            let drawn = self.next_touches();
            self.push(drawn);
        }
    }

    /// Fills the front of the touches; says how many.
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
        // Coming to wait is a step too: it may be what another waits for.
        self.moved |= next != Next::Waits || !self.waited || lane.steps() != before;
        self.waited = next == Next::Waits;
        match next {
            Next::Touches(count) => return count,
            Next::Call(call) => self.asks = Some(Asks::Call(call)),
            Next::Waits => self.asks = Some(Asks::Others),
            Next::Until(since) => self.asks = Some(Asks::Until(self.moment(since))),
            Next::Ends => self.asks = Some(Asks::End),
        }
        0
    }

    fn push(&mut self, drawn: usize) {
        let mut count = self.count;
        for touch in &self.touches[..drawn] {
            let address = touch.address() << 1;
            self.ops[count] = Op(address);
            count += usize::from(touch.reads());
            self.ops[count] = Op(address | 1);
            count += usize::from(touch.writes());
            if touch.is_last() && (touch.reads() || touch.writes()) {
                self.operations.will_end(self.carried + (count - self.at) as u64);
            }
        }
        self.count = count;
    }
}
