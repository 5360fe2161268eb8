//! Mapping between page numbers and addresses.
//!
//! Within a mapping, page numbers follow addresses ([`tierscope_core::PageId`]): a few runs
//! describe terabytes.

use tierscope_core::{Addr, PAGE_SHIFT, Range};

/// Contiguous addresses whose pages have consecutive numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    range: Range,
    /// Number of the page at the start of the run.
    first: u32,
}

impl Run {
    fn pages(&self) -> u64 {
        self.range.bytes() >> PAGE_SHIFT
    }

    fn page_at(&self, at: u64) -> u32 {
        self.first + ((at - self.range.start) >> PAGE_SHIFT) as u32
    }

    fn holds(&self, page: u32) -> bool {
        page >= self.first && u64::from(page - self.first) < self.pages()
    }

    /// The remaining parts of the run without `gone`.
    fn without(&self, gone: &Range) -> impl Iterator<Item = Run> + use<> {
        let run = *self;
        let below = Run { range: Range { end: gone.start.min(run.range.end), ..run.range }, ..run };
        let start = gone.end.clamp(run.range.start, run.range.end);
        let above = Run { range: Range { start, ..run.range }, first: run.page_at(start) };
        let is_left = |run: &Run| run.range.start < run.range.end;
        [below, above].into_iter().filter(is_left)
    }
}

/// All runs, searchable by address and by page number.
#[derive(Clone, Debug, Default)]
pub(crate) struct PageNumbers {
    /// Runs, sorted by address.
    runs: Vec<Run>,
    /// Indices into `runs`, sorted by first page.
    by_page: Vec<usize>,
    /// Indices of the last run found by address and by page, because consecutive queries are
    /// usually neighbours.
    last_address: std::cell::Cell<usize>,
    last_page: std::cell::Cell<usize>,
}

impl PageNumbers {
    /// Number of the 4 KiB page that contains the address.
    #[inline]
    pub(crate) fn page_at(&self, at: Addr) -> Option<u32> {
        let hint = self.last_address.get();
        if let Some(run) = self.runs.get(hint)
            && run.range.contains(at)
        {
            return Some(run.page_at(at.at));
        }
        let index =
            self.runs.partition_point(|run| (run.range.space, run.range.end) <= (at.space, at.at));
        let run = self.runs.get(index).filter(|run| run.range.contains(at))?;
        self.last_address.set(index);
        Some(run.page_at(at.at))
    }

    /// Start address of a page.
    #[inline]
    pub(crate) fn address_of(&self, page: u32) -> Option<Addr> {
        let address = |run: &Run| Addr {
            space: run.range.space,
            at: run.range.start + (u64::from(page - run.first) << PAGE_SHIFT),
        };
        if let Some(run) = self.runs.get(self.last_page.get())
            && run.holds(page)
        {
            return Some(address(run));
        }
        let next = self.by_page.partition_point(|index| self.runs[*index].first <= page);
        let index = *self.by_page.get(next.checked_sub(1)?)?;
        let run = self.runs[index];
        run.holds(page).then(|| {
            self.last_page.set(index);
            address(&run)
        })
    }

    /// Records that `page` begins at the start of `range`, and that the numbers of the pages of
    /// `within`, the mapping or its known part, follow accordingly. Contradicting entries are
    /// dropped.
    pub(crate) fn learn(&mut self, page: u32, range: &Range, within: &Range) {
        let at = Addr { space: range.space, at: range.start };
        if self.page_at(at) == Some(page) {
            return;
        }
        let run = self.widest(page, range, within);
        self.claim(&run);
        self.runs.push(run);
        self.sort();
    }

    /// The longest run around a page that overlaps no other: up to the bounds of the mapping, or to
    /// the neighbouring runs.
    fn widest(&self, page: u32, range: &Range, within: &Range) -> Run {
        let mut whole = within.intersect(range).map_or(*range, |_| *within);
        whole.start = whole.start.min(range.start);
        whole.end = whole.end.max(range.end);
        for other in self.runs.iter().filter(|other| other.range.space == range.space) {
            if other.range.end <= range.start {
                whole.start = whole.start.max(other.range.end);
            } else if other.range.start >= range.end {
                whole.end = whole.end.min(other.range.start);
            }
        }
        let before = u64::from(page).min((range.start - whole.start) >> PAGE_SHIFT);
        let start = range.start - (before << PAGE_SHIFT);
        let after = (whole.end - range.start) >> PAGE_SHIFT;
        let after = after.min(u64::from(u32::MAX - page));
        let end = range.start + (after << PAGE_SHIFT);
        Run { range: Range { start, end, ..whole }, first: page - before as u32 }
    }

    /// Removes the run's addresses and numbers from all other runs.
    fn claim(&mut self, run: &Run) {
        let runs = std::mem::take(&mut self.runs);
        let free = |other: Run| {
            let same_addresses = run.range.intersect(&other.range).unwrap_or(Range {
                end: other.range.start,
                start: other.range.start,
                ..other.range
            });
            other.without(&same_addresses).collect::<Vec<_>>()
        };
        let renumbered = |other: Run| {
            let first = u64::from(other.first.max(run.first));
            let end =
                (u64::from(other.first) + other.pages()).min(u64::from(run.first) + run.pages());
            let at =
                |page: u64| other.range.start + ((page - u64::from(other.first)) << PAGE_SHIFT);
            let gone = if first < end {
                (at(first), at(end))
            } else {
                (other.range.start, other.range.start)
            };
            other.without(&Range { start: gone.0, end: gone.1, ..other.range }).collect::<Vec<_>>()
        };
        self.runs = runs.into_iter().flat_map(free).flat_map(renumbered).collect();
    }

