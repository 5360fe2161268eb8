//! A core's private caches, as one direct-mapped array of lines.
//!
//! They filter accesses to the last-level cache, which is all that matters here: immediate reuse of
//! a line never reaches a tier. They are not coherent with those of other cores, and need not be:
//! no data is simulated, and a line that another core wrote counts as a hit.

use tierscope_hw::Machine as Hardware;

/// Lines by a hash of their address.
pub(super) struct PrivateCaches {
    /// A line's number, times two, plus one if it was stored to: the last-level cache knows that it
    /// is dirty.
    lines: Vec<u64>,
}

impl PrivateCaches {
    /// Empty if there is no last-level cache.
    pub(super) fn new(hardware: &Hardware) -> Self {
        let kib = hardware.llc.as_ref().map_or(0, |_| hardware.timing.private_kib);
        Self { lines: vec![u64::MAX; kib as usize * 16] }
    }

    /// Accesses a line; true if it was cached and, for a store, dirty already.
    #[inline(always)]
    pub(super) fn use_line(&mut self, physical: u64, stores: bool) -> bool {
        let wanted = physical >> 6 << 1 | u64::from(stores);
        let Some(held) = self.place(physical) else { return false };
        let there = *held | 1 == wanted | 1;
        let hit = there && *held >= wanted;
        *held = if there { *held | wanted } else { wanted };
        hit
    }

    /// Drops the line.
    pub(super) fn forget(&mut self, physical: u64) {
        if let Some(held) = self.place(physical).filter(|held| **held >> 1 == physical >> 6) {
            *held = u64::MAX;
        }
    }

    #[inline(always)]
    fn place(&mut self, physical: u64) -> Option<&mut u64> {
        let hash = (physical >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let place = (hash * self.lines.len() as u64) >> 32;
        self.lines.get_mut(place as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stays_until_another_replaces_it() {
        let mut private = PrivateCaches { lines: vec![u64::MAX; 1] };
        let uses =
            [(5, false), (63, false), (0, true), (8, true), (1, false), (64, false), (0, false)];
        let hits = uses.map(|(physical, stores)| private.use_line(physical, stores));
        assert_eq!(hits, [false, true, false, true, true, false, false]);
        private.forget(3);
        assert!(!private.use_line(0, false));
    }
}
