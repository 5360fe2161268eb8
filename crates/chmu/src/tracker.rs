//! Counters of a monitoring unit: few, for many units of memory.
//!
//! The specification leaves open how units get counters. Two ways are modelled:
//!
//! - *first touch*: a unit gets a free counter at its first request; without a free one it is not
//!   counted ("counters are allocated in a hardware specific manner", documentation of the posted
//!   driver). The simplest hardware.
//! - *space saving*: without a free counter, the unit takes over the smallest one and goes on from
//!   its count (Metwally, Agrawal, El Abbadi, "Efficient computation of frequent and top-k elements
//!   in data streams", ICDT 2005). It holds every unit with more than 1/m of the requests, of m
//!   counters; a count is too high by the smallest count at most.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use serde::{Deserialize, Serialize};

/// How units get their counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Allocation {
    /// A free counter at the first request, or none.
    #[default]
    FirstTouch,
    /// A free counter, or the smallest one with its count.
    SpaceSaving,
}

/// A multiplicative hash of unit numbers, which are not hostile: the model alone uses it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UnitHasher(u64);

impl Hasher for UnitHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 32;
    }
}

/// A counter in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counter {
    unit: u64,
    count: u32,
}

/// The counters. With space saving they are ordered by count, the largest first, so that the
/// smallest is the last, and a count is raised by one exchange within its run of equal counts.
#[derive(Clone, Debug)]
pub(crate) struct Tracker {
    allocation: Allocation,
    capacity: usize,
    largest: u32,
    counters: Vec<Counter>,
    /// Index of a unit's counter.
    places: HashMap<u64, u32, BuildHasherDefault<UnitHasher>>,
    /// With space saving: index of the first counter of each count, if there is one.
    firsts: HashMap<u64, u32, BuildHasherDefault<UnitHasher>>,
}

impl Tracker {
    pub(crate) fn new(allocation: Allocation, capacity: u32, width: u8) -> Self {
        let largest = u32::MAX >> (32 - u32::from(width));
        let capacity = capacity as usize;
        Self {
            allocation,
            capacity,
            largest,
            counters: Vec::new(),
            places: HashMap::default(),
            firsts: HashMap::default(),
        }
    }

    /// Frees all counters.
    pub(crate) fn clear(&mut self) {
        self.counters.clear();
        self.places.clear();
        self.firsts.clear();
    }

