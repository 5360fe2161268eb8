//! Times and places of the accesses that memory served in a run before the measured one.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tierscope_core::{PAGE_SIZE, Range, RangeSet, Result, SpaceId, Tier, Time, Wake};
use tierscope_sim::exact::TierMap;
use tierscope_sim::experiment::Experiment;
use tierscope_sim::open::{self, Simulated};

use crate::devices::Devices;

/// Windows of a run or a recording, at most.
pub(crate) const WINDOWS: u32 = 48;
/// Counts kept, at most: windows are joined to have fewer.
const MOST: usize = 1 << 27;

/// Accesses that memory served in a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Foresight {
    /// Pages, or ranges whose pages have the same number of accesses: ascending and disjoint.
    pub(super) pieces: Vec<Range>,
    /// Begins of the windows, and the end of the last.
    pub(super) times: Vec<Time>,
    /// Accesses to a byte of each piece, up to each of these times: piece by piece.
    sums: Vec<f32>,
    /// Window at which measurements begin.
    measured: usize,
    /// Bytes that the target maps.
    mapped: u64,
    /// Bytes of each tier that the target's pages may have.
    pub(super) room: Vec<u64>,
}

impl Foresight {
    /// The accesses of the windows between `times`. The target maps `mapped` bytes; `room` are the
    /// bytes of each tier that its pages may have.
    pub(crate) fn of(times: Vec<Time>, windows: Vec<Window>, mapped: u64, room: Vec<u64>) -> Self {
        Self { times, mapped, room, ..Self::default() }.with(windows)
    }

    /// Accesses to a byte of a piece in the windows `from..to`.
    pub(super) fn served(&self, piece: usize, from: usize, to: usize) -> f64 {
        let sums = &self.sums[piece * self.times.len()..][..self.times.len()];
        f64::from(sums[to] - sums[from])
    }

    /// Number of windows.
    pub(super) fn windows(&self) -> usize {
        self.times.len().saturating_sub(1)
    }

    /// The best static placement: the bytes with the most accesses are in the fastest tier. Room
    /// that is left in each tier.
    fn ranked(&self) -> (Vec<(Range, Tier)>, Vec<u64>) {
        let last = self.windows();
        let served = |piece: usize| self.served(piece, self.measured.min(last), last);
        let mut order: Vec<(f64, usize)> =
            (0..self.pieces.len()).map(|piece| (served(piece), piece)).collect();
        order.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut room = self.room.clone();
        let mut ranges = Vec::new();
        let mut tier = 0;
        for (_, piece) in order {
            let Range { space, mut start, end } = self.pieces[piece];
            while start < end && tier < room.len() {
                let taken = room[tier].min(end - start) & !(PAGE_SIZE - 1);
                if taken == 0 {
                    tier += 1;
                    continue;
                }
                ranges.push((Range::new(space, start, start + taken), Tier(tier as u8)));
                room[tier] -= taken;
                start += taken;
            }
        }
        (ranges, room)
    }

    /// The fastest tier's part of the best static placement.
    pub(crate) fn fast(&self) -> RangeSet {
        let (ranges, _) = self.ranked();
        ranges.into_iter().filter(|(_, tier)| tier.0 == 0).map(|(range, _)| range).collect()
    }

    /// The best static placement of a space.
    pub(super) fn best(&self, space: SpaceId) -> TierMap {
        let (ranges, room) = self.ranked();
        let ranges = ranges.into_iter().filter(|(range, _)| range.space == space);
        let ranges = ranges.map(|(range, tier)| (range.start, range.end, tier)).collect();
        let known: u64 = self.pieces.iter().map(Range::bytes).sum();
        let rest = self.mapped.saturating_sub(known);
        let otherwise = room.iter().position(|room| *room >= rest).unwrap_or(room.len() - 1);
        TierMap::new(ranges, Tier(otherwise as u8))
    }
}

/// Accesses of one window, by range.
pub(crate) type Window = Vec<(Range, f64)>;

/// Runs an experiment without moves, and keeps what memory served. The simulated
/// nanoseconds so far, and `before`, are published in the counter.
///
/// # Errors
/// The machine cannot be built.
pub(super) fn foresee(
    experiment: &Experiment,
    stop: &Arc<AtomicBool>,
    (reached, before): (&AtomicU64, u64),
) -> Result<Foresight> {
    let mut experiment = experiment.clone();
    experiment.setup.count_misses = true;
    let (mut machine, _) = open::for_needs(
        &experiment,
        &[],
        None,
        |memory| Devices::default().make(&[], memory),
        stop,
    )?;
    let (every, end) = ((experiment.time / WINDOWS).max(experiment.window), experiment.time);
    let (mut times, mut windows) = (vec![Time(0)], Vec::new());
    while machine.now() < Time(0) + end {
        let next = (machine.now() + every).min(Time(0) + end);
        let wake = wait(&mut *machine, next);
        windows.push(machine.take_misses());
        times.push(machine.now());
        reached.store(before + machine.now().0, Ordering::Relaxed);
        if matches!(wake, Wake::Stop | Wake::Gone) {
            break;
        }
    }
    experiment.ran()?;
    let warm = Time(0) + experiment.warm_up;
    let seen = Foresight {
        measured: times.partition_point(|time| *time < warm),
        times,
        mapped: experiment.bytes(),
        room: machine.room(),
        ..Foresight::default()
    };
    Ok(seen.with(windows))
}

