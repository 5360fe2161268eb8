//! System calls: operations on memory that the kernel performs for a program.

use tierscope_core::{
    Access, Addr, BusObserver, Level, PAGE_SIZE, PageEvent, PageEventKind, Range, SpaceId, Time,
};
use tierscope_workloads::app::Call;

use crate::exact::memory::{CacheResult, LinePlace};
use crate::exact::mm::Denied;
use crate::exact::units::{LINE, NS};
use crate::exact::{Detail, Machine};

impl<B: BusObserver> Machine<B> {
    /// A system call of a program, charged to its core.
    ///
    /// # Errors
    /// The host has no memory. The inner result is the call's own failure: nothing is mapped there,
    /// or no simulated memory is left.
    pub fn call(
        &mut self,
        cpu: usize,
        space: SpaceId,
        call: Call,
    ) -> tierscope_core::Result<Result<(), Denied>> {
        let done = self.carry_out_call(cpu, space, call);
        match &self.broken {
            Some(error) => Err(error.clone()),
            None => Ok(done),
        }
    }

    fn carry_out_call(&mut self, cpu: usize, space: SpaceId, call: Call) -> Result<(), Denied> {
        self.cpus[cpu].time += self.costs.calls.call_ns * NS;
        let pages = |at: u64, bytes: u64| {
            let end = at.saturating_add(bytes);
            Level::PTE.align(&Range::new(space, at, end.max(at)))
        };
        match call {
            Call::File { at, bytes, writes } => {
                self.copy_file(cpu, pages(at, bytes), (at, bytes), writes)
            }
            Call::Lock { at, bytes, on } => self.lock(cpu, pages(at, bytes), on),
            Call::Free { at, bytes } => self.discard(cpu, pages(at, bytes)),
        }
    }

    /// read(2) or write(2) of file-backed pages: the kernel copies through its own mapping, so no
    /// entry of the program's tables is marked. Absent pages are brought in old, as fault-around
    /// maps them (mm/filemap.c, `filemap_map_pages`).
    fn copy_file(
        &mut self,
        cpu: usize,
        pages: Range,
        (at, bytes): (u64, u64),
        writes: bool,
    ) -> Result<(), Denied> {
        let access = if writes { Access::Store } else { Access::Load };
        for page in (pages.start..pages.end).step_by(PAGE_SIZE as usize) {
            self.fetch(cpu, Addr { space: pages.space, at: page })?;
            let Some(physical) = self.os.physical(pages.space, page) else { continue };
            let from = at.max(page) & !(LINE - 1);
            let to = at.saturating_add(bytes).min(page + PAGE_SIZE);
            for line in (from..to).step_by(LINE as usize) {
                self.copy_line(cpu, physical + (line - page), writes);
            }
        }
        let time = Time(self.cpus[cpu].time / NS);
        let kind = PageEventKind::FileAccess(access);
        self.os.events.push(PageEvent { time, range: pages, kind });
        Ok(())
    }

    /// Copies one line through the caches; copies overlap as far as the core can wait for lines.
    fn copy_line(&mut self, at: usize, physical: u64, store: bool) {
        let (cpu, cycles) = (&mut self.cpus[at], &self.cycles);
        let stall = match self.detail {
            Detail::Translation => 0,
            Detail::Caches | Detail::Whole => {
                let whole = self.detail == Detail::Whole;
                let place = LinePlace::new(physical, self.memory.llc.as_ref());
                let reached = match whole {
                    true => self.memory.access::<true>((cpu.time, cpu.time), place, store, at),
                    false => self.memory.access::<false>((cpu.time, cpu.time), place, store, at),
                };
                let time = match reached {
                    CacheResult::Hit => cycles.llc,
                    CacheResult::Miss(served) => served.time(),
                };
                if whole { time / cycles.fill_buffers } else { 0 }
            }
        };
        cpu.time += stall.max(cycles.access);
    }

    /// mlock(2) and munlock(2): locking faults all pages in.
    fn lock(&mut self, cpu: usize, pages: Range, on: bool) -> Result<(), Denied> {
        if on {
            for page in (pages.start..pages.end).step_by(PAGE_SIZE as usize) {
                let now = Time(self.cpus[cpu].time / NS);
                let made = self.os.fault(pages.space, page, false, now);
                self.made(cpu, made)?;
            }
        }
        self.os.lock(pages, on).map_err(|_| Denied::Unmapped)?;
        self.cpus[cpu].time += self.costs.calls.page_ns * NS * (pages.bytes() / PAGE_SIZE);
        let kind = if on { PageEventKind::Locked } else { PageEventKind::Unlocked };
        let time = Time(self.cpus[cpu].time / NS);
        self.os.events.push(PageEvent { time, range: pages, kind });
        Ok(())
    }

    /// madvise(2) with `MADV_DONTNEED`.
    fn discard(&mut self, cpu: usize, pages: Range) -> Result<(), Denied> {
        let now = Time(self.cpus[cpu].time / NS);
        let stale = self.os.discard(pages, now).map_err(|_| Denied::Unmapped)?;
        self.armed.forget(&pages);
        self.cpus[cpu].time += self.costs.calls.page_ns * NS * stale.pages;
        let cost = self.shoot_from(cpu, stale);
        self.cpus[cpu].time += cost;
        Ok(())
    }
}
