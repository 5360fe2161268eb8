//! What a machine of densities is made of.

use std::time::Duration;

use tierscope_core::{Error, ErrorKind, LevelSet, Radix, Result};
use tierscope_hw::{Machine as Hardware, PageSize};

use crate::config::{Costs, Sampling};

/// How page tables are found at the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// Levels of the page table, and which of them tell.
    pub radix: Radix,
    /// Cores that the target's accesses are spread over evenly.
    pub cores: u32,
    /// 4 KiB translations that a core's TLBs hold.
    pub tlb_pages: u32,
    /// Entries that a core's paging-structure caches hold, by level number; 0 for no cache.
    pub upper_entries: [u32; 6],
    /// Time between two flushes of all TLBs and paging-structure caches; `None` for never.
    pub flush: Option<Duration>,
    /// Accesses a second where the workload does not say.
    pub rate: f64,
    /// How page tables are found.
    pub start: Start,
    /// What probes, samples and faults cost.
    pub costs: Costs,
    /// How accesses are sampled; `None` for a machine that cannot.
    pub sampling: Option<Sampling>,
}

/// Accesses a second where nobody says: what the lab's toucher reaches on a set of gigabytes.
const RATE: f64 = 3e6;

impl Config {
    /// A machine with the translation caches of `hardware`. The second-level TLB, which holds what the
    /// first does where nothing is known, tells the reach.
    #[must_use]
    pub fn of(hardware: &Hardware, costs: Costs) -> Self {
        let translation = &hardware.translation;
        let small = |array: &&tierscope_hw::config::TlbArray| array.pages.contains(&PageSize::K4);
        let reach = translation.l2.iter().find(small).or(translation.l1.iter().find(small));
        let mut upper_entries = [0; 6];
        for array in &translation.psc {
            upper_entries[usize::from(array.level)] = array.entries;
        }
        Self {
            seed: 1,
            radix: radix(translation.levels),
            cores: 1,
            tlb_pages: reach.map_or(0, |array| array.entries),
            upper_entries,
            flush: Some(Duration::from_millis(5)),
            rate: RATE,
            start: Start::Cleared,
            costs,
            sampling: None,
        }
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
        if !(self.rate > 0.0 && self.rate <= 1e12) {
            return refuse("rate", "it is not within 0..10^12 accesses a second", "try 3000000");
        }
        Ok(())
    }
}

/// All levels but the fifth are proven: the kernel module never touches that one.
pub(crate) fn radix(levels: u8) -> Radix {
    Radix { levels, proven: LevelSet::from_bits(0b1111) }
}
