//! Time passes: cores carry out the accesses of their threads, the one that is behind first.

use tierscope_core::{Access, Addr, BusObserver, HintFault, Sample, SpaceId, Tier, Time};
use tierscope_hw::{Cache, PageTable, Source};

use super::cpu::{Cpu, Pending, WINDOW};
use super::machine::{Cycles, Machine};
use super::memory::{Memory, Reached};
use super::os::{Denied, Resolved};
use super::tables::Tables;
use super::thread::{Asks, FORESEEN, Op, Thread};
use super::tier::NS;
use crate::config::Event;
use crate::exact::Detail;

/// Accesses between the host's prefetch of an entry and the walk that needs it.
const AHEAD: usize = 16;
const _: () = assert!(WINDOW + 2 * AHEAD <= FORESEEN);
/// How long a thread runs while others wait for its core: `base_slice_ns` of the kernel's scheduler
/// on a server (kernel/sched/fair.c).
const TURN: u64 = 3_000_000 * NS;
/// In the address of an entry that a walk read: it also set a flag there.
const MARKED: u64 = 1;

/// Why a core stopped before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stopped {
    /// It did not.
    Limit,
    /// The thread has nothing to do until then.
    NotDue(u64),
    /// The thread's workload goes on with another segment.
    Segment,
    /// A page fault.
    Fault(Op),
    /// The thread got on: others of its process may wait for that.
    GotOn,
    /// The thread's accesses are carried out, and it asks for this.
    Asks(Asks),
}

impl<B: BusObserver> Machine<B> {
    /// Lets everybody run until `until`, or until a process ends.
    pub(super) fn run_until(&mut self, mut until: u64) {
        let spaces = self.os.alive_spaces();
        while self.broken.is_none() {
            let Some((cpu, limit)) = self.next_turn(until) else { break };
            match cpu {
                Some(cpu) => self.turn(cpu, limit),
                None => self.step_mover(),
            }
            if self.os.alive_spaces() < spaces {
                until = cpu.map_or(until, |cpu| self.cpus[cpu].time.min(until));
                break;
            }
        }
        let behind =
            self.cpus.iter().filter(|cpu| !cpu.threads.is_empty()).map(|cpu| cpu.time).min();
        self.now = behind.unwrap_or(until).min(until).max(self.now);
        self.memory.bus.flush(Time(self.now / NS), false);
    }

    /// Who is behind, and how far it may go: until a little past the next one. `None` of a core is
    /// the mover.
    fn next_turn(&self, until: u64) -> Option<(Option<usize>, u64)> {
        let mut first = (u64::MAX, None);
        let mut second = u64::MAX;
        let cpus = self.cpus.iter().enumerate().filter(|(_, cpu)| !cpu.threads.is_empty());
        let agents = cpus.map(|(at, cpu)| (cpu.time, Some(at)));
        for agent in agents.chain(self.moves.due(self.now).map(|time| (time, None))) {
            if agent.0 < first.0 {
                second = first.0;
                first = agent;
            } else {
                second = second.min(agent.0);
            }
        }
        let limit = until.min(second.saturating_add(self.quantum));
        (first.0 < until).then_some((first.1, limit))
    }

    /// Lets a core run until `limit`.
    fn turn(&mut self, at: usize, limit: u64) {
        while self.broken.is_none() {
            self.schedule(at);
            let cpu = &mut self.cpus[at];
            cpu.interrupts();
            let Some(thread) = cpu.threads.front().copied() else { return };
            if cpu.time >= limit {
                return;
            }
            let until = if cpu.threads.len() > 1 { limit.min(cpu.turn_ends) } else { limit };
            let until = until.min(cpu.interrupted_at());
            match self.slice(at, thread, until) {
                Stopped::Limit => {}
                Stopped::NotDue(due) => self.not_due(at, due, limit),
                Stopped::Segment => {
                    if !self.threads[thread].enter(self.cpus[at].time) {
                        self.thread_ends(at, thread);
                    }
                }
                Stopped::Fault(op) => self.thread_fault(at, thread, op),
                Stopped::GotOn if self.wake(at, thread) => return,
                Stopped::GotOn => {}
                Stopped::Asks(asks) => self.answer(at, thread, asks),
            }
        }
    }

    /// Gives the core to the next thread when the first had its turn.
    fn schedule(&mut self, at: usize) {
        let cpu = &mut self.cpus[at];
        if cpu.threads.len() > 1 && cpu.time >= cpu.turn_ends {
            cpu.threads.rotate_left(1);
            cpu.turn_ends = cpu.time + TURN;
        }
    }

