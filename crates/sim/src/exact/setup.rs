//! Configuration of an exact machine.

use std::time::Duration;

use serde::Deserialize;
use tierscope_core::{Error, ErrorKind, Result};
use tierscope_hw::{Machine as Hardware, PageSize};
use tierscope_wire::ptat::Window;
use tierscope_workloads::Work;
use tierscope_workloads::description::Area;

use super::layout::{TableLayout, tier_frames};
use crate::config::{Costs, Event, Sampling};
use crate::placement::{Placement, WATERMARK_SCALE, Watermarks};

/// Level of detail of the model. Omitted parts cost no time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Detail {
    /// TLBs, paging-structure caches, walks and page faults; an access takes only its cycles.
    Translation,
    /// Adds the last-level cache with its prefetcher, for data and page-table entries.
    Caches,
    /// Adds the latency and bandwidth of tiers.
    Whole,
}

/// The parts of a machine.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The hardware.
    pub hardware: Hardware,
    /// Costs of software.
    pub costs: Costs,
    /// Level of detail.
    pub detail: Detail,
    /// Cores (hardware threads) in use; each has an MMU of its own.
    pub cpus: u32,
    /// Memory mode: the first tier is a cache of the second.
    pub memory_mode: bool,
    /// Distance between a tier's watermarks, in 1/10,000 of it (`vm.watermark_scale_factor`).
    pub watermark_scale: u32,
    /// KiB reserved for the kernel, over all tiers (`vm.min_free_kbytes`); `None` for the kernel's
    /// default.
    pub min_free_kib: Option<u64>,
    /// How accesses are sampled; `None` for no sampling.
    pub sampling: Option<Sampling>,
    /// Number of page tables that fit into the uncached region, each with a control block of the
    /// same size (PTAT, section 4.1.2: 32,768 in 256 MB); 0 for none.
    pub uncached_tables: u32,
    /// The kernel reports its changes to the uncached region as events, and its reads and writes
    /// there cross the bus, at a cost.
    pub watch_tables: bool,
    /// The accesses that memory serves are counted by page
    /// ([`Machine::take_misses`](super::Machine::take_misses)).
    pub count_misses: bool,
    /// The core that the profiler shares with the target; `None` if it has one of its own.
    pub profiler_cpu: Option<u32>,
    /// Period of the timer tick on a running core; `None` for no tick. Without it the entries above
    /// a small working set stay cached forever, and look old.
    pub tick: Option<Duration>,
    /// Time between two flushes of all TLBs and paging-structure caches, like those of the lab's
    /// flusher; `None` for never. Flushes cost no time. The first one happens after half the
    /// period, so that the flusher is not in step with an instrument of the same period.
    pub flush: Option<Duration>,
    /// Largest drift between core clocks before the core that is behind runs.
    pub quantum: Duration,
}

impl Setup {
    /// Physical ranges of the tiers, the fastest first: first byte and end. For bus observers.
    #[must_use]
    pub fn physical(&self) -> Vec<(u64, u64)> {
        let bytes = |(first, frames): (u64, u64)| (first << 12, (first + frames) << 12);
        tier_frames(&self.hardware.tiers).map(bytes).collect()
    }

    /// One core, everything modelled, nothing sampled.
    #[must_use]
    pub fn new(hardware: Hardware, costs: Costs) -> Self {
        Self {
            hardware,
            detail: Detail::Whole,
            cpus: 1,
            memory_mode: false,
            watermark_scale: WATERMARK_SCALE,
            min_free_kib: None,
            sampling: None,
            uncached_tables: 0,
            watch_tables: false,
            count_misses: false,
            profiler_cpu: None,
            tick: Some(Duration::from_micros(costs.tick.period_us)),
            flush: None,
            quantum: Duration::from_micros(10),
            costs,
        }
    }

    /// The uncached region and the window of tags ([`Setup::watch_tables`]).
    #[must_use]
    pub fn watched(&self) -> (Window, Window) {
        let bits = self.hardware.processor.physical_bits;
        let layout = TableLayout::new(bits, self.uncached_tables);
        (layout.region(), layout.tags())
    }

