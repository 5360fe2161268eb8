//! Configuration of a density machine.

use std::time::Duration;

use serde::Deserialize;
use tierscope_core::{Error, ErrorKind, Level, LevelSet, PAGE_SIZE, Radix, Result};
use tierscope_hw::config::TlbArray;
use tierscope_hw::{Machine as Hardware, PageSize};

use super::swap::Swap;
use crate::config::{Costs, Sampling};
use crate::placement::{Placement, WATERMARK_SCALE};

/// State of the page tables at the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Start {
    /// Every entry is young, as after memory was populated.
    Young,
    /// Every entry is old, as after a first clearing pass.
    Cleared,
}

/// Parameters of the machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Seed of all draws.
    pub seed: u64,
    /// The hardware: times, caches and tiers. Its translation caches are replaced by the fields
    /// below.
    pub hardware: Hardware,
    /// Levels of the page table, and the levels whose ACCESSED bits may be used.
    pub radix: Radix,
    /// Cores that the target's accesses are spread over evenly, with one thread each.
    pub cores: u32,
    /// Lines that a thread waits for at a time; `None` for all fill buffers of the core.
    pub overlap: Option<u32>,
    /// All memory is in huge pages of 2 MiB until they are split, as with
    /// [`crate::exact::Process::pages`] of that size; areas are rounded up to whole ones.
    pub huge: bool,
    /// Tiers of the target's memory at the beginning.
    pub placement: Placement,
    /// See [`crate::exact::Setup::watermark_scale`].
    pub watermark_scale: u32,
    /// See [`crate::exact::Setup::min_free_kib`].
    pub min_free_kib: Option<u64>,
    /// The profiler runs on one of the target's cores instead of one of its own.
    pub shared_core: bool,
    /// Address of the first area; the others follow.
    pub first: u64,
    /// Number of 4 KiB translations in a core's first-level TLB, and in its TLBs together.
    pub tlb_pages: [u32; 2],
    /// Number of 2 MiB translations in a core's first-level TLB, and in its TLBs together.
    pub tlb_huge: [u32; 2],
    /// Number of entries in a core's paging-structure caches, by level number; 0 for no cache.
    pub upper_entries: [u32; 6],
    /// Associativity of those caches, by level number; 0 for full associativity.
    pub upper_ways: [u32; 6],
    /// Time between two flushes of all TLBs and paging-structure caches; `None` for never.
    pub flush: Option<Duration>,
    /// The kernel's timer tick, whose entries occupy ways of the paging-structure caches (see
    /// [`crate::exact::Setup::tick`] and `upper.rs`) without a flush; `None` for no tick.
    pub tick: Option<Duration>,
    /// Waits end at multiples of this: the profiler's thread is woken up on time, but is scheduled
    /// only at its next turn, as on a machine with busy CPUs. `None` for no delay.
    pub late: Option<Duration>,
    /// Accesses a second where the workload sets no rate; `None` for as many as possible. Caches
    /// and tiers limit the rate in any case.
    pub rate: Option<f64>,
    /// Bytes of a visit: a value of a store, read or written from its first byte to its last, where
    /// the workload's description has random accesses only. Applies to areas of at least [`VALUES`]
    /// visits.
    pub visit: Option<u64>,
    /// Time that a thread spends outside memory, for each access.
    pub pause: Duration,
    /// State of the page tables at the beginning.
    pub start: Start,
    /// Destination of reclaimed pages; `None` if pages cannot be reclaimed.
    pub swap: Option<Swap>,
    /// Threads that reclaim at once, each at the cost of `costs`.
    pub reclaimers: u32,
    /// Costs of probes, samples and faults.
    pub costs: Costs,
    /// How accesses are sampled; `None` if the machine has no sampling.
    pub sampling: Option<Sampling>,
}

/// Areas with at least this many visits' bytes consist of values; smaller ones are their index.
pub const VALUES: u64 = 1000;

/// Default accesses a second: the rate of the lab's toucher on a set of gigabytes.
const RATE: f64 = 3e6;
/// Default address of the first area: on a multiple of 2 MiB and of nothing larger, as the kernel
/// maps large anonymous memory (mm/huge_memory.c, `thp_get_unmapped_area`; since 6.7 for all).
const FIRST: u64 = (1 << 40) + (346 << 20);

impl Config {
    /// A machine with the translation caches of `hardware`. The second-level TLB determines the
    /// reach: it is taken to include the first where the hardware is not documented.
    #[must_use]
    pub fn of(hardware: &Hardware, costs: Costs) -> Self {
        let translation = &hardware.translation;
        let tlb = |size: PageSize| {
            let holds = |array: &&TlbArray| array.pages.contains(&size);
            let first = translation.l1.iter().find(holds).map_or(0, |array| array.entries);
            [first, translation.l2.iter().find(holds).map_or(first, |array| array.entries)]
        };
        let (mut upper_entries, mut upper_ways) = ([0; 6], [0; 6]);
        for array in &translation.psc {
            upper_entries[usize::from(array.level)] = array.entries;
            upper_ways[usize::from(array.level)] = array.ways;
        }
        Self {
            seed: 1,
            radix: radix(translation.levels),
            cores: 1,
            overlap: None,
            late: None,
            huge: false,
            placement: Placement::FirstTouch,
            watermark_scale: WATERMARK_SCALE,
            min_free_kib: None,
            shared_core: false,
            first: FIRST,
            tlb_pages: tlb(PageSize::K4),
            tlb_huge: tlb(PageSize::M2),
            upper_entries,
            upper_ways,
            flush: None,
            tick: Some(Duration::from_micros(costs.tick.period_us)),
            rate: Some(RATE),
            visit: None,
            pause: Duration::ZERO,
            start: Start::Cleared,
            swap: None,
            reclaimers: 1,
            costs,
            sampling: None,
            hardware: hardware.clone(),
        }
    }

    /// The level of leaf entries.
    pub(super) fn leaf(&self) -> Level {
        if self.huge { Level::PMD } else { Level::PTE }
    }

    /// Checks that the parameters are consistent.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`], naming the parameter.
    pub fn check(&self) -> Result<()> {
        let refuse = |what: &str, cause: &str, remedy: &str| {
            Err(Error::new(ErrorKind::Usage, what).cause(cause).remedy(remedy))
        };
        if self.cores == 0 {
            return refuse("cores", "no core accesses memory", "give at least 1");
        }
        if self.flush.is_some_and(|every| every < Duration::from_micros(1)) {
            return refuse("flush", "it is shorter than 1us", "try 5ms, or none");
        }
        if self.tick.is_some_and(|every| every < Duration::from_micros(1)) {
            return refuse("tick", "it is shorter than 1us", "try 4ms, or none");
        }
        if self.visit.is_some_and(|bytes| !(PAGE_SIZE..=u64::from(u32::MAX)).contains(&bytes)) {
            return refuse("visit", "it is not within 4 KiB..4 GiB", "leave it out");
        }
        if self.overlap == Some(0) {
            return refuse("overlap", "a thread has to wait for at least one line", "try 1");
        }
        if !self.first.is_multiple_of(PAGE_SIZE) {
            return refuse("first", "memory begins in the middle of a page", "try 0x100000000");
        }
        if self.rate.is_some_and(|rate| !(rate > 0.0 && rate <= 1e12)) {
            return refuse("rate", "it is not within 0..10^12 accesses a second", "try 3000000");
        }
        Ok(())
    }
}

/// All levels except the fifth are proven: the kernel module never touches that one.
pub(crate) fn radix(levels: u8) -> Radix {
    Radix { levels, proven: LevelSet::from_bits(0b1111) }
}
