//! TLB misses as software hears of them (BadgerTrap): a reserved bit in the entry of every page of a process, so that a
//! walk that comes upon it ends in a page fault. The handler counts, takes the bit away, touches the page, so that the TLB
//! loads the translation, and sets the bit again: translations that TLBs hold never see it.
//!
//! What a core hears is how often; no address is kept, and no page table moves. A fault is not overlapped with anything: the
//! core pays for each, and that time counts as stolen by telemetry. What the handler displaces in caches and TLBs is left out.

use std::collections::BTreeMap;

use tierscope_core::{BusObserver, SpaceId};

use super::below::Who;
use super::cpu::Cpu;
use super::machine::Machine;

/// Walks of a core that were trapped, by space: the handler knows whose fault it is.
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

/// A walk ended at a reserved bit.
pub(super) fn trapped<const CLOCK: bool>(cpu: &mut Cpu, who: &Who) {
    cpu.trapped.count(who.space);
    if CLOCK {
        cpu.steal(who.trap);
    }
}

impl<B: BusObserver> Machine<B> {
    /// TLB misses of the spaces whose processes are [`trapped`](super::Process::trapped), as the kernel counted them.
    #[must_use]
    pub fn trapped(&self) -> BTreeMap<SpaceId, u64> {
        let mut all = BTreeMap::new();
        for cpu in &self.cpus {
            let counts = (0..).zip(&cpu.trapped.0).filter(|(_, count)| **count > 0);
            counts.for_each(|(space, count)| *all.entry(SpaceId(space)).or_default() += count);
        }
        all
    }

    /// Walks that a core began, as its performance counters count them: of every process that ran on it, those that ended in a page
    /// fault and those that found a page clean among them (Intel's SDM, volume 3, events DTLB_LOAD_MISSES and
    /// DTLB_STORE_MISSES, "miss causes a page walk"). Walks of speculation that comes to nothing are not simulated.
    #[must_use]
    pub fn counted_walks(&self, cpu: usize) -> u64 {
        self.cpus[cpu].mmu.walks()
    }
}
