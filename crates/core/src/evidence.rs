//! What a target gives away about its memory.

use crate::{
    AccessedSet, Addr, Mappings, Outcome, Probe, Range, RuleId, ScanStats, Snapshot, Tier, Time,
};

/// Whether an access read or wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// It read.
    Load,
    /// It wrote.
    Store,
}

/// One sampled access (PEBS, IBS, a software event).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When.
    pub time: Time,
    /// Where.
    pub at: Addr,
    /// Load or store.
    pub access: Access,
    /// The core it ran on.
    pub core: u32,
    /// The tier that answered, where the source tells.
    pub tier: Option<Tier>,
}

/// Samples that were taken and lost before they could be read (full buffer, throttling).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost(pub u64);

/// A hint fault: the first access to a page since it was armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HintFault {
    /// When the access came.
    pub time: Time,
    /// When the page was armed.
    pub armed: Time,
    /// Where.
    pub at: Addr,
    /// Load or store.
    pub access: Access,
    /// The core it ran on.
    pub core: u32,
}

/// What happened to a page apart from accesses by the program's own instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PageEventKind {
    /// It was allocated in this tier.
    Allocated(Tier),
    /// It was freed.
    Freed,
    /// It was locked into memory (unevictable).
    Locked,
    /// It was unlocked.
    Unlocked,
    /// A system call touched it (a supervised access in MULTI-CLOCK, section III).
    FileAccess(Access),
}

/// An event of a range of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageEvent {
    /// When.
    pub time: Time,
    /// Which pages.
    pub range: Range,
    /// What.
    pub kind: PageEventKind,
}

/// How short a tier is of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierPressure {
    /// The tier.
    pub tier: Tier,
    /// Free bytes.
    pub free: u64,
    /// Below this the tier's daemons wake.
    pub low: u64,
    /// Up to this they free.
    pub high: u64,
}

/// Memory pressure of a host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pressure {
    /// Per tier, fastest first.
    pub tiers: Vec<TierPressure>,
    /// Share of time that some task waited for memory, 0..1, over the last ten seconds.
    pub stalled: f64,
}

/// Evidence for a policy: borrowed for the call, never kept.
#[derive(Clone, Copy, Debug)]
pub enum Evidence<'a> {
    /// What the target has mapped: before the first tick, and whenever it changed.
    Mappings(&'a Mappings),
    /// An instrument's snapshot.
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
    /// Memory pressure.
    Pressure(&'a Pressure),
    /// What became of the policy's actions.
    Outcomes(&'a [Outcome]),
}
