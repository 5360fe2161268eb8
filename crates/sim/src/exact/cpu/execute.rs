//! Execution of translated accesses: one after another through caches, memory and bus, each at its
//! cost in time.

use tierscope_core::{Access, Addr, BusObserver, Sample, SpaceId, Tier, Time};
use tierscope_hw::Source;

use super::core::Cpu;
use super::cycles::Cycles;
use super::divisor::Divisor;
use super::in_flight::Pending;
use super::translate::CacheBypass;
use crate::config::Event;
use crate::exact::memory::{CacheResult, LinePlace, Memory};
use crate::exact::mm::Tables;
use crate::exact::units::NS;

/// The space whose accesses are executed, and the costs that depend on its thread.
#[derive(Clone, Copy)]
pub(super) struct ExecuteContext {
    pub(super) space: SpaceId,
    pub(super) bypass: CacheBypass,
    /// The core waits for several lines at a time, and so do its page walkers.
    lines: Divisor,
    walks: Divisor,
    /// Latency of a last-level cache hit, divided by that overlap.
    line_in_cache: u64,
    walk_in_cache: u64,
    /// Extra cost of a walk to an entry with a reserved bit set, in ps; 0 if walks are not trapped.
    pub(super) trap: u64,
}

impl ExecuteContext {
    pub(super) fn new(space: SpaceId, overlap: u64, bypass: CacheBypass, cycles: &Cycles) -> Self {
        let lines = Divisor::new(overlap);
        let walks = Divisor::new(cycles.walkers.min(overlap));
        let (line_in_cache, walk_in_cache) = (lines.divide(cycles.llc), walks.divide(cycles.llc));
        Self { space, bypass, lines, walks, line_in_cache, walk_in_cache, trap: 0 }
    }

    /// The same thread; adds the cost of the trap if its walks are trapped.
    pub(super) fn with_traps(self, trapped: bool, cycles: &Cycles) -> Self {
        Self { trap: if trapped { cycles.trap } else { 0 }, ..self }
    }
}

pub(super) struct Executor<'a, B> {
    pub(super) memory: &'a mut Memory<B>,
    pub(super) tables: &'a mut Tables,
    pub(super) cycles: &'a Cycles,
    /// The core's number.
    pub(super) at: usize,
}

impl<B: BusObserver> Executor<'_, B> {
    /// Executes the accesses in flight.
    #[inline(always)]
    pub(super) fn execute<const CACHE: bool, const CLOCK: bool, const SAMPLES: bool>(
        &mut self,
        cpu: &mut Cpu,
        context: &ExecuteContext,
    ) {
        let mut reads = 0;
        for index in 0..cpu.in_flight.count {
            let pending = cpu.in_flight.pending[index];
            cpu.time += self.cycles.access * u64::from(pending.plain);
            let mut stall = 0;
            let mut served = None;
            if CACHE {
                if CLOCK && pending.source == Source::L2 {
                    stall += self.cycles.second_tlb;
                }
                for read in 0..usize::from(pending.reads) {
                    let (entry, marks) =
                        (cpu.in_flight.reads[reads], pending.marks >> read & 1 == 1);
                    stall += self.walk_read::<CLOCK>(cpu, context, entry, marks);
                    reads += 1;
                }
                if !pending.private {
                    let (time, tier) = self.data::<CLOCK>(cpu, context, &pending);
                    stall += time;
                    served = tier;
                    if let Some(misses) = &mut cpu.misses
                        && served.is_some()
                    {
                        misses.count(context.space, pending.linear);
                    }
                }
            }
            cpu.time += if CLOCK { stall.max(self.cycles.access) } else { self.cycles.access };
            if context.trap > 0 && pending.source == Source::Walk {
                cpu.trap::<CLOCK>(context.space, context.trap);
            }
            if SAMPLES {
                sample(cpu, context, self.at, &pending, served);
            }
        }
        cpu.time += self.cycles.access * u64::from(cpu.in_flight.plain);
        cpu.in_flight.clear();
    }

    /// A walk reads an entry, through the cache unless its table is uncached, and may set a flag in
    /// it. Returns the time that the core stalls.
    #[inline(always)]
    fn walk_read<const CLOCK: bool>(
        &mut self,
        cpu: &mut Cpu,
        context: &ExecuteContext,
        entry: LinePlace,
        marks: bool,
    ) -> u64 {
        let address = entry.address;
        let reached = if self.tables.layout.is_uncached(address) {
            let served = self.memory.read::<CLOCK>(cpu.time, address, self.at);
            if marks {
                self.memory.write::<CLOCK>(cpu.time, address, self.at);
            }
            CacheResult::Miss(served)
        } else {
            self.memory.access::<CLOCK>(cpu.time, entry, marks, self.at)
        };
        match reached {
            CacheResult::Hit => context.walk_in_cache,
            CacheResult::Miss(served) => {
                cpu.counts.walk_misses += 1;
                context.walks.divide(served.time())
            }
        }
    }

    /// The access itself, after a miss in the core's private caches. Returns the time that the core
    /// stalls, and the tier if the access went to memory.
    #[inline(always)]
    fn data<const CLOCK: bool>(
        &mut self,
        cpu: &mut Cpu,
        context: &ExecuteContext,
        pending: &Pending,
    ) -> (u64, Option<u8>) {
        let physical = pending.line.address;
        if context.bypass.applies_to(physical, pending.stores) {
            let physical = context.bypass.bus_address(physical);
            if !pending.stores {
                // Uncached reads do not overlap (Intel SDM volume 3, section 12.3, strong
                // uncacheable).
                let served = self.memory.read::<CLOCK>(cpu.time, physical, self.at);
                cpu.counts.served[usize::from(served.tier)] += 1;
                return (served.time(), Some(served.tier));
            }
            let served = self.memory.store_bypassing::<CLOCK>(cpu.time, physical, self.at);
            cpu.counts.served[usize::from(served.tier)] += 1;
            return (context.lines.divide(served.time()), Some(served.tier));
        }
        let reached = self.memory.access::<CLOCK>(cpu.time, pending.line, pending.stores, self.at);
        self.memory.prefetch::<CLOCK>(cpu.time, pending.line.address, self.at);
        match reached {
            CacheResult::Hit => {
                cpu.counts.llc_hits += 1;
                (context.line_in_cache, None)
            }
            CacheResult::Miss(served) => {
                cpu.counts.served[usize::from(served.tier)] += 1;
                (context.lines.divide(served.time()), Some(served.tier))
            }
        }
    }
}

/// Counts the access, and takes the samples that are due.
#[inline(always)]
fn sample(
    cpu: &mut Cpu,
    context: &ExecuteContext,
    at: usize,
    pending: &Pending,
    served: Option<u8>,
) {
    let Some(pmu) = &mut cpu.pmu else { return };
    let (event, access) =
        if pending.stores { (Event::Stores, Access::Store) } else { (Event::Loads, Access::Load) };
    let retired = pmu.count(event);
    let missed = served.is_some() && !pending.stores && pmu.count(Event::LoadMisses);
    if !(retired || missed) {
        return;
    }
    let sample = Sample {
        time: Time(cpu.time / NS),
        at: Addr { space: context.space, at: pending.linear },
        access,
        core: at as u32,
        tier: served.map(Tier),
    };
    let mut cost = 0;
    if retired {
        cost += pmu.take(event, cpu.time, sample);
    }
    if missed {
        cost += pmu.take(Event::LoadMisses, cpu.time, sample);
    }
    cpu.steal(cost);
}