/// Waits until a time, or the end of the target or the run.
fn wait(machine: &mut dyn Simulated, until: Time) -> Wake {
    loop {
        let wake = machine.wait(until);
        if machine.now() >= until || matches!(wake, Wake::Stop | Wake::Gone) {
            return wake;
        }
    }
}

impl Foresight {
    fn with(mut self, windows: Vec<Window>) -> Self {
        let mut windows: Vec<Window> = windows.into_iter().map(joined).collect();
        self.pieces = cut(windows.iter().flatten().map(|(range, _)| *range));
        while self.pieces.len() * self.times.len() > MOST && windows.len() > 1 {
            self.halve(&mut windows);
        }
        let columns = self.times.len();
        self.sums = vec![0.0; self.pieces.len() * columns];
        for (window, counts) in windows.iter().enumerate() {
            for (range, count) in counts {
                let each = (count / range.bytes() as f64) as f32;
                let from = self.pieces.partition_point(|piece| before(piece, range));
                let within = self.pieces[from..]
                    .iter()
                    .take_while(|piece| piece.space == range.space && piece.start < range.end);
                for piece in from..from + within.count() {
                    self.sums[piece * columns + window + 1] += each;
                }
            }
        }
        for piece in self.sums.chunks_mut(columns.max(1)) {
            for at in 1..piece.len() {
                piece[at] += piece[at - 1];
            }
        }
        self
    }

    /// Joins each two windows.
    fn halve(&mut self, windows: &mut Vec<Window>) {
        let pairs = std::mem::take(windows);
        let mut pairs = pairs.into_iter();
        while let Some(mut first) = pairs.next() {
            first.extend(pairs.next().into_iter().flatten());
            windows.push(joined(first));
        }
        let last = self.times.last().copied();
        let odd = self.times.len().is_multiple_of(2);
        self.times = self.times.iter().copied().step_by(2).chain(last.filter(|_| odd)).collect();
        self.measured = self.measured.div_ceil(2);
    }
}

fn before(piece: &Range, range: &Range) -> bool {
    (piece.space, piece.end) <= (range.space, range.start)
}

/// The counts with those of the same range added up, on whole pages.
fn joined(counts: Window) -> Window {
    let mut sums = HashMap::<Range, f64>::new();
    for (range, count) in counts {
        let start = range.start & !(PAGE_SIZE - 1);
        let end = range.end.next_multiple_of(PAGE_SIZE);
        *sums.entry(Range::new(range.space, start, end)).or_default() += count;
    }
    let mut sums: Window = sums.into_iter().collect();
    sums.sort_unstable_by_key(|(range, _)| *range);
    sums
}

/// Ranges cut at each other's ends, ascending and disjoint, without what is in none.
fn cut(ranges: impl Iterator<Item = Range>) -> Vec<Range> {
    let mut edges: Vec<(SpaceId, u64, i64)> = ranges
        .flat_map(|range| [(range.space, range.start, 1), (range.space, range.end, -1)])
        .collect();
    edges.sort_unstable();
    let mut pieces = Vec::new();
    let (mut from, mut open) = ((SpaceId(0), 0), 0);
    for (space, at, change) in edges {
        if open > 0 && from.1 < at {
            pieces.push(Range::new(space, from.1, at));
        }
        from = (space, at);
        open += change;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPACE: SpaceId = SpaceId(0);

    fn pages(from: u64, to: u64) -> Range {
        Range::new(SPACE, from * PAGE_SIZE, to * PAGE_SIZE)
    }

    fn seen(windows: Vec<Window>, room: &[u64]) -> Foresight {
        let times = (0..=windows.len() as u64).map(Time).collect();
        let room = room.iter().map(|pages| pages * PAGE_SIZE).collect();
        Foresight::of(times, windows, 10 * PAGE_SIZE, room)
    }

    // Pages 0 and 1 have 4 accesses each, page 1 and 2 have 10 each in the second window.
    fn two_windows() -> Vec<Window> {
        vec![vec![(pages(0, 2), 8.0)], vec![(pages(1, 3), 20.0)]]
    }

    #[test]
    fn overlapping_ranges_are_cut_and_counted_by_window() {
        let seen = seen(two_windows(), &[1, 9]);
        assert_eq!(seen.pieces, [pages(0, 1), pages(1, 2), pages(2, 3)]);
        let each = |from, to| {
            [0, 1, 2].map(|piece| (seen.served(piece, from, to) * PAGE_SIZE as f64).round())
        };
        assert_eq!(each(0, 1), [4.0, 4.0, 0.0]);
        assert_eq!(each(1, 2), [0.0, 10.0, 10.0]);
        assert_eq!(each(0, 2), [4.0, 14.0, 10.0]);
    }

    #[test]
    fn the_hottest_bytes_have_the_fastest_tier() {
        let best = seen(two_windows(), &[2, 8]).best(SPACE);
        let tier = |page: u64| best.at(page * PAGE_SIZE).0.0;
        assert_eq!([0, 1, 2, 3].map(tier), [1, 0, 0, 1]);
        let all = seen(two_windows(), &[10, 8]).best(SPACE);
        assert_eq!(all.at(9 * PAGE_SIZE).0, Tier(0), "there is room for all");
    }

    #[test]
    fn joined_windows_keep_their_counts() {
        let mut seen = seen(two_windows(), &[1, 9]);
        let mut windows = two_windows();
        seen.halve(&mut windows);
        assert_eq!((windows.len(), &seen.times), (1, &vec![Time(0), Time(2)]));
        assert_eq!(windows[0].iter().map(|(_, count)| count).sum::<f64>(), 28.0);
    }
}