    /// Whether the parts fit together.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn check(&self) -> Result<()> {
        self.hardware.check()?;
        let refuse = |what: String, cause: &str, remedy: &str| {
            Err(Error::new(ErrorKind::Usage, what).cause(cause).remedy(remedy))
        };
        let most = self.hardware.processor.cpus();
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
                "no core would make progress",
                "use 10 us, 4 ms and 5 ms",
            );
        }
        if self.watch_tables && (self.uncached_tables == 0 || self.detail < Detail::Caches) {
            return refuse(
                "cannot watch page tables".into(),
                "there is no uncached region, or nothing crosses the bus",
                "make room for tables in the uncached region, and model caches too",
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

    /// The tiers that pages may come from; in memory mode the first tier is a cache, and not among
    /// them.
    fn usable(&self) -> impl Iterator<Item = usize> + '_ {
        usize::from(self.memory_mode)..self.hardware.tiers.len()
    }

    /// The watermarks of every tier.
    pub(super) fn watermarks(&self) -> Vec<Watermarks> {
        let (tiers, caches) = (&self.hardware.tiers, usize::from(self.memory_mode));
        Watermarks::of_tiers(tiers, caches, self.watermark_scale, self.min_free_kib)
    }

    /// Whether all processes fit into the machine together, including page tables; checked before
    /// anything runs.
    ///
    /// # Errors
    /// The index of the first process that does not fit, and the reason.
    pub fn admits(&self, processes: &[Process]) -> Result<(), (usize, Error)> {
        let marks = self.watermarks();
        let mut bound = vec![0; self.hardware.tiers.len()];
        let mut mapped = 0;
        for (index, process) in processes.iter().enumerate() {
            let refuse = |cause: String, remedy: &str| {
                let what = format!("process {} does not fit", process.name);
                Err((index, Error::new(ErrorKind::Usage, what).cause(cause).remedy(remedy)))
            };
            if process.threads == 0 || process.first_cpu >= self.cpus {
                let cause = format!(
                    "{} threads from core {} on, of {} cores",
                    process.threads, process.first_cpu, self.cpus
                );
                return refuse(cause, "use at least one thread, and a core that the machine has");
            }
            let buffers = self.hardware.timing.fill_buffers;
            if process.overlap.is_some_and(|lines| !(1..=buffers).contains(&lines)) {
                let cause = format!("a core waits for 1 to {buffers} lines at a time");
                return refuse(cause, "choose an overlap within that");
            }
            let bytes = process.needs();
            mapped += bytes;
            if let Placement::Bind(tier) = process.placement {
                let tier = usize::from(tier.0);
                if !self.usable().any(|usable| usable == tier) {
                    return refuse("its tier is a cache".into(), "bind it to another tier");
                }
                bound[tier] += bytes;
                let room = self.hardware.tiers[tier].mib << 20;
                if bound[tier] > room {
                    let cause = format!("{} MiB in a tier of {}", bound[tier] >> 20, room >> 20);
                    return refuse(cause, "make the workload smaller or the tier larger");
                }
            }
            let room =
                |tier: usize| (self.hardware.tiers[tier].mib << 20) - (marks[tier].min << 12);
            let room: u64 = self.usable().map(room).sum();
            if mapped > room {
                let cause = format!(
                    "with page tables {} MiB are mapped in {} MiB of memory",
                    mapped.div_ceil(1 << 20),
                    room >> 20
                );
                return refuse(cause, "make the workload smaller or the tiers larger");
            }
        }
        Ok(())
    }
}

/// A process to start.
#[derive(Clone, Debug)]
pub struct Process {
    /// Name, for reports.
    pub name: String,
    /// The workload.
    pub work: Work,
    /// Number of threads; the first runs on core [`Process::first_cpu`], the others on the cores
    /// after it, wrapping around to core 0.
    pub threads: u32,
    /// The core of the first thread.
    pub first_cpu: u32,
    /// Seed of the process's accesses.
    pub seed: u64,
    /// Page size of the process's areas.
    pub pages: PageSize,
    /// Tiers that the process's pages come from.
    pub placement: Placement,
    /// Lines that a thread waits for at a time: 1 if each access depends on the previous one, as in
    /// a pointer chase; `None` for all fill buffers of the core.
    pub overlap: Option<u32>,
    /// The process's stores bypass the caches.
    pub non_temporal: bool,
    /// The process's level-1 tables are in the uncached region; with larger pages, its level-2
    /// tables too.
    pub uncached_tables: bool,
    /// Names of areas whose 4 KiB pages are placed in the uncached region as far as there is room,
    /// so that a bus monitor sees every access to them (PTAT, section 7).
    pub watched: Vec<String>,
    /// Entries that map its pages have a reserved bit set, so that each walk to one ends in a
    /// fault, at which the kernel counts a TLB miss and loads the translation (BadgerTrap):
    /// [`Machine::trapped`](super::Machine::trapped). Requires [`Detail::Caches`].
    pub trapped: bool,
    /// Areas whose page size differs from [`Process::pages`], by name. Each area begins at a GiB
    /// boundary then, so that no level-2 table maps pages of two sizes.
    pub area_pages: Vec<(String, PageSize)>,
    /// All pages are present from the beginning without an access: old and clean.
    pub populate: bool,
    /// All its pages are present from the beginning and written to: young and dirty, as a program
    /// leaves memory that it initialised.
    pub written: bool,
    /// The process restarts when its phases are over, or all its threads have ended; otherwise it
    /// exits.
    pub repeats: bool,
}

impl Process {
    /// Bytes of the process when fully resident: whole pages, and level-1 tables.
    fn needs(&self) -> u64 {
        let need = |area: &Area| {
            let pages = self.pages_of(&area.name);
            let bytes = area.bytes.next_multiple_of(pages.bytes());
            bytes + if pages == PageSize::K4 { bytes.div_ceil(2 << 20) << 12 } else { 0 }
        };
        self.work.areas().iter().map(need).sum()
    }

    /// The page size of an area.
    pub(super) fn pages_of(&self, area: &str) -> PageSize {
        if self.watched.iter().any(|name| name == area) {
            return PageSize::K4;
        }
        let own = self.area_pages.iter().find(|(name, _)| name == area);
        own.map_or(self.pages, |(_, pages)| *pages)
    }

    /// Highest level of the process's tables in the uncached region.
    pub(super) fn uncached_levels(&self) -> u8 {
        let sizes = self.work.areas().iter().map(|area| self.pages_of(&area.name));
        let huge = sizes.max().unwrap_or(self.pages) > PageSize::K4;
        u8::from(self.uncached_tables) * (1 + u8::from(huge))
    }

    /// A workload or program from core 0 on, with its own number of threads, or one: 4 KiB pages,
    /// first touch, nothing populated, repeated forever.
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
            watched: Vec::new(),
            trapped: false,
            area_pages: Vec::new(),
            populate: false,
            written: false,
            repeats: true,
        }
    }
}
