//! State of a tenant under a bandwidth cap, independent of how traffic is counted and CPU time
//! limited: shared by `tierscope qos` on a live machine and `tierscope reproduce nemo-neighbour` on
//! a simulated one.

use std::time::Duration;

use super::{BandwidthCap, Settings};

/// A tenant with a bandwidth cap.
#[derive(Clone, Debug)]
pub struct Held {
    cap: BandwidthCap,
    /// The allowance was exceeded in this epoch, and the quota lowered: the end of the epoch
    /// changes nothing more.
    told: bool,
    /// Bytes moved in finished epochs.
    pub bytes: u64,
    /// Epochs in which the tenant exceeded its allowance before their end.
    pub notices: u64,
    /// Smallest quota so far, in CPUs.
    pub least: f64,
}

impl Held {
    /// A tenant at the largest quota, at the beginning of an epoch.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let cap = BandwidthCap::new(settings);
        Self { told: false, bytes: 0, notices: 0, least: cap.quota(), cap }
    }

    /// Current quota in CPUs.
    #[must_use]
    pub fn quota(&self) -> f64 {
        self.cap.quota()
    }

    /// Bytes that the tenant may move in an epoch.
    #[must_use]
    pub fn allowance(&self, epoch: Duration) -> u64 {
        self.cap.allowance(epoch)
    }

    /// Checks the tenant's bytes `elapsed` into an epoch. Returns whether they reach its allowance,
    /// for the first time in this epoch: the quota has changed then.
    pub fn look(&mut self, bytes: u64, elapsed: Duration, epoch: Duration) -> bool {
        if self.told || bytes < self.allowance(epoch) {
            return false;
        }
        self.told = true;
        self.notices += 1;
        self.cap.exceeded(elapsed, epoch);
        self.least = self.least.min(self.quota());
        true
    }

    /// Ends an epoch of length `time`, in which the tenant moved `bytes`. Returns whether the quota
    /// has changed.
    pub fn end_of_epoch(&mut self, bytes: u64, time: Duration) -> bool {
        self.bytes += bytes;
        if std::mem::take(&mut self.told) {
            return false;
        }
        let before = self.quota();
        self.cap.epoch(bytes, time);
        self.least = self.least.min(self.quota());
        self.quota() != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: Duration = Duration::from_millis(50);

    // 1 GB/s is 50 MB an epoch. The allowance is used up after a quarter of the epoch: a quarter of
    // the CPU remains, and the end of this epoch changes nothing; the end of the next one does
    // again.
    #[test]
    fn a_notified_tenant_is_judged_once_an_epoch() {
        let mut held = Held::new(Settings::new(1e9, 1.0));
        let quarter = EPOCH / 4;
        assert!(!held.look(49_999_999, quarter, EPOCH), "not yet");
        assert!(held.look(50_000_000, quarter, EPOCH));
        assert!(!held.look(60_000_000, quarter, EPOCH), "it is known");
        assert!(!held.end_of_epoch(200_000_000, EPOCH));
        assert_eq!((held.quota(), held.notices, held.bytes), (0.25, 1, 200_000_000));
        assert!(held.end_of_epoch(50_000_000, EPOCH), "the average is 4 and 1 GB/s by halves");
        assert_eq!((held.quota(), held.least), (0.125, 0.125));
    }
}
