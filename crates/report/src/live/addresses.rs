//! The addresses in view: a part of the domain, cut into rows.
//!
//! The *domain* is the seen memory of the scope, taken as one sequence of bytes with gaps left out:
//! scrolling and zooming never show empty space. What is in view is laid out as in other heatmaps
//! ([`crate::blocks`]): a block of rows for each mapping, small ones together.

use tierscope_core::{Addr, PAGE_SIZE, Range, RangeSet, SpaceId};

use crate::blocks::{Block, Memory, blocks};

/// A row of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// The ranges of the row, in order.
    pub(crate) parts: Vec<Range>,
    /// Name of its block and the block's space, in the first row of a block.
    pub(crate) title: Option<(String, Option<SpaceId>)>,
    /// Whether it holds several small mappings.
    is_rest: bool,
}

impl Row {
    pub(crate) fn bytes(&self) -> u64 {
        self.parts.iter().map(Range::bytes).sum()
    }
}

/// A scale of addresses.
///
/// Invariant: the part in view lies within the domain, and holds at least a page per row if the
/// domain has that many.
#[derive(Clone, Debug, Default)]
pub(crate) struct Addresses {
    /// The domain and its mappings.
    memory: Memory,
    /// Bytes of the domain before each of its ranges.
    before: Vec<u128>,
    total: u128,
    /// Number of rows that fit.
    room: usize,
    /// First byte in view, as an offset into the domain.
    from: u128,
    /// Bytes in view.
    length: u128,
    rows: Vec<Row>,
}

impl Addresses {
    /// The rows, in order; at most as many as fit.
    pub(crate) fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Bytes of the largest row.
    pub(crate) fn row_bytes(&self) -> u64 {
        self.rows.iter().map(Row::bytes).max().unwrap_or(0)
    }

    /// Bytes in view.
    pub(crate) fn bytes(&self) -> u64 {
        u64::try_from(self.length).unwrap_or(u64::MAX)
    }

    /// Whether all of the domain is in view.
    pub(crate) fn is_whole(&self) -> bool {
        self.length == self.total
    }

    /// Changes the domain if `memory` has at least a row that is not in it, if a small mapping
    /// became hot, or a process no longer counts as short-lived: rows should not move with every
    /// page that the target populates.
    pub(crate) fn grow(&mut self, memory: Memory) {
        let more = memory.seen.minus(self.domain()).bytes();
        let rest = self.rows.iter().filter(|row| row.is_rest);
        let rest: RangeSet = rest.flat_map(|row| row.parts.iter().copied()).collect();
        let is_hot = memory.hot != self.memory.hot && !rest.intersect(&memory.hot).is_empty();
        if more >= self.row_bytes().max(1) || is_hot || memory.own != self.memory.own {
            self.set_domain(memory);
        }
    }

    /// Changes the domain: shows all of it if all of the old one was in view, else keeps the first
    /// address.
    pub(crate) fn set_domain(&mut self, memory: Memory) {
        if memory == self.memory {
            return;
        }
        let anchor = (!self.is_whole()).then(|| self.address_at(self.from)).flatten();
        self.before.clear();
        self.total = 0;
        for range in memory.seen.as_slice() {
            self.before.push(self.total);
            self.total += u128::from(range.bytes());
        }
        self.memory = memory;
        match anchor {
            Some(anchor) => self.from = self.offset_of(anchor),
            None => self.length = self.total,
        }
        self.settle();
    }

    fn domain(&self) -> &RangeSet {
        &self.memory.seen
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
        let bytes = u128::from(self.row_bytes()) * u128::from(rows.unsigned_abs());
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
        let (blocks, _) =
            blocks(&Memory { seen: self.in_view(), ..self.memory.clone() }, self.room);
        self.rows = blocks.iter().flat_map(rows_of).take(self.room).collect();
    }

    fn in_view(&self) -> RangeSet {
        let (from, to) = (self.from, self.from + self.length);
        let part = |(range, before): (&Range, &u128)| {
            let start = from.saturating_sub(*before).min(range.bytes().into()) as u64;
            let end = to.saturating_sub(*before).min(range.bytes().into()) as u64;
            Range { start: range.start + start, end: range.start + end, ..*range }
        };
        self.domain().as_slice().iter().zip(&self.before).map(part).collect()
    }

    fn address_at(&self, offset: u128) -> Option<Addr> {
        let index = self.before.partition_point(|before| *before <= offset).checked_sub(1)?;
        let range = self.domain().as_slice()[index];
        let inside = (offset - self.before[index]).min(range.bytes().into()) as u64;
        Some(Addr { space: range.space, at: range.start + inside })
    }

