//! Threads: whose accesses a core carries out, and at which pace.

use std::sync::Arc;
use std::time::Duration;

use tierscope_core::SpaceId;
use tierscope_hw::Root;
use tierscope_workloads::{Segment, Stream, Touch, Workload};

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

/// A thread of a process.
pub(super) struct Thread {
    pub(super) space: SpaceId,
    pub(super) root: Root,
    /// Lines that it waits for at a time.
    pub(super) overlap: u64,
    /// Its stores go past the caches.
    pub(super) non_temporal: bool,
    workload: Arc<Workload>,
    stream: Stream,
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
}

/// How a thread takes part.
pub(super) struct Part {
    pub(super) space: SpaceId,
    pub(super) root: Root,
    pub(super) overlap: u64,
    pub(super) non_temporal: bool,
    pub(super) threads: u64,
    pub(super) began: u64,
    pub(super) repeats: bool,
}

impl Thread {
    pub(super) fn new(part: Part, workload: Arc<Workload>, stream: Stream) -> Self {
        let mut thread = Self {
            space: part.space,
            root: part.root,
            overlap: part.overlap,
            non_temporal: part.non_temporal,
            workload,
            stream,
            threads: part.threads,
            began: part.began,
            repeats: part.repeats,
            segment_ends: 0,
            ops: vec![Op::default(); FORESEEN + 2 * DRAWN + 1],
            count: 0,
            at: 0,
            pace: 0,
            due: part.began,
            touches: vec![Touch::default(); DRAWN],
        };
        thread.enter(part.began);
        thread
    }

    /// Goes on with what the workload does at `now`; false if it is over.
    pub(super) fn enter(&mut self, now: u64) -> bool {
        let since = Duration::from_nanos((now - self.began) / NS);
        let segment = self.workload.segment_at(since);
        if segment.pass > 0 && !self.repeats {
            return false;
        }
        self.stream.enter(&segment);
        self.segment_ends = self.end_of(&segment);
        let rate = self.workload.phase(&segment).rate;
        self.pace = rate.map_or(0, |rate| {
            (u128::from(SECOND) * u128::from(self.threads) / u128::from(rate)) as u64
        });
        self.due = self.due.max(now);
        (self.count, self.at) = (0, 0);
        true
    }

    fn end_of(&self, segment: &Segment) -> u64 {
        let end = u64::try_from(segment.end.as_nanos()).unwrap_or(u64::MAX);
        end.saturating_mul(NS).saturating_add(self.began)
    }

    /// The accesses to come, at least [`FORESEEN`] of them.
    #[inline(always)]
    pub(super) fn ops(&mut self) -> &[Op] {
        if self.is_dry() {
            self.draw();
        }
        &self.ops[self.at..self.count]
    }

    /// Whether [`Thread::ops`] would draw.
    #[inline(always)]
    pub(super) fn is_dry(&self) -> bool {
        self.count - self.at < FORESEEN
    }

    /// So many of them were carried out.
    #[inline(always)]
    pub(super) fn done(&mut self, count: usize) {
        self.at += count;
    }

    fn draw(&mut self) {
        self.stream.fill(&mut self.touches);
        self.ops.copy_within(self.at..self.count, 0);
        let mut count = self.count - self.at;
        for touch in &self.touches {
            let address = touch.address() << 1;
            self.ops[count] = Op(address);
            count += usize::from(touch.reads());
            self.ops[count] = Op(address | 1);
            count += usize::from(touch.writes());
        }
        (self.count, self.at) = (count, 0);
    }
}
