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
//! is. The quota never exceeds what the tenant is entitled to without the policy.

mod feedback;
mod held;

use std::time::Duration;

pub use held::Held;
use tierscope_core::{TenantPolicy, TenantUse};

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
}

impl Settings {
    /// A cap with the assumed weight and rate.
    #[must_use]
    pub fn new(cap: f64) -> Self {
        Self { cap, weight: 0.5, rate: 0.5, least: 0.01 }
    }
}

/// The policy: caps the bandwidth of each tenant.
#[derive(Clone, Debug)]
pub struct BandwidthCap {
    epoch: Duration,
    held: Vec<Held>,
}

impl BandwidthCap {
    /// Caps one tenant by each of `settings`, with epochs of this length.
    #[must_use]
    pub fn new(epoch: Duration, settings: impl IntoIterator<Item = Settings>) -> Self {
        Self { epoch, held: settings.into_iter().map(Held::new).collect() }
    }

    /// The tenants, in order.
    #[must_use]
    pub fn held(&self) -> &[Held] {
        &self.held
    }
}

impl TenantPolicy for BandwidthCap {
    fn epoch(&self) -> Duration {
        self.epoch
    }

    fn notified(
        &mut self,
        elapsed: Duration,
        tenants: &[TenantUse],
        limits: &mut [Option<f64>],
    ) -> bool {
        let mut exceeded = false;
        for ((held, tenant), limit) in self.held.iter_mut().zip(tenants).zip(limits) {
            exceeded |= held.look(tenant, elapsed, self.epoch);
            *limit = held.quota();
        }
        exceeded
    }

    fn epoch_ended(&mut self, time: Duration, tenants: &[TenantUse], limits: &mut [Option<f64>]) {
        for ((held, tenant), limit) in self.held.iter_mut().zip(tenants).zip(limits) {
            held.end_of_epoch(tenant, time);
            *limit = held.quota();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: Duration = Duration::from_millis(50);

    // Both may move 1 GB/s, which is 50 MB an epoch. The first has moved that after half of the
    // epoch, the second, of 4 CPUs, moves four times as much in the next epoch: the gap is clamped
    // to -1, and corrected by half.
    #[test]
    fn each_tenant_has_a_limit_of_its_own() {
        let mut cap = BandwidthCap::new(EPOCH, [Settings::new(1e9), Settings::new(1e9)]);
        let of = |first, second| {
            [(first, 2.0), (second, 4.0)].map(|(bytes, entitled)| TenantUse { bytes, entitled })
        };
        let mut limits = [None, None];
        assert!(!cap.notified(EPOCH / 2, &of(49_000_000, 0), &mut limits), "early");
        assert_eq!(limits, [None, None]);
        assert!(cap.notified(EPOCH / 2, &of(50_000_000, 0), &mut limits));
        assert_eq!(limits, [Some(1.0), None]);
        cap.epoch_ended(EPOCH, &of(75_000_000, 0), &mut limits);
        assert_eq!(limits, [Some(1.0), None], "judged once an epoch");
        cap.epoch_ended(EPOCH, &of(0, 400_000_000), &mut limits);
        assert_eq!(limits[1], Some(2.0));
        let [first, second] = cap.held() else { panic!("two tenants") };
        assert_eq!((first.bytes, second.bytes), (75_000_000, 400_000_000));
    }
}
