//! The ping-pong limiter: a page that moved twice within a minute is not moved again until the
//! minute has passed.

use std::collections::BTreeMap;
use std::time::Duration;

use tierscope_core::{Range, SpaceId, Time};

/// Maximum number of ranges remembered; beyond it the oldest are dropped.
const MOST: usize = 1 << 20;

/// Times of a range's last two moves, in whole seconds so that adjacent ranges can be merged; 0 for
/// never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Moved {
    last: u64,
    before: u64,
    /// Whether the last move was a promotion.
    up: bool,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    end: u64,
    moved: Moved,
}

/// How a move would count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// The page has already moved twice: refuse the move.
    pub(crate) refused: bool,
    /// The page has moved once: this would be the second move.
    pub(crate) second: bool,
    /// The previous move was a promotion.
    pub(crate) was_promoted: bool,
}

/// Moves of the last minute, by address.
#[derive(Clone, Debug)]
pub(crate) struct Repeats {
    span: Duration,
    pieces: BTreeMap<(SpaceId, u64), Piece>,
    swept: u64,
}

impl Repeats {
    /// Remembers moves for `span`; if it is zero, nothing is refused.
    pub(crate) fn new(span: Duration) -> Self {
        Self { span, pieces: BTreeMap::new(), swept: 0 }
    }

    pub(crate) fn set_span(&mut self, span: Duration) {
        self.span = span;
    }

    /// Whether a second lies within the span, rounded up to whole seconds.
    fn counts(&self, second: u64, now: Time) -> bool {
        second > 0 && second.saturating_add(self.span.as_secs()) > now.0 / SECOND
    }

    /// How a move of the page at `at` would count.
    pub(crate) fn judge(&self, space: SpaceId, at: u64, now: Time) -> Verdict {
        let Some(moved) = self.at(space, at) else { return Verdict::default() };
        let recent = self.counts(moved.last, now);
        Verdict {
            refused: recent && self.counts(moved.before, now),
            second: recent,
            was_promoted: recent && moved.up,
        }
    }

    fn at(&self, space: SpaceId, at: u64) -> Option<Moved> {
        let (key, piece) = self.pieces.range(..=(space, at)).next_back()?;
        (key.0 == space && at < piece.end).then_some(piece.moved)
    }

    /// Records a move of a range.
    pub(crate) fn note(&mut self, page: &Range, now: Time, up: bool) {
        if self.span.is_zero() {
            return;
        }
        let known = self.at(page.space, page.start).unwrap_or_default();
        let moved = Moved { last: now.0 / SECOND + 1, before: known.last, up };
        self.cut(page.space, page.start);
        self.cut(page.space, page.end);
        let inside: Vec<_> = self
            .pieces
            .range((page.space, page.start)..(page.space, page.end))
            .map(|(key, _)| *key)
            .collect();
        for key in inside {
            self.pieces.remove(&key);
        }
        let mut start = page.start;
        if let Some((key, piece)) = self.pieces.range(..(page.space, page.start)).next_back()
            && key.0 == page.space
            && piece.end == page.start
            && piece.moved == moved
        {
            start = key.1;
        }
        self.pieces.insert((page.space, start), Piece { end: page.end, moved });
        self.tidy(now);
    }

    /// Splits the range that contains `at`, so that none extends across it.
    fn cut(&mut self, space: SpaceId, at: u64) {
        let found = self.pieces.range_mut(..(space, at)).next_back();
        if let Some((key, piece)) = found
            && key.0 == space
            && piece.end > at
        {
            let above = *piece;
            piece.end = at;
            self.pieces.insert((space, at), above);
        }
    }

    /// Drops expired ranges, once per second.
    fn tidy(&mut self, now: Time) {
        let second = now.0 / SECOND;
        if second == self.swept && self.pieces.len() < MOST {
            return;
        }
        self.swept = second;
        let mut pieces = std::mem::take(&mut self.pieces);
        pieces.retain(|_, piece| self.counts(piece.moved.last, now));
        if pieces.len() >= MOST {
            // Drops the oldest second: with this many pages moving, the span is shortened.
            let oldest = pieces.values().map(|piece| piece.moved.last).min().unwrap_or(0);
            pieces.retain(|_, piece| piece.moved.last > oldest);
        }
        self.pieces = pieces;
    }
}

const SECOND: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pages(start: u64, end: u64) -> Range {
        Range::new(SpaceId(0), start << 12, end << 12)
    }

    fn at(second: u64) -> Time {
        Time(second * SECOND)
    }

    fn refused(repeats: &Repeats, page: u64, second: u64) -> bool {
        repeats.judge(SpaceId(0), page << 12, at(second)).refused
    }

    // Promotion at 0 s, demotion at 10 s: the page is not moved until 60 s after the first move.
    #[test]
    fn two_moves_within_a_minute_are_enough() {
        let mut repeats = Repeats::new(Duration::from_secs(60));
        repeats.note(&pages(5, 6), at(0), true);
        let verdict = repeats.judge(SpaceId(0), 5 << 12, at(10));
        assert!(verdict.second && verdict.was_promoted && !verdict.refused);
        repeats.note(&pages(5, 6), at(10), false);
        assert!(refused(&repeats, 5, 20) && refused(&repeats, 5, 60));
        assert!(!refused(&repeats, 5, 62) && !refused(&repeats, 6, 20));
        assert_eq!(repeats.judge(SpaceId(1), 5 << 12, at(10)), Verdict::default());
    }

    #[test]
    fn neighbours_share_a_piece() {
        let mut repeats = Repeats::new(Duration::from_secs(60));
        (0..1000).for_each(|page| repeats.note(&pages(page, page + 1), at(1), true));
        assert_eq!(repeats.pieces.len(), 1);
        repeats.note(&pages(100, 200), at(2), false);
        assert_eq!(repeats.pieces.len(), 3);
        assert!(refused(&repeats, 199, 3) && !refused(&repeats, 200, 3));
    }

    #[test]
    fn zero_refuses_nothing() {
        let mut repeats = Repeats::new(Duration::ZERO);
        (0..3).for_each(|second| repeats.note(&pages(0, 1), at(second), true));
        assert!(!refused(&repeats, 0, 3));
    }

    proptest! {
        // Compared with a list of all moves of every page. Seconds are rounded up: a move is still
        // refused at 60 s.
        #[test]
        fn as_if_all_moves_were_remembered(
            moves in prop::collection::vec((0u64..20, 1u64..8, 0u64..25), 1..40),
        ) {
            let mut repeats = Repeats::new(Duration::from_secs(60));
            let mut naive: Vec<Vec<u64>> = vec![Vec::new(); 30];
            let mut now = 0;
            for (start, count, pause) in moves {
                now += pause;
                for page in start..start + count {
                    repeats.note(&pages(page, page + 1), at(now), true);
                    naive[page as usize].push(now);
                }
                for (page, times) in (0..).zip(&naive) {
                    let recent = times.iter().filter(|time| **time + 60 >= now).count();
                    prop_assert_eq!(refused(&repeats, page, now), recent >= 2, "{} {:?} {}", page, times, now);
                }
            }
        }
    }
}
