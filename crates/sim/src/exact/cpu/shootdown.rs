//! TLB shootdowns: every core that may cache a translation drops it, and loses time.

use std::collections::BTreeSet;

use tierscope_core::BusObserver;

use crate::exact::Machine;
use crate::exact::mm::Stale;
use crate::exact::units::NS;

impl<B: BusObserver> Machine<B> {
    /// Shoots a range down on all cores of its space. Each loses the time of an interrupt; returns
    /// the initiator's cost, in ps.
    ///
    /// Invalidates page by page, or the whole space if there are more pages than the kernel's
    /// ceiling (arch/x86/mm/tlb.c, `flush_tlb_mm_range`).
    pub(in crate::exact) fn shoot(&mut self, stale: Stale) -> u64 {
        self.shoot_but(None, stale)
    }

    /// [`Machine::shoot`], initiated by a core, which is not interrupted itself.
    pub(super) fn shoot_from(&mut self, cpu: usize, stale: Stale) -> u64 {
        self.shoot_but(Some(cpu), stale)
    }

    fn shoot_but(&mut self, own: Option<usize>, stale: Stale) -> u64 {
        if stale.pages == 0 {
            return 0;
        }
        let space = &self.os.spaces[stale.range.space.0 as usize];
        let (asid, costs) = (space.root.asid, &self.costs.shootdown);
        let whole = stale.range.bytes() >> stale.size.shift() > costs.flush_all_pages;
        let mut cores = 0;
        for at in space.cpus.iter() {
            let cpu = &mut self.cpus[at];
            if own != Some(at) {
                cores += 1;
                cpu.counts.shootdowns += 1;
                cpu.steal(costs.responder_ns * NS);
            }
            if whole {
                cpu.mmu.flush_asid(asid);
                continue;
            }
            let step = stale.size.bytes() as usize;
            for page in (stale.range.start..stale.range.end).step_by(step) {
                cpu.mmu.invalidate_page(page, asid);
            }
        }
        costs.initiator(cores) * NS
    }

    /// Flushes the translations of all processes from the cores that run any: one interrupt to
    /// each. Returns the number of cores, and the caller's cost, in ps.
    pub(in crate::exact) fn forget_translations(&mut self) -> (u32, u64) {
        let alive = || self.os.spaces.iter().filter(|space| space.alive);
        let cores: BTreeSet<usize> = alive().flat_map(|space| space.cpus.iter()).collect();
        let asids: Vec<_> = alive().map(|space| space.root.asid).collect();
        let costs = &self.costs.shootdown;
        for at in &cores {
            let cpu = &mut self.cpus[*at];
            cpu.counts.shootdowns += 1;
            cpu.steal(costs.responder_ns * NS);
            asids.iter().for_each(|asid| cpu.mmu.flush_asid(*asid));
        }
        let cores = cores.len() as u32;
        (cores, costs.initiator(cores.into()) * NS)
    }

    /// [`Machine::shoot`], with the initiator's cost charged to no core: the target requested the
    /// change.
    pub(in crate::exact) fn shoot_for_kernel(&mut self, stale: Stale) {
        let _ = self.shoot(stale);
    }
}
