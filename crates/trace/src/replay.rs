//! Replays a trace as a program: its threads perform the recorded data accesses, at the recorded
//! pace if the trace has times.
//!
//! The simulated machine chooses where memory is mapped; an address becomes an offset into an area.
//! Areas are the touched 2 MiB blocks, with close ones merged; distances within an area and offsets
//! within 2 MiB are preserved, so that addresses which shared a page table or a huge page still do.
//! Instruction fetches are left out: the machine models data.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tierscope_core::{Error, ErrorKind, Result};
use tierscope_workloads::description::Area;
use tierscope_workloads::{App, Lane, Next, Touch};

use crate::access::{Access, Event, Kind};
use crate::compact::Index;
use crate::pages::BLOCK_BYTES;
use crate::summary::Footprint;

/// Blocks less than this many blocks apart are merged into one area: programs leave about such gaps
/// within related memory.
const GAP: u64 = 16;
/// Bytes of a cache line: an access across a line boundary touches both lines.
const LINE: u64 = 64;

/// Limit on the threads of a program; the trace's threads are distributed among them.
const MOST_THREADS: usize = 1024;

/// A trace that can be started as a program.
#[derive(Debug)]
pub struct Replay {
    name: String,
    index: Arc<Index>,
    areas: Vec<Area>,
    places: Arc<[Place]>,
    failed: Arc<Mutex<Option<Error>>>,
}

/// Recorded address range of an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    pid: u64,
    start: u64,
    end: u64,
}

impl Replay {
    /// Opens a complete trace in the compact format, and verifies it.
    ///
    /// # Errors
    /// The trace has another format, is damaged, cut short, or without data accesses.
    pub fn open(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let index = Index::open(path).map_err(|error| match error.kind() {
            ErrorKind::Data => error.remedy(format!(
                "make a sound one first: `tierscope trace convert {name} SOUND.trace`"
            )),
            _ => error,
        })?;
        index.check()?;
        let refuse = |cause: &str, remedy: &str| {
            let what = format!("cannot replay the trace {name}");
            Err(Error::new(ErrorKind::Data, what).cause(cause).remedy(remedy))
        };
        let places = places(&index.summary.footprints);
        if places.is_empty() && index.summary.data() > 0 {
            return refuse("its summary lists no ranges of memory", "replay a shorter part of it");
        }
        if places.is_empty() {
            return refuse("it holds no access to data", "trace data too, not instructions alone");
        }
        let areas = areas(&places, &index.events);
        let (index, places) = (Arc::new(index), places.into());
        Ok(Self { name, index, areas, places, failed: Arc::default() })
    }
}

/// The touched 2 MiB blocks of data, with close blocks of a process merged.
fn places(footprints: &[Footprint]) -> Vec<Place> {
    let place = |pid: u64, block: u64| {
        let start = block * BLOCK_BYTES;
        Place { pid, start, end: start.saturating_add(BLOCK_BYTES) }
    };
    let all = footprints
        .iter()
        .flat_map(|of| of.data.iter().map(move |(block, _)| place(of.pid, *block)));
    let mut places: Vec<Place> = all.collect();
    // A writer may record the footprint of a process in several parts, in any order.
    places.sort_unstable();
    places.dedup_by(|next, last| {
        let close = next.pid == last.pid && next.start.saturating_sub(last.end) < GAP * BLOCK_BYTES;
        if close {
            last.end = next.end;
        }
        close
    });
    places
}

/// Areas, each named after what was mapped there, else after its address.
fn areas(places: &[Place], events: &[Event]) -> Vec<Area> {
    let processes = places.iter().any(|place| place.pid != places[0].pid);
    let area = |place: &Place| {
        let at = format!("{:#x}", place.start);
        let name = mapped(place, events).map_or(at.clone(), |name| format!("{name} {at}"));
        let name = if processes { format!("{} {name}", place.pid) } else { name };
        // One more block: the machine need not align an area to 2 MiB.
        Area { name, bytes: place.end - place.start + BLOCK_BYTES, content: None }
    };
    places.iter().map(area).collect()
}

/// Name of the first mapping that overlaps a place.
fn mapped<'a>(place: &Place, events: &'a [Event]) -> Option<&'a str> {
    events.iter().find_map(|event| match event {
        Event::Map { pid, start, bytes, name, .. } => {
            let within = *start < place.end && start.saturating_add(*bytes) > place.start;
            (*pid == place.pid && within && !name.is_empty()).then_some(&**name)
        }
        _ => None,
    })
}

impl App for Replay {
    fn name(&self) -> &str {
        &self.name
    }

    fn areas(&self) -> &[Area] {
        &self.areas
    }

    fn unit(&self) -> &'static str {
        "accesses"
    }

    /// As many threads as the trace has, up to `MOST_THREADS`.
    fn threads(&self) -> Option<u32> {
        Some(self.index.threads().min(MOST_THREADS) as u32)
    }

    fn failed(&self) -> Option<Error> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn start(&self, bases: &[u64], _seed: u64, lanes: u32) -> Vec<Box<dyn Lane>> {
        let pid = |thread: usize| self.index.summary.threads.get(thread).map_or(0, |t| t.pid);
        let lane = |lane: u32| {
            let threads = (lane as usize..self.index.threads()).step_by(lanes as usize);
            let feeds = threads.map(|thread| Feed {
                thread,
                moves: moves(&self.places, pid(thread), bases),
                block: 0,
                accesses: Vec::new(),
                at: 0,
            });
            Box::new(Player {
                index: Arc::clone(&self.index),
                feeds: feeds.collect(),
                failed: Arc::clone(&self.failed),
                now: Duration::ZERO,
                handed_out: 0,
            }) as Box<dyn Lane>
        };
        (0..lanes).map(lane).collect()
    }
}

