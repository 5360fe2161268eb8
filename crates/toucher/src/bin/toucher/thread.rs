//! A thread that touches memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use tierscope_core::Time;
use tierscope_workloads::truth_dir::{Pieces, Span, Tally};
use tierscope_workloads::{Program, Stream, Touch, Workload};

use crate::clock;
use crate::memory::{store_non_temporal, touch};

/// Accesses between two reads of the clock.
const BATCH: usize = 512;
/// A paced thread with a larger backlog than this drops the excess.
const BACKLOG: Duration = Duration::from_millis(10);

/// State shared by all threads.
pub(crate) struct Shared {
    pub(crate) workload: Workload,
    pub(crate) program: Arc<Program>,
    pub(crate) bases: Vec<u64>,
    pub(crate) seed: u64,
    pub(crate) threads: u32,
    pub(crate) grain: Duration,
    pub(crate) limit: Duration,
    /// Accesses a second over all threads; overrides the rates of the phases.
    pub(crate) rate: Option<u64>,
    pub(crate) begin: Time,
    pub(crate) stop: AtomicBool,
}

/// Messages to the main thread.
pub(crate) enum Message {
    /// A thread has completed a piece.
    PieceDone { lane: u32, piece: usize, tally: Tally, at: Time },
    /// A thread has ended.
    Done,
    /// The process received a signal.
    Signal(i32),
}

impl Shared {
    pub(crate) fn pieces(&self) -> Pieces<'_> {
        Pieces::new(&self.workload, self.grain, self.limit)
    }
}

/// Touches memory until the workload ends or all threads are stopped.
pub(crate) fn work(shared: &Shared, lane: u32, messages: &Sender<Message>) {
    let mut stream = Stream::new(&shared.program, &shared.bases, shared.seed, lane, shared.threads);
    let mut segment = None;
    for (piece, span) in shared.pieces().enumerate() {
        if segment.replace(span.number) != Some(span.number) {
            stream.enter(&span.segment);
        }
        let (tally, at) = one_piece(shared, &mut stream, &span);
        // The receiver exists: the main thread outlives all threads.
        let _ = messages.send(Message::PieceDone { lane, piece, tally, at });
        if shared.stop.load(Ordering::Relaxed) {
            break;
        }
    }
    let _ = messages.send(Message::Done);
}

fn one_piece(shared: &Shared, stream: &mut Stream, span: &Span) -> (Tally, Time) {
    let end = shared.begin + span.end;
    let rate = shared.rate.or(shared.workload.phase(&span.segment).rate);
    let mut pace = rate
        .map(|rate| Pace::new(rate as f64 / f64::from(shared.threads), shared.begin + span.begin));
    let mut tally = Tally::default();
    let mut batch = [Touch::default(); BATCH];
    loop {
        let now = clock::now();
        if now >= end || shared.stop.load(Ordering::Relaxed) {
            return (tally, now);
        }
        let count = match &mut pace {
            None => BATCH,
            Some(pace) => match pace.due(now) {
                Due::Now(count) => count,
                Due::At(time) => {
                    std::thread::sleep(time.min(end) - now);
                    continue;
                }
            },
        };
        let batch = &mut batch[..count];
        stream.fill(batch);
        batch.iter().for_each(|t| match t.is_non_temporal() {
            true => store_non_temporal(t.address()),
            false => touch(t.address(), t.reads(), t.writes()),
        });
        tally.add(batch);
    }
}

/// Pacing of accesses at a constant rate.
struct Pace {
    nanos_each: f64,
    count: usize,
    /// Time at which the next batch is due, in nanoseconds.
    next: f64,
}

enum Due {
    Now(usize),
    At(Time),
}

impl Pace {
    fn new(rate: f64, begin: Time) -> Self {
        let nanos_each = 1e9 / rate;
        // At most one batch per millisecond: sleeping is not more precise.
        let count = (1e6 / nanos_each).clamp(1.0, BATCH as f64) as usize;
        Self { nanos_each, count, next: begin.0 as f64 }
    }

    fn due(&mut self, now: Time) -> Due {
        if (now.0 as f64) < self.next {
            return Due::At(Time(self.next as u64 + 1));
        }
        self.next = self.next.max(now.0 as f64 - BACKLOG.as_nanos() as f64);
        self.next += self.nanos_each * self.count as f64;
        Due::Now(self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Accesses due at each of these times, in ms.
    fn due(pace: &mut Pace, times: &[u64]) -> Vec<usize> {
        let ask = |ms: &u64| match pace.due(Time(ms * 1_000_000)) {
            Due::Now(count) => count,
            Due::At(_) => 0,
        };
        times.iter().map(ask).collect()
    }

    // 3000 accesses a second: 3 per millisecond.
    #[test]
    fn a_batch_a_millisecond() {
        assert_eq!(due(&mut Pace::new(3000.0, Time(0)), &[0, 0, 1, 1, 2]), [3, 0, 3, 0, 3]);
    }

    // Ten accesses a second: one per 100 ms.
    #[test]
    fn slow_paces_wait() {
        assert_eq!(
            due(&mut Pace::new(10.0, Time(0)), &[0, 50, 99, 101, 150, 201]),
            [1, 0, 0, 1, 0, 1]
        );
    }

    // A backlog of 100 ms: 10 ms are made up for, i.e. ten batches, and the one that is due now.
    #[test]
    fn a_long_break_is_not_made_up_for() {
        let made = due(&mut Pace::new(1000.0, Time(0)), &[100; 20]);
        assert_eq!(made.iter().sum::<usize>(), 11);
    }
}
