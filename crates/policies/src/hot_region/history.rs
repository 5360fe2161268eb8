//! Access counts over a sliding span (two minutes by default), by address.
//!
//! Regions change their bounds from window to window, so counts are kept by address, in ranges of
//! uniform count. A region's count is the mean over its bytes, as DAMON merges counts; but a small
//! hot part must not make the whole of a current region hot, so a region is split into runs that
//! are either hot throughout or hot nowhere.

use std::collections::VecDeque;
use std::time::Duration;

use tierscope_core::{Range, Region, Snapshot, Time};

/// A range and its access count.
pub(super) type CountedRange = (Range, f64);

/// Smaller counts are rounding errors of additions and subtractions.
const NOTHING: f64 = 1e-6;

/// Sliding sum of the windows' hits.
#[derive(Clone, Debug)]
pub(super) struct History {
    span: Duration,
    /// The hits of past windows, oldest first, to be subtracted when they expire.
    added: VecDeque<(Time, Vec<CountedRange>)>,
    /// Ranges with their counts: sorted, disjoint, without zero counts.
    pieces: Vec<CountedRange>,
    /// The previous buffer of `pieces`, kept to reuse its allocation.
    spare: Vec<CountedRange>,
}

impl History {
    pub(super) fn new(span: Duration) -> Self {
        Self { span, added: VecDeque::new(), pieces: Vec::new(), spare: Vec::new() }
    }

    /// Adds a window's hits, and subtracts the expired ones.
    pub(super) fn add(&mut self, snapshot: &Snapshot) {
        let hit = |region: &&Region| region.countable_hits() > 0.0 && !region.range.is_empty();
        let piece = |region: &Region| (region.range, f64::from(region.countable_hits()));
        let hits: Vec<CountedRange> = snapshot.regions.iter().filter(hit).map(piece).collect();
        // Usually one window expires for each that is added: do both in one pass.
        let gone = self.expired(snapshot.end);
        self.change(&hits, gone.as_deref().unwrap_or_default());
        if self.span > Duration::ZERO && !hits.is_empty() {
            self.added.push_back((snapshot.end, hits));
        }
        while let Some(gone) = self.expired(snapshot.end) {
            self.change(&[], &gone);
        }
    }

    /// Takes the oldest window's hits, if expired.
    fn expired(&mut self, now: Time) -> Option<Vec<CountedRange>> {
        let (time, _) = self.added.front()?;
        if *time + self.span > now {
            return None;
        }
        self.added.pop_front().map(|(_, hits)| hits)
    }

    fn change(&mut self, come: &[CountedRange], gone: &[CountedRange]) {
        if come.is_empty() && gone.is_empty() {
            return;
        }
        let mut out = std::mem::take(&mut self.spare);
        out.clear();
        sum([&self.pieces, come, gone], &mut out);
        self.spare = std::mem::replace(&mut self.pieces, out);
    }

    /// Reader of counts for ranges in ascending order of address.
    pub(super) fn reader(&self) -> Reader<'_> {
        Reader { pieces: &self.pieces }
    }

    /// Mean access count of a range.
    #[cfg(test)]
    fn accesses(&self, range: &Range) -> f64 {
        self.reader().accesses(range)
    }
}

/// Reads counts in ascending order of address.
pub(super) struct Reader<'a> {
    /// Ranges not yet passed by the reader.
    pieces: &'a [CountedRange],
}

impl Reader<'_> {
    /// Access count of a range: the mean over its bytes.
    #[cfg(test)]
    fn accesses(&mut self, range: &Range) -> f64 {
        let mut runs = Vec::new();
        self.runs(range, f64::INFINITY, &mut runs);
        runs.first().map_or(0.0, |(_, accesses)| *accesses)
    }

    /// Appends the runs of a range that are hot throughout (at least `hot` accesses) or nowhere. A
    /// run's count is the mean over its bytes. No later range may begin before this one.
    pub(super) fn runs(&mut self, range: &Range, hot: f64, out: &mut Vec<CountedRange>) {
        self.skip_to(range);
        let mut runs = Runs { hot, from: out.len(), out };
        let mut at = range.start;
        for (piece, accesses) in self.pieces {
            let Some(part) = piece.intersect(range) else { break };
            runs.push(Range { start: at, end: part.start, ..*range }, 0.0);
            runs.push(part, *accesses);
            at = part.end;
        }
        runs.push(Range { start: at, ..*range }, 0.0);
    }

    /// Skips to the first range that may overlap, by exponential search, because it is usually
    /// near.
    fn skip_to(&mut self, range: &Range) {
        let is_before =
            |(piece, _): &CountedRange| (piece.space, piece.end) <= (range.space, range.start);
        let mut step = 1;
        while self.pieces.get(step - 1).is_some_and(is_before) {
            self.pieces = &self.pieces[step..];
            step = (2 * step).min(self.pieces.len()).max(1);
        }
        let ahead = &self.pieces[..step.min(self.pieces.len())];
        self.pieces = &self.pieces[ahead.partition_point(is_before)..];
    }
}

