//! The machine as a whole.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tierscope_core::metrics::moves::Moved;
use tierscope_core::{
    Addr, BusObserver, Error, ErrorKind, HintFault, Level, Lost, Range, Result, SpaceId, Tier,
    TierUse, Time,
};
use tierscope_hw::{Machine as Hardware, PageSize};
use tierscope_wire::ptat::KernelEvent;

use super::armed::Armed;
use super::cpu::Cpu;
use super::log::Log;
use super::memory::Memory;
use super::mover::Moves;
use super::os::{Denied, Os, Stale};
use super::process::Running;
use super::quota::Quota;
use super::setup::{Detail, Process, Setup};
use super::space::Map;
use super::thread::Thread;
use super::tier::{NS, SECOND};
use crate::account::{Account, Spent};
use crate::config::Costs;
use crate::desk::Mover;
use crate::placement::Placement;

/// Costs of a core's operations, in ps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cycles {
    pub(super) access: u64,
    pub(super) second_tlb: u64,
    pub(super) llc: u64,
    pub(super) fill_buffers: u64,
    pub(super) walkers: u64,
    /// A fault on a reserved bit.
    pub(super) trap: u64,
}

impl Cycles {
    fn of(hardware: &Hardware, costs: &Costs) -> Self {
        let ps = |cycles: u32| u64::from(cycles) * 1_000_000 / u64::from(hardware.processor.mhz);
        let timing = &hardware.timing;
        Self {
            access: ps(timing.access_cycles),
            second_tlb: ps(timing.second_tlb_cycles),
            llc: ps(timing.llc_cycles),
            fill_buffers: timing.fill_buffers.into(),
            walkers: timing.walkers.into(),
            trap: costs.faults.trap_ns * NS,
        }
    }
}

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

    /// Starts a process: maps its areas and starts its threads now.
    ///
    /// # Errors
    /// The workload is invalid, or larger than the memory.
    pub fn start(&mut self, process: &Process) -> Result<SpaceId> {
        self.check(process)?;
        let space = self.os.create(&process.name, process.uncached_levels())?;
        self.os.spaces[space.0 as usize].trapped = process.trapped;
        let mut bases = Vec::new();
        for area in process.work.areas() {
            let pages = process.pages_of(&area.name);
            let apart = if process.area_pages.is_empty() { pages } else { PageSize::G1 };
            let bytes = area.bytes.next_multiple_of(pages.bytes());
            let map = Map {
                at: self.os.spaces[space.0 as usize].room(bytes, apart.bytes()),
                pages,
                placement: process.placement.clone(),
                name: area.name.as_str().into(),
                ..Map::anonymous(bytes)
            };
            let range = self.map(space, &map)?;
            bases.push(range.start);
            if process.watched.contains(&area.name) {
                self.os.watch(range);
            }
            if process.written {
                self.os.write_all(range)?.map_err(|denied| unpopulated(&range, denied))?;
            } else if process.populate {
                self.populate(range)?;
            }
        }
        self.os.tables.executes(self.os.spaces[space.0 as usize].root.table);
        self.start_threads(process, space, bases);
        Ok(space)
    }

    /// Whether a process could be started: a cheap check before anything runs.
    ///
    /// # Errors
    /// The reason why it could not.
    pub fn check(&self, process: &Process) -> Result<()> {
        let what = || format!("cannot start {}", process.name);
        process.work.check().map_err(|cause| Error::new(ErrorKind::Usage, what()).cause(cause))?;
        let refuse = |cause: String, remedy: &str| {
            Err(Error::new(ErrorKind::Usage, what()).cause(cause).remedy(remedy))
        };
        let areas = process.work.areas();
        let named = process.area_pages.iter().map(|(name, _)| name).chain(&process.watched);
        let strange = |name: &&String| areas.iter().all(|area| area.name != **name);
        if let Some(name) = named.into_iter().find(strange) {
            let names: Vec<&str> = areas.iter().map(|area| area.name.as_str()).collect();
            return refuse(
                format!("it has no area `{name}`"),
                &format!("choose from {}", names.join(", ")),
            );
        }
        if !process.watched.is_empty() && !process.uncached_tables {
            return refuse(
                "areas of it are to be watched, and its page tables are not in the uncached region"
                    .into(),
                "keep its tables there too: they tell where its areas lie",
            );
        }
        if process.threads == 0 || process.first_cpu as usize >= self.cpus.len() {
            return refuse(
                format!("{} threads from core {} on", process.threads, process.first_cpu),
                "use at least one thread, and a core that is there",
            );
        }
        if let Some(overlap) =
            process.overlap.filter(|n| !(1..=self.cycles.fill_buffers).contains(&u64::from(*n)))
        {
            return refuse(
                format!(
                    "a core waits for at most {} lines, not {overlap}",
                    self.cycles.fill_buffers
                ),
                "choose an overlap that the machine's fill_buffers allow",
            );
        }
        let tiers = 0..self.os.frames.tiers() as u8;
        let tier_is_there = |tier: &Tier| tiers.contains(&tier.0);
        let there = match &process.placement {
            Placement::FirstTouch => true,
            Placement::Bind(tier) => tier_is_there(tier),
            Placement::Interleave(list) => !list.is_empty() && list.iter().all(tier_is_there),
        };
        if !there {
            return refuse(
                "it is placed in a tier that is not there".into(),
                "see the machine's tiers",
            );
        }
        let usable = tiers.map(Tier).filter(|tier| !(self.memory_mode && tier.0 == 0));
        let room: u64 = usable.map(|tier| self.os.frames.capacity(tier) << 12).sum();
        let mapped = self.os.mapped() + process.work.bytes();
        if mapped > room {
            return refuse(
                format!("{} MiB are mapped in {} MiB of memory", mapped >> 20, room >> 20),
                "make the workload smaller or the tiers larger",
            );
        }
        Ok(())
    }

    /// Creates a space without mappings or threads, for single accesses ([`Machine::access`]).
    ///
    /// # Errors
    /// There are too many spaces.
    pub fn spawn(&mut self, name: &str, uncached_tables: bool) -> Result<SpaceId> {
        self.os.create(name, uncached_tables.into())
    }

    /// [`Machine::spawn`] with uncached tables: those whose entries map pages of up to that size.
    ///
    /// # Errors
    /// There are too many spaces.
    pub fn spawn_uncached(&mut self, name: &str, pages: PageSize) -> Result<SpaceId> {
        self.os.create(name, if pages == PageSize::K4 { 1 } else { 2 })
    }

    /// Maps memory (mmap(2)).
    ///
    /// # Errors
    /// The space is gone, or has no room of that size.
    pub fn map(&mut self, space: SpaceId, map: &Map) -> Result<Range> {
        self.os.map(space, map)
    }

    /// Unmaps memory (munmap(2)).
    ///
    /// # Errors
    /// The space is gone, or the range cuts a 1 GiB page.
    pub fn unmap(&mut self, range: Range) -> Result<()> {
        let stale = self.os.unmap(range, self.time())?;
        self.armed.forget(&range);
        self.shoot_for_kernel(stale);
        Ok(())
    }

    /// Ends a process: its threads stop, its memory is freed.
    ///
    /// # Errors
    /// The space is gone.
    pub fn exit(&mut self, space: SpaceId) -> Result<()> {
        let stale = self.os.destroy(space, self.time())?;
        self.armed.forget(&stale.range);
        self.forget_process(space);
        let (threads, asid) = (&self.threads, self.os.spaces[space.0 as usize].root.asid);
        for cpu in &mut self.cpus {
            cpu.threads.retain(|thread| threads[*thread].space != space);
            cpu.mmu.flush_asid(asid);
        }
        Ok(())
    }

    /// Allows or forbids stores (mprotect(2)).
    ///
    /// # Errors
    /// The space is gone, or the range cuts a 1 GiB page.
    pub fn protect(&mut self, range: Range, writable: bool) -> Result<()> {
        let stale = self.os.protect(range, writable)?;
        self.shoot_for_kernel(stale);
        Ok(())
    }

    /// Splits the huge pages that begin in the range; returns their number.
    ///
    /// # Errors
    /// The host has no memory.
    pub fn split(&mut self, range: Range) -> Result<u64> {
        let mut count = 0;
        for at in (range.start..range.end).step_by(PageSize::M2.bytes() as usize) {
            if let Some(stale) = self.os.split_at(range.space, at)? {
                self.shoot_for_kernel(stale);
                count += 1;
            }
        }
        Ok(count)
    }

    /// Collapses every 2 MiB of the range that can be collapsed; returns their number.
    pub fn collapse(&mut self, range: Range) -> u64 {
        let mut count = 0;
        for at in (range.start..range.end).step_by(PageSize::M2.bytes() as usize) {
            if let Ok(Some(stale)) = self.os.collapse_at(range.space, at) {
                self.shoot_for_kernel(stale);
                count += 1;
            }
        }
        count
    }

    /// Moves the pages of a range to a tier at once; returns the bytes moved. [`Machine::mover`]
    /// moves pages over time.
    pub fn migrate(&mut self, range: Range, tier: Tier) -> u64 {
        let mut stale = Stale::nothing(range);
        let (mut from, mut moved) = (range.start, 0);
        while let Some((linear, leaf)) = self.os.next_leaf(range, from) {
            let size = PageSize::of_level(leaf.level).expect("a leaf's");
            let there =
                self.os.frames.tier_of((leaf.entry & tierscope_hw::entry::FRAME_MASK) >> 12);
            if there != tier && self.os.move_leaf(range.space, leaf, tier).is_some() {
                stale.add(size);
                moved += size.bytes();
            }
            from = linear + size.bytes();
        }
        self.shoot_for_kernel(stale);
        moved
    }

    /// Allocates every missing page of a range, old and clean.
    ///
    /// # Errors
    /// There is no memory left, or a part of the range is not mapped.
    pub fn populate(&mut self, range: Range) -> Result<()> {
        self.os.populate(range)?.map_err(|denied| unpopulated(&range, denied))
    }

    /// Executes one access of a core immediately, like the next access of a thread of that space.
    ///
    /// # Errors
    /// The access is denied.
    pub fn access(&mut self, cpu: usize, at: Addr, store: bool) -> Result<u64, Denied> {
        self.access_at_once(cpu, at, store)
    }

    /// The MMU of a core that [`Machine::access`] uses.
    #[must_use]
    pub fn mmu(&self, cpu: usize) -> &tierscope_hw::Mmu {
        &self.cpus[cpu].mmu
    }

    /// Flushes a core's cached translations of a space, as a context switch without ASIDs would.
    pub fn flush(&mut self, cpu: usize, space: SpaceId) {
        if let Some(space) = self.os.space(space) {
            self.cpus[cpu].mmu.flush_asid(space.root.asid);
        }
    }

    /// The bus observer, after delivery of all records up to now.
    pub fn observer(&mut self) -> &mut B {
        self.tell_tables(0);
        self.memory.bus.flush(Time(u64::MAX), true);
        &mut self.memory.bus.observer
    }

    /// Kernel events of tables in the uncached region since the last call, and the number of events
    /// lost to a full log ([`Setup::watch_tables`]).
    pub fn told(&mut self, out: &mut Vec<KernelEvent>) -> Lost {
        self.tell_tables(0);
        self.os.tables.told(out)
    }

    /// Successful walks by space, level and number of the first 4 KiB of the page: the machine's
    /// own count, kept only with [`Setup::watch_tables`].
    #[must_use]
    pub fn walks(&self) -> BTreeMap<(SpaceId, Level, u64), u64> {
        let mut all = BTreeMap::new();
        for walks in self.cpus.iter().filter_map(|cpu| cpu.walks.as_deref()) {
            walks.counts.iter().for_each(|(page, count)| *all.entry(*page).or_default() += count);
        }
        all
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
        self.os.unused.account()
    }

    /// Counters and times spent so far.
    #[must_use]
    pub fn account(&self) -> Account {
        let mut account = Account {
            lines_read: self.memory.lines[0],
            lines_written: self.memory.lines[1],
            mean_waits: self.memory.mean_waits(),
            spent: self.spent,
            done: self.done(),
            table_bytes: self.os.tables.bytes(),
            uncached_overflows: self.os.tables.overflowed(),
            killed: self.killed,
            flushes: self.flushes,
            ..Account::default()
        };
        for cpu in &self.cpus {
            account.counts.add(&cpu.counts);
            let busy = cpu.time.saturating_sub(cpu.idle + cpu.stolen);
            account.spent.target += duration(busy);
            account.spent.interrupts += duration(cpu.stolen);
            if busy > 0 {
                account.spent.paced += duration(cpu.idle);
            }
        }
        account
    }

    pub(super) fn time(&self) -> Time {
        Time(self.now / NS)
    }
}

pub(super) fn duration(ps: u64) -> Duration {
    Duration::new(ps / SECOND, (ps % SECOND / NS) as u32)
}

fn unpopulated(range: &Range, denied: Denied) -> Error {
    Error::new(ErrorKind::Usage, format!("cannot populate {range}"))
        .cause(match denied {
            Denied::OutOfMemory => "the memory that its placement allows is full",
            Denied::Unmapped | Denied::ReadOnly => "it is not mapped",
        })
        .remedy("make the workload smaller, or place it elsewhere")
}
