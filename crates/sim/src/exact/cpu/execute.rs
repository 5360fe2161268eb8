//! Execution of translated accesses: one after another through caches, memory and bus, each at its
//! cost in time.

use tierscope_core::{Access, Addr, BusObserver, Sample, SpaceId, Tier, Time};
use tierscope_hw::Source;

use super::core::Cpu;
use super::cycles::Cycles;
use super::in_flight::{Pending, WalkReads};
use super::translate::CacheBypass;
use crate::config::Event;
use crate::exact::memory::{CacheResult, Memory, Served};
use crate::exact::mm::Tables;
use crate::exact::units::{LINE, NS};

/// The space whose accesses are executed, and what its thread may overlap.
#[derive(Clone, Copy)]
pub(super) struct ExecuteContext {
    pub(super) space: SpaceId,
    pub(super) bypass: CacheBypass,
    /// Lines that the core waits for at a time, and walks.
    buffers: usize,
    walkers: usize,
    /// Each access depends on the one before.
    chases: bool,
    /// Extra cost of a walk to an entry with a reserved bit set, in ps; 0 if walks are not trapped.
    pub(super) trap: u64,
}

impl ExecuteContext {
    pub(super) fn new(space: SpaceId, overlap: u64, bypass: CacheBypass, cycles: &Cycles) -> Self {
        let walkers = cycles.walkers.min(overlap) as usize;
        Self { space, bypass, buffers: overlap as usize, walkers, chases: overlap == 1, trap: 0 }
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

/// Where the data of an access came from, and when they arrive.
struct Reached {
    done: u64,
    tier: Option<u8>,
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
            self.pass::<CLOCK>(cpu, u64::from(pending.plain));
            let mut served = None;
            if CACHE {
                served = self.access::<CLOCK>(cpu, context, &pending, reads);
                reads += usize::from(pending.walk.queued);
                if let Some(misses) = &mut cpu.misses
                    && served.is_some()
                {
                    misses.count(context.space, pending.linear);
                }
            }
            self.pass::<CLOCK>(cpu, 1);
            if context.trap > 0 && pending.source == Source::Walk {
                cpu.trap::<CLOCK>(context.space, context.trap);
            }
            if SAMPLES {
                sample(cpu, context, self.at, &pending, served);
            }
        }
        self.pass::<CLOCK>(cpu, u64::from(cpu.in_flight.plain));
        cpu.in_flight.clear();
    }

    /// Dispatches accesses.
    #[inline(always)]
    fn pass<const CLOCK: bool>(&self, cpu: &mut Cpu, accesses: u64) {
        cpu.time = match CLOCK {
            true => cpu.window.dispatch(cpu.time, accesses, self.cycles.access),
            false => cpu.time + accesses * self.cycles.access,
        };
    }

    /// Translates an access, whose walk's entries are queued from `reads` on, and fetches its line.
    /// Returns the tier if the access went to memory.
    #[inline(always)]
    fn access<const CLOCK: bool>(
        &mut self,
        cpu: &mut Cpu,
        context: &ExecuteContext,
        pending: &Pending,
        reads: usize,
    ) -> Option<u8> {
        let mut at = cpu.time;
        if CLOCK {
            at = cpu.window.begins(cpu.time, context.chases || pending.depends);
            cpu.time = cpu.window.follow(cpu.time, at);
        }
        if pending.source == Source::L2 {
            at += self.cycles.second_tlb;
        }
        if pending.source == Source::Walk {
            at = self.walk::<CLOCK>(cpu, context, (pending, reads), at);
        }
        let Reached { done, tier } = match pending.private {
            true => Reached { done: at, tier: None },
            false => self.data::<CLOCK>(cpu, context, pending, at),
        };
        if CLOCK {
            match pending.stores {
                true => cpu.time = cpu.window.store(cpu.time, done),
                false => cpu.window.load(cpu.time, done),
            }
        }
        tier
    }

    /// A walk reads its entries one after another, through the caches unless their table is
    /// uncached, and may set flags in them; those in the private caches come first here, which only
    /// shifts requests to memory by their few cycles. Returns the time of its end.
    ///
    /// A walk to an uncached table is not speculative (Intel SDM volume 3, section 12.3): it begins
    /// when all accesses before it have retired, and nothing younger begins before it ends.
    #[inline(always)]
    fn walk<const CLOCK: bool>(
        &mut self,
        cpu: &mut Cpu,
        context: &ExecuteContext,
        (pending, first): (&Pending, usize),
        at: u64,
    ) -> u64 {
        let (walker, free) = if CLOCK { cpu.window.walker(context.walkers) } else { (0, at) };
        let WalkReads { private, queued, marks } = pending.walk;
        let mut at = at.max(free) + u64::from(private) * self.cycles.private;
        for read in 0..usize::from(queued) {
            let (entry, marks) = (cpu.in_flight.reads[first + read], marks >> read & 1 == 1);
            if self.tables.layout.is_uncached(entry.address) {
                at = alone::<CLOCK>(cpu, at);
                at += self.read_uncached::<CLOCK>(cpu, entry.address, marks, at);
                cpu.counts.walk_misses += 1;
                cpu.time = if CLOCK { at } else { cpu.time };
                continue;
            }
            at += match self.memory.access::<CLOCK>((cpu.time, at), entry, marks, self.at) {
                CacheResult::Hit => self.cycles.llc,
                CacheResult::Miss(served) => {
                    cpu.counts.walk_misses += 1;
                    served.time()
                }
            };
        }
        if CLOCK {
            cpu.window.walks(walker, at);
        }
        at
    }

