//! State of a tenant under a bandwidth cap.

use std::time::Duration;

use tierscope_core::TenantUse;

use super::Settings;
use super::feedback::Feedback;

/// A tenant with a bandwidth cap.
#[derive(Clone, Debug)]
pub struct Held {
    feedback: Feedback,
    /// The allowance was exceeded in this epoch, and the quota lowered: the end of the epoch
    /// changes nothing more.
    notified: bool,
    /// Bytes moved in finished epochs.
    pub bytes: u64,
    /// Epochs in which the tenant exceeded its allowance before their end.
    pub notices: u64,
    /// CPUs that it may use: its quota, or what it is entitled to; `None` before the first epoch.
    pub cpus: Option<f64>,
    /// Smallest value of `cpus` so far.
    pub least: Option<f64>,
}

impl Held {
    /// A tenant without a quota, at the beginning of an epoch.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let feedback = Feedback::new(settings);
        Self { feedback, notified: false, bytes: 0, notices: 0, cpus: None, least: None }
    }

    /// Current quota in CPUs; `None` while the tenant has all that it is entitled to.
    #[must_use]
    pub fn quota(&self) -> Option<f64> {
        self.feedback.quota()
    }

    /// Bytes that the tenant may move in an epoch.
    #[must_use]
    pub fn allowance(&self, epoch: Duration) -> u64 {
        self.feedback.allowance(epoch)
    }

    /// Checks the tenant's bytes `elapsed` into an epoch. Returns whether they reach its allowance,
    /// for the first time in this epoch: the quota has changed then.
    pub(super) fn look(&mut self, tenant: &TenantUse, elapsed: Duration, epoch: Duration) -> bool {
        if self.notified || tenant.bytes < self.allowance(epoch) {
            return false;
        }
        self.notified = true;
        self.notices += 1;
        self.feedback.exceeded(elapsed, epoch, tenant.entitled);
        self.note(tenant);
        true
    }

    /// Ends an epoch of length `time`.
    pub(super) fn end_of_epoch(&mut self, tenant: &TenantUse, time: Duration) {
        self.bytes += tenant.bytes;
        if !std::mem::take(&mut self.notified) {
            self.feedback.epoch(tenant.bytes, time, tenant.entitled);
        }
        self.note(tenant);
    }

    fn note(&mut self, tenant: &TenantUse) {
        let cpus = self.quota().unwrap_or(tenant.entitled);
        self.cpus = Some(cpus);
        self.least = Some(self.least.map_or(cpus, |least| least.min(cpus)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: Duration = Duration::from_millis(50);

    fn of(bytes: u64) -> TenantUse {
        TenantUse { bytes, entitled: 1.0 }
    }

    // 1 GB/s is 50 MB an epoch. The allowance is used up after a quarter of the epoch: a quarter of
    // the CPU remains, and the end of this epoch changes nothing; the end of the next one does
    // again.
    #[test]
    fn a_notified_tenant_is_judged_once_an_epoch() {
        let mut held = Held::new(Settings::new(1e9));
        let quarter = EPOCH / 4;
        assert!(!held.look(&of(49_999_999), quarter, EPOCH), "not yet");
        assert!(held.look(&of(50_000_000), quarter, EPOCH));
        assert!(!held.look(&of(60_000_000), quarter, EPOCH), "it is known");
        held.end_of_epoch(&of(200_000_000), EPOCH);
        assert_eq!((held.quota(), held.notices, held.bytes), (Some(0.25), 1, 200_000_000));
        // The average is 4 and 1 GB/s by halves.
        held.end_of_epoch(&of(50_000_000), EPOCH);
        assert_eq!((held.quota(), held.least), (Some(0.125), Some(0.125)));
    }
}
