//! The addresses in view: a part of the domain, cut into rows.
//!
//! The *domain* is the set of all addresses of the scope, taken as one sequence of bytes with gaps
//! left out: scrolling and zooming never show empty space.

use tierscope_core::{Addr, PAGE_SIZE, Range, RangeSet};

use crate::areas::{self, Block};

/// A scale of addresses.
///
/// Invariant: the part in view lies within the domain, and holds at least a page per row if the
/// domain has that many.
#[derive(Clone, Debug, Default)]
pub(crate) struct Addresses {
    domain: RangeSet,
    /// Bytes of the domain before each of its ranges.
    before: Vec<u128>,
    total: u128,
    /// Number of rows that fit.
    room: usize,
    /// First byte in view, as an offset into the domain.
    from: u128,
    /// Bytes in view.
    length: u128,
    rows: Vec<Range>,
    /// Number of rows that did not fit.
    left_out: usize,
}

impl Addresses {
    /// The rows, in order; at most as many as fit.
    pub(crate) fn rows(&self) -> &[Range] {
        &self.rows
    }

    /// Number of rows that did not fit: there are more spaces in view than lines.
    pub(crate) fn left_out(&self) -> usize {
        self.left_out
    }

    /// Bytes in view.
    pub(crate) fn bytes(&self) -> u64 {
        u64::try_from(self.length).unwrap_or(u64::MAX)
    }

    /// Whether all of the domain is in view.
    pub(crate) fn is_whole(&self) -> bool {
        self.length == self.total
    }

    /// Changes the domain: shows all of it if all of the old one was in view, else keeps the first
    /// address.
    pub(crate) fn set_domain(&mut self, domain: RangeSet) {
        if domain == self.domain {
            return;
        }
        let anchor = (!self.is_whole()).then(|| self.address_at(self.from)).flatten();
        self.before.clear();
        self.total = 0;
        for range in domain.as_slice() {
            self.before.push(self.total);
            self.total += u128::from(range.bytes());
        }
        self.domain = domain;
        match anchor {
            Some(anchor) => self.from = self.offset_of(anchor),
            None => self.length = self.total,
        }
        self.settle();
    }

    /// Sets the number of rows that fit.
    pub(crate) fn set_room(&mut self, rows: usize) {
        if rows != self.room {
            self.room = rows;
            self.settle();
        }
    }

    /// Shows all of the domain.
    pub(crate) fn reset(&mut self) {
        self.length = self.total;
        self.settle();
    }

    /// Halves the bytes in view, around the middle.
    pub(crate) fn zoom_in(&mut self) {
        let half = (self.length / 2).max(self.least());
        self.from += self.length.saturating_sub(half) / 2 / PAGE * PAGE;
        self.length = half;
        self.settle();
    }

    /// Doubles the bytes in view, around the middle.
    pub(crate) fn zoom_out(&mut self) {
        self.from = self.from.saturating_sub(self.length / 2 / PAGE * PAGE);
        self.length = self.length.saturating_mul(2);
        self.settle();
    }

    /// Scrolls by rows, to higher addresses if positive.
    pub(crate) fn scroll(&mut self, rows: i64) {
        let step = self.rows.iter().map(Range::bytes).max().unwrap_or(0);
        let bytes = u128::from(step) * u128::from(rows.unsigned_abs());
        self.from = match rows < 0 {
            true => self.from.saturating_sub(bytes),
            false => self.from.saturating_add(bytes),
        };
        self.settle();
    }

    /// Minimum number of bytes in view.
    fn least(&self) -> u128 {
        (PAGE * self.room.max(1) as u128).min(self.total)
    }

    /// Restores the invariant, and computes the rows.
    fn settle(&mut self) {
        self.length = self.length.clamp(self.least(), self.total);
        self.from = self.from.min(self.total - self.length);
        let mut rows = fitting(&self.in_view(), self.room);
        self.left_out = rows.len().saturating_sub(self.room);
        rows.truncate(self.room);
        self.rows = rows;
    }

    fn in_view(&self) -> RangeSet {
        let (from, to) = (self.from, self.from + self.length);
        let part = |(range, before): (&Range, &u128)| {
            let start = from.saturating_sub(*before).min(range.bytes().into()) as u64;
            let end = to.saturating_sub(*before).min(range.bytes().into()) as u64;
            Range { start: range.start + start, end: range.start + end, ..*range }
        };
        self.domain.as_slice().iter().zip(&self.before).map(part).collect()
    }

