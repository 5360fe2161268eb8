//! Tenants of a machine, whose CPU time a policy limits: the port, and the trait of the policy.
//! The drive loop between them is [`crate::drive::cap`].

use std::time::Duration;

use crate::{Clock, Result};

/// A tenant in an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TenantUse {
    /// Bytes that the tenant moved since the epoch began.
    pub bytes: u64,
    /// CPUs that it may use without a limit of the policy: all CPUs of the machine, or the limit of
    /// the administrator if that is lower.
    pub entitled: f64,
}

/// A machine as such a policy sees it. Tenants are identified by their index.
pub trait Tenants: Clock {
    /// Number of tenants, which never changes. A tenant that is gone moves no bytes.
    fn count(&self) -> usize;

    /// Updates which memory or processes belong to which tenant.
    ///
    /// # Errors
    /// If the owners cannot be determined.
    fn refresh(&mut self) -> Result<()>;

    /// Ends an epoch: reads the traffic since the last call, or since the machine was opened, and
    /// rearms notifications.
    ///
    /// # Errors
    /// If the traffic cannot be read.
    fn take(&mut self, out: &mut [TenantUse]) -> Result<()>;

    /// Reads the traffic of the epoch so far; returns false if the machine cannot do this.
    ///
    /// # Errors
    /// Same as [`Tenants::take`].
    fn peek(&mut self, out: &mut [TenantUse]) -> Result<bool>;

    /// Rearms notifications: a tenant that exceeds its allowance ends a wait
    /// ([`crate::Wake::Event`]) once more before the next [`Tenants::take`].
    ///
    /// # Errors
    /// Same as [`Tenants::take`].
    fn listen(&mut self) -> Result<()>;

    /// Limits each tenant to a number of CPUs, or with `None` to what it is entitled to. Called
    /// after each epoch, also if no limit changed: a tenant that returned is limited again.
    ///
    /// # Errors
    /// If a limit cannot be set. A tenant that is gone is no error.
    fn limit(&mut self, cpus: &[Option<f64>]) -> Result<()>;
}

/// A policy that limits the CPU time of tenants by their memory traffic.
///
/// Both methods get the current limits in CPUs, `None` for a tenant without one, and change them.
pub trait TenantPolicy {
    /// Length of an epoch.
    fn epoch(&self) -> Duration;

    /// Judges the tenants after a notification, `elapsed` into an epoch. Returns whether one of
    /// them has exceeded its allowance: notifications then stay off until the next epoch.
    fn notified(
        &mut self,
        elapsed: Duration,
        tenants: &[TenantUse],
        limits: &mut [Option<f64>],
    ) -> bool;

    /// Judges the tenants at the end of an epoch that took `time`.
    fn epoch_ended(&mut self, time: Duration, tenants: &[TenantUse], limits: &mut [Option<f64>]);
}
