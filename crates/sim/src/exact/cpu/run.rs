//! The main loop: cores execute the accesses of their threads, the one furthest behind first.

use tierscope_core::{BusObserver, Time};
use tierscope_workloads::Touch;

use super::core::Cpu;
use super::execute::{ExecuteContext, Executor};
use super::in_flight::MOST_IN_FLIGHT;
use super::thread::{LOOKAHEAD, Thread, ThreadRequest};
use super::translate::{CacheBypass, TranslateContext, translate};
use crate::exact::mm::Tables;
use crate::exact::units::NS;
use crate::exact::{Detail, Machine};

/// Time slice of a thread while others wait for its core: `base_slice_ns` of the kernel's scheduler
/// on a server (kernel/sched/fair.c).
const TURN: u64 = 3_000_000 * NS;

/// Why a core stopped before its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stopped {
    /// The core reached its time limit.
    Limit,
    /// The thread has nothing to do until then.
    NotDue(u64),
    /// The thread's workload enters another segment.
    Segment,
    /// A page fault.
    Fault(Touch),
    /// The thread advanced; other threads of its process may wait for that.
    Advanced,
    /// The thread's accesses are executed, and it makes this request.
    Request(ThreadRequest),
}

impl<B: BusObserver> Machine<B> {
    /// Runs all cores and the mover until `until`, or until a process ends.
    pub(in crate::exact) fn run_until(&mut self, mut until: u64) {
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

    /// The core or mover that is furthest behind, and its limit: slightly past the next one. `None`
    /// for the core means the mover.
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

    /// Runs a core until `limit`.
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
            let until = self.within_quota(at, thread, until);
            let since = self.cpus[at].time;
            let stopped = self.slice(at, thread, until);
            self.use_quota(at, thread, since);
            match stopped {
                Stopped::Limit => {}
                Stopped::NotDue(due) => self.not_due(at, due, limit),
                Stopped::Segment => {
                    if !self.threads[thread].enter(self.cpus[at].time) {
                        self.thread_ends(at, thread);
                    }
                }
                Stopped::Fault(op) => self.thread_fault(at, thread, op),
                Stopped::Advanced if self.wake(at, thread) => return,
                Stopped::Advanced => {}
                Stopped::Request(request) => self.serve(at, thread, request),
            }
        }
    }

    /// Rotates to the next thread when the time slice of the first is over.
    fn schedule(&mut self, at: usize) {
        let cpu = &mut self.cpus[at];
        if cpu.threads.len() > 1 && cpu.time >= cpu.turn_ends {
            cpu.threads.rotate_left(1);
            cpu.turn_ends = cpu.time + TURN;
        }
    }

    /// The first thread has to wait: switches to a ready thread, or idles.
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
        self.report_table_events(at);
        self.count_walks_of(at, self.threads[thread].space);
        match (self.detail, self.cpus[at].pmu.is_some()) {
            (Detail::Translation, false) => self.run::<false, false, false>(at, thread, until),
            (Detail::Translation, true) => self.run::<false, false, true>(at, thread, until),
            (Detail::Caches, false) => self.run::<true, false, false>(at, thread, until),
            (Detail::Caches, true) => self.run::<true, false, true>(at, thread, until),
            (Detail::Whole, false) => self.run::<true, true, false>(at, thread, until),
            (Detail::Whole, true) => self.run::<true, true, true>(at, thread, until),
        }
    }

    /// The inner loop: translates a batch of accesses, executes it, and repeats.
    fn run<const CACHE: bool, const CLOCK: bool, const SAMPLES: bool>(
        &mut self,
        at: usize,
        thread: usize,
        until: u64,
    ) -> Stopped {
        let Self { os, cpus, threads, memory, cycles, .. } = self;
        let (cpu, thread) = (&mut cpus[at], &mut threads[thread]);
        let Thread { space, root, overlap, non_temporal, .. } = *thread;
        let (trapped, region) = os.traps_and_data_window(space);
        let bypass = CacheBypass::new(non_temporal, region);
        let executing =
            ExecuteContext::new(space, overlap, bypass, cycles).with_traps(trapped, cycles);
        let layout = os.tables.layout;
        let mut executor = Executor { memory, tables: &mut os.tables, cycles, at };
        while cpu.time < until {
            if cpu.time >= thread.segment_ends {
                return Stopped::Segment;
            }
            let allowed = match allowed(thread, cpu.time) {
                0 => return Stopped::NotDue(thread.due),
                count => count,
            };
            if thread.is_dry() && draw(cpu, thread, executor.tables) {
                return Stopped::Advanced;
            }
            let left = thread.left();
            let mut wanted = allowed.min(left).min(MOST_IN_FLIGHT);
            if let Some(request) = (wanted == 0).then(|| thread.take_request()).flatten() {
                if CLOCK {
                    cpu.drain();
                }
                return Stopped::Request(request);
            }
            if !CACHE && !SAMPLES && thread.pace == 0 && left >= LOOKAHEAD {
                let ends = until.min(thread.segment_ends);
                wanted = MOST_IN_FLIGHT * batches(ends - cpu.time, cycles.access, left);
            }
            let llc = executor.memory.llc.as_ref();
            let translating = TranslateContext {
                root,
                bypass,
                llc,
                layout,
                promotion_reuse: &os.promotion_reuse,
            };
            wanted = wanted.min(thread.until_an_end());
            let ops = &thread.ops()[..wanted];
            let done = translate::<CACHE, SAMPLES>(cpu, executor.tables, &translating, ops);
            os.promotion_reuse.reach(&mut cpu.reached);
            if CACHE || SAMPLES {
                executor.execute::<CACHE, CLOCK, SAMPLES>(cpu, &executing);
            } else {
                cpu.time += executor.cycles.access * done as u64;
            }
            cpu.counts.accesses += done as u64;
            if CLOCK && (done < wanted || done == thread.until_an_end()) {
                // The kernel, or whatever asked for the operation, goes on with its result.
                cpu.drain();
            }
            let fault = (done < wanted).then(|| thread.ops()[done]);
            thread.done(done, cpu.time);
            thread.due += thread.pace * done as u64;
            if let Some(op) = fault {
                return Stopped::Fault(op);
            }
        }
        Stopped::Limit
    }
}

/// Draws accesses of a thread, and prefetches on the host the tables that they will walk. Returns
/// whether the thread advanced.
#[inline(always)]
fn draw(cpu: &mut Cpu, thread: &mut Thread, tables: &Tables) -> bool {
    let known = thread.left();
    thread.draw(cpu.time);
    if walks_often(cpu) {
        tables.prefetch_tables(thread.root, &thread.ops()[known..thread.left()]);
    }
    thread.take_advanced()
}

/// Number of batches, of accesses that all take `access`, that begin within `time` before new
/// accesses have to be drawn; at least one.
#[inline(always)]
fn batches(time: u64, access: u64, drawn: usize) -> usize {
    let until = time.div_ceil(access * MOST_IN_FLIGHT as u64);
    let drawn = (drawn - LOOKAHEAD) / MOST_IN_FLIGHT + 1;
    drawn.min(usize::try_from(until).unwrap_or(usize::MAX))
}

/// Number of accesses that the thread's pace allows at `now`.
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

/// Whether a core walked often since the last call, so that the host should prefetch.
#[inline(always)]
fn walks_often(cpu: &mut Cpu) -> bool {
    let walks = cpu.mmu.walks() - cpu.walks_seen;
    cpu.walks_seen += walks;
    walks > 16
}
