//! Merges the streams of all boards, in the order of their common clock.

use std::collections::VecDeque;
use std::io::Read;

use tierscope_core::{Error, Result};
use tierscope_trace::place::{Place, malformed};

use super::board::{BoardReader, Mark};
use super::{Request, Traffic, Window};

/// Approximate number of requests returned per call.
const BATCH: usize = 4096;

/// A board, and its requests that were read but not yet merged.
struct Lane<R> {
    reader: BoardReader<R>,
    waiting: Vec<Request>,
    at: usize,
    /// State of the reader before `waiting` was read.
    before: Mark,
    /// Whether `waiting` contains tags.
    tags: bool,
}

/// State of a merge, by board: the reader before its waiting requests, and how many of them were
/// already merged.
pub(super) type Position = (Mark, u64);

/// Merges all boards of a machine. At the same tick, requests in the second window (the tags)
/// precede others: the kernel dumps a mapping before any access can use it.
pub struct Merge<R> {
    lanes: Vec<Lane<R>>,
    windows: [Window; 2],
    errors: VecDeque<Error>,
}

impl<R: Read> Merge<R> {
    /// Merges the requests of a machine's boards that lie in the windows.
    ///
    /// # Errors
    /// The streams are not those of all boards of one machine.
    pub fn new(boards: Vec<BoardReader<R>>, windows: [Window; 2]) -> Result<Self> {
        check(&boards)?;
        let lane = |reader: BoardReader<R>| {
            let before = reader.mark;
            Lane { reader, waiting: Vec::new(), at: 0, before, tags: false }
        };
        let lanes = boards.into_iter().map(lane).collect();
        Ok(Self { lanes, windows, errors: VecDeque::new() })
    }

    /// log2 of the bytes of a request.
    #[must_use]
    pub fn grain(&self) -> u8 {
        self.lanes[0].reader.header().grain
    }

    /// Picoseconds per tick.
    #[must_use]
    pub fn tick_ps(&self) -> u32 {
        self.lanes[0].reader.header().tick_ps
    }

    /// Counts of each board, up to the last block read.
    #[must_use]
    pub fn traffic(&self) -> Vec<Traffic> {
        self.lanes.iter().map(|lane| lane.reader.traffic()).collect()
    }