    fn read_uncached<const CLOCK: bool>(
        &mut self,
        cpu: &Cpu,
        address: u64,
        marks: bool,
        at: u64,
    ) -> u64 {
        let served = self.memory.read::<CLOCK>((cpu.time, at), address, self.at);
        if marks {
            self.memory.write::<CLOCK>((cpu.time, at), address, self.at);
        }
        served.time()
    }

    /// The access itself, after a miss in the core's private caches, from `at` on.
    #[inline(always)]
    fn data<const CLOCK: bool>(
        &mut self,
        cpu: &mut Cpu,
        context: &ExecuteContext,
        pending: &Pending,
        at: u64,
    ) -> Reached {
        let physical = pending.line.address;
        if context.bypass.applies_to(physical, pending.stores) {
            return self.bypass::<CLOCK>(cpu, context, pending, at);
        }
        let (buffer, at) = buffer::<CLOCK>(cpu, context, at);
        if CLOCK {
            cpu.time = cpu.window.follow(cpu.time, at);
        }
        let when = (cpu.time, at);
        let reached = self.memory.access::<CLOCK>(when, pending.line, pending.stores, self.at);
        let fetching = (&mut cpu.window, self.cycles.prefetches);
        self.memory.prefetch::<CLOCK>(when, pending.line.address, self.at, fetching);
        let reached = match reached {
            CacheResult::Hit => {
                cpu.counts.llc_hits += 1;
                let line = pending.line.address / LINE;
                let there = if CLOCK { cpu.window.arrival(line, at) } else { at };
                Reached { done: there + self.cycles.llc, tier: None }
            }
            CacheResult::Miss(served) => self.arrives(cpu, served, at),
        };
        if CLOCK {
            cpu.window.fills(buffer, reached.done);
        }
        reached
    }

    /// A line that was requested at `at` arrives from memory.
    #[inline(always)]
    fn arrives(&self, cpu: &mut Cpu, served: Served, at: u64) -> Reached {
        let tier = usize::from(served.tier);
        cpu.counts.served[tier] += 1;
        cpu.counts.outstanding[tier] += served.time();
        Reached { done: at + served.time(), tier: Some(served.tier) }
    }

    /// An access without the caches. Reads of uncached memory do not overlap with anything (Intel
    /// SDM volume 3, section 12.3, strong uncacheable); stores occupy a fill buffer until memory
    /// has accepted the line.
    fn bypass<const CLOCK: bool>(
        &mut self,
        cpu: &mut Cpu,
        context: &ExecuteContext,
        pending: &Pending,
        at: u64,
    ) -> Reached {
        let physical = context.bypass.bus_address(pending.line.address);
        if !pending.stores {
            let at = alone::<CLOCK>(cpu, at);
            let served = self.memory.read::<CLOCK>((cpu.time, at), physical, self.at);
            let reached = self.arrives(cpu, served, at);
            cpu.time = if CLOCK { reached.done } else { cpu.time };
            return reached;
        }
        let (buffer, at) = buffer::<CLOCK>(cpu, context, at);
        let served = self.memory.store_bypassing::<CLOCK>((cpu.time, at), physical, self.at);
        let reached = self.arrives(cpu, served, at);
        if CLOCK {
            cpu.window.fills(buffer, reached.done);
        }
        reached
    }
}

/// A fill buffer for a request at `at`, and the time from which on it is free. Without a clock,
/// buffers are not tracked.
#[inline(always)]
fn buffer<const CLOCK: bool>(cpu: &Cpu, context: &ExecuteContext, at: u64) -> (usize, u64) {
    if !CLOCK {
        return (0, at);
    }
    let (buffer, free) = cpu.window.buffer(context.buffers);
    (buffer, at.max(free))
}

/// Time of a request at `at` that overlaps with nothing before it.
#[inline(always)]
fn alone<const CLOCK: bool>(cpu: &mut Cpu, at: u64) -> u64 {
    if CLOCK { at.max(cpu.window.drain(cpu.time)) } else { at }
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
