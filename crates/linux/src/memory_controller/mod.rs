//! Memory controllers that can be programmed to count requests, and the tenants whose traffic they
//! count.
//!
//! The telemetry device of an instrumented virtual machine gives access to the controllers, and
//! records TLB misses. Tenants are cgroups; their traffic is counted by the controllers
//! ([`ControllerTraffic`]), by frame and with a notification when a tenant exceeds its allowance,
//! or by the processor's bandwidth monitoring through resctrl ([`ResctrlTraffic`]), which has to be
//! polled.

mod controller_traffic;
mod controllers;
mod resctrl_traffic;
mod telemetry_device;
mod tenant_frames;
mod tlb_misses;

pub use controller_traffic::ControllerTraffic;
pub use controllers::{Controllers, controllers};
pub use resctrl_traffic::ResctrlTraffic;
pub use telemetry_device::{TelemetryDevice, find_device};
pub use tlb_misses::{TlbMisses, root_of};

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
