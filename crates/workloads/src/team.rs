//! Threads that compute together: parallel loops whose items are dispatched in chunks, with a
//! barrier after each, as OpenMP's `schedule(dynamic)` does.
//!
//! A [`Kernel`] computes; a [`TeamLane`] hands out the accesses. One lock protects all state; it is
//! taken once per some thousand accesses, so that machines that run lanes one after another get the
//! same accesses in every run, and real threads can run lanes as well.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use crate::{Lane, Next, Touch};

/// Minimum number of accesses that a lane computes before it hands them out.
const FULL: usize = 2048;

/// An array of fixed-size elements in the program's memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Array {
    base: u64,
    width: u64,
}

impl Array {
    pub(crate) fn new(base: u64, width: u64) -> Self {
        Self { base, width }
    }

    pub(crate) fn width(self) -> u64 {
        self.width
    }

    /// The address of an element.
    #[inline(always)]
    fn at(self, index: u64) -> u64 {
        self.base + index * self.width
    }
}

/// Accesses that were computed but not handed out yet.
#[derive(Debug, Default)]
pub(crate) struct Out {
    touches: Vec<Touch>,
    operations: u64,
}

impl Out {
    #[inline(always)]
    pub(crate) fn read(&mut self, array: Array, index: impl Into<u64>) {
        self.touches.push(Touch::read(array.at(index.into())));
    }

    #[inline(always)]
    pub(crate) fn write(&mut self, array: Array, index: impl Into<u64>) {
        self.touches.push(Touch::write(array.at(index.into())));
    }

    /// Reads and then writes an element: a counter, or an atomic exchange.
    #[inline(always)]
    pub(crate) fn update(&mut self, array: Array, index: impl Into<u64>) {
        self.touches.push(Touch::update(array.at(index.into())));
    }

    /// Counts operations that are complete with the accesses so far.
    #[inline(always)]
    pub(crate) fn complete(&mut self, operations: u64) {
        self.operations += operations;
    }

    /// Whether the kernel should pause: there are enough accesses to hand out.
    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.touches.len() >= FULL
    }

    /// Writes an array's first bytes line by line, as a fill does.
    pub(crate) fn fill(&mut self, array: Array, bytes: u64) {
        let lines = Array::new(array.base, LINE);
        (0..bytes.div_ceil(LINE)).for_each(|line| self.write(lines, line));
    }
}

/// Bytes of a cache line: a fill stores one at a time.
pub(crate) const LINE: u64 = 64;

/// A parallel loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Loop {
    /// Number of items.
    pub(crate) items: u64,
    /// Number of items that a lane takes at a time.
    pub(crate) chunk: u64,
}

/// A computation as a sequence of parallel loops.
pub(crate) trait Kernel: Send {
    /// Returns the next loop, once all lanes have completed the previous one; `None` at the end.
    /// Accesses of the sequential part in between go to `out`.
    fn next_loop(&mut self, out: &mut Out) -> Option<Loop>;

    /// Computes an item.
    fn one(&mut self, lane: usize, item: u64, out: &mut Out);

    /// Completes a lane's part of the loop when no items are left, before the barrier. `false` if
    /// `out` is full and work remains.
    fn finish(&mut self, _lane: usize, _out: &mut Out) -> bool {
        true
    }
}

/// A kernel and the progress of its lanes.
struct Team<K> {
    kernel: K,
    lanes: usize,
    /// Number of the current loop, from 1.
    number: u64,
    current: Loop,
    /// The first item that no lane has taken.
    next: u64,
    /// Lanes that have reached the barrier of the current loop.
    arrived: usize,
    over: bool,
}

/// A thread of a team.
struct TeamLane<K> {
    team: Arc<Mutex<Team<K>>>,
    lane: usize,
    /// Number of the loop that the lane works on, or whose barrier it waits at.
    number: u64,
    items: Range<u64>,
    arrived: bool,
    out: Out,
    /// Number of accesses in `out` that were handed out.
    handed: usize,
}

