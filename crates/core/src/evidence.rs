//! Evidence about a target's memory.

use std::time::Duration;

use crate::{
    AccessedSet, Addr, Mappings, Outcome, Probe, Range, RuleId, ScanStats, Snapshot, Tier, Time,
};

/// Kind of a memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// A read.
    Load,
    /// A write.
    Store,
}

/// One sampled access (PEBS, IBS, a software event).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Time of the access.
    pub time: Time,
    /// Address of the access.
    pub at: Addr,
    /// Load or store.
    pub access: Access,
    /// The core that executed it.
    pub core: u32,
    /// The tier that served it, where the source reports it.
    pub tier: Option<Tier>,
}

/// Number of samples lost before they could be read (full buffer, throttling).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost(pub u64);

/// A hint fault: the first access to a page since it was armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HintFault {
    /// Time of the access.
    pub time: Time,
    /// When the page was armed.
    pub armed: Time,
    /// Address of the access.
    pub at: Addr,
    /// Load or store.
    pub access: Access,
    /// The core that executed the access.
    pub core: u32,
}

/// Page events other than accesses by the program's own instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PageEventKind {
    /// The page was allocated in this tier.
    Allocated(Tier),
    /// The page was freed.
    Freed,
    /// The page was locked into memory (unevictable).
    Locked,
    /// The page was unlocked.
    Unlocked,
    /// A system call accessed the page (a supervised access in MULTI-CLOCK, section III).
    FileAccess(Access),
}

/// An event on a range of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageEvent {
    /// Time of the event.
    pub time: Time,
    /// Pages of the event.
    pub range: Range,
    /// Kind of the event.
    pub kind: PageEventKind,
}

/// Free memory of a tier, and its watermarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierPressure {
    /// The tier whose memory is described.
    pub tier: Tier,
    /// Free bytes of the tier.
    pub free: u64,
    /// Low watermark: below this the tier's daemons wake.
    pub low: u64,
    /// High watermark: up to this the daemons free memory.
    pub high: u64,
    /// Reads of the tier; `None` where they are not counted.
    pub reads: Option<TierReads>,
}

/// Reads of a tier by cores since the machine was opened, as counters of caching agents or memory
/// controllers give them: inserts, and occupancy summed over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierReads {
    /// Reads served.
    pub served: u64,
    /// Time for which they were outstanding, summed.
    pub outstanding: Duration,
    /// Latency of a read while the tier is idle, as firmware states it (HMAT).
    pub idle: Duration,
}

impl TierReads {
    /// Mean latency of the reads since `before`, in nanoseconds; that of an idle tier if there were
    /// none.
    #[must_use]
    pub fn latency_ns_since(&self, before: &TierReads) -> f64 {
        let served = self.served.saturating_sub(before.served);
        let outstanding = self.outstanding.saturating_sub(before.outstanding);
        match served {
            0 => self.idle.as_nanos() as f64,
            _ => outstanding.as_nanos() as f64 / served as f64,
        }
    }
}

/// Memory pressure of a host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pressure {
    /// Pressure of each tier, fastest first.
    pub tiers: Vec<TierPressure>,
    /// Share of time in which some task stalled on memory, 0..1, over the last ten seconds.
    pub stalled: f64,
    /// Time since the machine was opened for which cores stalled for data, summed; `None` where it
    /// is not counted.
    pub cores_stalled: Option<Duration>,
}

/// Evidence for a policy: borrowed for the call.
#[derive(Clone, Copy, Debug)]
pub enum Evidence<'a> {
    /// Mappings of the target: before the first tick, and whenever they changed.
    Mappings(&'a Mappings),
    /// A snapshot of the instrument.
    Regions(&'a Snapshot),
    /// Answers to probes that the policy ordered.
    Bits(&'a [Probe]),
    /// The answer to a scan that the policy ordered, or to a part of it.
    Scanned(&'a AccessedSet, &'a ScanStats),
    /// Sampled accesses.
    Samples(&'a [Sample]),
    /// Hint faults on ranges that the policy armed.
    Faults(&'a [HintFault]),
    /// Allocations, frees, locks, file accesses.
    PageEvents(&'a [PageEvent]),
    /// Telemetry states of a rule that the policy registered.
    Counters(RuleId, &'a [u64]),
    /// Memory pressure of the host.
    Pressure(&'a Pressure),
    /// Outcomes of the policy's actions.
    Outcomes(&'a [Outcome]),
}
