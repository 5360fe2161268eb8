//! What was counted.

use std::time::Duration;

use tierscope_core::SpaceId;

use crate::latency::Latency;

/// Tiers that counters tell apart.
pub(crate) const TIERS: usize = 8;

/// Events of a core, or of all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Loads and stores carried out.
    pub accesses: u64,
    /// Translations that the second-level TLB gave.
    pub second_tlb_hits: u64,
    /// Page walks.
    pub walks: u64,
    /// Page-table entries read by them.
    pub walk_reads: u64,
    /// Of these, what the caches did not have.
    pub walk_misses: u64,
    /// Demand accesses that the last-level cache had.
    pub llc_hits: u64,
    /// Demand accesses that went to memory, by tier.
    pub served: [u64; TIERS],
    /// First touches of pages of 4 KiB, 2 MiB, 1 GiB.
    pub first_touches: [u64; 3],
    /// Hint faults.
    pub hint_faults: u64,
    /// Pages of 4 KiB that were read again after they had been given back.
    pub swap_ins: u64,
    /// Shootdowns that interrupted the core.
    pub shootdowns: u64,
}

impl Counts {
    /// Demand accesses that went to memory.
    #[must_use]
    pub fn llc_misses(&self) -> u64 {
        self.served.iter().sum()
    }

    pub(crate) fn add(&mut self, other: &Counts) {
        let pairs = [
            (&mut self.accesses, other.accesses),
            (&mut self.second_tlb_hits, other.second_tlb_hits),
            (&mut self.walks, other.walks),
            (&mut self.walk_reads, other.walk_reads),
            (&mut self.walk_misses, other.walk_misses),
            (&mut self.llc_hits, other.llc_hits),
            (&mut self.hint_faults, other.hint_faults),
            (&mut self.swap_ins, other.swap_ins),
            (&mut self.shootdowns, other.shootdowns),
        ];
        pairs.into_iter().for_each(|(sum, more)| *sum += more);
        let arrays = self.served.iter_mut().zip(other.served);
        let touches = self.first_touches.iter_mut().zip(other.first_touches);
        arrays.chain(touches).for_each(|(sum, more)| *sum += more);
    }
}

/// CPU time by whom it was spent for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// The target's own: accesses, stalls, first touches.
    pub target: Duration,
    /// Telemetry: probes, scans, reading samples, arming.
    pub telemetry: Duration,
    /// Telemetry that interrupts the target's cores: sampling, hint faults, shootdowns.
    pub interrupts: Duration,
    /// Time that CPUs with work had none to do: a target that is paced waits for its next access.
    pub paced: Duration,
    /// What policies said that they spent.
    pub policy: Duration,
    /// Moving, splitting and collapsing pages.
    pub mover: Duration,
}

/// What a process completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// Its space.
    pub space: SpaceId,
    /// For people.
    pub name: String,
    /// What it is counted in, in the plural: "edges", "requests"; "accesses" of a description.
    pub unit: &'static str,
    /// How many, up to the accesses that its threads are about to make: a few hundred each.
    pub operations: u64,
    /// How long they took, where the program marks their ends; of those that were carried out.
    pub latency: Option<Latency>,
}

/// The result of a run so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Over all cores.
    pub counts: Counts,
    /// Lines read from memory, by tier; prefetches and page walks included.
    pub lines_read: [u64; TIERS],
    /// Lines written to memory, by tier.
    pub lines_written: [u64; TIERS],
    /// By how much a line came later than from idle memory in the mean, by tier: reads, writes. What
    /// the mover copies is left out.
    pub mean_waits: [[Duration; TIERS]; 2],
    /// CPU time.
    pub spent: Spent,
    /// By process, those included that ended.
    pub done: Vec<Done>,
    /// Bytes that page tables take on the simulated machine.
    pub table_bytes: u64,
    /// Tables that found the uncached region full.
    pub uncached_overflows: u64,
    /// Processes that touched what is not theirs, or found no memory.
    pub killed: u64,
    /// Flushes of the target's translations that an instrument asked for.
    pub flushes: u64,
}