    /// The first thread has to wait: another goes on, or none.
    fn not_due(&mut self, at: usize, due: u64, limit: u64) {
        let (cpu, threads) = (&mut self.cpus[at], &self.threads);
        let ready = |thread: &usize| threads[*thread].due <= cpu.time;
        if let Some(next) = cpu.threads.iter().position(ready) {
            cpu.threads.rotate_left(next);
            return;
        }
        let dues = cpu.threads.iter().map(|thread| threads[*thread].due);
        cpu.idle_until(dues.min().unwrap_or(due).min(limit));
    }

    fn slice(&mut self, at: usize, thread: usize, until: u64) -> Stopped {
        match (self.detail, self.cpus[at].pmu.is_some()) {
            (Detail::Translation, false) => self.run::<false, false, false>(at, thread, until),
            (Detail::Translation, true) => self.run::<false, false, true>(at, thread, until),
            (Detail::Caches, false) => self.run::<true, false, false>(at, thread, until),
            (Detail::Caches, true) => self.run::<true, false, true>(at, thread, until),
            (Detail::Whole, false) => self.run::<true, true, false>(at, thread, until),
            (Detail::Whole, true) => self.run::<true, true, true>(at, thread, until),
        }
    }

    /// The inner loop: a window of accesses is translated, then carried out, then the next.
    fn run<const CACHE: bool, const CLOCK: bool, const SAMPLES: bool>(
        &mut self,
        at: usize,
        thread: usize,
        until: u64,
    ) -> Stopped {
        let Self { os, cpus, threads, memory, cycles, .. } = self;
        let (cpu, thread) = (&mut cpus[at], &mut threads[thread]);
        let mut below = Below { memory, tables: &mut os.tables, cycles, at };
        while cpu.time < until {
            if cpu.time >= thread.segment_ends {
                return Stopped::Segment;
            }
            let allowed = match allowed(thread, cpu.time) {
                0 => return Stopped::NotDue(thread.due),
                count => count,
            };
            if thread.is_dry() {
                look_back(cpu);
                thread.draw(cpu.time);
                if thread.got_on() {
                    return Stopped::GotOn;
                }
            }
            let wanted = allowed.min(thread.left()).min(WINDOW);
            if let Some(asks) = (wanted == 0).then(|| thread.take_asks()).flatten() {
                return Stopped::Asks(asks);
            }
            let root = thread.root;
            let ops = thread.ops();
            let done = translate::<CACHE>(cpu, below.tables, root, ops, wanted);
            if CACHE || SAMPLES {
                below.carry_out::<CACHE, CLOCK, SAMPLES>(cpu, thread, done);
            } else {
                cpu.time += below.cycles.access * done as u64;
            }
            cpu.counts.accesses += done as u64;
            let fault = (done < wanted).then(|| thread.ops()[done]);
            thread.done(done);
            thread.due += thread.pace * done as u64;
            if let Some(op) = fault {
                return Stopped::Fault(op);
            }
        }
        Stopped::Limit
    }

    /// Resolves a page fault of a thread.
    fn thread_fault(&mut self, at: usize, thread: usize, op: Op) {
        let space = self.threads[thread].space;
        let addr = Addr { space, at: op.linear() };
        if self.fault(at, addr, op.stores()).is_err() {
            self.kill(space);
        }
    }

    /// Resolves a page fault: the core pays.
    fn fault(&mut self, at: usize, addr: Addr, stores: bool) -> Result<(), Denied> {
        self.os.tables.forget_marked();
        let now = Time(self.cpus[at].time / NS);
        let resolved = match self.os.fault(addr.space, addr.at, stores, now) {
            Ok(resolved) => resolved?,
            Err(error) => {
                self.broken = Some(error);
                return Err(Denied::OutOfMemory);
            }
        };
        let (cpu, costs) = (&mut self.cpus[at], &self.costs.faults);
        match resolved {
            Resolved::Spurious => {}
            Resolved::Page(size) => {
                cpu.counts.first_touches[size as usize] += 1;
                let [small, huge] = [costs.small_ns, costs.huge_ns];
                cpu.time += NS * [small, huge, 512 * huge][size as usize];
            }
            Resolved::Hint => {
                cpu.counts.hint_faults += 1;
                cpu.steal(costs.hint_ns * NS);
                let armed = self.armed.when(addr.space, addr.at).unwrap_or(now);
                let access = if stores { Access::Store } else { Access::Load };
                let core = at as u32;
                self.hint_faults.push(HintFault { time: now, armed, at: addr, access, core });
            }
        }
        Ok(())
    }

