//! Times at which ranges were armed for hint faults.

use std::collections::BTreeMap;

use tierscope_core::{Range, SpaceId, Time};

/// Armed ranges, disjoint, by space and first byte. A page that has faulted since is kept.
#[derive(Clone, Debug, Default)]
pub(in crate::exact) struct Armed {
    ranges: BTreeMap<(SpaceId, u64), (u64, Time)>,
}

impl Armed {
    /// Records that the range is armed now; replaces earlier entries.
    pub(super) fn arm(&mut self, range: &Range, now: Time) {
        self.forget(range);
        if !range.is_empty() {
            self.ranges.insert((range.space, range.start), (range.end, now));
        }
    }

    /// Removes the range: it was unmapped, or is about to be armed again.
    pub(in crate::exact) fn forget(&mut self, range: &Range) {
        let key = |at| (range.space, at);
        while let Some((&(space, start), &(end, time))) =
            self.ranges.range(key(0)..key(range.end)).next_back()
            && end > range.start
        {
            self.ranges.remove(&(space, start));
            if start < range.start {
                self.ranges.insert((space, start), (range.start, time));
            }
            if end > range.end {
                self.ranges.insert((space, range.end), (end, time));
            }
        }
    }

    /// Time at which the address was armed.
    pub(in crate::exact) fn when(&self, space: SpaceId, at: u64) -> Option<Time> {
        let (_, (end, time)) = self.ranges.range((space, 0)..=(space, at)).next_back()?;
        (at < *end).then_some(*time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //   armed at 1:  0 ------------ 100
    //   armed at 2:       40 -- 60
    //   gone:                50 ---- 70
    #[test]
    fn the_last_arming_counts() {
        let space = SpaceId(3);
        let range = |start, end| Range::new(space, start, end);
        let mut armed = Armed::default();
        armed.arm(&range(0, 100), Time(1));
        armed.arm(&range(40, 60), Time(2));
        armed.forget(&range(50, 70));
        let when: Vec<_> =
            [0, 39, 40, 49, 50, 69, 70, 99, 100].map(|at| armed.when(space, at)).into();
        let time = |time| Some(Time(time));
        assert_eq!(when[..4], [time(1), time(1), time(2), time(2)]);
        assert_eq!(when[4..], [None, None, time(1), time(1), None]);
        assert_eq!(armed.when(SpaceId(2), 10), None);
    }
}