    fn address_at(&self, offset: u128) -> Option<Addr> {
        let index = self.before.partition_point(|before| *before <= offset).checked_sub(1)?;
        let range = self.domain.as_slice()[index];
        let inside = (offset - self.before[index]).min(range.bytes().into()) as u64;
        Some(Addr { space: range.space, at: range.start + inside })
    }

    /// Offset of `addr` in the domain; of the next address in it if `addr` is in a gap.
    fn offset_of(&self, addr: Addr) -> u128 {
        let ranges = self.domain.as_slice();
        let index = ranges.partition_point(|r| (r.space, r.end) <= (addr.space, addr.at));
        let Some(range) = ranges.get(index) else { return self.total };
        let inside = match range.space == addr.space {
            true => addr.at.saturating_sub(range.start),
            false => 0,
        };
        self.before[index] + u128::from(inside)
    }
}

const PAGE: u128 = PAGE_SIZE as u128;

/// Rows of the same scale, at most `room` of them unless there are more spaces than that. Each area
/// has a row of its own, however small it is.
fn fitting(shown: &RangeSet, room: usize) -> Vec<Range> {
    let areas = areas(shown.as_slice(), room.max(1));
    let total: u128 = areas.iter().map(|area| u128::from(area.bytes())).sum();
    let mut bytes = areas::round(u64::try_from(total / room.max(1) as u128).unwrap_or(u64::MAX));
    loop {
        let count: u64 = areas.iter().map(|area| area.bytes().div_ceil(bytes)).sum();
        let least = areas.len() as u64;
        let next = areas::round(bytes.saturating_add(1));
        if count <= (room as u64).max(least) || next == bytes {
            let block = |range: &Range| Block { range: *range, row_bytes: bytes };
            return areas.iter().flat_map(|area| block(area).rows().collect::<Vec<_>>()).collect();
        }
        bytes = next;
    }
}

