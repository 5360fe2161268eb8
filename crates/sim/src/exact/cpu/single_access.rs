//! A single access of a core, outside of the main loop.

use tierscope_core::{Access, Addr, BusObserver};

use super::execute::{ExecuteContext, Executor};
use super::translate::{CacheBypass, TranslateContext, Translated, enqueue};
use crate::exact::mm::Denied;
use crate::exact::{Detail, Machine};

impl<B: BusObserver> Machine<B> {
    /// Implements [`Machine::access`].
    pub(in crate::exact) fn access_at_once(
        &mut self,
        at: usize,
        addr: Addr,
        store: bool,
    ) -> Result<u64, Denied> {
        let Some(space) = self.os.space(addr.space) else { return Err(Denied::Unmapped) };
        let root = space.root;
        self.os.spaces[addr.space.0 as usize].cpus.insert(at);
        let access = if store { Access::Store } else { Access::Load };
        self.count_walks_of(at, addr.space);
        loop {
            self.report_table_events(at);
            let translated =
                self.cpus[at].mmu.translate(&mut self.os.tables, root, addr.at, access);
            let Ok((page, source)) = translated else {
                self.fault(at, addr, store)?;
                continue;
            };
            let physical = page.physical(addr.at);
            let (linear, stores, depends) = (addr.at, store, false);
            let done = Translated { page, linear, source, stores, depends };
            match (self.detail, self.cpus[at].pmu.is_some()) {
                (Detail::Translation, false) => self.finish::<false, false, false>(at, addr, done),
                (Detail::Translation, true) => self.finish::<false, false, true>(at, addr, done),
                (Detail::Caches, false) => self.finish::<true, false, false>(at, addr, done),
                (Detail::Caches, true) => self.finish::<true, false, true>(at, addr, done),
                (Detail::Whole, false) => self.finish::<true, true, false>(at, addr, done),
                (Detail::Whole, true) => self.finish::<true, true, true>(at, addr, done),
            }
            return Ok(physical);
        }
    }

    /// Executes one translated access.
    fn finish<const CACHE: bool, const CLOCK: bool, const SAMPLES: bool>(
        &mut self,
        at: usize,
        addr: Addr,
        done: Translated,
    ) {
        let Self { os, cpus, memory, cycles, .. } = self;
        let cpu = &mut cpus[at];
        let root = os.spaces[addr.space.0 as usize].root;
        let (trapped, region) = os.traps_and_data_window(addr.space);
        let bypass = CacheBypass::new(false, region);
        let executing =
            ExecuteContext::new(addr.space, 1, bypass, cycles).with_traps(trapped, cycles);
        let (llc, layout) = (memory.llc.as_ref(), os.tables.layout);
        let translating =
            TranslateContext { root, bypass, llc, layout, promotion_reuse: &os.promotion_reuse };
        enqueue::<CACHE, SAMPLES>(cpu, &translating, done);
        os.promotion_reuse.reach(&mut cpu.reached);
        let mut executor = Executor { memory, tables: &mut os.tables, cycles, at };
        if CACHE || SAMPLES {
            executor.execute::<CACHE, CLOCK, SAMPLES>(cpu, &executing);
        } else {
            cpu.time += cycles.access;
        }
        cpu.counts.accesses += 1;
    }
}
