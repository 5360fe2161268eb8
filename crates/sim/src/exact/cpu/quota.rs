//! CPU quotas of processes, like bandwidth control of a cgroup (`cpu.max`; kernel/sched/fair.c,
//! `cfs_bandwidth`): the threads of a process run until they have used the quota of a period
//! together, and then wait for the next period. As in the kernel, the end of the quota is noticed
//! at the core's next timer tick (`check_cfs_rq_runtime`), and what a process ran beyond it is
//! taken from its next period (`distribute_cfs_runtime`). A changed quota takes effect at once and
//! wakes waiting threads (kernel/sched/core.c, `tg_set_cfs_bandwidth`).
//!
//! Cores take time from the quota as their threads run; the kernel hands it to them in slices of 5
//! ms (`sched_cfs_bandwidth_slice_us`), so that a process of many threads gets slightly less there.

use std::time::Duration;

use tierscope_core::{BusObserver, SpaceId};

use crate::exact::Machine;
use crate::exact::units::NS;

/// The quota of a process, in ps.
#[derive(Clone, Debug)]
pub(in crate::exact) struct Quota {
    period: u64,
    quota: u64,
    /// Time left in this period; negative if it was exceeded.
    left: i64,
    /// End of this period.
    ends: u64,
    /// Threads that wait for the next period.
    waiting: Vec<usize>,
}

impl Quota {
    fn new(quota: u64, period: u64, now: u64) -> Self {
        Self { period, quota, left: quota as i64, ends: now + period, waiting: Vec::new() }
    }

    /// Time left at `now`; begins a new period if one is due.
    fn left(&mut self, now: u64) -> i64 {
        if now >= self.ends {
            let periods = (now - self.ends) / self.period + 1;
            self.ends += periods * self.period;
            let given = (self.quota as i64).saturating_mul(periods as i64);
            self.left = self.left.saturating_add(given).min(self.quota as i64);
            self.waiting.clear();
        }
        self.left
    }

    /// Consumes `time` of the quota.
    fn take(&mut self, time: u64) {
        self.left -= time as i64;
    }
}

impl<B: BusObserver> Machine<B> {
    /// Limits a process to `quota` of CPU time in each `period`, over all its threads, from now on.
    pub fn limit(&mut self, space: SpaceId, quota: Duration, period: Duration) {
        let ps = |time: Duration| (time.as_nanos() as u64).saturating_mul(NS).max(NS);
        let (quota, period, now) = (ps(quota), ps(period), self.now);
        let Some(known) = self.quotas.get_mut(&space) else {
            self.quotas.insert(space, Quota::new(quota, period, now));
            return;
        };
        (known.quota, known.left, known.period) = (quota, quota as i64, period);
        for thread in std::mem::take(&mut known.waiting) {
            self.threads[thread].due = now;
        }
    }

    /// Limits a thread's run until `until` to its quota; a thread without quota becomes due at the
    /// next period.
    pub(super) fn within_quota(&mut self, at: usize, thread: usize, until: u64) -> u64 {
        let now = self.cpus[at].time;
        let Some(quota) = self.quotas.get_mut(&self.threads[thread].space) else { return until };
        let left = quota.left(now);
        if left > 0 {
            return until.min(self.cpus[at].next_tick(now + left as u64));
        }
        let due = &mut self.threads[thread].due;
        if *due < quota.ends {
            *due = quota.ends;
            quota.waiting.push(thread);
        }
        until
    }

    /// Charges a thread's run since `since` to its quota.
    pub(super) fn use_quota(&mut self, at: usize, thread: usize, since: u64) {
        if let Some(quota) = self.quotas.get_mut(&self.threads[thread].space) {
            quota.take(self.cpus[at].time - since);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // 10 of 100: 4 are used, so 6 are left; 7 more are one too many, which the next period lacks.
    #[test]
    fn each_period_has_its_quota() {
        let mut quota = Quota::new(10, 100, 0);
        quota.take(4);
        assert_eq!((quota.left(99), quota.ends), (6, 100));
        quota.take(7);
        assert_eq!(quota.left(99), -1);
        quota.waiting.push(0);
        assert_eq!((quota.left(100), quota.ends), (9, 200));
        assert!(quota.waiting.is_empty(), "no thread waits in a new period");
        quota.take(10);
        assert_eq!((quota.left(350), quota.ends), (10, 400));
        // Three too many are missing in the next one.
        quota.take(13);
        assert_eq!((quota.left(399), quota.left(400)), (-3, 7));
    }
}
