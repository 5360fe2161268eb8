//! CPU time of a policy's own work, charged by [`Orders::work`].
//!
//! The costs of observing (probes, samples, faults) and of moving pages are charged by the machine.
//! Left for the policy: taking a page off a list, deciding, putting it back.

use std::time::Duration;

use tierscope_core::Orders;

use crate::settings::Visit;

/// CPU time of a policy's elementary steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Waking up: a context switch to a kernel thread and back.
    pub wake: Duration,
    /// CPU time of processing one page, sample, fault or region.
    pub item: Duration,
}

/// Assumed. `wake`: of the order of a switch to a thread and back. `item`: a list entry's two
/// neighbours, one DRAM cache miss each (81 ns), partly overlapped. Sensitivity range: 1 to 10 us
/// and 20 to 300 ns. The time that this code itself takes per page is measured by `cargo bench -p
/// tierscope-policies`.
impl Default for Costs {
    fn default() -> Self {
        Self { wake: Duration::from_micros(2), item: Duration::from_nanos(100) }
    }
}

impl Costs {
    pub(crate) fn visit(&mut self, each: &mut dyn Visit) {
        each.value("wake-cost", "CPU time of waking up", &mut self.wake);
        each.value("item-cost", "CPU time per page, sample, fault or region", &mut self.item);
    }

    pub(crate) fn charge_wake(&self, orders: &mut Orders) {
        orders.work += self.wake;
    }

    pub(crate) fn charge(&self, orders: &mut Orders, items: u64) {
        orders.work += self.item * u32::try_from(items).unwrap_or(u32::MAX);
    }
}