/// Runs of one range, under construction.
struct Runs<'a> {
    hot: f64,
    /// Index of the range's first run in `out`.
    from: usize,
    out: &'a mut Vec<CountedRange>,
}

impl Runs<'_> {
    fn push(&mut self, range: Range, accesses: f64) {
        if range.is_empty() {
            return;
        }
        let hot = self.hot;
        match self.out[self.from..].last_mut() {
            Some((last, mean)) if (*mean >= hot) == (accesses >= hot) => {
                let (before, more) = (last.bytes() as f64, range.bytes() as f64);
                *mean = (*mean * before + accesses * more) / (before + more);
                last.end = range.end;
            }
            _ => self.out.push((range, accesses)),
        }
    }
}

/// Appends `a + b - c` to `out`, split at all bounds. Each term is sorted and disjoint.
fn sum(terms: [&[CountedRange]; 3], out: &mut Vec<CountedRange>) {
    let mut rests = terms.map(RangeCursor::of);
    loop {
        let fronts = [0, 1, 2].map(|term| rests[term].front());
        let key = |range: &Range| (range.space, range.start);
        let first = fronts.iter().flatten().map(|(range, _)| key(range)).min();
        let Some((space, start)) = first else { return };
        // The next output range: from `start` to the nearest bound, over which all terms are
        // constant.
        let (mut end, mut value) = (u64::MAX, 0.0);
        for ((range, accesses), sign) in
            fronts.into_iter().zip(SIGNS).filter_map(|(f, s)| Some((f?, s)))
        {
            if key(&range) == (space, start) {
                end = end.min(range.end);
                value += sign * accesses;
            } else if range.space == space {
                end = end.min(range.start);
            }
        }
        let range = Range { space, start, end };
        rests.iter_mut().for_each(|rest| rest.skip(&range));
        push(out, range, value);
    }
}

/// Signs of the terms of `sum`.
const SIGNS: [f64; 3] = [1.0, 1.0, -1.0];

/// Iterator over sorted ranges that can skip a part of a range.
struct RangeCursor<'a> {
    pieces: &'a [CountedRange],
    /// Start of the unread part of the first range.
    from: u64,
}

impl<'a> RangeCursor<'a> {
    fn of(pieces: &'a [CountedRange]) -> Self {
        Self { pieces, from: pieces.first().map_or(0, |(range, _)| range.start) }
    }

    fn front(&self) -> Option<CountedRange> {
        let (range, value) = self.pieces.first()?;
        Some((Range { start: self.from, ..*range }, *value))
    }

    /// Skips everything up to the end of `done`, in its space.
    fn skip(&mut self, done: &Range) {
        while let Some((range, _)) = self.pieces.first() {
            if (range.space, self.from) >= (done.space, done.end) || range.space != done.space {
                return;
            }
            if range.end > done.end {
                self.from = done.end;
                return;
            }
            self.pieces = &self.pieces[1..];
            self.from = self.pieces.first().map_or(0, |(range, _)| range.start);
        }
    }
}

