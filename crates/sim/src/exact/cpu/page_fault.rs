//! Page faults at a core's expense.

use tierscope_core::{Access, Addr, BusObserver, HintFault, PAGE_SIZE, Time};
use tierscope_hw::PageSize;
use tierscope_workloads::Touch;

use crate::exact::Machine;
use crate::exact::mm::{Denied, Resolved};
use crate::exact::units::{NS, SECOND};

impl<B: BusObserver> Machine<B> {
    /// Resolves a page fault of a thread; kills its process if the access is denied.
    pub(super) fn thread_fault(&mut self, at: usize, thread: usize, op: Touch) {
        let space = self.threads[thread].space;
        let addr = Addr { space, at: op.address() };
        if self.fault(at, addr, op.writes()).is_err() {
            self.kill(space);
        }
    }

    /// Resolves a page fault at the core's expense.
    pub(super) fn fault(&mut self, at: usize, addr: Addr, stores: bool) -> Result<(), Denied> {
        self.faulting_walk(at);
        let now = Time(self.cpus[at].time / NS);
        let resolved = match self.os.fault(addr.space, addr.at, stores, now) {
            Ok(resolved) => resolved?,
            Err(error) => {
                self.broken = Some(error);
                return Err(Denied::OutOfMemory);
            }
        };
        match resolved {
            Resolved::Spurious => {}
            Resolved::Page(size) => self.charge_page(at, size),
            Resolved::Read(size, pages) => self.charge_read(at, size, pages),
            Resolved::Hint => {
                let cpu = &mut self.cpus[at];
                cpu.counts.hint_faults += 1;
                cpu.steal(self.costs.faults.hint_ns * NS);
                let armed = self.armed.when(addr.space, addr.at).unwrap_or(now);
                let access = if stores { Access::Store } else { Access::Load };
                let core = at as u32;
                self.hint_faults.push(HintFault { time: now, armed, at: addr, access, core });
            }
        }
        Ok(())
    }

    /// Makes sure that a page is present, without an access to it; the core pays for an allocation.
    pub(super) fn fetch(&mut self, cpu: usize, at: Addr) -> Result<(), Denied> {
        let now = Time(self.cpus[cpu].time / NS);
        let fetched = self.os.fetch(at.space, at.at, now);
        self.made(cpu, fetched)
    }

    /// Charges for an allocated page, or ends the run if the host has no memory.
    pub(super) fn made(
        &mut self,
        cpu: usize,
        made: tierscope_core::Result<Result<Resolved, Denied>>,
    ) -> Result<(), Denied> {
        match made {
            Ok(resolved) => {
                match resolved? {
                    Resolved::Page(size) => self.charge_page(cpu, size),
                    Resolved::Read(size, pages) => self.charge_read(cpu, size, pages),
                    Resolved::Hint | Resolved::Spurious => {}
                }
                Ok(())
            }
            Err(error) => {
                self.broken = Some(error);
                Err(Denied::OutOfMemory)
            }
        }
    }

    /// Charges a core for a first touch.
    pub(super) fn charge_page(&mut self, cpu: usize, size: PageSize) {
        let (cpu, costs) = (&mut self.cpus[cpu], &self.costs.faults);
        cpu.counts.first_touches[size as usize] += 1;
        let [small, huge] = [costs.small_ns, costs.huge_ns];
        cpu.time += NS * [small, huge, 512 * huge][size as usize];
    }

    /// Charges a core for a page that it allocates and fills by one read request.
    pub(super) fn charge_read(&mut self, cpu: usize, size: PageSize, pages: u64) {
        self.charge_page(cpu, size);
        let costs = &self.costs.swap;
        let read = pages * PAGE_SIZE * (SECOND >> 20) / costs.read_mib_s;
        let cpu = &mut self.cpus[cpu];
        cpu.counts.swap_ins += pages;
        cpu.time += costs.read_ns * NS + read;
    }
}
