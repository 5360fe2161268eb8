//! Promoted pages, and the share of them accessed afterwards (METRICS.md): stretches of pages that
//! moved together.
//!
//! Accessed pages are not drawn but expected, as in [`Truth::touched`]: a promotion counts as
//! accessed by the share of its pages that the densities predict. Rates are those of the first
//! placement.

use std::collections::BTreeMap;

use tierscope_core::metrics::moves::{Moved, is_ping_pong};
use tierscope_core::{PAGE_SHIFT, Range, Time};

use super::places::Part;
use super::space::SPACE;
use crate::{Touched, Truth};

/// Pages up to `end` that moved together.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    end: u64,
    time: Time,
    /// Share of the pages that moved, up or down.
    moved: f64,
    /// Share of the pages that were promoted.
    up: f64,
}

/// The stretches, and sums in bytes over the ones that moved again.
#[derive(Clone, Debug, Default)]
pub(super) struct PromotionReuse {
    /// PromotionReuse by first page.
    known: BTreeMap<u64, Stretch>,
    pub(super) moved: Moved,
    reaccessed: f64,
    wasted: f64,
    ping_pong: f64,
    truth: Option<Truth>,
}

fn bytes(pages: u64) -> f64 {
    (pages << PAGE_SHIFT) as f64
}

impl PromotionReuse {
    /// Whether the ground truth is not set yet.
    pub(super) fn needs_truth(&self) -> bool {
        self.truth.is_none()
    }

    pub(super) fn set_truth(&mut self, truth: Truth) {
        self.truth = Some(truth);
    }

    /// Records the moves of a part.
    pub(super) fn moves(&mut self, part: &Part, now: Time) {
        let pages = part.to - part.from;
        let share = |count: u64| count as f64 / pages.max(1) as f64;
        let (moved, up) = (share(part.up + part.down), share(part.up));
        self.moved.promoted += part.up << PAGE_SHIFT;
        self.moved.demoted += part.down << PAGE_SHIFT;
        let mut seen = Seen::default();
        for (from, old) in self.take((part.from, part.to)) {
            self.close((from, &old), now, &mut seen);
            if is_ping_pong(old.time, now) {
                self.ping_pong += bytes(old.end - from) * old.moved.min(moved);
            }
        }
        self.known.insert(part.from, Stretch { end: part.to, time: now, moved, up });
    }

    /// Removes and returns the stretches within these pages.
    fn take(&mut self, (from, to): (u64, u64)) -> Vec<(u64, Stretch)> {
        [from, to].into_iter().for_each(|at| self.cut(at));
        let starts: Vec<u64> = self.known.range(from..to).map(|(start, _)| *start).collect();
        starts.into_iter().filter_map(|at| self.known.remove_entry(&at)).collect()
    }

    /// Splits the stretch that holds that page, so that a stretch begins there.
    fn cut(&mut self, at: u64) {
        let Some((_, stretch)) = self.known.range_mut(..at).next_back() else { return };
        if at < stretch.end {
            let rest = *stretch;
            stretch.end = at;
            self.known.insert(at, rest);
        }
    }

    /// Closes a stretch: adds the accessed and the wasted bytes of its promotion.
    fn close(&mut self, (from, stretch): (u64, &Stretch), now: Time, seen: &mut Seen) {
        let up = bytes(stretch.end - from) * stretch.up;
        if up > 0.0 {
            let touched = up * self.touched((from, stretch), now, seen);
            self.reaccessed += touched;
            self.wasted += up - touched;
        }
    }

    /// Expected share of a stretch's pages accessed since it moved.
    fn touched(&mut self, (from, stretch): (u64, &Stretch), now: Time, seen: &mut Seen) -> f64 {
        let Some(truth) = &mut self.truth else { return 0.0 };
        let touched = seen.since(stretch.time, || truth.touched(stretch.time, now));
        let range = Range::new(SPACE, from << PAGE_SHIFT, stretch.end << PAGE_SHIFT);
        touched.bytes_within(&range) as f64 / range.bytes() as f64
    }

    /// The sums, as if the run ended now.
    pub(super) fn account(&self, now: Time) -> Moved {
        let mut ended = Self { known: BTreeMap::new(), ..self.clone() };
        let mut seen = Seen::default();
        // In order of time: for stretches that moved together the touched memory is computed once.
        let mut known: Vec<(u64, Stretch)> = self.known.iter().map(|(at, of)| (*at, *of)).collect();
        known.sort_by_key(|(_, stretch)| stretch.time);
        for (from, stretch) in &known {
            ended.close((*from, stretch), now, &mut seen);
        }
        let [reaccessed, wasted, ping_pong] =
            [ended.reaccessed, ended.wasted, ended.ping_pong].map(|sum| sum.round() as u64);
        Moved { reaccessed, wasted, ping_pong, ..ended.moved }
    }
}

/// Memory touched between a time and now, cached: neighbouring stretches mostly have the same time.
#[derive(Default)]
struct Seen(Option<(Time, Touched)>);

impl Seen {
    fn since(&mut self, time: Time, find: impl FnOnce() -> Touched) -> &Touched {
        if self.0.as_ref().is_none_or(|(known, _)| *known != time) {
            self.0 = Some((time, find()));
        }
        &self.0.as_ref().expect("it was just found").1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_workloads::generate::from_spec;

    fn second(n: u64) -> Time {
        Time(n * 1_000_000_000)
    }

    /// 1000 pages, of which the first 500 are accessed 1000 times a second, twice each.
    fn empty() -> PromotionReuse {
        let spec = "contiguous:space=4096000B,hot=2048000B,share=1.0,rate=1000";
        let workload = from_spec(spec).expect("it is one");
        let rates = workload.phases.iter().map(|phase| phase.rate.unwrap_or(0) as f64).collect();
        let truth = Truth::new(workload, vec![0], SPACE, rates);
        PromotionReuse { truth: Some(truth), ..PromotionReuse::default() }
    }

    fn part(from: u64, to: u64, up: u64, down: u64) -> Part {
        Part { from, to, up, down }
    }

    // All of 400..600 is promoted; half of it is accessed within ten seconds, 1 - exp(-20) of each
    // page. Then 500..550, never accessed, is demoted.
    #[test]
    fn a_promotion_counts_by_the_share_touched_afterwards() {
        let mut reuse = empty();
        reuse.moves(&part(400, 600, 200, 0), second(0));
        let moved = reuse.account(second(10));
        assert_eq!((moved.promoted, moved.reaccessed), (200 << 12, 100 << 12));
        reuse.moves(&part(500, 550, 0, 50), second(10));
        let moved = reuse.account(second(100));
        assert_eq!((moved.wasted, moved.ping_pong, moved.demoted), (100 << 12, 50 << 12, 50 << 12));
        assert_eq!(moved.reaccessed, 100 << 12);
    }

    // Half of the interleaved pages move: 100..200 counts for 50.
    #[test]
    fn pages_already_in_the_tier_do_not_count() {
        let mut reuse = empty();
        reuse.moves(&part(100, 200, 50, 0), second(0));
        assert_eq!(reuse.account(second(9)).reaccessed, 50 << 12);
        reuse.moves(&part(100, 200, 0, 100), second(9));
        assert_eq!(reuse.account(second(9)).ping_pong, 50 << 12);
    }
}