/// Appends a range, merged with the last one if they touch and have equal counts.
fn push(out: &mut Vec<CountedRange>, range: Range, value: f64) {
    if value.abs() < NOTHING {
        return;
    }
    match out.last_mut() {
        Some((last, known)) if last.touches(&range) && (*known - value).abs() < NOTHING => {
            last.end = range.end;
        }
        _ => out.push((range, value)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tierscope_core::SpaceId;

    use super::*;

    fn region(start: u64, end: u64, hits: f32) -> Region {
        let range = Range::new(SpaceId(0), start, end);
        Region::sampled(range, hits, 40)
    }

    fn snapshot(end: u64, regions: Vec<Region>) -> Snapshot {
        Snapshot { start: Time(0), end: Time(end), samples: 40, regions }
    }

    //  0    10    20    30
    //  |  3  |  3  |       |      window 1
    //        |     5       |      window 2
    #[test]
    fn counts_follow_addresses_not_regions() {
        let mut history = History::new(Duration::from_nanos(100));
        history.add(&snapshot(10, vec![region(0, 20, 3.0)]));
        history.add(&snapshot(20, vec![region(10, 30, 5.0)]));
        let accesses =
            |history: &History, start, end| history.accesses(&Range::new(SpaceId(0), start, end));
        assert_eq!(accesses(&history, 0, 10), 3.0);
        assert_eq!(accesses(&history, 10, 20), 8.0);
        assert_eq!(accesses(&history, 20, 40), 2.5, "half of it was accessed five times");
        assert_eq!(accesses(&history, 40, 50), 0.0);
        history.add(&snapshot(110, vec![]));
        assert_eq!(accesses(&history, 10, 20), 5.0, "the first window is over");
        history.add(&snapshot(120, vec![]));
        assert!(history.pieces.is_empty());
    }

    //  0    10    20    30    40
    //  |  3  |  8  |  5  |      |
    #[test]
    fn runs_are_hot_throughout_or_nowhere() {
        let mut history = History::new(Duration::from_nanos(100));
        history.add(&snapshot(10, vec![region(0, 20, 3.0)]));
        history.add(&snapshot(20, vec![region(10, 30, 5.0)]));
        let runs = |start, end| {
            let mut runs = Vec::new();
            history.reader().runs(&Range::new(SpaceId(0), start, end), 5.0, &mut runs);
            let plain = |(range, accesses): &CountedRange| (range.start, range.end, *accesses);
            runs.iter().map(plain).collect::<Vec<_>>()
        };
        assert_eq!(runs(0, 40), [(0, 10, 3.0), (10, 30, 6.5), (30, 40, 0.0)]);
        assert_eq!(runs(15, 25), [(15, 25, 6.5)]);
        assert_eq!(runs(28, 32), [(28, 30, 5.0), (30, 32, 0.0)]);
        assert_eq!(runs(50, 60), [(50, 60, 0.0)]);
    }

    proptest! {
        // A single reader over all ranges returns the same counts as a new reader for each.
        #[test]
        fn a_reader_goes_on(
            hits in prop::collection::vec((0u64..5, 1u64..20, 1u32..9), 0..30),
            asked in prop::collection::vec((0u64..9, 1u64..40), 0..30),
        ) {
            let mut at = 0;
            let mut next = |gap: u64, bytes: u64| {
                let start = at + gap;
                at = start + bytes;
                (start, at)
            };
            let regions = hits.iter().map(|(gap, bytes, hits)| {
                let (start, end) = next(*gap, *bytes);
                region(start, end, *hits as f32)
            });
            let mut history = History::new(Duration::from_nanos(10));
            history.add(&snapshot(0, regions.collect()));
            let mut reader = history.reader();
            let mut start = 0;
            for (step, bytes) in asked {
                start += step;
                let range = Range::new(SpaceId(0), start, start + bytes);
                prop_assert_eq!(reader.accesses(&range), history.accesses(&range));
            }
        }

        // Compared with plain counters per byte.
        #[test]
        fn pieces_equal_bytes(windows in prop::collection::vec((0u64..60, 1u64..30, 1u32..9), 1..40)) {
            let mut history = History::new(Duration::from_nanos(10));
            for (now, (start, bytes, hits)) in (0..).zip(&windows) {
                history.add(&snapshot(now, vec![region(*start, start + bytes, *hits as f32)]));
                let lives = |(time, _): &(u64, &(u64, u64, u32))| time + 10 > now;
                let mut naive = [0.0; 100];
                for (_, (start, bytes, hits)) in (0..=now).zip(&windows).filter(lives) {
                    (*start..start + bytes).for_each(|at| naive[at as usize] += f64::from(*hits));
                }
                for (at, wanted) in (0..).zip(naive) {
                    let got = history.accesses(&Range::new(SpaceId(0), at, at + 1));
                    prop_assert!((got - wanted).abs() < 1e-5, "{at}: {got} {wanted}");
                }
            }
        }
    }
}
