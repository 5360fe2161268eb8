//! What an exact machine is built from.

use std::time::Duration;

use tierscope_core::{Error, ErrorKind, Result};
use tierscope_hw::{Machine as Hardware, PageSize};
use tierscope_workloads::Work;

use crate::config::{Costs, Event, Sampling};
use crate::placement::Placement;

/// How much of the machine is modelled. What is left out costs nothing, here and there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Detail {
    /// TLBs, paging-structure caches, walks, page faults; an access takes its cycles, no more.
    Translation,
    /// And the last-level cache with its prefetcher, for data and page-table entries.
    Caches,
    /// And tiers with their latency and bandwidth.
    Whole,
}

/// The parts of a machine.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The hardware.
    pub hardware: Hardware,
    /// What software costs.
    pub costs: Costs,
    /// How much is modelled.
    pub detail: Detail,
    /// Cores (hardware threads) in use; each has an MMU of its own.
    pub cpus: u32,
    /// The first tier is a cache of the second.
    pub memory_mode: bool,
    /// How accesses are sampled, if at all.
    pub sampling: Option<Sampling>,
    /// Page tables of level 1 that fit into the uncached region (PTAT: 65,536, 256 MB); 0 for none.
    pub uncached_tables: u32,
    /// The core that the profiler shares with the target; `None` if it has one of its own.
    pub profiler_cpu: Option<u32>,
    /// The kernel's timer tick on a core that runs; `None` for none. What the kernel touches then
    /// (its text, per-CPU data, direct map, stacks, page descriptors: an entry of the top table each)
    /// is more than the paging-structure caches hold of upper levels, so they forget. Without it the
    /// entries above a small working set stay cached for ever, and look old.
    pub tick: Option<Duration>,
    /// Time between two flushes of all TLBs and paging-structure caches, as the lab's flusher makes
    /// them; `None` for never. Nobody is charged. The first comes after half of it, so that the
    /// flusher is not in step with whoever looks as often.
    pub flush: Option<Duration>,
    /// How far the clocks of cores drift apart before the one behind goes on.
    pub quantum: Duration,
}

impl Setup {
    /// One core, everything modelled, nothing sampled.
    #[must_use]
    pub fn new(hardware: Hardware, costs: Costs) -> Self {
        Self {
            hardware,
            costs,
            detail: Detail::Whole,
            cpus: 1,
            memory_mode: false,
            sampling: None,
            uncached_tables: 0,
            profiler_cpu: None,
            // CONFIG_HZ of 250, the default.
            tick: Some(Duration::from_millis(4)),
            flush: None,
            quantum: Duration::from_micros(10),
        }
    }

    /// Whether the parts fit together.
    pub(super) fn check(&self) -> Result<()> {
        self.hardware.check()?;
        let refuse = |what: String, cause: &str, remedy: &str| {
            Err(Error::new(ErrorKind::Usage, what).cause(cause).remedy(remedy))
        };
        let processor = &self.hardware.processor;
        let most = processor.sockets * processor.cores * processor.threads;
        if self.cpus == 0 || self.cpus > most {
            let cause = format!("machine {} has {most}", self.hardware.name);
            return refuse(
                format!("cannot simulate {} cores", self.cpus),
                &cause,
                "use from one to all",
            );
        }
        if self.profiler_cpu.is_some_and(|cpu| cpu >= self.cpus) {
            return refuse(
                "the profiler has no core".into(),
                "its core is not in use",
                "name one that is",
            );
        }
        let times = [Some(self.quantum), self.tick, self.flush];
        if times.into_iter().flatten().any(|time| time.is_zero()) {
            return refuse(
                "the quantum, the tick or the time between flushes is zero".into(),
                "no core would ever go on",
                "use 10 us, 4 ms and 5 ms",
            );
        }
        let misses = |sampling: &Sampling| sampling.events.contains(&Event::LoadMisses);
        if self.sampling.as_ref().is_some_and(misses) && self.detail < Detail::Caches {
            return refuse(
                "cannot sample cache misses".into(),
                "no cache is modelled",
                "model caches too, or sample loads and stores",
            );
        }
        Ok(())
    }
}

/// A process to start.
#[derive(Clone, Debug)]
pub struct Process {
    /// For people.
    pub name: String,
    /// What it does.
    pub work: Work,
    /// Threads; the first on core [`Process::first_cpu`], the others on those that follow, and from
    /// the first again.
    pub threads: u32,
    /// The core of the first thread.
    pub first_cpu: u32,
    /// Seed of its accesses.
    pub seed: u64,
    /// The pages of its areas.
    pub pages: PageSize,
    /// Where they come from.
    pub placement: Placement,
    /// Lines that a thread waits for at a time: 1 if each access needs the one before, as in a
    /// pointer chase; `None` for as many as the core has fill buffers.
    pub overlap: Option<u32>,
    /// Its stores go past the caches.
    pub non_temporal: bool,
    /// Its page tables of level 1 lie in the uncached region.
    pub uncached_tables: bool,
    /// All its pages are there from the beginning, and nobody touched them yet: old and clean.
    pub populate: bool,
    /// It begins again when its phases are over, or all its threads; else it exits.
    pub repeats: bool,
}

impl Process {
    /// A workload or program from core 0 on, with the threads that it wants, or one: 4 KiB pages, first touch, nothing populated, for ever.
    #[must_use]
    pub fn new(work: impl Into<Work>) -> Self {
        let work = work.into();
        Self {
            name: work.name().to_owned(),
            threads: work.threads(),
            non_temporal: work.is_non_temporal(),
            work,
            first_cpu: 0,
            seed: 1,
            pages: PageSize::K4,
            placement: Placement::FirstTouch,
            overlap: None,
            uncached_tables: false,
            populate: false,
            repeats: true,
        }
    }
}
