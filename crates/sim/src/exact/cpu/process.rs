//! Processes: their threads begin, wait for each other, make system calls and end.

use std::sync::Arc;

use tierscope_core::{BusObserver, SpaceId};
use tierscope_workloads::{App, Program, Stream, Work};

use super::thread::{Source, Thread, ThreadConfig, ThreadRequest};
use crate::account::Done;
use crate::exact::{Machine, Process};
use crate::latency::Latencies;

/// A process that was started.
pub(in crate::exact) struct Running {
    space: SpaceId,
    name: String,
    unit: &'static str,
    /// First thread of the process, and number of threads, ended ones included.
    first: usize,
    threads: usize,
    /// Number of running threads.
    alive: usize,
    /// Threads that wait for the others.
    waiting: Vec<usize>,
    /// Steps of all threads together, by which threads notice each other's progress.
    steps: u64,
    /// Operations completed in earlier runs.
    before: u64,
    /// State for the next run, which begins when all threads have ended.
    again: Option<Again>,
}

/// Inputs of a program's next run.
struct Again {
    app: Arc<dyn App>,
    bases: Vec<u64>,
    /// Seed of the next run.
    seed: u64,
}

impl<B: BusObserver> Machine<B> {
    /// Starts the threads of a process whose areas are mapped.
    pub(in crate::exact) fn start_threads(
        &mut self,
        process: &Process,
        space: SpaceId,
        bases: Vec<u64>,
    ) {
        let count = process.threads as usize;
        let sources = sources(process, &bases);
        let again = match &process.work {
            Work::Computed(app) if process.repeats => {
                Some(Again { app: Arc::clone(app), bases, seed: process.seed.wrapping_add(1) })
            }
            _ => None,
        };
        let root = self.os.spaces[space.0 as usize].root;
        let number = self.processes.len();
        self.processes.push(Running {
            space,
            name: process.name.clone(),
            unit: process.work.unit(),
            first: self.threads.len(),
            threads: count,
            alive: count,
            waiting: Vec::new(),
            steps: 0,
            before: 0,
            again,
        });
        for (lane, source) in sources.into_iter().enumerate() {
            let cpu = (process.first_cpu as usize + lane) % self.cpus.len();
            let config = ThreadConfig {
                space,
                process: number,
                cpu,
                root,
                overlap: process.overlap.map_or(self.cycles.fill_buffers, u64::from),
                non_temporal: process.non_temporal,
                threads: process.threads.into(),
                began: self.now,
                repeats: process.repeats,
            };
            self.os.spaces[space.0 as usize].cpus.insert(cpu);
            self.threads.push(Thread::new(config, source));
            self.put_on_core(self.threads.len() - 1, self.now);
        }
    }

    /// Makes a thread runnable, from `now` on at the earliest.
    fn put_on_core(&mut self, thread: usize, now: u64) {
        let cpu = &mut self.cpus[self.threads[thread].cpu];
        if cpu.threads.is_empty() {
            cpu.idle_until(now);
        }
        cpu.threads.push_back(thread);
    }

    /// Handles a request of the first thread of a core.
    pub(super) fn serve(&mut self, at: usize, thread: usize, request: ThreadRequest) {
        match request {
            ThreadRequest::Wait => self.wait_for_others(at, thread),
            ThreadRequest::Sleep(due) => self.threads[thread].sleep(due),
            ThreadRequest::End => self.thread_ends(at, thread),
            ThreadRequest::Call(call) => {
                let space = self.threads[thread].space;
                match self.call(at, space, call) {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => self.kill(space),
                    Err(error) => self.broken = Some(error),
                }
            }
        }
    }

    /// Takes the thread from its core, unless another thread has advanced since its last request.
    fn wait_for_others(&mut self, at: usize, thread: usize) {
        let process = &mut self.processes[self.threads[thread].process];
        let seen = std::mem::replace(&mut self.threads[thread].seen, process.steps);
        if seen == process.steps {
            process.waiting.push(thread);
            self.cpus[at].threads.pop_front();
        }
    }

    /// A thread advanced: makes the waiting threads of its process runnable. Returns whether there
    /// were any.
    pub(super) fn wake(&mut self, at: usize, thread: usize) -> bool {
        let now = self.cpus[at].time;
        let process = &mut self.processes[self.threads[thread].process];
        process.steps += 1;
        self.threads[thread].seen = process.steps;
        let waiting = std::mem::take(&mut process.waiting);
        waiting.iter().for_each(|waiting| self.put_on_core(*waiting, now));
        !waiting.is_empty()
    }

    /// The first thread of a core ends; after the last one its process exits or begins again.
    pub(super) fn thread_ends(&mut self, at: usize, thread: usize) {
        self.cpus[at].threads.pop_front();
        let number = self.threads[thread].process;
        let process = &mut self.processes[number];
        process.alive -= 1;
        if process.alive > 0 {
            return;
        }
        if process.again.is_some() {
            self.begin_again(number, self.cpus[at].time);
        } else {
            let space = process.space;
            self.exit(space).expect("its last thread has just ended");
        }
    }

    fn begin_again(&mut self, number: usize, now: u64) {
        let process = &mut self.processes[number];
        let threads = process.first..process.first + process.threads;
        let Some(again) = &mut process.again else { return };
        process.before += self.threads[threads.clone()].iter().map(Thread::operations).sum::<u64>();
        process.alive = process.threads;
        let lanes = again.app.start(&again.bases, again.seed, process.threads as u32);
        again.seed = again.seed.wrapping_add(1);
        for (thread, lane) in threads.zip(lanes) {
            self.threads[thread].restart(lane, now);
            self.put_on_core(thread, now);
        }
    }

    /// Kills a process: an access was denied, or no memory is left.
    pub(super) fn kill(&mut self, space: SpaceId) {
        self.killed += 1;
        self.exit(space).expect("its thread ran");
    }

    /// Removes a process: none of its threads waits or begins again.
    pub(in crate::exact) fn forget_process(&mut self, space: SpaceId) {
        for process in self.processes.iter_mut().filter(|process| process.space == space) {
            process.waiting.clear();
            process.again = None;
        }
    }

    /// Work completed by each process.
    pub(in crate::exact) fn done(&self) -> Vec<Done> {
        let done = |process: &Running| {
            let threads = &self.threads[process.first..process.first + process.threads];
            let operations = threads.iter().map(Thread::operations).sum::<u64>();
            let mut took = Latencies::default();
            threads.iter().for_each(|thread| took.add(&thread.operations.took));
            Done {
                space: process.space,
                name: process.name.clone(),
                unit: process.unit,
                operations: process.before + operations,
                latency: took.percentiles(),
            }
        };
        self.processes.iter().map(done).collect()
    }
}

/// Sources of the accesses of a process's threads.
fn sources(process: &Process, bases: &[u64]) -> Vec<Source> {
    let (seed, threads) = (process.seed, process.threads);
    match &process.work {
        Work::Described(workload) => {
            let program = Arc::new(Program::new(workload));
            let workload = Arc::new(workload.clone());
            let stream = |lane| Stream::new(&program, bases, seed, lane, threads);
            (0..threads)
                .map(|lane| Source::Described(Arc::clone(&workload), stream(lane)))
                .collect()
        }
        Work::Computed(app) => {
            let lanes = app.start(bases, seed, threads);
            lanes.into_iter().map(Source::Computed).collect()
        }
    }
}
