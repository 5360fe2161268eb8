//! The machine as a whole.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tierscope_core::metrics::moves::Moved;
use tierscope_core::{
    BusObserver, Error, HintFault, Lost, PAGE_SHIFT, RegisterWork, Result, SpaceId, Tier, TierUse,
    Time,
};
use tierscope_wire::ptat::KernelEvent;

use super::cpu::{Cpu, Cycles, Quota, Running, Thread};
use super::log::Log;
use super::memory::Memory;
use super::mm::Os;
use super::ports::{Armed, Moves};
use super::setup::{Detail, Setup};
use super::units::{NS, duration};
use crate::account::{Account, Counts, Spent};
use crate::config::Costs;
use crate::look::LookPrice;
use crate::mover::Mover;

/// A simulated machine; `B` observes its memory bus.
pub struct Machine<B = ()> {
    pub(super) os: Os,
    pub(super) cpus: Vec<Cpu>,
    pub(super) threads: Vec<Thread>,
    pub(super) processes: Vec<Running>,
    /// CPU quotas, of processes that have one.
    pub(super) quotas: BTreeMap<SpaceId, Quota>,
    pub(super) memory: Memory<B>,
    pub(super) costs: Costs,
    pub(super) price: LookPrice,
    pub(super) detail: Detail,
    pub(super) cycles: Cycles,
    pub(super) quantum: u64,
    pub(super) profiler_cpu: Option<usize>,
    pub(super) memory_mode: bool,
    /// The profiler's clock, in ps: the machine's current time.
    pub(super) now: u64,
    pub(super) spent: Spent,
    pub(super) armed: Armed,
    pub(super) hint_faults: Log<HintFault>,
    pub(super) moves: Moves,
    pub(super) tiers: Vec<TierUse>,
    pub(super) killed: u64,
    pub(super) flushes: u64,
    /// Probes of page-table entries, and entries visited by scans.
    pub(super) looks: u64,
    pub(super) scanned: u64,
    pub(super) samples: u64,
    pub(super) armed_pages: u64,
    pub(super) registers: RegisterWork,
    /// The error that ended the run: the host has no memory.
    pub(super) broken: Option<Error>,
    pub(super) stop: Option<Arc<AtomicBool>>,
}

impl Machine {
    /// A machine without processes or bus observer.
    ///
    /// # Errors
    /// The parts of the setup contradict each other.
    pub fn new(setup: &Setup) -> Result<Self> {
        Self::observed(setup, ())
    }
}

impl<B: BusObserver> Machine<B> {
    /// A machine without processes.
    ///
    /// # Errors
    /// The parts of the setup contradict each other.
    pub fn observed(setup: &Setup, observer: B) -> Result<Self> {
        setup.check()?;
        let os = Os::new(setup)?;
        let firsts: Vec<u64> = os.frames.firsts().collect();
        let mut memory = Memory::new(&setup.hardware, &firsts, setup.memory_mode, observer)?;
        memory.bus.ordered = setup.watch_tables;
        let cpus = (0..setup.cpus).map(|_| Cpu::new(setup)).collect::<Result<Vec<Cpu>>>()?;
        Ok(Self {
            os,
            cpus,
            threads: Vec::new(),
            processes: Vec::new(),
            quotas: BTreeMap::new(),
            memory,
            costs: setup.costs.clone(),
            price: LookPrice::new(&setup.hardware, &setup.costs),
            detail: setup.detail,
            cycles: Cycles::of(&setup.hardware, &setup.costs),
            quantum: setup.quantum.as_nanos() as u64 * NS,
            profiler_cpu: setup.profiler_cpu.map(|cpu| cpu as usize),
            memory_mode: setup.memory_mode,
            now: 0,
            spent: Spent::default(),
            armed: Armed::default(),
            hint_faults: Log::default(),
            moves: Moves::new(&setup.costs.moves),
            tiers: Vec::new(),
            killed: 0,
            flushes: 0,
            looks: 0,
            scanned: 0,
            samples: 0,
            armed_pages: 0,
            registers: RegisterWork::default(),
            broken: None,
            stop: None,
        })
    }

    /// Sets the flag by which the user stops the run; it is checked whenever time passes.
    #[must_use]
    pub fn with_stop(mut self, stop: Arc<AtomicBool>) -> Self {
        self.stop = Some(stop);
        self
    }

    /// The bus observer, after delivery of all records up to now.
    pub fn observer(&mut self) -> &mut B {
        self.report_table_events(0);
        self.memory.bus.flush(Time(u64::MAX), true);
        &mut self.memory.bus.observer
    }

    /// Kernel events of tables in the uncached region since the last call, and the number of events
    /// lost to a full log ([`Setup::watch_tables`]).
    pub fn kernel_events(&mut self, out: &mut Vec<KernelEvent>) -> Lost {
        self.report_table_events(0);
        self.os.tables.drain_events(out)
    }

    /// Ends the machine; returns the bus observer after delivery of all records.
    #[must_use]
    pub fn into_observer(mut self) -> B {
        let _ = self.observer();
        self.memory.bus.observer
    }

    /// A handle that executes actions on this machine, in the time of a kernel thread.
    #[must_use]
    pub fn mover(&self) -> Mover {
        self.moves.handle()
    }

    /// Pages moved so far by the mover, and whether they were accessed afterwards.
    #[must_use]
    pub fn moved(&self) -> Moved {
        self.os.promotion_reuse.account()
    }

    /// Counters of all cores.
    pub(super) fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for cpu in &self.cpus {
            counts.add(&cpu.counts);
            counts.stalled += cpu.window.stalled;
        }
        counts
    }

    /// Counters and times spent so far.
    #[must_use]
    pub fn account(&self) -> Account {
        let mut account = Account {
            counts: self.counts(),
            lines_read: self.memory.lines[0],
            lines_written: self.memory.lines[1],
            mean_waits: self.memory.mean_waits(),
            spent: self.spent,
            done: self.done(),
            table_bytes: self.os.tables.bytes(),
            uncached_overflows: self.os.tables.overflowed(),
            killed: self.killed,
            flushes: self.flushes,
            looks: self.looks,
            scanned: self.scanned,
            samples: self.samples,
            armed: self.armed_pages,
            registers: self.registers,
        };
        for cpu in &self.cpus {
            let busy = cpu.time.saturating_sub(cpu.idle + cpu.stolen);
            account.spent.target += duration(busy);
            account.spent.interrupts += duration(cpu.stolen);
            if busy > 0 {
                account.spent.paced += duration(cpu.idle);
            }
        }
        account
    }

    /// Bytes of each tier that processes' pages have, or may take above its low watermark.
    #[must_use]
    pub fn room(&self) -> Vec<u64> {
        let tiers = (0..self.os.frames.tiers()).map(|tier| Tier(tier as u8));
        let room = tiers.map(|tier| {
            let held = self.os.spaces.iter().map(|space| space.resident[usize::from(tier.0)]);
            let free = self.os.frames.free(tier) + held.sum::<u64>();
            free.saturating_sub(self.os.frames.watermarks(tier).low) << PAGE_SHIFT
        });
        room.collect()
    }

    pub(super) fn time(&self) -> Time {
        Time(self.now / NS)
    }
}
