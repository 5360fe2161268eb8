//! Tenants of this host, behind core's port.

use std::time::Duration;

use tierscope_core::{Clock, Result, TenantUse, Tenants, Time, Wake};

use super::CpuLimits;
use crate::HostClock;
use crate::memory_controller::Traffic;

/// Cgroups with a source of their traffic, and their CPU limits.
pub struct LiveTenants {
    // Dropped in this order: signals end no process before the limits are restored.
    limits: CpuLimits,
    traffic: Box<dyn Traffic>,
    clock: HostClock,
    bytes: Vec<u64>,
}

impl LiveTenants {
    /// Begins the first epoch. `traffic` counts the cgroups of `limits`, in the same order.
    ///
    /// # Errors
    /// If the traffic cannot be read.
    pub fn begin(
        clock: HostClock,
        limits: CpuLimits,
        mut traffic: Box<dyn Traffic>,
    ) -> Result<Self> {
        let mut bytes = vec![0; limits.count()];
        traffic.refresh()?;
        traffic.take(&mut bytes)?;
        Ok(Self { limits, traffic, clock, bytes })
    }

    /// CPU time of this process since the clock was opened.
    #[must_use]
    pub fn cpu_time(&self) -> Duration {
        self.clock.cpu_time()
    }

    /// Restores the limits. Stop signals still have no effect until this is dropped.
    ///
    /// # Errors
    /// Those of [`CpuLimits::restore`].
    pub fn restore(&mut self) -> Result<()> {
        self.limits.restore()
    }

    fn uses(&self, out: &mut [TenantUse]) {
        for (tenant, (out, bytes)) in out.iter_mut().zip(&self.bytes).enumerate() {
            *out = TenantUse { bytes: *bytes, entitled: self.limits.entitled(tenant) };
        }
    }
}

impl Clock for LiveTenants {
    fn now(&self) -> Time {
        self.clock.now()
    }

    fn wait(&mut self, until: Time) -> Wake {
        self.clock.wait(until)
    }
}

impl Tenants for LiveTenants {
    fn count(&self) -> usize {
        self.limits.count()
    }

    fn refresh(&mut self) -> Result<()> {
        self.limits.refresh();
        self.traffic.refresh()
    }

    fn take(&mut self, out: &mut [TenantUse]) -> Result<()> {
        self.traffic.take(&mut self.bytes)?;
        self.uses(out);
        Ok(())
    }

    fn peek(&mut self, out: &mut [TenantUse]) -> Result<bool> {
        let can = self.traffic.peek(&mut self.bytes)?;
        self.uses(out);
        Ok(can)
    }

    fn listen(&mut self) -> Result<()> {
        self.traffic.listen()
    }

    fn limit(&mut self, cpus: &[Option<f64>]) -> Result<()> {
        self.limits.limit(cpus)
    }
}
