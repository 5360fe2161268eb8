//! A range of pages with equal access rates, as a point process over pages and time.
//!
//! Accesses to a page occur at random, independent times at a steady rate: a Poisson process. It is
//! laid out in *cells* of pages and time, with a handful of expected accesses each. Their number,
//! times and addresses are a hash of the cell's number: so every query of a cell, for whatever
//! entry and interval, sees the same accesses.
//!
//! The shape of the cells makes all queries cheap: whether a page was accessed within a few
//! intervals takes a cell or two; whether a terabyte was accessed takes the accesses until the
//! first one within the interval.

use std::ops::ControlFlow;
use std::sync::OnceLock;

use tierscope_core::{PAGE_SIZE, Range};

use super::hash::{Poisson, draw, mix};

/// Largest number of expected accesses in a cell; at least half of it, unless the range has fewer.
const PER_CELL: f64 = 8.0;
/// log2 of the nanoseconds of the shortest cell with several pages: 34 ms, a few sampling
/// intervals.
const SHORT: u32 = 25;
/// log2 of the nanoseconds of the longest cell: 4.3 s.
const LONG: u32 = 32;
/// Cells of a slow page last this part of the mean time between two accesses to it.
const PATIENCE: f64 = 64.0;
/// log2 of the most pages in a cell.
const WIDE: u32 = 31;
/// Accesses per nanosecond to one page beyond which the rate makes no difference.
const FASTEST: f64 = 8.0;

/// An access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    /// The address.
    pub(super) at: u64,
    /// End of the touched bytes: the next address, or the end of a visit to many pages.
    pub(super) end: u64,
    /// Time in nanoseconds.
    pub(super) time: u64,
    /// Uniform random bits for further draws about the access.
    pub(super) bits: u64,
}

/// A range and its accesses.
#[derive(Clone, Debug)]
pub(super) struct AccessRange {
    /// The addresses.
    pub(super) range: Range,
    /// Distance between accessed pages, or between visits of many pages, in bytes.
    every: u64,
    /// Bytes of a slot: a page, of which an access touches one byte; or a visit, which touches all
    /// of them.
    reach: u64,
    /// Number of accessed pages, or of visited values.
    pub(super) slots: u64,
    /// Accesses a second to each of them.
    pub(super) rate: f64,
    /// Share of the accesses that write.
    pub(super) writes: f64,
    /// log2 of the slots in a cell.
    column: u32,
    /// log2 of the nanoseconds of a cell.
    tick: u32,
    whole: Poisson,
    short: OnceLock<Poisson>,
    key: u64,
}

/// log2 of slots and nanoseconds of a cell, for pages accessed `rate` times a second.
fn shape(rate: f64, slots: u64) -> (u32, u32) {
    let pause = 1e9 / rate;
    let mut tick = ((pause / PATIENCE).log2().floor().max(0.0) as u32).clamp(SHORT, LONG);
    let fit = PER_CELL * pause;
    if fit < (1u64 << tick) as f64 {
        tick = fit.log2().floor().max(0.0) as u32;
    }
    let pages = (fit / (1u64 << tick) as f64).log2().floor().max(0.0) as u32;
    (pages.min(WIDE).min(64 - slots.leading_zeros()), tick)
}

impl AccessRange {
    /// `rate` accesses a second, over all of `range`; `key` separates its draws from those of other
    /// ranges.
    pub(super) fn new(range: Range, every: u64, rate: f64, writes: f64, key: u64) -> Self {
        Self::of(range, (every.max(PAGE_SIZE), PAGE_SIZE), rate, writes, key)
    }

    /// `rate` visits a second, over all of `range`; each touches all of its `bytes` bytes.
    pub(super) fn visits(range: Range, bytes: u64, rate: f64, writes: f64, key: u64) -> Self {
        Self::of(range, (bytes, bytes), rate, writes, key)
    }