    /// See [`Machine::access`].
    pub(super) fn access_at_once(
        &mut self,
        at: usize,
        addr: Addr,
        store: bool,
    ) -> Result<u64, Denied> {
        let Some(space) = self.os.space(addr.space) else { return Err(Denied::Unmapped) };
        let root = space.root;
        self.os.spaces[addr.space.0 as usize].cpus.insert(at);
        let access = if store { Access::Store } else { Access::Load };
        loop {
            let cpu = &mut self.cpus[at];
            match cpu.mmu.translate(&mut self.os.tables, root, addr.at, access) {
                Ok((page, source)) => {
                    let physical = page.physical(addr.at);
                    keep::<true>(
                        cpu,
                        &mut self.os.tables,
                        0,
                        0,
                        Pending { physical, linear: addr.at, source, stores: store, reads: 0 },
                    );
                    self.carry_out_one(at, addr.space);
                    return Ok(physical);
                }
                Err(_) => self.fault(at, addr, store)?,
            }
        }
    }

    fn carry_out_one(&mut self, at: usize, space: SpaceId) {
        let Self { os, cpus, memory, cycles, detail, .. } = self;
        let cpu = &mut cpus[at];
        let mut below = Below { memory, tables: &mut os.tables, cycles, at };
        let who = Who { space, overlap: 1, non_temporal: false };
        match (*detail, cpu.pmu.is_some()) {
            (Detail::Translation, false) => cpu.time += below.cycles.access,
            (Detail::Translation, true) => below.window::<false, false, true>(cpu, who, 1),
            (Detail::Caches, false) => below.window::<true, false, false>(cpu, who, 1),
            (Detail::Caches, true) => below.window::<true, false, true>(cpu, who, 1),
            (Detail::Whole, false) => below.window::<true, true, false>(cpu, who, 1),
            (Detail::Whole, true) => below.window::<true, true, true>(cpu, who, 1),
        }
        cpu.counts.accesses += 1;
    }
}

/// Accesses that the thread may make at `now`.
#[inline(always)]
fn allowed(thread: &Thread, now: u64) -> usize {
    if thread.due > now {
        return 0;
    }
    if thread.pace == 0 {
        return usize::MAX;
    }
    ((now - thread.due) / thread.pace + 1) as usize
}

/// Decides anew whether prefetching for the host pays: it does after many walks.
fn look_back(cpu: &mut Cpu) {
    let walks = cpu.mmu.walks();
    cpu.ahead = walks - cpu.walks_seen > 16;
    cpu.walks_seen = walks;
}

/// Translates up to `wanted` accesses; returns how many there were before one faulted.
#[inline(always)]
fn translate<const KEEP: bool>(
    cpu: &mut Cpu,
    tables: &mut Tables,
    root: tierscope_hw::Root,
    ops: &[Op],
    wanted: usize,
) -> usize {
    let mut reads = 0;
    for (index, op) in ops[..wanted].iter().enumerate() {
        if cpu.ahead {
            tables.foresee(root, ops[index + 2 * AHEAD].linear());
            tables.expect(root, ops[index + AHEAD].linear());
        }
        let access = if op.stores() { Access::Store } else { Access::Load };
        let Ok((page, source)) = cpu.mmu.translate(tables, root, op.linear(), access) else {
            return index;
        };
        let physical = page.physical(op.linear());
        let pending =
            Pending { physical, linear: op.linear(), source, stores: op.stores(), reads: 0 };
        reads += keep::<KEEP>(cpu, tables, index, reads, pending);
    }
    wanted
}

/// Keeps a translated access for when it is carried out; returns how many entries its walk read.
#[inline(always)]
fn keep<const KEEP: bool>(
    cpu: &mut Cpu,
    tables: &mut Tables,
    index: usize,
    first: usize,
    mut pending: Pending,
) -> usize {
    match pending.source {
        Source::L1 => {}
        Source::L2 => cpu.counts.second_tlb_hits += 1,
        Source::Walk => {
            let read = cpu.mmu.last_reads().as_slice();
            cpu.counts.walks += 1;
            cpu.counts.walk_reads += read.len() as u64;
            if KEEP {
                let kept = &mut cpu.window.reads[first..][..read.len()];
                kept.copy_from_slice(read);
                pending.reads = read.len() as u8;
                for marked in tables.marked() {
                    kept.iter_mut().filter(|at| **at == *marked).for_each(|at| *at |= MARKED);
                }
            }
            tables.forget_marked();
        }
    }
    if KEEP {
        cpu.window.pending[index] = pending;
    }
    usize::from(pending.reads)
}

/// Whose accesses are carried out.
#[derive(Clone, Copy)]
struct Who {
    space: SpaceId,
    overlap: u64,
    non_temporal: bool,
}

/// What lies below the translation of a core.
struct Below<'a, B> {
    memory: &'a mut Memory<B>,
    tables: &'a mut Tables,
    cycles: &'a Cycles,
    at: usize,
}

