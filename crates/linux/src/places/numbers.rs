//! Allocator of page ids: hands out contiguous ranges to mappings.

/// Free ranges of ids, in order; adjacent ones are merged.
#[derive(Clone, Debug)]
pub(super) struct Numbers(Vec<std::ops::Range<u32>>);

impl Default for Numbers {
    fn default() -> Self {
        let all = 0..u32::MAX;
        Self(Vec::from([all]))
    }
}

impl Numbers {
    /// Allocates the lowest range of `count` ids; `None` if there is none.
    pub(super) fn take(&mut self, count: u32) -> Option<u32> {
        let at = self.0.iter().position(|row| row.end - row.start >= count)?;
        let first = self.0[at].start;
        self.0[at].start += count;
        if self.0[at].is_empty() {
            self.0.remove(at);
        }
        Some(first)
    }

    /// Frees a range.
    pub(super) fn give_back(&mut self, first: u32, count: u32) {
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
    fn the_lowest_row_is_given_and_comes_back() {
        let mut numbers = Numbers::default();
        assert_eq!(
            [numbers.take(10), numbers.take(5), numbers.take(20)],
            [Some(0), Some(10), Some(15)]
        );
        numbers.give_back(0, 10);
        numbers.give_back(10, 5);
        assert_eq!((numbers.take(15), numbers.take(1)), (Some(0), Some(35)));
        assert_eq!(numbers.take(u32::MAX), None);
    }

    proptest! {
        // No id is allocated twice, and all are free in the end.
        #[test]
        fn no_number_has_two_owners(steps in prop::collection::vec((1u32..50, any::<bool>()), 1..60)) {
            let (mut numbers, mut given) = (Numbers::default(), Vec::new());
            for (count, back) in steps {
                if back && !given.is_empty() {
                    let (first, count) = given.remove(count as usize % given.len());
                    numbers.give_back(first, count);
                } else {
                    given.push((numbers.take(count).unwrap(), count));
                }
                let mut all: Vec<u32> = given.iter().flat_map(|(first, count)| *first..first + count).collect();
                let sum = all.len();
                all.sort_unstable();
                all.dedup();
                prop_assert_eq!(all.len(), sum);
            }
            given.iter().for_each(|(first, count)| numbers.give_back(*first, *count));
            prop_assert_eq!(numbers.0, Numbers::default().0);
        }
    }
}
