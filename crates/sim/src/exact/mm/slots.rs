//! Allocator of numbers, the lowest free one first.

use std::collections::BTreeSet;

/// Numbers below a limit.
#[derive(Clone, Debug, Default)]
pub(super) struct Slots {
    /// Free numbers below `next`.
    free: BTreeSet<u32>,
    next: u32,
    limit: u32,
}

impl Slots {
    pub(super) fn new(limit: u32) -> Self {
        Self { free: BTreeSet::new(), next: 0, limit }
    }

    pub(super) fn take(&mut self) -> Option<u32> {
        if let Some(slot) = self.free.pop_first() {
            return Some(slot);
        }
        let slot = self.next;
        self.next = (slot < self.limit).then_some(slot + 1)?;
        Some(slot)
    }

    pub(super) fn give(&mut self, slot: u32) {
        let new = self.free.insert(slot);
        debug_assert!(new && slot < self.next, "slot {slot} freed twice");
    }

    /// Count of allocated numbers.
    pub(super) fn used(&self) -> u64 {
        u64::from(self.next) - self.free.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_number_is_next() {
        let mut slots = Slots::new(3);
        assert_eq!([(); 4].map(|()| slots.take()), [Some(0), Some(1), Some(2), None]);
        slots.give(2);
        slots.give(0);
        assert_eq!((slots.used(), slots.take(), slots.take()), (1, Some(0), Some(2)));
    }
}