impl<B: BusObserver> Below<'_, B> {
    #[inline(always)]
    fn carry_out<const CACHE: bool, const CLOCK: bool, const SAMPLES: bool>(
        &mut self,
        cpu: &mut Cpu,
        thread: &Thread,
        count: usize,
    ) {
        let Thread { space, overlap, non_temporal, .. } = *thread;
        self.window::<CACHE, CLOCK, SAMPLES>(cpu, Who { space, overlap, non_temporal }, count);
    }

    /// Carries out what was translated.
    #[inline(always)]
    fn window<const CACHE: bool, const CLOCK: bool, const SAMPLES: bool>(
        &mut self,
        cpu: &mut Cpu,
        who: Who,
        count: usize,
    ) {
        if CACHE && let Some(llc) = &self.memory.llc {
            self.foresee(llc, &cpu.window.pending[..count], &cpu.window.reads);
        }
        let mut reads = 0;
        for index in 0..count {
            let pending = cpu.window.pending[index];
            let mut stall = 0;
            let mut served = None;
            if CACHE {
                if CLOCK && pending.source == Source::L2 {
                    stall += self.cycles.second_tlb;
                }
                for at in reads..reads + usize::from(pending.reads) {
                    let read = cpu.window.reads[at];
                    stall += self.walk_read::<CLOCK>(cpu, who, read);
                }
                reads += usize::from(pending.reads);
                let (time, tier) = self.data::<CLOCK>(cpu, who, &pending);
                stall += time;
                served = tier;
            }
            cpu.time += if CLOCK { stall.max(self.cycles.access) } else { self.cycles.access };
            if SAMPLES {
                sample(cpu, who, self.at, &pending, served);
            }
        }
    }

    /// The host prefetches what the cache's model will look at.
    #[inline(always)]
    fn foresee(&self, llc: &Cache, pending: &[Pending], reads: &[u64]) {
        let mut read = 0;
        for pending in pending {
            read += usize::from(pending.reads);
            if pending.reads > 0 {
                llc.expect(reads[read - 1] & !MARKED);
            }
            llc.expect(pending.physical);
        }
    }

    /// A walk reads an entry, through the cache unless its table is uncached, and perhaps sets a
    /// flag in it. Returns the time that it stalls.
    #[inline(always)]
    fn walk_read<const CLOCK: bool>(&mut self, cpu: &mut Cpu, who: Who, read: u64) -> u64 {
        let (address, marks) = (read & !MARKED, read & MARKED != 0);
        let reached = if self.tables.is_uncached(address) {
            let served = self.memory.read::<CLOCK>(cpu.time, address, self.at);
            if marks {
                self.memory.write::<CLOCK>(cpu.time, address, self.at);
            }
            Reached::Memory(served)
        } else {
            self.memory.access::<CLOCK>(cpu.time, address, marks, self.at)
        };
        match reached {
            Reached::Cache => self.cycles.llc / self.cycles.walkers.min(who.overlap),
            Reached::Memory(served) => {
                cpu.counts.walk_misses += 1;
                served.time() / self.cycles.walkers.min(who.overlap)
            }
        }
    }

    /// The access itself: the time that it stalls, and the tier if it went to memory.
    #[inline(always)]
    fn data<const CLOCK: bool>(
        &mut self,
        cpu: &mut Cpu,
        who: Who,
        pending: &Pending,
    ) -> (u64, Option<u8>) {
        if who.non_temporal && pending.stores {
            cpu.private.forget(pending.physical);
            let served = self.memory.store_past::<CLOCK>(cpu.time, pending.physical, self.at);
            cpu.counts.served[usize::from(served.tier)] += 1;
            return (served.time() / who.overlap, Some(served.tier));
        }
        if cpu.private.use_line(pending.physical, pending.stores) {
            return (0, None);
        }
        let reached =
            self.memory.access::<CLOCK>(cpu.time, pending.physical, pending.stores, self.at);
        self.memory.prefetch::<CLOCK>(cpu.time, pending.physical, self.at);
        match reached {
            Reached::Cache => {
                cpu.counts.llc_hits += 1;
                (self.cycles.llc / who.overlap, None)
            }
            Reached::Memory(served) => {
                cpu.counts.served[usize::from(served.tier)] += 1;
                (served.time() / who.overlap, Some(served.tier))
            }
        }
    }
}

/// Counts the access, and takes the samples that are due.
#[inline(always)]
fn sample(cpu: &mut Cpu, who: Who, at: usize, pending: &Pending, served: Option<u8>) {
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
        at: Addr { space: who.space, at: pending.linear },
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
