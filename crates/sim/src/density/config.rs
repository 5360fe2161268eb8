//! What a machine of densities is made of.

use std::time::Duration;

use serde::Deserialize;
use tierscope_core::{Error, ErrorKind, Level, LevelSet, PAGE_SIZE, Radix, Result};
use tierscope_hw::config::TlbArray;
use tierscope_hw::{Machine as Hardware, PageSize};

use super::swap::Swap;
use crate::config::{Costs, Sampling};
use crate::placement::{Placement, WATERMARK_SCALE};

/// How page tables are found at the beginning.
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
    /// The hardware: times, caches and tiers. Its translation caches count as they stand below.
    pub hardware: Hardware,
    /// Levels of the page table, and which of them tell.
    pub radix: Radix,
    /// Cores that the target's accesses are spread over evenly, a thread on each.
    pub cores: u32,
    /// Lines that a thread waits for at a time; `None` for as many as the core has fill buffers.
    pub overlap: Option<u32>,
    /// All memory lies in huge pages of 2 MiB, until somebody splits them, as with
    /// [`crate::exact::Process::pages`] of that size: areas are rounded up to whole ones.
    pub huge: bool,
    /// Which tiers the target's memory lies in at the beginning.
    pub placement: Placement,
    /// As [`crate::exact::Setup::watermark_scale`].
    pub watermark_scale: u32,
    /// As [`crate::exact::Setup::min_free_kib`].
    pub min_free_kib: Option<u64>,
    /// The profiler runs on a core of the target's, and not on one of its own.
    pub shared_core: bool,
    /// Where the first area begins; the others follow.
    pub first: u64,
    /// 4 KiB translations that a core's first-level TLB holds, and its TLBs together.
    pub tlb_pages: [u32; 2],
    /// The same for translations of 2 MiB.
    pub tlb_huge: [u32; 2],
    /// Entries that a core's paging-structure caches hold, by level number; 0 for no cache.
    pub upper_entries: [u32; 6],
    /// Ways of their sets, by level number; 0 for a cache of one set.
    pub upper_ways: [u32; 6],
    /// Time between two flushes of all TLBs and paging-structure caches; `None` for never.
    pub flush: Option<Duration>,
    /// The kernel's timer tick, which takes places of the paging-structure caches (see
    /// [`crate::exact::Setup::tick`] and `upper.rs`) and flushes nothing; `None` for none.
    pub tick: Option<Duration>,
    /// Waits end at multiples of this: the thread that looks is woken up on time, and runs only when its turn has
    /// come, as on a machine whose CPUs are busy. `None` for on time.
    pub late: Option<Duration>,
    /// Accesses a second where the workload does not say; `None` for as fast as can be. Never more
    /// than caches and tiers allow.
    pub rate: Option<f64>,
    /// Bytes that are read or written in one go, from the first to the last, where a workload's description knows
    /// of accesses at random only: values of a store. Of areas that hold at least [`VALUES`] of them.
    pub visit: Option<u64>,
    /// Time that a thread spends on anything but memory, for each access.
    pub pause: Duration,
    /// How page tables are found.
    pub start: Start,
    /// Where pages go that are given back; `None` if they cannot be.
    pub swap: Option<Swap>,
    /// What probes, samples and faults cost.
    pub costs: Costs,
    /// How accesses are sampled; `None` for a machine that cannot.
    pub sampling: Option<Sampling>,
}

/// Areas with at least so many visits' bytes are made of values; smaller ones are what finds them.
pub const VALUES: u64 = 1000;

/// Accesses a second where nobody says: what the lab's toucher reaches on a set of gigabytes.
const RATE: f64 = 3e6;
/// Where the first area begins: on a multiple of 2 MiB and of nothing larger, as the kernel maps large
/// anonymous memory (mm/huge_memory.c, `thp_get_unmapped_area`; since 6.7 for all).
const FIRST: u64 = (1 << 40) + (346 << 20);

impl Config {
    /// A machine with the translation caches of `hardware`. The second-level TLB, which holds what the
    /// first does where nothing is known, tells the reach.
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
            costs,
            sampling: None,
            hardware: hardware.clone(),
        }
    }

    /// The level of leaves.
    pub(super) fn leaf(&self) -> Level {
        if self.huge { Level::PMD } else { Level::PTE }
    }

    /// Checks that the parameters make sense together.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`], naming the parameter.
    pub fn check(&self) -> Result<()> {
        let refuse = |what: &str, cause: &str, remedy: &str| {
            Err(Error::new(ErrorKind::Usage, what).cause(cause).remedy(remedy))
        };
        if self.cores == 0 {
            return refuse("cores", "nobody accesses memory", "give at least 1");
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
            return refuse("overlap", "a thread that waits for no line goes nowhere", "try 1");
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

/// All levels but the fifth are proven: the kernel module never touches that one.
pub(crate) fn radix(levels: u8) -> Radix {
    Radix { levels, proven: LevelSet::from_bits(0b1111) }
}