/// The lanes that compute a kernel.
pub(crate) fn team<K: Kernel + 'static>(kernel: K, lanes: u32) -> Vec<Box<dyn Lane>> {
    let lanes = lanes as usize;
    let current = Loop { items: 0, chunk: 1 };
    let team = Team { kernel, lanes, number: 0, current, next: 0, arrived: lanes, over: false };
    let team = Arc::new(Mutex::new(team));
    let lane = |lane| TeamLane {
        team: Arc::clone(&team),
        lane,
        number: 0,
        items: 0..0,
        arrived: true,
        out: Out::default(),
        handed: 0,
    };
    (0..lanes).map(|number| Box::new(lane(number)) as Box<dyn Lane>).collect()
}

impl<K: Kernel> Team<K> {
    /// Begins the next loop if all lanes have reached the barrier.
    fn advance(&mut self, out: &mut Out) {
        if self.arrived == self.lanes && !self.over {
            match self.kernel.next_loop(out) {
                None => self.over = true,
                Some(next) => {
                    (self.current, self.next, self.arrived) = (next, 0, 0);
                    self.number += 1;
                }
            }
        }
    }

    /// Takes the next chunk of items.
    fn take(&mut self) -> Range<u64> {
        let first = self.next;
        self.next = first.saturating_add(self.current.chunk).min(self.current.items);
        first..self.next
    }
}

impl<K: Kernel> TeamLane<K> {
    /// Computes until there are enough accesses to hand out; otherwise returns the reason for the
    /// pause.
    fn compute(&mut self) -> Option<Next> {
        // A panic in one lane leaves the kernel usable: the other lanes must not panic too.
        let mut team = self.team.lock().unwrap_or_else(PoisonError::into_inner);
        let team = &mut *team;
        while !self.out.is_full() {
            team.advance(&mut self.out);
            if team.over {
                return Some(Next::Ends);
            }
            if self.number != team.number {
                (self.number, self.arrived) = (team.number, false);
            }
            if self.arrived {
                return Some(Next::Waits);
            }
            if self.items.is_empty() {
                self.items = team.take();
            }
            if let Some(item) = self.items.next() {
                team.kernel.one(self.lane, item, &mut self.out);
            } else if team.kernel.finish(self.lane, &mut self.out) {
                self.arrived = true;
                team.arrived += 1;
            }
        }
        None
    }
}

impl<K: Kernel> Lane for TeamLane<K> {
    fn next(&mut self, out: &mut [Touch]) -> Next {
        if self.handed == self.out.touches.len() {
            self.out.touches.clear();
            self.handed = 0;
            if let Some(next) = self.compute()
                && self.out.touches.is_empty()
            {
                return next;
            }
        }
        let left = &self.out.touches[self.handed..];
        let count = left.len().min(out.len());
        out[..count].copy_from_slice(&left[..count]);
        self.handed += count;
        Next::Touches(count)
    }

    // Two steps per loop: entering it, and reaching its barrier.
    fn steps(&self) -> u64 {
        2 * self.number + u64::from(self.arrived)
    }

    fn operations(&self) -> u64 {
        self.out.operations
    }
}

/// A kernel whose input is first loaded into memory: arrays are written from front to back, as if
/// read from a file.
pub(crate) struct Loaded<K> {
    /// Arrays still to be loaded, and their bytes.
    arrays: Vec<(Array, u64)>,
    current: Array,
    kernel: K,
}

impl<K> Loaded<K> {
    pub(crate) fn new(mut arrays: Vec<(Array, u64)>, kernel: K) -> Self {
        arrays.reverse();
        Self { arrays, current: Array::default(), kernel }
    }
}

impl<K: Kernel> Kernel for Loaded<K> {
    fn next_loop(&mut self, out: &mut Out) -> Option<Loop> {
        self.current = Array::default();
        let Some((array, bytes)) = self.arrays.pop() else { return self.kernel.next_loop(out) };
        self.current = Array::new(array.base, LINE);
        // A chunk of 1 MiB.
        Some(Loop { items: bytes.div_ceil(LINE), chunk: 16_384 })
    }