    /// Units and counts, in the order in which the units got their counters; with space saving, by
    /// count.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.counters.iter().map(|counter| (counter.unit, counter.count))
    }

    /// Counts a request; returns the unit's count, or `None` if it has no counter.
    pub(crate) fn count(&mut self, unit: u64) -> Option<u32> {
        let place = match self.places.get(&unit) {
            Some(place) => *place as usize,
            None => self.allocate(unit)?,
        };
        if self.counters[place].count < self.largest {
            return Some(self.raise(place));
        }
        Some(self.largest)
    }

    /// Frees a unit's counter, if it has one.
    pub(crate) fn release(&mut self, unit: u64) {
        let Some(place) = self.places.remove(&unit) else { return };
        let mut place = place as usize;
        if self.allocation == Allocation::SpaceSaving {
            place = self.sink(place);
        }
        self.counters.swap_remove(place);
        if let Some(moved) = self.counters.get(place) {
            self.places.insert(moved.unit, place as u32);
        }
    }

    fn allocate(&mut self, unit: u64) -> Option<usize> {
        if self.counters.len() < self.capacity {
            let place = self.counters.len();
            self.counters.push(Counter { unit, count: 0 });
            self.places.insert(unit, place as u32);
            if self.allocation == Allocation::SpaceSaving {
                self.firsts.entry(0).or_insert(place as u32);
            }
            return Some(place);
        }
        if self.allocation == Allocation::FirstTouch {
            return None;
        }
        let place = self.capacity - 1;
        self.places.remove(&self.counters[place].unit);
        self.counters[place].unit = unit;
        self.places.insert(unit, place as u32);
        Some(place)
    }

    fn raise(&mut self, place: usize) -> u32 {
        let count = self.counters[place].count;
        if self.allocation == Allocation::FirstTouch {
            self.counters[place].count = count + 1;
            return count + 1;
        }
        let first = self.firsts[&u64::from(count)] as usize;
        self.exchange(place, first);
        match self.counters.get(first + 1) {
            Some(next) if next.count == count => {
                self.firsts.insert(count.into(), first as u32 + 1);
            }
            _ => {
                self.firsts.remove(&u64::from(count));
            }
        }
        self.counters[first].count = count + 1;
        self.firsts.entry(u64::from(count) + 1).or_insert(first as u32);
        count + 1
    }

    /// Takes a counter out of its run, and every run below it one place forward; returns its new
    /// place, the last.
    fn sink(&mut self, mut place: usize) -> usize {
        let unit = self.counters[place].unit;
        loop {
            let count = self.counters[place].count;
            let first = self.firsts[&u64::from(count)] as usize;
            let end = place + self.counters[place..].partition_point(|c| c.count == count);
            self.exchange(place, end - 1);
            if end - 1 == first {
                self.firsts.remove(&u64::from(count));
            }
            let Some(below) = self.counters.get(end).map(|counter| counter.count) else {
                self.places.remove(&unit);
                return end - 1;
            };
            // Joins the next run at its front.
            self.counters[end - 1].count = below;
            self.firsts.insert(below.into(), (end - 1) as u32);
            place = end - 1;
        }
    }

    fn exchange(&mut self, one: usize, other: usize) {
        if one == other {
            return;
        }
        self.counters.swap(one, other);
        for place in [one, other] {
            self.places.insert(self.counters[place].unit, place as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn counted(tracker: &Tracker) -> Vec<(u64, u32)> {
        let mut counts: Vec<_> = tracker.counts().collect();
        counts.sort_unstable();
        counts
    }

    // Two counters: 5 and 6 take them, 7 gets none, and 5 counts on.
    #[test]
    fn by_first_touch_late_units_are_not_counted() {
        let mut tracker = Tracker::new(Allocation::FirstTouch, 2, 16);
        let seen = [5, 6, 7, 5].map(|unit| tracker.count(unit));
        assert_eq!(seen, [Some(1), Some(1), None, Some(2)]);
        tracker.release(5);
        assert_eq!(tracker.count(7), Some(1));
        assert_eq!(counted(&tracker), [(6, 1), (7, 1)]);
    }

    // Two counters: 5 has two requests, 6 has one; 7 takes over the counter of 6 and goes on at 2.
    #[test]
    fn space_saving_takes_over_the_smallest_count() {
        let mut tracker = Tracker::new(Allocation::SpaceSaving, 2, 16);
        let seen = [5, 6, 5, 7, 6].map(|unit| tracker.count(unit));
        assert_eq!(seen, [Some(1), Some(1), Some(2), Some(2), Some(3)]);
        assert!(counted(&tracker).contains(&(6, 3)), "{tracker:?}");
    }

    // Two bits: a counter stays at 3.
    #[test]
    fn counters_stay_at_their_largest_value() {
        for allocation in [Allocation::FirstTouch, Allocation::SpaceSaving] {
            let mut tracker = Tracker::new(allocation, 4, 2);
            let last = (0..9).map(|_| tracker.count(1)).last();
            assert_eq!(last, Some(Some(3)), "{allocation:?}");
        }
    }

    /// Space saving by its definition: a scan for the smallest count.
    fn naive(stream: &[(u64, bool)], capacity: usize) -> Vec<u32> {
        let mut counters: Vec<(u64, u32)> = Vec::new();
        for (unit, released) in stream {
            if *released {
                counters.retain(|(other, _)| other != unit);
                continue;
            }
            match counters.iter().position(|(other, _)| other == unit) {
                Some(place) => counters[place].1 += 1,
                None if counters.len() < capacity => counters.push((*unit, 1)),
                None => {
                    let place = (0..capacity).min_by_key(|place| counters[*place].1).unwrap();
                    counters[place] = (*unit, counters[place].1 + 1);
                }
            }
        }
        let mut counts: Vec<u32> = counters.into_iter().map(|(_, count)| count).collect();
        counts.sort_unstable();
        counts
    }

    proptest! {
        // With a counter for each unit, both ways are exact.
        #[test]
        fn with_room_for_all_counts_are_exact(stream in prop::collection::vec(0u64..20, 0..400)) {
            for allocation in [Allocation::FirstTouch, Allocation::SpaceSaving] {
                let mut tracker = Tracker::new(allocation, 20, 32);
                stream.iter().for_each(|unit| assert!(tracker.count(*unit).is_some()));
                let mut exact = std::collections::BTreeMap::new();
                stream.iter().for_each(|unit| *exact.entry(*unit).or_insert(0u32) += 1);
                prop_assert_eq!(counted(&tracker), exact.into_iter().collect::<Vec<_>>());
            }
        }

        // Which of several smallest counters is taken over is free; the counts are not, nor is the
        // guarantee: a count is too high by the smallest one at most.
        #[test]
        fn space_saving_keeps_its_guarantee(
            stream in prop::collection::vec(0u64..30, 0..400), capacity in 1u32..12,
        ) {
            let mut tracker = Tracker::new(Allocation::SpaceSaving, capacity, 32);
            stream.iter().for_each(|unit| { tracker.count(*unit); });
            let kept: Vec<(u64, bool)> = stream.iter().map(|unit| (*unit, false)).collect();
            let mut counts: Vec<u32> = tracker.counts().map(|(_, count)| count).collect();
            counts.sort_unstable();
            prop_assert_eq!(&counts, &naive(&kept, capacity as usize));
            let smallest = counts.first().copied().unwrap_or(0);
            for (unit, count) in tracker.counts() {
                let exact = stream.iter().filter(|other| **other == unit).count() as u32;
                prop_assert!(exact <= count && count - exact <= smallest);
            }
        }

        // Releases keep the order, and the index of every unit.
        #[test]
        fn released_counters_are_free_again(
            stream in prop::collection::vec((0u64..12, prop::bool::weighted(0.2)), 0..300),
            saving in any::<bool>(),
        ) {
            let ways = [Allocation::FirstTouch, Allocation::SpaceSaving];
            let mut tracker = Tracker::new(ways[usize::from(saving)], 12, 32);
            let mut exact = std::collections::BTreeMap::new();
            for (unit, released) in stream {
                if released {
                    tracker.release(unit);
                    exact.remove(&unit);
                } else {
                    let count = exact.entry(unit).or_insert(0u32);
                    *count += 1;
                    prop_assert_eq!(tracker.count(unit), Some(*count));
                }
                let sorted = tracker.counts().map(|(_, n)| n).collect::<Vec<_>>();
                prop_assert!(!saving || sorted.is_sorted_by(|a, b| a >= b), "{:?}", sorted);
            }
            prop_assert_eq!(counted(&tracker), exact.into_iter().collect::<Vec<_>>());
        }
    }
}
