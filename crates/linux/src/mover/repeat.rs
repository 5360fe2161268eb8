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
struct LastMoves {
    last: u64,
    before: u64,
    /// Whether the last move was a promotion.
    up: bool,
}

#[derive(Clone, Copy, Debug)]
struct MovedRange {
    end: u64,
    moved: LastMoves,
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
    ranges: BTreeMap<(SpaceId, u64), MovedRange>,
    swept: u64,
}

impl Repeats {
    /// Remembers moves for `span`; if it is zero, nothing is refused.
    pub(crate) fn new(span: Duration) -> Self {
        Self { span, ranges: BTreeMap::new(), swept: 0 }
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

    fn at(&self, space: SpaceId, at: u64) -> Option<LastMoves> {
        let (key, range) = self.ranges.range(..=(space, at)).next_back()?;
        (key.0 == space && at < range.end).then_some(range.moved)
    }

    /// Records a move of a range.
    pub(crate) fn record(&mut self, page: &Range, now: Time, up: bool) {
        if self.span.is_zero() {
            return;
        }
        let known = self.at(page.space, page.start).unwrap_or_default();
        let moved = LastMoves { last: now.0 / SECOND + 1, before: known.last, up };
        self.split_at(page.space, page.start);
        self.split_at(page.space, page.end);
        let inside: Vec<_> = self
            .ranges
            .range((page.space, page.start)..(page.space, page.end))
            .map(|(key, _)| *key)
            .collect();
        for key in inside {
            self.ranges.remove(&key);
        }
        let mut start = page.start;
        if let Some((key, range)) = self.ranges.range(..(page.space, page.start)).next_back()
            && key.0 == page.space
            && range.end == page.start
            && range.moved == moved
        {
            start = key.1;
        }
        self.ranges.insert((page.space, start), MovedRange { end: page.end, moved });
        self.drop_expired(now);
    }

    /// Splits the range that contains `at`, so that none extends across it.
    fn split_at(&mut self, space: SpaceId, at: u64) {
        let found = self.ranges.range_mut(..(space, at)).next_back();
        if let Some((key, range)) = found
            && key.0 == space
            && range.end > at
        {
            let above = *range;
            range.end = at;
            self.ranges.insert((space, at), above);
        }
    }

    /// Drops expired ranges, once per second.
    fn drop_expired(&mut self, now: Time) {
        let second = now.0 / SECOND;
        if second == self.swept && self.ranges.len() < MOST {
            return;
        }
        self.swept = second;
        let mut ranges = std::mem::take(&mut self.ranges);
        ranges.retain(|_, range| self.counts(range.moved.last, now));
        if ranges.len() >= MOST {
            // Drops the oldest second: with this many pages moving, the span is shortened.
            let oldest = ranges.values().map(|range| range.moved.last).min().unwrap_or(0);
            ranges.retain(|_, range| range.moved.last > oldest);
        }
        self.ranges = ranges;
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
    fn a_third_move_within_a_minute_is_refused() {
        let mut repeats = Repeats::new(Duration::from_secs(60));
        repeats.record(&pages(5, 6), at(0), true);
        let verdict = repeats.judge(SpaceId(0), 5 << 12, at(10));
        assert!(verdict.second && verdict.was_promoted && !verdict.refused);
        repeats.record(&pages(5, 6), at(10), false);
        assert!(refused(&repeats, 5, 20) && refused(&repeats, 5, 60));
        assert!(!refused(&repeats, 5, 62) && !refused(&repeats, 6, 20));
        assert_eq!(repeats.judge(SpaceId(1), 5 << 12, at(10)), Verdict::default());
    }

    #[test]
    fn adjacent_ranges_are_merged() {
        let mut repeats = Repeats::new(Duration::from_secs(60));
        (0..1000).for_each(|page| repeats.record(&pages(page, page + 1), at(1), true));
        assert_eq!(repeats.ranges.len(), 1);
        repeats.record(&pages(100, 200), at(2), false);
        assert_eq!(repeats.ranges.len(), 3);
        assert!(refused(&repeats, 199, 3) && !refused(&repeats, 200, 3));
    }

    #[test]
    fn a_zero_span_refuses_nothing() {
        let mut repeats = Repeats::new(Duration::ZERO);
        (0..3).for_each(|second| repeats.record(&pages(0, 1), at(second), true));
        assert!(!refused(&repeats, 0, 3));
    }

    proptest! {
        // Compared with a list of all moves of every page. Seconds are rounded up: a move is still
        // refused at 60 s.
        #[test]
        fn the_limiter_equals_one_that_remembers_all_moves(
            moves in prop::collection::vec((0u64..20, 1u64..8, 0u64..25), 1..40),
        ) {
            let mut repeats = Repeats::new(Duration::from_secs(60));
            let mut naive: Vec<Vec<u64>> = vec![Vec::new(); 30];
            let mut now = 0;
            for (start, count, pause) in moves {
                now += pause;
                for page in start..start + count {
                    repeats.record(&pages(page, page + 1), at(now), true);
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
