//! Counters and CPU times of a run.

use std::time::Duration;

use tierscope_core::{RegisterWork, SpaceId, Tier, TierReads};

use crate::latency::Latency;

/// A time in ps, in whole nanoseconds.
pub(crate) fn duration(ps: u64) -> Duration {
    Duration::from_nanos(ps / 1000)
}

/// Number of tiers with counters of their own.
pub(crate) const TIERS: usize = 8;

/// Events of a core, or of all cores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Loads and stores executed.
    pub accesses: u64,
    /// Translations that hit the second-level TLB.
    pub second_tlb_hits: u64,
    /// Page walks.
    pub walks: u64,
    /// Page-table entries read by walks.
    pub walk_reads: u64,
    /// Page-table entries read by walks that missed the caches.
    pub walk_misses: u64,
    /// Demand accesses that hit the last-level cache.
    pub llc_hits: u64,
    /// Demand accesses served by memory, by tier.
    pub served: [u64; TIERS],
    /// Time for which these were outstanding, summed, in ps, by tier. Over the time that passed:
    /// the mean number outstanding; over [`Counts::served`]: the mean latency.
    pub outstanding: [u64; TIERS],
    /// Time for which cores stalled for data, in ps.
    pub stalled: u64,
    /// First touches of pages of 4 KiB, 2 MiB, 1 GiB.
    pub first_touches: [u64; 3],
    /// Hint faults.
    pub hint_faults: u64,
    /// 4 KiB pages swapped in by refaults.
    pub swap_ins: u64,
    /// Shootdowns that interrupted the core.
    pub shootdowns: u64,
}

impl Counts {
    /// Demand accesses served by memory.
    #[must_use]
    pub fn llc_misses(&self) -> u64 {
        self.served.iter().sum()
    }

    /// The reads of a tier, as counters of hardware give them.
    pub(crate) fn reads(&self, tier: Tier, idle: Duration) -> TierReads {
        let at = usize::from(tier.0);
        TierReads { served: self.served[at], outstanding: duration(self.outstanding[at]), idle }
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
            (&mut self.stalled, other.stalled),
        ];
        pairs.into_iter().for_each(|(sum, more)| *sum += more);
        let arrays = self.served.iter_mut().zip(other.served);
        let times = self.outstanding.iter_mut().zip(other.outstanding);
        let touches = self.first_touches.iter_mut().zip(other.first_touches);
        arrays.chain(times).chain(touches).for_each(|(sum, more)| *sum += more);
    }
}

/// CPU time by purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// The target's own work: accesses, stalls, first touches.
    pub target: Duration,
    /// Telemetry: probes, scans, reading samples, arming.
    pub telemetry: Duration,
    /// Telemetry that interrupts the target's cores: sampling, hint faults, shootdowns.
    pub interrupts: Duration,
    /// Idle time of CPUs with runnable threads: a paced target waits for its next access.
    pub paced: Duration,
    /// CPU time that policies reported.
    pub policy: Duration,
    /// Moving, splitting and collapsing pages.
    pub mover: Duration,
}

/// Work completed by a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// The process's space.
    pub space: SpaceId,
    /// Name, for reports.
    pub name: String,
    /// Unit of its operations, in the plural: "edges", "requests"; "accesses" for a described
    /// workload.
    pub unit: &'static str,
    /// Number of operations, including accesses that its threads have drawn but not executed: a few
    /// hundred each.
    pub operations: u64,
    /// Durations of executed operations, if the program marks their ends.
    pub latency: Option<Latency>,
}

/// The result of a run so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Counters over all cores.
    pub counts: Counts,
    /// Lines read from memory, by tier; includes prefetches and page walks.
    pub lines_read: [u64; TIERS],
    /// Lines written to memory, by tier.
    pub lines_written: [u64; TIERS],
    /// Mean queueing delay of a line, by tier: reads, writes. The mover's copies are excluded.
    pub mean_waits: [[Duration; TIERS]; 2],
    /// CPU time.
    pub spent: Spent,
    /// Completed work by process, including processes that have ended.
    pub done: Vec<Done>,
    /// Bytes of page tables on the simulated machine.
    pub table_bytes: u64,
    /// Number of tables that found the uncached region full.
    pub uncached_overflows: u64,
    /// Processes killed by an access violation or for lack of memory.
    pub killed: u64,
    /// Flushes of the target's translations that an instrument requested.
    pub flushes: u64,
    /// Probes of page-table entries.
    pub looks: u64,
    /// Page-table entries visited by scans.
    pub scanned: u64,
    /// Hardware samples taken, lost ones included.
    pub samples: u64,
    /// Pages armed for hint faults.
    pub armed: u64,
    /// Accesses to registers of telemetry devices.
    pub registers: RegisterWork,
}
