//! A core's private caches, as one array of lines: sets by a hash, of four ways, the least recently
//! used of which is replaced.
//!
//! They filter accesses to the last-level cache, which is all that matters here: immediate reuse of
//! a line never reaches a tier. They are not coherent with those of other cores, and need not be:
//! no data is simulated, and a line that another core wrote counts as a hit.

use tierscope_hw::Machine as Hardware;

/// Lines of a set.
pub(crate) const WAYS: usize = 4;

/// The most recently used line first: its number, times two, plus one if it was stored to: the
/// last-level cache knows that it is dirty.
type Set = [u64; WAYS];

/// Sets by a hash of a line's address.
pub(super) struct PrivateCaches {
    sets: Vec<Set>,
}

impl PrivateCaches {
    /// Empty if there is no last-level cache.
    pub(super) fn new(hardware: &Hardware) -> Self {
        let kib = hardware.llc.as_ref().map_or(0, |_| hardware.timing.private_kib);
        Self { sets: vec![[u64::MAX; WAYS]; kib as usize * 16 / WAYS] }
    }

    /// Accesses a line; true if it was cached and, for a store, dirty already.
    #[inline(always)]
    pub(super) fn use_line(&mut self, physical: u64, stores: bool) -> bool {
        let wanted = physical >> 6 << 1 | u64::from(stores);
        let Some(set) = self.set(physical) else { return false };
        let held = set[0];
        if held | 1 == wanted | 1 {
            set[0] = held | wanted;
            return held >= wanted;
        }
        use_another(set, wanted)
    }

    /// Drops the line.
    pub(super) fn forget(&mut self, physical: u64) {
        let set = self.set(physical).into_iter().flatten();
        set.filter(|held| **held >> 1 == physical >> 6).for_each(|held| *held = u64::MAX);
    }

    #[inline(always)]
    fn set(&mut self, physical: u64) -> Option<&mut Set> {
        let hash = (physical >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let place = (hash * self.sets.len() as u64) >> 32;
        self.sets.get_mut(place as usize)
    }
}

/// [`PrivateCaches::use_line`] for a line that is not the most recently used one of its set.
#[inline(always)]
fn use_another(set: &mut Set, wanted: u64) -> bool {
    let [a, b, c, d] = *set;
    let there = |held: u64| held | 1 == wanted | 1;
    let (held, rest) = match (there(b), there(c), there(d)) {
        (true, ..) => (b, [a, c, d]),
        (_, true, _) => (c, [a, b, d]),
        (_, _, true) => (d, [a, b, c]),
        _ => (0, [a, b, c]),
    };
    *set = [held | wanted, rest[0], rest[1], rest[2]];
    held >= wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses lines by their numbers; negative ones are stored to.
    fn uses(private: &mut PrivateCaches, lines: &[i64]) -> Vec<bool> {
        let of = |line: &i64| private.use_line(line.unsigned_abs() << 6 | 5, *line < 0);
        lines.iter().map(of).collect()
    }

    #[test]
    fn the_least_recently_used_of_four_lines_is_replaced() {
        let mut private = PrivateCaches { sets: vec![[u64::MAX; WAYS]; 1] };
        assert_eq!(
            uses(&mut private, &[1, 2, 3, 4, 1, 4]),
            [false, false, false, false, true, true]
        );
        assert_eq!(uses(&mut private, &[5, 2, 1, 4]), [false, false, true, true]);
        private.forget(1 << 6 | 9);
        assert_eq!(uses(&mut private, &[1, 4]), [false, true]);
    }

    #[test]
    fn a_line_is_stored_to_once() {
        let mut private = PrivateCaches { sets: vec![[u64::MAX; WAYS]; 1] };
        assert_eq!(
            uses(&mut private, &[7, -7, -7, 7, 8, -7]),
            [false, false, true, true, false, true]
        );
    }
}
