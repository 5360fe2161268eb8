//! What a policy's own work costs: CPU time that it charges by [`Orders::work`].
//!
//! What looking costs (probes, samples, faults) and what moving costs is the machine's affair. Here is
//! what is left: taking a page off a list, deciding, putting it back.

use std::time::Duration;

use tierscope_core::Orders;

use crate::settings::Visit;

/// CPU time of a policy's steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Waking up: a context switch to a kernel thread and back.
    pub wake: Duration,
    /// A page, sample, fault or region dealt with.
    pub item: Duration,
}

/// Assumed. `wake`: of the order of a switch to a thread and back. `item`: a list's neighbours on both
/// sides, a cache miss of DRAM each (81 ns), of which a part is hidden. To be varied from 1 to 10 us and
/// from 20 to 300 ns. What this code itself needs for a page is measured by
/// `cargo bench -p tierscope-policies`.
impl Default for Costs {
    fn default() -> Self {
        Self { wake: Duration::from_micros(2), item: Duration::from_nanos(100) }
    }
}

impl Costs {
    pub(crate) fn visit(&mut self, each: &mut dyn Visit) {
        each.value("wake_cost", "CPU time of waking up", &mut self.wake);
        each.value("item_cost", "CPU time per page, sample, fault or region", &mut self.item);
    }

    pub(crate) fn charge_wake(&self, orders: &mut Orders) {
        orders.work += self.wake;
    }

    pub(crate) fn charge(&self, orders: &mut Orders, items: u64) {
        orders.work += self.item * u32::try_from(items).unwrap_or(u32::MAX);
    }
}
