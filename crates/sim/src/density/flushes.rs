//! Flushes that an instrument asked for: when they were, and what they cost the target.
//!
//! A flush is an event of the world like those of [`Config::flush`](super::Config::flush): what was
//! asked before it keeps its answer, since an access counts by what came before it. Only two flushes
//! matter to an entry: the last one before it was cleared, and the first one after. All others are
//! dropped now and then, so that an hour of flushes costs no more than the clears between them.
//!
//! Of the pages that the TLBs of a core held, those that are accessed while they would still have been
//! held walk once more. A page with `r` accesses a second that is held for `T` seconds since its last
//! access was filled again since the flush before, `g` seconds ago, and is missed now, with probability
//! `1 - exp(-r m) - r m exp(-r T)`, `m = min(T, g)`: its last access is younger than `m`, and the one
//! before the next no older than `T`. Each such walk is charged what exact mode's core waits for an
//! entry that the last-level cache has (`llc_cycles` of the machine, over its walkers).

use super::machine::Machine;
use super::profile::Profile;
use super::residency::Group;

/// Flushes that are kept before the first of them are dropped.
const KEPT: usize = 1024;

/// When flushes were, in nanoseconds, ascending.
#[derive(Clone, Debug)]
pub(super) struct Flushes {
    times: Vec<u64>,
    /// From how many on those that matter to no entry are dropped.
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

    /// The first after a time.
    pub(super) fn after(&self, time: u64) -> Option<u64> {
        self.times.get(self.next(time)).copied()
    }

    /// The last up to and with a time.
    pub(super) fn before(&self, time: u64) -> Option<u64> {
        self.next(time).checked_sub(1).map(|last| self.times[last])
    }

    fn next(&self, time: u64) -> usize {
        self.times.partition_point(|flush| *flush <= time)
    }

    /// Whether there are many.
    pub(super) fn is_long(&self) -> bool {
        self.times.len() >= self.limit
    }

    /// Drops those that matter to no entry, which were cleared at these times. Waits until there are
    /// twice as many as matter.
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
    /// Pages of a core that walk once more because of a flush, where the one before was `gap` seconds
    /// ago.
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
    /// Translations are forgotten now; the target pays for the walks that follow.
    pub(super) fn forget_translations(&mut self) {
        let now = self.now.0;
        let last = self.world.forgot_before(now);
        let cores = f64::from(self.config.cores);
        let walks = self.world.profile_at(now).refilled((now - last) as f64 / 1e9) * cores;
        let timing = &self.config.hardware.timing;
        let cycle = 1e3 / f64::from(self.config.hardware.processor.mhz);
        let each = f64::from(timing.llc_cycles) * cycle / f64::from(timing.walkers.max(1));
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
    fn what_matters_to_no_entry_is_dropped() {
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
    fn a_time_is_after_none_of_its_own_flush() {
        let mut flushes = Flushes::default();
        [7, 7, 9].into_iter().for_each(|time| flushes.add(time));
        assert_eq!((flushes.before(6), flushes.after(6)), (None, Some(7)));
        assert_eq!((flushes.before(7), flushes.after(7)), (Some(7), Some(9)));
        assert_eq!((flushes.before(9), flushes.after(9)), (Some(9), None));
    }

    // A flush each millisecond, a clear a thousand flushes apart.
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
