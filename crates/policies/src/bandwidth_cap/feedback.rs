//! The feedback loop of one tenant.

use std::time::Duration;

use super::Settings;

/// State of the feedback loop of one tenant.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Feedback {
    settings: Settings,
    /// Average bandwidth in bytes per second; `None` before the first epoch.
    average: Option<f64>,
    /// CPU quota, in CPUs; `None` while the tenant has all that it is entitled to.
    quota: Option<f64>,
}

impl Feedback {
    /// Starts without a quota and without an average.
    pub(super) fn new(settings: Settings) -> Self {
        Self { settings, average: None, quota: None }
    }

    /// CPU quota, in CPUs; `None` while the tenant has all that it is entitled to.
    pub(super) fn quota(&self) -> Option<f64> {
        self.quota
    }

    /// Average bandwidth in bytes per second; 0 before the first epoch.
    fn average(&self) -> f64 {
        self.average.unwrap_or(0.0)
    }

    /// Bytes that the tenant may transfer per epoch: the threshold of its notification.
    pub(super) fn allowance(&self, epoch: Duration) -> u64 {
        (self.settings.cap * epoch.as_secs_f64()) as u64
    }

    /// Ends an epoch in which the tenant, entitled to `most` CPUs, transferred `bytes`.
    pub(super) fn epoch(&mut self, bytes: u64, time: Duration, most: f64) {
        self.learn(bytes as f64 / time.as_secs_f64().max(f64::EPSILON));
        let gap = (self.settings.cap - self.average()) / self.settings.cap;
        self.scale(1.0 + self.settings.rate * gap.clamp(-1.0, 1.0), most);
    }

    /// Handles a notification: the tenant, entitled to `most` CPUs, used up the epoch's allowance
    /// after `elapsed`. With the new quota the allowance would have lasted the whole epoch.
    pub(super) fn exceeded(&mut self, elapsed: Duration, epoch: Duration, most: f64) {
        let part = (elapsed.as_secs_f64() / epoch.as_secs_f64()).clamp(0.01, 1.0);
        self.learn(self.settings.cap / part);
        self.scale(part, most);
    }

    fn learn(&mut self, bandwidth: f64) {
        let weight = self.settings.weight;
        self.average = Some(self.average.map_or(bandwidth, |old| old + weight * (bandwidth - old)));
    }

    fn scale(&mut self, factor: f64, most: f64) {
        let quota = self.quota.map_or(most, |quota| quota.min(most)) * factor;
        self.quota = Some(quota.max(self.settings.least)).filter(|quota| *quota < most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const EPOCH: Duration = Duration::from_millis(50);

    /// Bytes per epoch of a tenant that transfers `full` bytes a second with a whole CPU.
    fn moved(full: f64, cap: &Feedback) -> u64 {
        (full * cap.quota().unwrap_or(1.0) * EPOCH.as_secs_f64()) as u64
    }

    // 1 GB/s allowed, 4 GB/s used: the gap is clamped to -1, so the quota is halved.
    #[test]
    fn the_cap_is_approached_in_proportion() {
        let mut cap = Feedback::new(Settings::new(1e9));
        cap.epoch(200_000_000, EPOCH, 1.0);
        assert_eq!(cap.quota(), Some(0.5));
        // 2 GB/s now: the average is 3, the gap -2, clamped to -1.
        cap.epoch(100_000_000, EPOCH, 1.0);
        assert_eq!((cap.quota(), cap.average()), (Some(0.25), 3e9));
    }

    #[test]
    fn a_notification_shrinks_the_quota_to_the_allowance() {
        let mut cap = Feedback::new(Settings::new(1e9));
        assert_eq!(cap.allowance(EPOCH), 50_000_000);
        cap.exceeded(Duration::from_micros(12_500), EPOCH, 2.0);
        assert_eq!((cap.quota(), cap.average()), (Some(0.5), 4e9));
    }

    #[test]
    fn without_samples_the_quota_returns() {
        let mut cap = Feedback::new(Settings::new(1e9));
        (0..20).for_each(|_| cap.epoch(200_000_000, EPOCH, 1.0));
        assert_eq!(cap.quota(), Some(0.01), "slowed, never stopped");
        (0..40).for_each(|_| cap.epoch(0, EPOCH, 1.0));
        assert_eq!(cap.quota(), None);
    }

    // An administrator lowers the limit from 2 CPUs to 0.25, then to less than the least quota.
    #[test]
    fn a_quota_is_below_the_entitlement() {
        let mut cap = Feedback::new(Settings::new(1e9));
        cap.epoch(200_000_000, EPOCH, 2.0);
        assert_eq!(cap.quota(), Some(1.0));
        cap.epoch(200_000_000, EPOCH, 0.25);
        assert_eq!(cap.quota(), Some(0.125));
        cap.epoch(200_000_000, EPOCH, 0.005);
        assert_eq!(cap.quota(), None);
    }

    proptest! {
        // A tenant that could use 1.2 to 50 times its cap is held to the cap within 5 % from the
        // second second on.
        #[test]
        fn it_settles_at_the_cap(times in 1.2f64..50.0) {
            let mut cap = Feedback::new(Settings::new(1e9));
            let mut late = 0;
            for epoch in 0..80 {
                let bytes = moved(times * 1e9, &cap);
                cap.epoch(bytes, EPOCH, 1.0);
                late += if epoch >= 40 { bytes } else { 0 };
            }
            let bandwidth = late as f64 / (40.0 * EPOCH.as_secs_f64());
            prop_assert!((bandwidth / 1e9 - 1.0).abs() < 0.05, "{bandwidth}");
        }
    }
}
