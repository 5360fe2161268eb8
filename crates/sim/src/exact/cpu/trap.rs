//! TLB misses counted in software (BadgerTrap): the entries of all pages of a process have a
//! reserved bit set, so that a walk to one ends in a page fault. The handler counts, clears the
//! bit, touches the page so that the TLB loads the translation, and sets the bit again; a TLB hit
//! never sees the bit.
//!
//! Only counts are kept: no address is recorded, and no page table changes. A fault overlaps with
//! nothing: the core pays for each, and the time counts as stolen by telemetry. Lines and
//! translations evicted by the handler are not modelled.

use std::collections::BTreeMap;

use tierscope_core::{BusObserver, SpaceId};

use super::core::Cpu;
use crate::exact::Machine;

/// Trapped walks of a core, by space: the handler knows the faulting process.
#[derive(Clone, Debug, Default)]
pub(super) struct Trapped(Vec<u64>);

impl Trapped {
    fn count(&mut self, space: SpaceId) {
        let at = space.0 as usize;
        if at >= self.0.len() {
            self.0.resize(at + 1, 0);
        }
        self.0[at] += 1;
    }
}

impl Cpu {
    /// A walk of a space's thread ended at a reserved bit; the fault costs `cost` ps.
    pub(super) fn trap<const CLOCK: bool>(&mut self, space: SpaceId, cost: u64) {
        self.trapped.count(space);
        if CLOCK {
            self.steal(cost);
        }
    }
}

impl<B: BusObserver> Machine<B> {
    /// TLB misses counted by the kernel, of spaces whose processes are
    /// [`trapped`](crate::exact::Process::trapped).
    #[must_use]
    pub fn trapped(&self) -> BTreeMap<SpaceId, u64> {
        let mut all = BTreeMap::new();
        for cpu in &self.cpus {
            let counts = (0..).zip(&cpu.trapped.0).filter(|(_, count)| **count > 0);
            counts.for_each(|(space, count)| *all.entry(SpaceId(space)).or_default() += count);
        }
        all
    }

    /// Walks begun by a core, as its performance counters count them: of every process that ran on
    /// it, including walks that ended in a page fault and walks that found a page clean (Intel's
    /// SDM, volume 3, events DTLB_LOAD_MISSES and DTLB_STORE_MISSES, "miss causes a page walk").
    /// Walks of discarded speculation are not simulated.
    #[must_use]
    pub fn counted_walks(&self, cpu: usize) -> u64 {
        self.cpus[cpu].mmu.walks()
    }
}
