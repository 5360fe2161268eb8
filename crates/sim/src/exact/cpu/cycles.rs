//! Costs of a core's operations.

use tierscope_hw::Machine as Hardware;

use crate::config::Costs;
use crate::exact::units::NS;

/// Costs of a core's operations, in ps.
#[derive(Clone, Copy, Debug)]
pub(in crate::exact) struct Cycles {
    pub(super) access: u64,
    pub(super) second_tlb: u64,
    /// An entry in the private caches, for a walk.
    pub(super) private: u64,
    pub(super) llc: u64,
    pub(in crate::exact) fill_buffers: u64,
    pub(super) walkers: u64,
    /// Lines that the prefetcher waits for at a time.
    pub(super) prefetches: usize,
    /// A fault on a reserved bit.
    pub(super) trap: u64,
}

impl Cycles {
    pub(in crate::exact) fn of(hardware: &Hardware, costs: &Costs) -> Self {
        let ps = |cycles: u32| u64::from(cycles) * 1_000_000 / u64::from(hardware.processor.mhz);
        let timing = &hardware.timing;
        Self {
            access: ps(timing.access_cycles),
            second_tlb: ps(timing.second_tlb_cycles),
            private: ps(timing.private_cycles),
            llc: ps(timing.llc_cycles),
            fill_buffers: timing.fill_buffers.into(),
            walkers: timing.walkers.into(),
            prefetches: timing.prefetches as usize,
            trap: costs.faults.trap_ns * NS,
        }
    }
}
