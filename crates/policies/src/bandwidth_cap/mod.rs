//! Caps a tenant's memory bandwidth by limiting its CPU time (NEMO, section 5.3).
//!
//! The section describes a feedback loop: every epoch it reads the tenant's counter, keeps an
//! exponentially weighted moving average of its bandwidth, and raises or lowers the tenant's CPU
//! quota in proportion to the gap to the target, damped by a learning rate; it reacts at once to a
//! notification that the tenant has exceeded its allocation. The paper gives neither weight nor
//! rate: assumed, with the effect of each documented in [`Settings`].
//!
//! Bandwidth is CPU time multiplied by an access rate that depends on the tenant, so both changes
//! are factors: the loop converges to an average equal to the cap, however fast the tenant's memory
//! is.

mod held;

use std::time::Duration;

pub use held::Held;

/// Parameters of the feedback loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Bandwidth cap, in bytes per second.
    pub cap: f64,
    /// Weight of the newest epoch in the average, 0..=1. Assumed 0.5: an epoch of the paper's 50 ms
    /// then has a weight of a tenth after 170 ms, less than a neighbour's silence of half a second.
    pub weight: f64,
    /// Share of the gap corrected per epoch, 0..=1. Assumed 0.5: overshoot decays from epoch to
    /// epoch.
    pub rate: f64,
    /// Minimum CPU quota, in CPUs: the tenant is slowed, never stopped.
    pub least: f64,
    /// Maximum CPU quota, in CPUs.
    pub most: f64,
}

impl Settings {
    /// A cap with the assumed weight and rate, for a tenant entitled to `cpus`.
    #[must_use]
    pub fn new(cap: f64, cpus: f64) -> Self {
        Self { cap, weight: 0.5, rate: 0.5, least: 0.01, most: cpus }
    }
}

/// State of the feedback loop of one tenant.
#[derive(Clone, Debug, PartialEq)]
pub struct BandwidthCap {
    settings: Settings,
    /// Average bandwidth in bytes per second; `None` before the first epoch.
    average: Option<f64>,
    /// Current CPU quota, in CPUs.
    quota: f64,
}

impl BandwidthCap {
    /// Starts with the maximum quota and no bandwidth average.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self { settings, average: None, quota: settings.most }
    }

    /// Current CPU quota, in CPUs.
    #[must_use]
    pub fn quota(&self) -> f64 {
        self.quota
    }

    /// Average bandwidth in bytes per second; 0 before the first epoch.
    #[must_use]
    pub fn average(&self) -> f64 {
        self.average.unwrap_or(0.0)
    }

    /// Bytes that the tenant may transfer per epoch: the threshold of its notification.
    #[must_use]
    pub fn allowance(&self, epoch: Duration) -> u64 {
        (self.settings.cap * epoch.as_secs_f64()) as u64
    }

    /// Ends an epoch in which the tenant transferred `bytes`. Returns the new quota.
    pub fn epoch(&mut self, bytes: u64, time: Duration) -> f64 {
        self.learn(bytes as f64 / time.as_secs_f64().max(f64::EPSILON));
        let gap = (self.settings.cap - self.average()) / self.settings.cap;
        self.scale(1.0 + self.settings.rate * gap.clamp(-1.0, 1.0))
    }

    /// Handles a notification: the tenant used up the epoch's allowance after `elapsed`. Returns
    /// the new quota, with which the allowance would have lasted the whole epoch.
    pub fn exceeded(&mut self, elapsed: Duration, epoch: Duration) -> f64 {
        let part = (elapsed.as_secs_f64() / epoch.as_secs_f64()).clamp(0.01, 1.0);
        self.learn(self.settings.cap / part);
        self.scale(part)
    }

    fn learn(&mut self, bandwidth: f64) {
        let weight = self.settings.weight;
        self.average = Some(self.average.map_or(bandwidth, |old| old + weight * (bandwidth - old)));
    }

    fn scale(&mut self, factor: f64) -> f64 {
        self.quota = (self.quota * factor).clamp(self.settings.least, self.settings.most);
        self.quota
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const EPOCH: Duration = Duration::from_millis(50);

    /// Bytes per epoch of a tenant that transfers `full` bytes a second with a whole CPU.
    fn moved(full: f64, cap: &BandwidthCap) -> u64 {
        (full * cap.quota().min(1.0) * EPOCH.as_secs_f64()) as u64
    }

    // 1 GB/s allowed, 4 GB/s used: the gap is clamped to -1, so the quota is halved.
    #[test]
    fn the_cap_is_approached_in_proportion() {
        let mut cap = BandwidthCap::new(Settings::new(1e9, 1.0));
        assert_eq!(cap.epoch(200_000_000, EPOCH), 0.5);
        // 2 GB/s now: the average is 3, the gap -2, clamped to -1.
        assert_eq!((cap.epoch(100_000_000, EPOCH), cap.average()), (0.25, 3e9));
    }

    #[test]
    fn a_notification_shrinks_the_quota_to_the_allowance() {
        let mut cap = BandwidthCap::new(Settings::new(1e9, 2.0));
        assert_eq!(cap.allowance(EPOCH), 50_000_000);
        assert_eq!(cap.exceeded(Duration::from_micros(12_500), EPOCH), 0.5);
        assert_eq!(cap.average(), 4e9);
    }

    #[test]
    fn without_samples_the_quota_returns() {
        let mut cap = BandwidthCap::new(Settings::new(1e9, 1.0));
        (0..20).for_each(|_| _ = cap.epoch(200_000_000, EPOCH));
        assert_eq!(cap.quota(), 0.01, "slowed, never stopped");
        (0..40).for_each(|_| _ = cap.epoch(0, EPOCH));
        assert_eq!(cap.quota(), 1.0);
    }

    proptest! {
        // A tenant that could use 1.2 to 50 times its cap is held to the cap within 5 % from the
        // second second on.
        #[test]
        fn it_settles_at_the_cap(times in 1.2f64..50.0) {
            let mut cap = BandwidthCap::new(Settings::new(1e9, 1.0));
            let mut late = 0;
            for epoch in 0..80 {
                let bytes = moved(times * 1e9, &cap);
                cap.epoch(bytes, EPOCH);
                late += if epoch >= 40 { bytes } else { 0 };
            }
            let bandwidth = late as f64 / (40.0 * EPOCH.as_secs_f64());
            prop_assert!((bandwidth / 1e9 - 1.0).abs() < 0.05, "{bandwidth}");
        }
    }
}
