//! Tenants of a machine, one cgroup each: their memory, their memory traffic and their CPU time.
//!
//! Traffic is counted by programmable memory controllers ([`ByController`]), by frame and with a
//! notification when a tenant exceeds its allowance, or by the processor's bandwidth monitoring
//! through resctrl ([`ByMonitoring`]), which has to be polled.

mod bell;
mod controllers;
mod frames;
mod monitoring;
mod quota;

pub use bell::Bell;
pub use controllers::ByController;
pub use frames::frames_of;
pub use monitoring::ByMonitoring;
pub use quota::CpuQuota;

use tierscope_core::Result;

/// A source of the tenants' traffic.
pub trait Traffic {
    /// Updates which memory or processes belong to which tenant. Tenants are identified by their
    /// index.
    ///
    /// # Errors
    /// If the owners cannot be determined.
    fn refresh(&mut self) -> Result<()>;

    /// Bytes that each tenant moved since the last call.
    ///
    /// # Errors
    /// If the counters cannot be read.
    fn take(&mut self, out: &mut [u64]) -> Result<()>;

    /// Bytes that each tenant moved since the last [`Traffic::take`], without resetting them;
    /// returns false if the source cannot do this.
    ///
    /// # Errors
    /// Those of [`Traffic::take`].
    fn peek(&mut self, out: &mut [u64]) -> Result<bool>;

    /// Rearms notifications: a tenant that exceeds its allowance is reported again before the next
    /// [`Traffic::take`].
    ///
    /// # Errors
    /// Those of [`Traffic::take`].
    fn listen(&mut self) -> Result<()>;
}