/// A recorded address range, and its displacement in the simulated machine.
#[derive(Clone, Copy, Debug)]
struct Move {
    start: u64,
    end: u64,
    by: u64,
}

fn moves(places: &[Place], pid: u64, bases: &[u64]) -> Vec<Move> {
    let of_process = places.iter().zip(bases).filter(|(place, _)| place.pid == pid);
    let to = |(place, base): (&Place, &u64)| Move {
        start: place.start,
        end: place.end,
        by: base.next_multiple_of(BLOCK_BYTES).wrapping_sub(place.start),
    };
    of_process.map(to).collect()
}

/// The accesses of one recorded thread, read block by block.
struct Feed {
    thread: usize,
    moves: Vec<Move>,
    /// Number of the next block.
    block: usize,
    accesses: Vec<Access>,
    at: usize,
}

impl Feed {
    /// The next data access, if any.
    fn peek(&mut self, index: &Index) -> Result<Option<Access>> {
        loop {
            while let Some(access) = self.accesses.get(self.at) {
                if access.kind != Kind::Fetch {
                    return Ok(Some(*access));
                }
                self.at += 1;
            }
            if self.block == index.blocks(self.thread) {
                return Ok(None);
            }
            index.read(self.thread, self.block, &mut self.accesses)?;
            (self.block, self.at) = (self.block + 1, 0);
        }
    }

    /// Sort key of the next access: its time, then the sequence number of its block.
    fn turn(&mut self, index: &Index) -> Result<Option<(u64, u64)>> {
        let next = self.peek(index)?;
        let number = self.block.checked_sub(1).map_or(0, |block| index.number(self.thread, block));
        Ok(next.map(|access| (access.time.0, number)))
    }

    /// The address in the simulated machine; `None` for addresses outside of the recorded
    /// footprint.
    fn moved(&self, address: u64) -> Option<u64> {
        let after = self.moves.partition_point(|place| place.start <= address);
        let place = self.moves[..after].last().filter(|place| address < place.end)?;
        Some(address.wrapping_add(place.by))
    }

    /// The touches of an access: of its first byte, and of its last byte if that is in another
    /// cache line.
    fn touches(&self, access: &Access) -> ([Touch; 4], usize) {
        let mut touches = ([Touch::default(); 4], 0);
        let last = access.address.saturating_add(u64::from(access.bytes.max(1)) - 1);
        let ends =
            [Some(access.address), Some(last).filter(|at| at / LINE != access.address / LINE)];
        for address in ends.into_iter().flatten().filter_map(|address| self.moved(address)) {
            if access.kind != Kind::Store {
                touches.0[touches.1] = Touch::read(address);
                touches.1 += 1;
            }
            if access.kind != Kind::Load {
                touches.0[touches.1] = Touch::write(address);
                touches.1 += 1;
            }
        }
        touches
    }
}

/// A thread of the program: plays one or more recorded threads, merged by time.
struct Player {
    index: Arc<Index>,
    feeds: Vec<Feed>,
    failed: Arc<Mutex<Option<Error>>>,
    now: Duration,
    handed_out: u64,
}

/// Maximum touches of one access.
const MOST: usize = 4;

impl Player {
    /// Index of the feed with the next access, and when that is due, in ns.
    fn next_feed(&mut self) -> Result<Option<(usize, u64)>> {
        let mut first: Option<(usize, (u64, u64))> = None;
        for at in 0..self.feeds.len() {
            let turn = self.feeds[at].turn(&self.index)?;
            if let Some(turn) = turn.filter(|turn| first.is_none_or(|(_, first)| *turn < first)) {
                first = Some((at, turn));
            }
        }
        Ok(first.map(|(at, (time, _))| (at, time)))
    }

    fn fill(&mut self, out: &mut [Touch]) -> Result<Next> {
        let mut count = 0;
        let now = u64::try_from(self.now.as_nanos()).unwrap_or(u64::MAX);
        while out.len() - count >= MOST {
            let Some((at, due)) = self.next_feed()? else { break };
            if due > now {
                return Ok(match count {
                    0 => Next::Until(Duration::from_nanos(due)),
                    _ => Next::Touches(count),
                });
            }
            let feed = &mut self.feeds[at];
            let (touches, more) = feed.touches(&feed.accesses[feed.at]);
            out[count..count + more].copy_from_slice(&touches[..more]);
            feed.at += 1;
            count += more;
            self.handed_out += 1;
        }
        Ok(if count == 0 { Next::Ends } else { Next::Touches(count) })
    }
}

impl Lane for Player {
    fn now(&mut self, since: Duration) {
        self.now = since;
    }

    fn next(&mut self, out: &mut [Touch]) -> Next {
        match self.fill(out) {
            Ok(next) => next,
            Err(error) => {
                *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                Next::Ends
            }
        }
    }

    fn operations(&self) -> u64 {
        self.handed_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Blocks 3, 5 and 100 of process 7, recorded in two parts, backwards; block 4 of another
    // process.
    #[test]
    fn ranges_are_merged_in_any_order() {
        let of = |pid, data: &[u64]| {
            let data = data.iter().map(|block| (*block, 1)).collect();
            Footprint { pid, data, code: vec![(9, 1)] }
        };
        let found = places(&[of(7, &[100]), of(8, &[4]), of(7, &[3, 5])]);
        let block = |block| block * BLOCK_BYTES;
        let place =
            |pid, first: u64, last: u64| Place { pid, start: block(first), end: block(last + 1) };
        assert_eq!(found, [place(7, 3, 5), place(7, 100, 100), place(8, 4, 4)]);
    }
}