    fn sort(&mut self) {
        self.runs.sort_unstable_by_key(|run| run.range);
        self.by_page = (0..self.runs.len()).collect();
        let runs = &self.runs;
        self.by_page.sort_unstable_by_key(|index| runs[*index].first);
    }

    /// The 4 KiB pages in `range`, as intervals of numbers.
    pub(crate) fn rows(&self, range: &Range) -> Vec<std::ops::Range<u32>> {
        let row = |run: &Run| {
            let part = run.range.intersect(range)?;
            let first = run.page_at(part.start);
            Some(first..first + part.bytes().div_ceil(1 << PAGE_SHIFT) as u32)
        };
        self.runs.iter().filter_map(row).collect()
    }

    /// Forgets all pages outside of `mapped`. Returns their numbers, as intervals.
    pub(crate) fn keep(&mut self, mapped: &tierscope_core::RangeSet) -> Vec<std::ops::Range<u32>> {
        let known: tierscope_core::RangeSet = self.runs.iter().map(|run| run.range).collect();
        let gone = known.minus(mapped);
        let rows = gone.as_slice().iter().flat_map(|range| self.rows(range)).collect();
        for range in gone.as_slice() {
            let runs = std::mem::take(&mut self.runs);
            let left = |run: Run| match run.range.intersect(range) {
                Some(part) => run.without(&part).collect::<Vec<_>>(),
                None => vec![run],
            };
            self.runs = runs.into_iter().flat_map(left).collect();
        }
        if !gone.is_empty() {
            self.sort();
        }
        rows
    }

    /// Space, first page, end page (4 KiB) and first number of each run.
    #[cfg(test)]
    fn runs(&self) -> Vec<(tierscope_core::SpaceId, u64, u64, u32)> {
        let of =
            |run: &Run| (run.range.space, run.range.start >> 12, run.range.end >> 12, run.first);
        self.runs.iter().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;
    use tierscope_core::SpaceId;

    use super::*;

    fn r(start: u64, end: u64) -> Range {
        Range::new(SpaceId(0), start << 12, end << 12)
    }

    fn at(page: u64) -> Addr {
        Addr { space: SpaceId(0), at: page << 12 }
    }

    // One page of a mapping of 10..20 determines the numbers of all.
    #[test]
    fn a_mapping_is_one_run() {
        let mut numbers = PageNumbers::default();
        numbers.learn(103, &r(13, 14), &r(10, 20));
        assert_eq!(numbers.runs(), [(SpaceId(0), 10, 20, 100)]);
        assert_eq!((numbers.page_at(at(19)), numbers.page_at(at(20))), (Some(109), None));
        assert_eq!((numbers.address_of(100), numbers.address_of(110)), (Some(at(10)), None));
        numbers.learn(107, &r(17, 18), &r(10, 20));
        assert_eq!(numbers.runs().len(), 1);
        assert!(numbers.rows(&r(12, 15)).into_iter().flatten().eq(102..105));
    }

    #[test]
    fn unmapped_pages_are_forgotten() {
        let mut numbers = PageNumbers::default();
        numbers.learn(100, &r(10, 11), &r(10, 20));
        let mapped = [r(10, 12), r(15, 30)].into_iter().collect();
        assert!(numbers.keep(&mapped).into_iter().flatten().eq(102..105));
        assert_eq!(numbers.runs(), [(SpaceId(0), 10, 12, 100), (SpaceId(0), 15, 20, 105)]);
    }

    // Numbers 100..110 move to another mapping: the old one loses them.
    #[test]
    fn numbers_have_one_owner() {
        let mut numbers = PageNumbers::default();
        numbers.learn(100, &r(10, 11), &r(10, 20));
        numbers.learn(105, &r(55, 56), &r(50, 53));
        assert_eq!(numbers.address_of(105), Some(at(55)));
        assert_eq!((numbers.page_at(at(15)), numbers.page_at(at(14))), (None, Some(104)));
    }

    proptest! {
        // The last record of an address or a number wins; no older one contradicts it.
        #[test]
        fn the_last_record_wins(steps in prop::collection::vec((0u32..40, 0u64..40, 0u64..40), 1..30)) {
            let mut numbers = PageNumbers::default();
            for (page, address, other) in steps {
                let within = r(address.min(other), address.max(other) + 1);
                numbers.learn(page, &r(address, address + 1), &within);
                prop_assert_eq!(numbers.page_at(at(address)), Some(page));
                prop_assert_eq!(numbers.address_of(page), Some(at(address)));
                let mut owners = HashMap::new();
                for address in 0..100 {
                    if let Some(page) = numbers.page_at(at(address)) {
                        prop_assert_eq!(numbers.address_of(page), Some(at(address)));
                        prop_assert_eq!(owners.insert(page, address), None);
                    }
                }
            }
        }
    }
}
