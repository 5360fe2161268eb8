//! What becomes of a tenant, whoever counts its traffic and whoever limits it: `tierscope qos` on a machine, `tierscope
//! reproduce nemo-neighbour` on a simulated one.

use std::time::Duration;

use tierscope_policies::bandwidth_cap::{BandwidthCap, Settings};

/// A tenant that is held to a cap.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    cap: BandwidthCap,
    /// Told in this epoch: what the epoch's end says is known.
    told: bool,
    /// Bytes that it moved.
    pub(crate) bytes: u64,
    /// Epochs in which it had had enough before their end.
    pub(crate) notices: u64,
    /// The least CPUs that it ever had.
    pub(crate) least: f64,
}

impl Held {
    pub(crate) fn new(settings: Settings) -> Self {
        let cap = BandwidthCap::new(settings);
        Self { told: false, bytes: 0, notices: 0, least: cap.quota(), cap }
    }

    /// CPUs that it may use.
    pub(crate) fn quota(&self) -> f64 {
        self.cap.quota()
    }

    /// Bytes that it may move in an epoch.
    pub(crate) fn allowance(&self, epoch: Duration) -> u64 {
        self.cap.allowance(epoch)
    }

    /// It has moved so many bytes `elapsed` into an epoch. Returns whether that was its allowance, for the first time in this
    /// epoch: it has another quota then.
    pub(crate) fn look(&mut self, bytes: u64, elapsed: Duration, epoch: Duration) -> bool {
        if self.told || bytes < self.allowance(epoch) {
            return false;
        }
        self.told = true;
        self.notices += 1;
        self.cap.exceeded(elapsed, epoch);
        self.least = self.least.min(self.quota());
        true
    }

    /// An epoch of so long ends in which it moved so many bytes. Returns whether it has another quota.
    pub(crate) fn end_of_epoch(&mut self, bytes: u64, time: Duration) -> bool {
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

    // 1 GB/s is 50 MB an epoch. They are through after a quarter of it: a quarter of the CPU is left, whatever the end of
    // this epoch says; the next one's end counts again.
    #[test]
    fn whoever_is_told_of_is_judged_once_an_epoch() {
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
