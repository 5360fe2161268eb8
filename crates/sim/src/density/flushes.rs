//! Flushes requested by an instrument: their times, and their cost for the target.
//!
//! A flush is an event of the world like those of [`Config::flush`](super::Config::flush): answers
//! for times before it stay the same, since an access is visible or not by what preceded it. Only
//! two flushes matter to an entry: the last one before its clear, and the first one after. All
//! others are dropped from time to time, so that an hour of flushes costs no more than the clears
//! between them.
//!
//! Pages that a core's TLBs held and that are accessed within their remaining time there walk once
//! more. A page with `r` accesses a second that is held for `T` seconds after its last access was
//! refilled since the previous flush, `g` seconds ago, and is missed now, with probability `1 -
//! exp(-r m) - r m exp(-r T)`, `m = min(T, g)`: its last access is younger than `m`, and the next
//! one follows within `T` of it. Each such walk is charged the time that exact mode's core waits
//! for an entry in the last-level cache (`llc_cycles` of the machine, over its walkers).

use super::machine::Machine;
use super::profile::Profile;
use super::residency::Group;

/// Number of flushes from which superfluous ones are dropped.
const KEPT: usize = 1024;

/// Times of flushes in nanoseconds, ascending.
#[derive(Clone, Debug)]
pub(super) struct Flushes {
    times: Vec<u64>,
    /// Length from which flushes that matter to no entry are dropped.
    limit: usize,
}

impl Default for Flushes {
    fn default() -> Self {
        Self { times: Vec::new(), limit: KEPT }
    }
}

impl Flushes {
    pub(super) fn add(&mut self, time: u64) {
        if self.times.last() != Some(&time) {
            self.times.push(time);
        }
    }

    /// The first flush after a time.
    pub(super) fn after(&self, time: u64) -> Option<u64> {
        self.times.get(self.next(time)).copied()
    }

    /// The last flush at or before a time.
    pub(super) fn before(&self, time: u64) -> Option<u64> {
        self.next(time).checked_sub(1).map(|last| self.times[last])
    }

    fn next(&self, time: u64) -> usize {
        self.times.partition_point(|flush| *flush <= time)
    }

    /// Whether the list has reached its limit.
    pub(super) fn is_long(&self) -> bool {
        self.times.len() >= self.limit
    }

    /// Drops the flushes that matter to no entry; the entries were cleared at these times. The next
    /// limit is twice the number that is left.
    pub(super) fn prune(&mut self, cleared: impl Iterator<Item = u64>) {
        let Some(last) = self.times.len().checked_sub(1) else { return };
        let mut matters = vec![false; self.times.len()];
        matters[last] = true;
        for next in cleared.map(|time| self.next(time)) {
            matters[next.saturating_sub(1)] = true;
            matters[next.min(last)] = true;
        }
        let mut matters = matters.into_iter();
        self.times.retain(|_| matters.next().expect("one for each"));
        self.limit = KEPT.max(2 * self.times.len());
    }
}

impl Profile {
    /// Pages of a core that walk once more because of a flush, `gap` seconds after the previous
    /// one.
    fn refilled(&self, gap: f64) -> f64 {
        let held = self.residency.tlb[1];
        let missed = |group: &Group| {
            let recent = group.rate * held.min(gap);
            let again = if held.is_finite() { recent * (-group.rate * held).exp() } else { 0.0 };
            group.count * (-(-recent).exp_m1() - again)
        };
        self.residency.pages.iter().map(missed).sum()
    }
}

impl Machine {
    /// Flushes all translations now, and charges the target for the walks that follow.
    pub(super) fn forget_translations(&mut self) {
        let now = self.now.0;
        let last = self.world.forgot_before(now);
        let cores = f64::from(self.config.cores);
        let walks = self.world.profile_at(now).refilled((now - last) as f64 / 1e9) * cores;
        let timing = &self.config.hardware.timing;
        let read = self.config.hardware.nanoseconds(timing.llc_cycles);
        let each = read / f64::from(timing.walkers.max(1));
        self.ledger.refilled(walks, walks * each);
        if self.world.flushes.is_long() {
            self.world.flushes.prune(self.stamps.times());
        }
        self.world.flushes.add(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Flushes at 10, 20 .. 1000; entries cleared at 5, 25 and 2000.
    #[test]
    fn flushes_that_no_entry_depends_on_are_dropped() {
        let mut flushes = Flushes::default();
        (1..=100).for_each(|number| flushes.add(number * 10));
        let all = flushes.clone();
        flushes.prune([5, 25, 2000].into_iter());
        assert_eq!(flushes.times, [10, 20, 30, 1000]);
        for time in [5, 25, 2000] {
            assert_eq!(flushes.after(time), all.after(time));
            assert_eq!(flushes.before(time), all.before(time));
        }
    }

    #[test]
    fn a_flush_does_not_precede_its_own_time() {
        let mut flushes = Flushes::default();
        [7, 7, 9].into_iter().for_each(|time| flushes.add(time));
        assert_eq!((flushes.before(6), flushes.after(6)), (None, Some(7)));
        assert_eq!((flushes.before(7), flushes.after(7)), (Some(7), Some(9)));
        assert_eq!((flushes.before(9), flushes.after(9)), (Some(9), None));
    }

    // A flush each millisecond, a clear every thousand flushes.
    #[test]
    fn the_list_stays_as_short_as_the_clears() {
        let mut flushes = Flushes::default();
        for time in 0..1_000_000 {
            if flushes.is_long() {
                flushes.prune((0..time).step_by(1000));
            }
            flushes.add(time);
        }
        assert!(flushes.times.len() <= 4 * 1000 + KEPT, "{}", flushes.times.len());
    }
}