    /// Offset of `addr` in the domain; of the next address in it if `addr` is in a gap.
    fn offset_of(&self, addr: Addr) -> u128 {
        let ranges = self.domain().as_slice();
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

fn rows_of(block: &Block) -> impl Iterator<Item = Row> {
    let (is_rest, title) = (block.is_rest, (block.name.clone(), block.space));
    let titles = std::iter::once(Some(title)).chain(std::iter::repeat(None));
    block.rows().into_iter().zip(titles).map(move |(parts, title)| Row { parts, title, is_rest })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::Named;
    use proptest::prelude::*;

    /// One mapping for each space.
    fn memory(ranges: &[(u32, u64, u64)]) -> Memory {
        let seen = pages(ranges);
        let name = |range: &Range| Named { range: *range, name: "".into(), file: Some((0, 0)) };
        Memory { named: seen.as_slice().iter().map(name).collect(), seen, ..Memory::default() }
    }

    fn pages(ranges: &[(u32, u64, u64)]) -> RangeSet {
        let page = |(space, start, end): &(u32, u64, u64)| {
            Range::new(SpaceId(*space), start * PAGE_SIZE, end * PAGE_SIZE)
        };
        ranges.iter().map(page).collect()
    }

    fn rows(addresses: &Addresses) -> Vec<(u64, u64)> {
        let page = |r: &Range| (r.start / PAGE_SIZE, r.end / PAGE_SIZE);
        addresses.rows().iter().flat_map(|row| row.parts.iter().map(page)).collect()
    }

    fn of(ranges: &[(u32, u64, u64)], room: usize) -> Addresses {
        let mut addresses = Addresses::default();
        addresses.set_room(room);
        addresses.set_domain(memory(ranges));
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
        addresses.set_domain(memory(&[(0, 0, 50), (0, 100, 116)]));
        assert_eq!(rows(&addresses)[0].0, 104);
        addresses.set_domain(memory(&[(0, 0, 3)]));
        assert!(addresses.is_whole() && rows(&addresses) == [(0, 1), (1, 2), (2, 3)]);
    }

    // 8 pages in a heap and one in a stack, of each of two processes: in eight rows, a row is three
    // pages, and a stack is smaller than half of that.
    #[test]
    fn every_mapping_is_a_block_and_small_ones_are_one_together() {
        let far = 1 << 33;
        let mut memory = memory(&[(0, 0, 8), (0, far, far + 1), (1, 0, 8), (1, far, far + 1)]);
        for (named, name) in memory.named.iter_mut().zip(["heap", "stack"].iter().cycle()) {
            (named.name, named.file) = ((*name).into(), None);
        }
        let mut addresses = Addresses::default();
        addresses.set_room(8);
        addresses.set_domain(memory.clone());
        let heap = [(0, 3), (3, 6), (6, 8)];
        let small = [(far, far + 1); 2];
        assert_eq!(rows(&addresses), [&heap[..], &heap, &small].concat());
        let titles = addresses.rows().iter().filter_map(|row| row.title.clone());
        let names: Vec<(String, Option<SpaceId>)> = titles.collect();
        let space = |number| Some(SpaceId(number));
        let heap = |number| ("heap".to_string(), space(number));
        assert_eq!(names, [heap(0), heap(1), ("2 small mappings".into(), None)]);
        // The stack of the second process becomes hot.
        memory.hot = pages(&[(1, far, far + 1)]);
        addresses.grow(memory.clone());
        let last = addresses.rows().last().and_then(|row| row.title.clone());
        assert_eq!(last, Some(("stack".into(), space(1))));
        // A page is less than a row.
        let more = pages(&[(0, 8, 9), (1, 0, 1)]);
        memory.named[0].range.end += PAGE_SIZE;
        memory.seen = memory.seen.as_slice().iter().chain(more.as_slice()).copied().collect();
        addresses.grow(memory);
        assert_eq!(rows(&addresses)[2], (6, 8));
    }

    #[test]
    fn more_spaces_than_rows_share_one() {
        let spaces: Vec<_> = (0..10).map(|space| (space, 0, 1)).collect();
        let mut addresses = of(&spaces, 4);
        let name = |addresses: &Addresses| addresses.rows()[0].title.clone().map(|title| title.0);
        assert_eq!(name(&addresses).as_deref(), Some("10 small mappings"));
        addresses.zoom_in();
        addresses.zoom_in();
        assert_eq!(addresses.rows().len(), 4);
        assert_eq!(name(&addresses).as_deref(), Some(""));
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

    fn domain(parts: &[(u64, u64)]) -> Memory {
        let mut at = 0;
        let ranges = parts.iter().map(|(gap, pages)| {
            let start = at + gap;
            at = start + pages;
            (0, start, at)
        });
        memory(&ranges.collect::<Vec<_>>())
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
                prop_assert_eq!(view.minus(addresses.domain()).bytes(), 0);
                prop_assert_eq!(u128::from(view.bytes()), addresses.length);
                prop_assert!(addresses.from + addresses.length <= addresses.total);
                prop_assert!(addresses.rows.len() <= addresses.room);
                let parts: Vec<Range> = addresses.rows.iter().flat_map(|row| row.parts.clone()).collect();
                prop_assert!(parts.windows(2).all(|pair| pair[0].end <= pair[1].start));
                prop_assert!(addresses.total == 0 || addresses.room == 0 || !addresses.rows.is_empty());
            }
        }
    }
}
