//! Dense page numbers, for policies.
//!
//! A mapping has one number for each of its 4 KiB pages, consecutively; a huge page is identified
//! by the number of its first 4 KiB. Numbers are reused after an unmap.

use std::collections::BTreeMap;

use tierscope_core::{PageId, SpaceId};

/// Owners of page numbers.
#[derive(Clone, Debug, Default)]
pub(in crate::exact) struct Pages {
    /// First number → count, space, first byte.
    given: BTreeMap<u32, (u32, SpaceId, u64)>,
}

impl Pages {
    /// Numbers for `count` pages from `start` on; `None` if no free run is long enough.
    pub(super) fn give(&mut self, count: u64, space: SpaceId, start: u64) -> Option<PageId> {
        let count = u32::try_from(count).ok()?;
        let mut first = 0u32;
        for (at, (taken, ..)) in &self.given {
            if at - first >= count {
                break;
            }
            first = at.checked_add(*taken)?;
        }
        first.checked_add(count)?;
        self.given.insert(first, (count, space, start));
        Some(PageId(first))
    }

    pub(super) fn take_back(&mut self, first: PageId) {
        self.given.remove(&first.0);
    }

    /// Splits a run of numbers: the pages from `count` on begin at `start`.
    pub(super) fn cut(&mut self, first: PageId, count: u64) -> PageId {
        let (all, space, start) = self.given[&first.0];
        let (count, second) = (count as u32, first.0 + count as u32);
        self.given.insert(first.0, (count, space, start));
        self.given.insert(second, (all - count, space, start + (u64::from(count) << 12)));
        PageId(second)
    }

    /// The space and address of a page.
    pub(in crate::exact) fn place(&self, page: PageId) -> Option<(SpaceId, u64)> {
        let (first, (count, space, start)) = self.given.range(..=page.0).next_back()?;
        let within = page.0 - first;
        (within < *count).then(|| (*space, start + (u64::from(within) << 12)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_numbers_are_reused_and_cut() {
        let mut pages = Pages::default();
        let space = SpaceId(0);
        let rows = [4, 2, 3].map(|count| pages.give(count, space, count << 20));
        assert_eq!(rows, [0, 4, 6].map(|at| Some(PageId(at))));
        pages.take_back(PageId(4));
        assert_eq!(pages.place(PageId(5)), None);
        assert_eq!(pages.give(2, space, 0), Some(PageId(4)));
        assert_eq!(pages.cut(PageId(6), 1), PageId(7));
        assert_eq!(pages.place(PageId(8)), Some((space, (3 << 20) + 0x2000)));
    }
}
