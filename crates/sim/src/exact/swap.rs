//! Pages that were given back: what of them has to be read again when somebody comes for it.
//!
//! The place that they go to is a device as large as is wanted. What was anonymous or written to is
//! written there first; a clean page of a file is just dropped (mm/vmscan.c, `shrink_folio_list`).

use std::collections::BTreeSet;

use tierscope_core::{Range, SpaceId};

/// Pages of 4 KiB that are out, by space and number.
#[derive(Clone, Debug, Default)]
pub(super) struct Swapped {
    pages: BTreeSet<(SpaceId, u64)>,
}

fn numbers(range: &Range) -> std::ops::Range<(SpaceId, u64)> {
    (range.space, range.start >> 12)..(range.space, range.end.div_ceil(4096))
}

impl Swapped {
    /// All pages of the range go out.
    pub(super) fn put(&mut self, range: &Range) {
        let pages = range.start >> 12..range.end >> 12;
        self.pages.extend(pages.map(|page| (range.space, page)));
    }

    /// Whether any of the range is out.
    pub(super) fn holds(&self, range: &Range) -> bool {
        !self.pages.is_empty() && self.pages.range(numbers(range)).next().is_some()
    }

    /// The pages of the range are not out any more; returns how many were.
    pub(super) fn take(&mut self, range: &Range) -> u64 {
        if !self.holds(range) {
            return 0;
        }
        let out: Vec<_> = self.pages.range(numbers(range)).copied().collect();
        out.iter().for_each(|page| {
            self.pages.remove(page);
        });
        out.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_out_comes_back_once() {
        let range = |space, from: u64, to: u64| Range::new(SpaceId(space), from << 12, to << 12);
        let mut swapped = Swapped::default();
        swapped.put(&range(0, 10, 14));
        swapped.put(&range(1, 10, 11));
        assert!(swapped.holds(&range(0, 13, 20)) && !swapped.holds(&range(0, 14, 20)));
        assert_eq!(swapped.take(&range(0, 12, 30)), 2);
        assert_eq!((swapped.take(&range(0, 12, 30)), swapped.take(&range(0, 0, 99))), (0, 2));
        assert!(swapped.holds(&range(1, 0, 99)));
    }
}
