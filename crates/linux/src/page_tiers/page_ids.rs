//! Allocator of page ids: hands out contiguous ranges to mappings.

/// Free ranges of ids, in order; adjacent ones are merged.
#[derive(Clone, Debug)]
pub(super) struct PageIds(Vec<std::ops::Range<u32>>);

impl Default for PageIds {
    fn default() -> Self {
        let all = 0..u32::MAX;
        Self(Vec::from([all]))
    }
}

impl PageIds {
    /// Allocates the lowest range of `count` ids; `None` if there is none.
    pub(super) fn allocate(&mut self, count: u32) -> Option<u32> {
        let at = self.0.iter().position(|row| row.end - row.start >= count)?;
        let first = self.0[at].start;
        self.0[at].start += count;
        if self.0[at].is_empty() {
            self.0.remove(at);
        }
        Some(first)
    }

    /// Frees a range.
    pub(super) fn free(&mut self, first: u32, count: u32) {
        let (mut row, at) = (first..first + count, self.0.partition_point(|row| row.start < first));
        if let Some(next) = self.0.get(at)
            && next.start == row.end
        {
            row.end = next.end;
            self.0.remove(at);
        }
        match at.checked_sub(1).map(|before| &mut self.0[before]) {
            Some(before) if before.end == row.start => before.end = row.end,
            _ => self.0.insert(at, row),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_lowest_free_range_is_allocated() {
        let mut ids = PageIds::default();
        assert_eq!(
            [ids.allocate(10), ids.allocate(5), ids.allocate(20)],
            [Some(0), Some(10), Some(15)]
        );
        ids.free(0, 10);
        ids.free(10, 5);
        assert_eq!((ids.allocate(15), ids.allocate(1)), (Some(0), Some(35)));
        assert_eq!(ids.allocate(u32::MAX), None);
    }

    proptest! {
        // No id is allocated twice, and all are free in the end.
        #[test]
        fn no_id_is_allocated_twice(steps in prop::collection::vec((1u32..50, any::<bool>()), 1..60)) {
            let (mut ids, mut allocated) = (PageIds::default(), Vec::new());
            for (count, back) in steps {
                if back && !allocated.is_empty() {
                    let (first, count) = allocated.remove(count as usize % allocated.len());
                    ids.free(first, count);
                } else {
                    allocated.push((ids.allocate(count).unwrap(), count));
                }
                let mut all: Vec<u32> = allocated.iter().flat_map(|(first, count)| *first..first + count).collect();
                let sum = all.len();
                all.sort_unstable();
                all.dedup();
                prop_assert_eq!(all.len(), sum);
            }
            allocated.iter().for_each(|(first, count)| ids.free(*first, *count));
            prop_assert_eq!(ids.0, PageIds::default().0);
        }
    }
}
