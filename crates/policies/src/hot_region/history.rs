//! Accesses of the last two minutes, by address.
//!
//! Regions change their shape from window to window, so what was counted is kept by address: pieces
//! between which the counts differ. A region's accesses are the mean over its bytes, as DAMON merges
//! counts; but what was hot alone in a region of today's shape must not make all of that hot, so a region
//! counts as runs that are hot throughout, or nowhere.

use std::collections::VecDeque;
use std::time::Duration;

use tierscope_core::{Range, Snapshot, Time};

/// A range and its accesses.
pub(super) type Piece = (Range, f64);

/// Accesses below this are a rounding error of adding and taking away.
const NOTHING: f64 = 1e-6;

/// The counts.
#[derive(Clone, Debug)]
pub(super) struct History {
    span: Duration,
    /// What was added, oldest first, to be taken away again.
    added: VecDeque<(Time, Vec<Piece>)>,
    /// Sorted, disjoint, none of them nothing.
    pieces: Vec<Piece>,
}

impl History {
    pub(super) fn new(span: Duration) -> Self {
        Self { span, added: VecDeque::new(), pieces: Vec::new() }
    }

    /// Adds a window's hits and forgets those whose time is over.
    pub(super) fn add(&mut self, snapshot: &Snapshot) {
        let hit = |region: &&tierscope_core::Region| region.hits > 0.0 && !region.range.is_empty();
        let piece = |region: &tierscope_core::Region| (region.range, f64::from(region.hits));
        let hits: Vec<Piece> = snapshot.regions.iter().filter(hit).map(piece).collect();
        self.pieces = sum(&self.pieces, &hits, 1.0);
        if !hits.is_empty() {
            self.added.push_back((snapshot.end, hits));
        }
        while let Some((time, _)) = self.added.front()
            && *time + self.span <= snapshot.end
            && let Some((_, hits)) = self.added.pop_front()
        {
            self.pieces = sum(&self.pieces, &hits, -1.0);
        }
    }

    /// Accesses of a range: the mean over its bytes.
    #[cfg(test)]
    fn accesses(&self, range: &Range) -> f64 {
        let mut runs = Vec::new();
        self.runs(range, f64::INFINITY, &mut runs);
        runs.first().map_or(0.0, |(_, accesses)| *accesses)
    }

    /// Appends the runs of a range that are hot throughout, from `hot` accesses on, or nowhere. The accesses
    /// of a run are the mean over its bytes.
    pub(super) fn runs(&self, range: &Range, hot: f64, out: &mut Vec<Piece>) {
        let first = self
            .pieces
            .partition_point(|(piece, _)| (piece.space, piece.end) <= (range.space, range.start));
        let mut runs = Runs { hot, from: out.len(), out };
        let mut at = range.start;
        for (piece, accesses) in &self.pieces[first..] {
            let Some(part) = piece.intersect(range) else { break };
            runs.push(Range { start: at, end: part.start, ..*range }, 0.0);
            runs.push(part, *accesses);
            at = part.end;
        }
        runs.push(Range { start: at, ..*range }, 0.0);
    }
}

/// Runs of one range, being made.
struct Runs<'a> {
    hot: f64,
    /// Where they begin in `out`.
    from: usize,
    out: &'a mut Vec<Piece>,
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

/// `a + sign * b`, piece by piece. Both are sorted; pieces of each are disjoint.
fn sum(a: &[Piece], b: &[Piece], sign: f64) -> Vec<Piece> {
    let mut out: Vec<Piece> = Vec::with_capacity(a.len() + b.len());
    let (mut rest_a, mut rest_b) = (Rest::of(a), Rest::of(b));
    loop {
        let (one, other) = (rest_a.front(), rest_b.front());
        let (range, value) = match (one, other) {
            (None, None) => return out,
            (Some((range, value)), None) => (range, value),
            (None, Some((range, value))) => (range, sign * value),
            (Some(one), Some(other)) => first_piece(one, other, sign),
        };
        rest_a.skip(&range);
        rest_b.skip(&range);
        push(&mut out, range, value);
    }
}

/// The first piece over which both are what they are at its start.
fn first_piece((a, x): Piece, (b, y): Piece, sign: f64) -> Piece {
    let key = |range: &Range| (range.space, range.start);
    if key(&a) < key(&b) {
        let end = if a.space == b.space { a.end.min(b.start) } else { a.end };
        return (Range { end, ..a }, x);
    }
    if key(&b) < key(&a) {
        let end = if a.space == b.space { b.end.min(a.start) } else { b.end };
        return (Range { end, ..b }, sign * y);
    }
    (Range { end: a.end.min(b.end), ..a }, x + sign * y)
}

/// What is left of sorted pieces.
struct Rest<'a> {
    pieces: &'a [Piece],
    /// Where the first one begins by now.
    from: u64,
}

impl<'a> Rest<'a> {
    fn of(pieces: &'a [Piece]) -> Self {
        Self { pieces, from: pieces.first().map_or(0, |(range, _)| range.start) }
    }

    fn front(&self) -> Option<Piece> {
        let (range, value) = self.pieces.first()?;
        Some((Range { start: self.from, ..*range }, *value))
    }

    /// Everything up to the end of `done`, in its space, is dealt with.
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

/// Pieces that touch and are alike become one.
fn push(out: &mut Vec<Piece>, range: Range, value: f64) {
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
    use tierscope_core::{Region, SpaceId};

    use super::*;

    fn region(start: u64, end: u64, hits: f32) -> Region {
        let range = Range::new(SpaceId(0), start, end);
        Region { range, hits, samples: 40, age: 0, level: None, confidence: 1.0 }
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
            history.runs(&Range::new(SpaceId(0), start, end), 5.0, &mut runs);
            let plain = |(range, accesses): &Piece| (range.start, range.end, *accesses);
            runs.iter().map(plain).collect::<Vec<_>>()
        };
        assert_eq!(runs(0, 40), [(0, 10, 3.0), (10, 30, 6.5), (30, 40, 0.0)]);
        assert_eq!(runs(15, 25), [(15, 25, 6.5)]);
        assert_eq!(runs(28, 32), [(28, 30, 5.0), (30, 32, 0.0)]);
        assert_eq!(runs(50, 60), [(50, 60, 0.0)]);
    }

    proptest! {
        // Held against plain counters by byte.
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