    fn of(range: Range, (every, reach): (u64, u64), rate: f64, writes: f64, key: u64) -> Self {
        let slots = range.bytes().div_ceil(every).max(1);
        let rate = (rate / slots as f64).min(FASTEST * 1e9);
        let (column, tick) = shape(rate, slots);
        let mean = |slots: u64| slots as f64 * rate * (1u64 << tick) as f64 / 1e9;
        let whole = Poisson::new(mean(1 << column));
        let short = OnceLock::new();
        Self { range, every, reach, slots, rate, writes, column, tick, whole, short, key }
    }

    /// Expected accesses to `bytes` of it within `nanos` ns.
    pub(super) fn expected(&self, bytes: u64, nanos: u64) -> f64 {
        (bytes as f64 / self.every as f64).max(1.0).min(self.slots as f64)
            * self.rate
            * nanos as f64
            / 1e9
    }

    /// Slots that may have bytes within `start..end`, which overlaps the range.
    fn slots_of(&self, start: u64, end: u64) -> (u64, u64) {
        let from = start.saturating_sub(self.range.start) / self.every;
        let last = (end.min(self.range.end) - 1 - self.range.start) / self.every;
        (from, last.min(self.slots - 1))
    }

    /// Calls `visit` for each access to `start..end` at a time of `from..to` until it breaks.
    #[inline]
    pub(super) fn points(
        &self,
        (start, end): (u64, u64),
        (from, to): (u64, u64),
        mut visit: impl FnMut(&Point) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if from >= to || start.max(self.range.start) >= end.min(self.range.end) {
            return ControlFlow::Continue(());
        }
        let (first, last) = self.slots_of(start, end);
        for column in first >> self.column..=last >> self.column {
            let base = column << self.column;
            let width = (self.slots - base).min(1 << self.column);
            let law = if width < 1 << self.column { self.short(width) } else { &self.whole };
            let key = draw(self.key, column);
            for cell in from >> self.tick..=(to - 1) >> self.tick {
                let key = draw(key, cell);
                for index in 0..law.count(mix(key)) {
                    let bits = draw(key, index);
                    let slot = base + (((bits >> 32) * width) >> 32);
                    let time = (cell << self.tick) + (((bits & 0xffff_ffff) << self.tick) >> 32);
                    if time < from || time >= to || slot < first || slot > last {
                        continue;
                    }
                    let bits = mix(bits);
                    let (at, last) = self.touched(slot, bits);
                    if at < end && last > start {
                        let (at, end) = (at.max(start), last.min(end));
                        visit(&Point { at, end, time, bits: mix(bits) })?;
                    }
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Distribution of the last cell of each row, which has fewer slots.
    fn short(&self, width: u64) -> &Poisson {
        let mean = || width as f64 * self.rate * (1u64 << self.tick) as f64 / 1e9;
        self.short.get_or_init(|| Poisson::new(mean()))
    }

    /// A random address in the page, or in the visited bytes, of `slot`.
    pub(super) fn address(&self, slot: u64, bits: u64) -> u64 {
        let start = self.range.start + slot * self.every;
        let bytes = self.reach.min(self.range.end - start);
        start + (((bits >> 32) * bytes) >> 32)
    }

    /// The bytes touched by an access to `slot`: one byte of its page, or all of a visit.
    #[inline]
    fn touched(&self, slot: u64, bits: u64) -> (u64, u64) {
        if self.reach == PAGE_SIZE {
            let at = self.address(slot, bits);
            return (at, at + 1);
        }
        let start = self.range.start + slot * self.every;
        (start, (start + self.reach).min(self.range.end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tierscope_core::SpaceId;

    const SECOND: u64 = 1_000_000_000;

    fn accesses(pages: u64, rate: f64) -> AccessRange {
        AccessRange::new(Range::new(SpaceId(0), 0, pages * PAGE_SIZE), PAGE_SIZE, rate, 0.0, 9)
    }

    fn all(accesses: &AccessRange, bytes: (u64, u64), times: (u64, u64)) -> Vec<Point> {
        let mut points = Vec::new();
        let _ = accesses.points(bytes, times, |point| {
            points.push(*point);
            ControlFlow::Continue(())
        });
        points.sort_by_key(|point| (point.time, point.at, point.bits));
        points
    }

    // 3 million a second over 10 GiB are 1.14 a page: cells of 128 pages and 34 ms, 4.9 accesses.
    #[test]
    fn a_cell_holds_few_accesses() {
        for (pages, rate) in [(2_621_440, 3e6), (1280, 3e6), (1, 3e6), (1 << 30, 10.0), (7, 1e-3)] {
            let (column, tick) = shape(rate / pages as f64, pages);
            let mean = rate / pages as f64 * (1u64 << column) as f64 * (1u64 << tick) as f64 / 1e9;
            let few = column >= 64 - pages.leading_zeros();
            assert!(mean <= PER_CELL && (mean >= PER_CELL / 4.0 || few), "{pages} {rate}: {mean}");
        }
        assert_eq!(shape(1.14, 2_621_440), (7, 25));
    }

    // A million accesses are expected in a second: 10^6 ± 1000, five sigma allowed; and each page
    // of a thousand has its thousand, 1000 ± 32, six sigma.
    #[test]
    fn accesses_meet_the_rate_on_every_page() {
        let points = all(&accesses(1000, 1e6), (0, 1000 * PAGE_SIZE), (SECOND, 2 * SECOND));
        assert!(points.len().abs_diff(1_000_000) < 5000, "{}", points.len());
        let mut pages = [0u32; 1000];
        points.iter().for_each(|point| pages[(point.at / PAGE_SIZE) as usize] += 1);
        assert!(pages.iter().all(|n| n.abs_diff(1000) < 190), "{pages:?}");
    }

    // Visits to 2 MiB: each page of one is young together with the other 511, at the times of the
    // visit.
    #[test]
    fn a_visit_touches_all_its_bytes() {
        let bytes = 2 << 20;
        let range = Range::new(SpaceId(0), 0, 10 * bytes);
        let accesses = AccessRange::visits(range, bytes, 200.0, 0.0, 9);
        let times = |start: u64, end: u64| -> Vec<u64> {
            all(&accesses, (start, end), (0, SECOND)).iter().map(|point| point.time).collect()
        };
        let whole = times(3 * bytes, 4 * bytes);
        assert!(!whole.is_empty() && whole.len() < 60, "20 a second: {whole:?}");
        assert_eq!(times(3 * bytes, 3 * bytes + 1), whole);
        assert_eq!(times(4 * bytes - PAGE_SIZE, 4 * bytes), whole);
        let points = all(&accesses, (3 * bytes + 5, 5 * bytes), (0, SECOND));
        assert!(points.iter().all(|p| p.at >= 3 * bytes + 5 && p.end <= 5 * bytes && p.at < p.end));
        assert_eq!(points.len(), times(3 * bytes, 5 * bytes).len());
    }

    proptest! {
        // A query split in any way gives the same accesses as the whole.
        #[test]
        fn queries_of_parts_add_up_to_the_query_of_the_whole(
            pages in 1u64..5000,
            rate in 1.0f64..1e5,
            cut_page in 0.0f64..1.0,
            cut_time in 0.0f64..1.0,
            from in 0u64..10 * SECOND,
            nanos in 1u64..SECOND,
        ) {
            let accesses = accesses(pages, rate);
            let end = pages * PAGE_SIZE;
            let middle = (end as f64 * cut_page) as u64;
            let (to, noon) = (from + nanos, from + (nanos as f64 * cut_time) as u64);
            let whole = all(&accesses, (0, end), (from, to));
            let mut parts = Vec::new();
            for bytes in [(0, middle), (middle, end)] {
                for times in [(from, noon), (noon, to)] {
                    parts.extend(all(&accesses, bytes, times));
                }
            }
            parts.sort_by_key(|point| (point.time, point.at, point.bits));
            prop_assert_eq!(whole, parts);
        }
    }
}