    fn one(&mut self, lane: usize, item: u64, out: &mut Out) {
        if self.current.width == 0 {
            self.kernel.one(lane, item, out);
        } else {
            out.write(self.current, item);
        }
    }

    fn finish(&mut self, lane: usize, out: &mut Out) -> bool {
        self.current.width != 0 || self.kernel.finish(lane, out)
    }
}

/// Runs all lanes in turn until they end; returns the accesses that they handed out. A waiting lane
/// is stepped again only after another lane made a step.
#[cfg(test)]
pub(crate) fn run_out(lanes: &mut [Box<dyn Lane>], batch: usize) -> Vec<Vec<Touch>> {
    let mut all = vec![Vec::new(); lanes.len()];
    let mut buffer = vec![Touch::default(); batch];
    let mut awake = vec![true; lanes.len()];
    let mut waited = vec![false; lanes.len()];
    let mut alive = lanes.len();
    while alive > 0 {
        let at = awake.iter().position(|awake| *awake).expect("not all wait for each other");
        let before = lanes[at].steps();
        let next = lanes[at].next(&mut buffer);
        let waits = next == Next::Waits;
        if !waits || !waited[at] || lanes[at].steps() != before {
            (0..lanes.len()).filter(|other| waited[*other]).for_each(|other| awake[other] = true);
        }
        (waited[at], awake[at]) = (waits, !waits);
        match next {
            Next::Touches(count) => {
                assert!(count > 0);
                all[at].extend_from_slice(&buffer[..count]);
            }
            Next::Ends => {
                awake[at] = false;
                alive -= 1;
            }
            Next::Waits | Next::Call(_) | Next::Until(_) => {}
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sums up 0..10, then 0..5, in chunks of 3; finishing writes element 100.
    struct Sum {
        loops: Vec<u64>,
        total: u64,
    }

    const A: Array = Array { base: 1000, width: 8 };

    impl Kernel for Sum {
        fn next_loop(&mut self, _: &mut Out) -> Option<Loop> {
            self.loops.pop().map(|items| Loop { items, chunk: 3 })
        }
        fn one(&mut self, _: usize, item: u64, out: &mut Out) {
            out.read(A, item);
            out.complete(1);
            self.total += item;
        }
        fn finish(&mut self, _: usize, out: &mut Out) -> bool {
            out.write(A, 100u64);
            true
        }
    }

    #[test]
    fn a_loop_ends_before_the_next_begins() {
        let mut lanes = team(Sum { loops: vec![5, 10], total: 0 }, 2);
        let handed = run_out(&mut lanes, 4);
        let reads = |touches: &[Touch]| {
            touches
                .iter()
                .filter(|t| t.reads())
                .map(|t| (t.address() - 1000) / 8)
                .collect::<Vec<_>>()
        };
        // The first lane runs until it has 2048 accesses or no items are left.
        assert_eq!(reads(&handed[0]), (0..10).collect::<Vec<_>>());
        assert_eq!(reads(&handed[1]), (0..5).collect::<Vec<_>>());
        let done: Vec<u64> = lanes.iter().map(|lane| lane.operations()).collect();
        assert_eq!(done, [10, 5]);
        assert_eq!(handed.iter().flatten().filter(|t| t.writes()).count(), 4);
    }

    #[test]
    fn loaded_input_is_written_first() {
        let kernel = Loaded::new(
            vec![(A, 100), (Array::new(5000, 4), 64)],
            Sum { loops: vec![1], total: 0 },
        );
        let handed = run_out(&mut team(kernel, 1), 100).remove(0);
        let seen: Vec<_> = handed.iter().map(|t| (t.address(), t.writes())).collect();
        assert_eq!(seen, [(1000, true), (1064, true), (5000, true), (1000, false), (1800, true)]);
    }
}