/// The ranges, joined over all but the widest gaps: only gaps wider than a row are kept, and at
/// most half as many as there are rows, so that areas have enough room. Borders between spaces are
/// always kept.
fn areas(shown: &[Range], room: usize) -> Vec<Range> {
    let gap = |a: &Range, b: &Range| (a.space == b.space).then(|| b.start - a.end);
    let bytes: u128 = shown.iter().map(|range| u128::from(range.bytes())).sum();
    let row = u64::try_from(bytes / room as u128).unwrap_or(u64::MAX).max(1);
    let mut gaps: Vec<u64> = shown.windows(2).filter_map(|pair| gap(&pair[0], &pair[1])).collect();
    gaps.retain(|gap| *gap >= row);
    gaps.sort_unstable_by(|a, b| b.cmp(a));
    let borders = shown.windows(2).filter(|pair| pair[0].space != pair[1].space).count();
    let most = (room / 2).max(1).min(room.saturating_sub(borders + 1));
    let least = gaps.get(most).map_or(row, |crowded| crowded.saturating_add(1));
    let joins = |a: &Range, b: &Range| gap(a, b).is_some_and(|gap| gap < least);
    shown.chunk_by(joins).map(|run| Range { end: run[run.len() - 1].end, ..run[0] }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tierscope_core::SpaceId;

    fn pages(ranges: &[(u32, u64, u64)]) -> RangeSet {
        let page = |(space, start, end): &(u32, u64, u64)| {
            Range::new(SpaceId(*space), start * PAGE_SIZE, end * PAGE_SIZE)
        };
        ranges.iter().map(page).collect()
    }

    fn rows(addresses: &Addresses) -> Vec<(u64, u64)> {
        let page = |r: &Range| (r.start / PAGE_SIZE, r.end / PAGE_SIZE);
        addresses.rows().iter().map(page).collect()
    }

    fn of(ranges: &[(u32, u64, u64)], room: usize) -> Addresses {
        let mut addresses = Addresses::default();
        addresses.set_room(room);
        addresses.set_domain(pages(ranges));
        addresses
    }

    // 16 pages in four rows; half of them around the middle are 4..12, scrolled by one row 6..14.
    #[test]
    fn zooms_about_the_middle_and_scrolls_by_rows() {
        let mut addresses = of(&[(0, 0, 16)], 4);
        assert_eq!(rows(&addresses), [(0, 4), (4, 8), (8, 12), (12, 16)]);
        addresses.zoom_in();
        assert_eq!(rows(&addresses), [(4, 6), (6, 8), (8, 10), (10, 12)]);
        addresses.scroll(1);
        assert_eq!(rows(&addresses), [(6, 8), (8, 10), (10, 12), (12, 14)]);
        addresses.scroll(100);
        assert_eq!(rows(&addresses)[3], (14, 16));
        addresses.zoom_in();
        addresses.zoom_in();
        assert_eq!(rows(&addresses).len(), 4, "a row is no less than a page");
        addresses.reset();
        assert!(addresses.is_whole());
    }

    // Scrolling passes directly over the gap between pages 4 and 100.
    #[test]
    fn gaps_are_never_in_view() {
        let mut addresses = of(&[(0, 0, 4), (0, 100, 104)], 4);
        addresses.zoom_in();
        assert_eq!(rows(&addresses), [(2, 3), (3, 4), (100, 101), (101, 102)]);
    }

    // A mapping that appears below the view does not move it.
    #[test]
    fn keeps_its_address_when_the_domain_changes() {
        let mut addresses = of(&[(0, 100, 116)], 4);
        addresses.zoom_in();
        assert_eq!(rows(&addresses)[0].0, 104);
        addresses.set_domain(pages(&[(0, 0, 50), (0, 100, 116)]));
        assert_eq!(rows(&addresses)[0].0, 104);
        addresses.set_domain(pages(&[(0, 0, 3)]));
        assert!(addresses.is_whole() && rows(&addresses) == [(0, 1), (1, 2), (2, 3)]);
    }

    // Heap and stack of two processes, each stack terabytes above its heap: 18 pages in eight rows
    // are three pages per row.
    #[test]
    fn every_area_has_a_row_and_none_shows_a_gap() {
        let far = 1 << 33;
        let process = |space| [(space, 0, 8), (space, far, far + 1)];
        let addresses = of(&[process(0), process(1)].concat(), 8);
        let expected = [(0, 3), (3, 6), (6, 8), (far, far + 1)];
        assert_eq!(rows(&addresses), [expected, expected].concat());
    }

    #[test]
    fn more_spaces_than_rows_say_so() {
        let spaces: Vec<_> = (0..10).map(|space| (space, 0, 1)).collect();
        let mut addresses = of(&spaces, 4);
        assert_eq!((addresses.rows().len(), addresses.left_out()), (4, 6));
        addresses.zoom_in();
        addresses.zoom_in();
        assert_eq!(addresses.left_out(), 0);
    }

    #[derive(Clone, Debug)]
    enum Do {
        In,
        Out,
        Reset,
        Scroll(i64),
        Room(usize),
        Domain(Vec<(u64, u64)>),
    }

    fn some_do() -> impl Strategy<Value = Do> {
        prop_oneof![
            Just(Do::In),
            Just(Do::Out),
            Just(Do::Reset),
            any::<i64>().prop_map(Do::Scroll),
            (-9i64..9).prop_map(Do::Scroll),
            (0usize..20).prop_map(Do::Room),
            prop::collection::vec((0u64..200, 0u64..200), 0..6).prop_map(Do::Domain),
        ]
    }

    fn domain(parts: &[(u64, u64)]) -> RangeSet {
        let mut at = 0;
        let ranges = parts.iter().map(|(gap, pages)| {
            let start = at + gap;
            at = start + pages;
            (0, start, at)
        });
        pages(&ranges.collect::<Vec<_>>())
    }

    proptest! {
        // After any actions, the rows are in the domain, in order, and fit.
        #[test]
        fn the_view_never_leaves_the_domain(acts in prop::collection::vec(some_do(), 0..40)) {
            let mut addresses = of(&[(0, 7, 90)], 8);
            for act in acts {
                match act {
                    Do::In => addresses.zoom_in(),
                    Do::Out => addresses.zoom_out(),
                    Do::Reset => addresses.reset(),
                    Do::Scroll(rows) => addresses.scroll(rows),
                    Do::Room(rows) => addresses.set_room(rows),
                    Do::Domain(parts) => addresses.set_domain(domain(&parts)),
                }
                let view = addresses.in_view();
                prop_assert_eq!(view.minus(&addresses.domain).bytes(), 0);
                prop_assert_eq!(u128::from(view.bytes()), addresses.length);
                prop_assert!(addresses.from + addresses.length <= addresses.total);
                prop_assert!(addresses.rows.len() <= addresses.room);
                prop_assert!(addresses.rows.windows(2).all(|pair| pair[0].end <= pair[1].start));
                prop_assert!(addresses.total == 0 || addresses.room == 0 || !addresses.rows.is_empty());
            }
        }
    }
}