    /// Bytes read of all boards' files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.reader.mark.offset).sum()
    }

    pub(super) fn position(&self) -> Vec<Position> {
        let of = |lane: &Lane<R>| match lane.at == lane.waiting.len() {
            true => (lane.reader.mark, 0),
            false => (lane.before, lane.at as u64),
        };
        self.lanes.iter().map(of).collect()
    }

    /// Continues from a saved state; `open` opens a board's file at an offset.
    pub(super) fn resume(
        &mut self,
        position: &[Position],
        mut open: impl FnMut(usize, u64) -> Result<R>,
    ) -> Result<()> {
        for (board, (lane, (mark, taken))) in self.lanes.iter_mut().zip(position).enumerate() {
            lane.reader.resume(open(board, mark.offset)?, *mark);
            (lane.before, lane.at) = (*mark, 0);
            lane.waiting.clear();
            // Unknown: assume that there are tags.
            lane.tags = true;
            // Errors of this block were reported before the state was saved.
            while lane.waiting.is_empty() && *taken > 0 && !lane.reader.mark.ended {
                lane.before = lane.reader.mark;
                let _ = lane.reader.fill(&self.windows, &mut lane.waiting);
            }
            lane.at = usize::try_from(*taken).unwrap_or(usize::MAX).min(lane.waiting.len());
        }
        Ok(())
    }

    /// Appends the next requests, in order. False at the end.
    ///
    /// # Errors
    /// Errors of a board's stream; the next call continues.
    pub fn fill(&mut self, out: &mut Vec<Request>) -> Result<bool> {
        self.fill_by(out, Self::hand_out)
    }

    /// As [`Merge::fill`], but ordered only with respect to tags: requests of different boards
    /// between two tags are not sorted.
    ///
    /// # Errors
    /// Errors of a board's stream; the next call continues.
    pub fn fill_by_tags(&mut self, out: &mut Vec<Request>) -> Result<bool> {
        self.fill_by(out, Self::hand_out_many)
    }

    #[inline]
    fn fill_by(
        &mut self,
        out: &mut Vec<Request>,
        hand_out: impl Fn(&mut Self, &mut Vec<Request>) -> bool,
    ) -> Result<bool> {
        let before = out.len();
        while out.len() - before < BATCH {
            self.read_on();
            if let Some(error) = self.errors.pop_front() {
                return Err(error);
            }
            if !hand_out(self, out) {
                break;
            }
        }
        Ok(out.len() > before)
    }

    /// Appends, lane by lane, all requests before the end of the lane that ends first. If any lane
    /// has tags it merges in order, since a request after that end may have the same tick.
    fn hand_out_many(&mut self, out: &mut Vec<Request>) -> bool {
        if self.lanes.iter().any(|lane| lane.tags) {
            return self.hand_out(out);
        }
        let waits = |lane: &&Lane<R>| lane.at < lane.waiting.len();
        let ends = self.lanes.iter().filter(waits).filter_map(|lane| lane.waiting.last());
        let Some(end) = ends.map(|last| last.ticks).min() else { return false };
        let before = out.len();
        for lane in &mut self.lanes {
            let rest = &lane.waiting[lane.at..];
            let count = rest.partition_point(|request| request.ticks < end);
            out.extend_from_slice(&rest[..count]);
            lane.at += count;
        }
        out.len() > before || self.hand_out(out)
    }

    /// Refills every empty lane whose board has more.
    fn read_on(&mut self) {
        for lane in &mut self.lanes {
            while lane.at == lane.waiting.len() && !lane.reader.mark.ended {
                lane.waiting.clear();
                (lane.at, lane.before) = (0, lane.reader.mark);
                if let Err(error) = lane.reader.fill(&self.windows, &mut lane.waiting) {
                    self.errors.push_back(error);
                }
                let tag = |request: &Request| self.windows[1].holds(request.address());
                lane.tags = lane.waiting.iter().any(tag);
                if lane.reader.mark.ended
                    && let Err(error) = lane.reader.finish()
                {
                    self.errors.push_back(error);
                }
            }
        }
    }

    /// Appends from one lane all requests that precede those of the other lanes. False if all lanes
    /// are empty.
    #[inline]
    fn hand_out(&mut self, out: &mut Vec<Request>) -> bool {
        let tags = self.windows[1];
        let mut least = (u64::MAX, usize::MAX);
        let mut second = (u64::MAX, usize::MAX);
        for (number, lane) in self.lanes.iter().enumerate() {
            let Some(request) = lane.waiting.get(lane.at) else { continue };
            let key = (key(&tags, *request), number);
            if key < least {
                (least, second) = (key, least);
            } else if key < second {
                second = key;
            }
        }
        let Some(lane) = self.lanes.get_mut(least.1) else { return false };
        let rest = &lane.waiting[lane.at..];
        if second.1 == usize::MAX {
            out.extend_from_slice(rest);
            lane.at = lane.waiting.len();
            return true;
        }
        let first = |request: &&Request| (key(&tags, **request), least.1) < second;
        let count = rest.iter().take_while(first).count();
        out.extend_from_slice(&rest[..count]);
        lane.at += count;
        true
    }
}

/// Merge order of a request: by tick, tags first.
#[inline(always)]
fn key(tags: &Window, request: Request) -> u64 {
    request.ticks.saturating_mul(2).saturating_add(u64::from(!tags.holds(request.address())))
}

fn check<R: Read>(boards: &[BoardReader<R>]) -> Result<()> {
    let wrong = |cause: String| {
        let remedy = "give all boards of one machine, each once";
        Err(malformed("of the boards", Place::Whole, cause, remedy))
    };
    let Some(first) = boards.first() else { return wrong("there is none".into()) };
    let first = *first.header();
    if boards.len() != usize::from(first.boards) {
        return wrong(format!("the machine has {}, not {}", first.boards, boards.len()));
    }
    for (number, board) in boards.iter().enumerate() {
        let header = board.header();
        if usize::from(header.board) != number {
            return wrong(format!("board {} is in the place of {number}", header.board));
        }
        let alike = (header.boards, header.grain, header.tick_ps);
        if alike != (first.boards, first.grain, first.tick_ps) {
            return wrong(format!("boards 0 and {number} differ in number, granularity or clock"));
        }
    }
    Ok(())
}
