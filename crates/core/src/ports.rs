//! Ports: all interfaces through which an instrument or a policy may reach a machine.
//!
//! A capability is a fact of the running machine: it either has a port or answers with a
//! [`Missing`] that names the reason.

use std::sync::Arc;
use std::time::Duration;

use crate::{
    Addr, BusRecord, Error, ErrorKind, HintFault, HotLists, Level, Lost, Mappings, Missing,
    PageEvent, Pressure, Radix, Range, Residence, Result, Rule, Sample, Snapshot, Time, Unknown,
};

/// The reason why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// The deadline of the wait passed.
    Deadline,
    /// A port has data (a notification, a full buffer).
    Event,
    /// Spaces or mappings of the target changed.
    TargetChanged,
    /// The last space of the target is gone.
    Gone,
    /// The user requested a stop.
    Stop,
}

/// The machine's clock.
pub trait Clock {
    /// The current time.
    fn now(&self) -> Time;

    /// Lets time pass until `until` or until an event. Returns at once if `until` is already past.
    fn wait(&mut self, until: Time) -> Wake;
}

/// CPU time since the machine was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// User and system time of the profiler's own threads, and of kernel threads working for it.
    pub profiler: Duration,
    /// User and system time of the target.
    pub target: Duration,
}

/// The observed program or machine, and the clock of the machine that it runs on.
pub trait Target: Clock {
    /// Spaces and mappings, read again if the cached copy is older than `max_age` or known to be
    /// outdated. Returns the same `Arc` while nothing changed.
    ///
    /// # Errors
    /// If they cannot be read although the target exists.
    fn mappings(&mut self, max_age: Duration) -> Result<Arc<Mappings>>;

    /// CPU time spent so far.
    fn cpu_time(&self) -> CpuTime;

    /// CPU time that the calling thread spent so far, system calls included: the figure that an
    /// instrument compares with its budget. Cheap enough to be read on every step.
    fn own_time(&self) -> Duration {
        self.cpu_time().profiler
    }
}

/// Operation of a probe on the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProbeOp {
    /// Only read ACCESSED.
    Test,
    /// Read and clear ACCESSED, atomically.
    TestAndClear,
    /// Clear ACCESSED, atomically. The caller does not use the old value: a machine that would have
    /// to compute it may return old.
    Clear,
}

/// Result of a probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum State {
    /// The space is gone.
    Gone,
    /// No mapping covers the address.
    #[default]
    Unmapped,
    /// An entry on the walk is not present.
    Absent,
    /// Present, ACCESSED clear.
    Old,
    /// Present, ACCESSED set.
    Young,
    /// The machine cannot judge this entry (tables shared between processes).
    Refused,
}

/// Kind of the entry that was judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LeafKind {
    /// No entry was judged.
    #[default]
    None,
    /// An entry that points to a table.
    Table,
    /// A page of its level's size.
    Page,
    /// A page of a huge-page pool (hugetlbfs).
    Hugetlb,
    /// A page without a `struct page`: device memory, the zero page.
    Special,
}

/// The answer to a probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Judged {
    /// State of the entry.
    pub state: State,
    /// Level of the entry that was judged or absent: above the requested level where a leaf or a
    /// hole ended the walk. `None` if there was no walk.
    pub reached: Option<Level>,
    /// Kind of the entry.
    pub kind: LeafKind,
    /// DIRTY of a leaf entry, where the machine reports it: written to since it was mapped or
    /// written back. Probes never clear it.
    pub dirty: bool,
}

/// One entry to probe, and the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// An address that the entry covers.
    pub at: Addr,
    /// The level of the entry.
    pub level: Level,
    /// Operation of the probe.
    pub op: ProbeOp,
    /// Output: the answer to the probe.
    pub answer: Judged,
}

impl Probe {
    /// A probe that only reads ACCESSED.
    #[must_use]
    pub fn test(at: Addr, level: Level) -> Self {
        Self { at, level, op: ProbeOp::Test, answer: Judged::default() }
    }

    /// A probe that reads and clears ACCESSED.
    #[must_use]
    pub fn test_and_clear(at: Addr, level: Level) -> Self {
        Self { op: ProbeOp::TestAndClear, ..Self::test(at, level) }
    }

    /// A probe that clears ACCESSED regardless of its value.
    #[must_use]
    pub fn clear(at: Addr, level: Level) -> Self {
        Self { op: ProbeOp::Clear, ..Self::test(at, level) }
    }

    /// Whether the entry was found young.
    #[must_use]
    pub fn is_young(&self) -> bool {
        self.answer.state == State::Young
    }
}

/// Options of a scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ScanMode {
    /// Clear ACCESSED of the judged entries.
    pub clear: bool,
    /// Skip the subtree of an upper entry found old. With `clear`, upper entries are cleared too,
    /// before the entries beneath them.
    pub prune: bool,
    /// Also record present entries, in [`AccessedSet::present`].
    pub present: bool,
}

/// The answer to a scan: a bit per entry of a level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessedSet {
    /// The scanned range, widened to whole entries.
    pub range: Range,
    /// The level of the entries.
    pub level: Level,
    /// Bit i: the entry at `range.start + i * level.entry_bytes()` was young. A young leaf above
    /// the level sets the bits of all entries of the level that it covers.
    pub young: Vec<u64>,
    /// Bit i: entry i was present; empty if not requested.
    pub present: Vec<u64>,
}

impl Default for AccessedSet {
    fn default() -> Self {
        Self { range: Range::default(), level: Level::PTE, young: Vec::new(), present: Vec::new() }
    }
}

impl AccessedSet {
    /// Resets it to an all-clear answer for `range`, widened to whole entries of `level`.
    pub fn reset(&mut self, range: &Range, level: Level, present: bool) {
        self.range = level.align(range);
        self.level = level;
        let words = self.entries().div_ceil(64) as usize;
        self.young.clear();
        self.young.resize(words, 0);
        self.present.clear();
        self.present.resize(if present { words } else { 0 }, 0);
    }

    /// Number of entries in the answer.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.range.bytes() >> self.level.shift()
    }

    /// Whether entry `index` was young.
    #[must_use]
    pub fn is_young(&self, index: u64) -> bool {
        self.young[(index / 64) as usize] >> (index % 64) & 1 == 1
    }

    /// Whether entry `index` was present; false if that was not requested.
    #[must_use]
    pub fn is_present(&self, index: u64) -> bool {
        self.present.get((index / 64) as usize).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    /// Number of young entries.
    #[must_use]
    pub fn young_count(&self) -> u64 {
        self.young.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// Runs of adjacent young entries as ranges, in order of address.
    pub fn young_runs(&self) -> impl Iterator<Item = Range> + '_ {
        let entry = |index: u64| self.range.start + (index << self.level.shift());
        let mut index = 0;
        std::iter::from_fn(move || {
            let start = self.next(index, true)?;
            let end = self.next(start, false).unwrap_or(self.entries());
            index = end;
            Some(Range::new(self.range.space, entry(start), entry(end)))
        })
    }

    /// The first entry from `index` on whose young bit equals `young`.
    fn next(&self, mut index: u64, young: bool) -> Option<u64> {
        while index < self.entries() {
            let word = self.young[(index / 64) as usize];
            let word = (if young { word } else { !word }) >> (index % 64);
            if word != 0 {
                let found = index + u64::from(word.trailing_zeros());
                return (found < self.entries()).then_some(found);
            }
            index = (index / 64 + 1) * 64;
        }
        None
    }
}

/// Counters of a scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanStats {
    /// Entries visited, at any level.
    pub visited: u64,
    /// Present entries of the level.
    pub present: u64,
    /// Young entries of the level.
    pub young: u64,
    /// Upper entries found old, whose subtrees were skipped.
    pub pruned: u64,
    /// Present leaves found, by level (index 0 = level 1).
    pub leaves: [u64; 5],
}

/// Result of a flush.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flushed {
    /// CPUs whose translations of the target were dropped.
    pub cpus: u32,
}

/// ACCESSED bits of page-table entries.
pub trait AccessBits {
    /// Levels of the page table, and those whose ACCESSED bits are proven to work.
    fn radix(&self) -> Radix;

    /// Judges a batch of entries, in order. Meant to be called once per sampling interval.
    ///
    /// # Errors
    /// If the machine cannot judge entries at all. A vanished space is an answer ([`State::Gone`]).
    fn probe(&mut self, probes: &mut [Probe]) -> Result<()>;

    /// Judges every entry of `level` in `range`; `set` is resized to fit.
    ///
    /// # Errors
    /// If the machine cannot judge entries at all, or the level is not proven. For a vanished space
    /// the set is all clear.
    fn scan(
        &mut self,
        range: &Range,
        level: Level,
        mode: ScanMode,
        set: &mut AccessedSet,
    ) -> Result<ScanStats>;

    /// Parts of the mapped memory whose ACCESSED bits tell nothing about accesses, with the reason:
    /// memory that the machine refuses to judge now ([`State::Refused`]), memory of a guest. Sorted
    /// by range, disjoint. Changes no bit.
    ///
    /// # Errors
    /// Same as [`AccessBits::probe`].
    fn hidden(&mut self, _mappings: &Mappings) -> Result<Vec<(Range, Unknown)>> {
        Ok(Vec::new())
    }

    /// ACCESSED bits of the target that other sessions found set and cleared while this one
    /// watched: accesses that it cannot see.
    fn cleared_by_others(&self) -> u64 {
        0
    }

    /// Names of other readers that clear ACCESSED bits on this machine, and ran since the first
    /// call: parts of the kernel that sample or age memory. What they take is not in
    /// [`AccessBits::cleared_by_others`].
    fn other_readers(&mut self) -> &[&'static str] {
        &[]
    }

    /// Drops the target's translations from the TLBs and paging-structure caches of the CPUs that
    /// run it. After that, the first access to a page walks the table, and the first access beneath
    /// an upper entry reads that entry, so that bits cleared earlier are set again. Returns before
    /// the CPUs have finished; costs each of them an interrupt.
    ///
    /// # Errors
    /// [`ErrorKind::Missing`] if this machine cannot.
    fn flush(&mut self) -> Result<Flushed> {
        Err(Error::new(ErrorKind::Missing, "translations cannot be flushed")
            .cause("this machine has no means to")
            .remedy(
                "run without flushes (--no-flush); pages with cached translations then look idle",
            ))
    }
}

/// A source of sampled accesses.
pub trait Samples {
    /// Appends the samples taken since the last call, in order of time.
    fn drain(&mut self, out: &mut Vec<Sample>) -> Lost;
}

/// Hint faults: the first access to an armed range is reported and disarms the page.
pub trait HintFaults {
    /// Arms every mapped page of the ranges.
    ///
    /// # Errors
    /// If the machine cannot arm.
    fn arm(&mut self, ranges: &[Range]) -> Result<()>;

    /// Appends the faults since the last call, in order of time.
    fn drain(&mut self, out: &mut Vec<HintFault>) -> Lost;
}

/// Page events: allocations, frees, locks, file accesses.
pub trait PageEvents {
    /// Appends the events since the last call, in order of time.
    fn drain(&mut self, out: &mut Vec<PageEvent>) -> Lost;
}

/// Handle of a registered telemetry rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId(pub u32);

/// A notification that a rule's trigger held in some bank: a hint, to be verified before acting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The rule whose trigger held.
    pub rule: RuleId,
    /// Time of the notification.
    pub time: Time,
}

/// Programmable counters in the memory controller (NEMO, section 3).
pub trait Counters {
    /// Installs a rule.
    ///
    /// # Errors
    /// If the rule is not valid, or there is no room for it; the error reports how much is missing.
    fn register(&mut self, rule: &Rule) -> Result<RuleId>;

    /// Installs a rule with `states` states; a translation table maps keys to them.
    /// [`Counters::register`] gives each sub-region that the filter accepts a state of its own.
    ///
    /// # Errors
    /// Same as [`Counters::register`]. The default is for machines without a translation table:
    /// they have one state per key, in order of the keys.
    fn register_states(&mut self, rule: &Rule, _states: u64) -> Result<RuleId> {
        self.register(rule)
    }

    /// Removes a rule and its states.
    ///
    /// # Errors
    /// There is no such rule.
    fn unregister(&mut self, rule: RuleId) -> Result<()>;

    /// Physical memory whose requests the counters see, as (first byte, one past the last),
    /// ascending.
    fn sees(&self) -> Vec<(u64, u64)> {
        vec![(0, BusRecord::LAST_ADDRESS + 1)]
    }

    /// Maps `key` to state `index`, or to none. With an offset, `index` is the region's first
    /// state.
    ///
    /// # Errors
    /// If the rule does not exist, or the key or index is out of its bounds.
    fn translate(&mut self, rule: RuleId, key: u64, index: Option<u32>) -> Result<()>;

    /// Reads the first `out.len()` states, each folded over all controllers.
    ///
    /// # Errors
    /// If there is no such rule or it has fewer states.
    fn read(&mut self, rule: RuleId, out: &mut [u64]) -> Result<()>;

    /// Appends the notifications since the last call.
    fn notifications(&mut self, out: &mut Vec<Notice>);
}

/// A part of the target's memory that is physically contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRun {
    /// Virtual address range of the part.
    pub range: Range,
    /// Physical address of its first byte.
    pub frame: u64,
}

impl FrameRun {
    /// Appends it to `out`, merging it with the last entry if both ranges are contiguous.
    pub fn append_to(self, out: &mut Vec<FrameRun>) {
        match out.last_mut() {
            Some(last)
                if last.range.touches(&self.range)
                    && last.frame + last.range.bytes() == self.frame =>
            {
                last.range.end = self.range.end;
            }
            _ => out.push(self),
        }
    }
}

/// Physical addresses of the target's memory, as memory controllers see them.
pub trait Frames {
    /// Appends the resident parts of `range`, in order of address. Pages may move or be freed right
    /// after; the answer is then outdated.
    ///
    /// # Errors
    /// If the machine hides physical addresses. A vanished space has none.
    fn locate(&mut self, range: &Range, out: &mut Vec<FrameRun>) -> Result<()>;
}

/// Regions made by another program: the kernel's DAMON, an imported recording.
pub trait RegionSource {
    /// The next snapshot, if one has ended since the last call.
    ///
    /// # Errors
    /// If the source fails or its data cannot be parsed.
    fn next(&mut self) -> Result<Option<Snapshot>>;
}

/// Observes the requests on the memory bus. Batches hold 256 records or more where there are
/// enough; machines are generic over the observer, and `()` costs nothing.
pub trait BusObserver {
    /// Takes a batch of requests, in order of time.
    fn observe(&mut self, batch: &[BusRecord]);

    /// The observer's counters, if it is programmable telemetry.
    fn counters(&mut self) -> Option<&mut dyn Counters> {
        None
    }

    /// The observer's hot lists at this time of the machine, if it is a hotness monitoring unit.
    fn hot_lists(&mut self, _now: Time) -> Option<&mut dyn HotLists> {
        None
    }

    /// Whether a hot list waits for its reader: its interrupt is enabled and was raised by `now`.
    /// `None` if no interrupt is enabled.
    fn interrupt(&mut self, _now: Time) -> Option<bool> {
        None
    }

    /// Register accesses by software since the last call, for the machine to charge their time.
    fn take_work(&mut self) -> RegisterWork {
        RegisterWork::default()
    }
}

/// Accesses of a driver to the registers of telemetry in a memory controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegisterWork {
    /// Writes to control registers.
    pub writes: u64,
    /// Cache lines invalidated and loaded.
    pub lines: u64,
    /// Reads of registers that are not cached, of 64 bits at most.
    pub reads: u64,
    /// Interrupts handled.
    pub interrupts: u64,
}

impl RegisterWork {
    /// Adds other accesses.
    pub fn add(&mut self, other: &Self) {
        self.writes += other.writes;
        self.lines += other.lines;
        self.reads += other.reads;
        self.interrupts += other.interrupts;
    }
}

impl BusObserver for () {
    #[inline]
    fn observe(&mut self, _: &[BusRecord]) {}
}

/// A machine as instruments and policies see it: its target, and its optional ports.
pub trait Ports: Target {
    /// The port for ACCESSED bits.
    ///
    /// # Errors
    /// [`Missing`]: why this machine has none, and how it could be provided.
    fn access_bits(&mut self) -> Result<&mut dyn AccessBits, Missing> {
        Err(Missing::on_this_machine("access bits"))
    }

    /// The port for sampled accesses.
    ///
    /// # Errors
    /// Same as [`Ports::access_bits`].
    fn samples(&mut self) -> Result<&mut dyn Samples, Missing> {
        Err(Missing::on_this_machine("samples"))
    }

    /// The port for hint faults.
    ///
    /// # Errors
    /// Same as [`Ports::access_bits`].
    fn hint_faults(&mut self) -> Result<&mut dyn HintFaults, Missing> {
        Err(Missing::on_this_machine("hint faults"))
    }

    /// The port for page events.
    ///
    /// # Errors
    /// Same as [`Ports::access_bits`].
    fn page_events(&mut self) -> Result<&mut dyn PageEvents, Missing> {
        Err(Missing::on_this_machine("page events"))
    }

    /// The port for counters in the memory controller.
    ///
    /// # Errors
    /// Same as [`Ports::access_bits`].
    fn counters(&mut self) -> Result<&mut dyn Counters, Missing> {
        Err(Missing::on_this_machine("counters"))
    }

    /// The port for hot lists of hotness monitoring units.
    ///
    /// # Errors
    /// Same as [`Ports::access_bits`].
    fn hot_lists(&mut self) -> Result<&mut dyn HotLists, Missing> {
        Err(Missing::on_this_machine("hot lists"))
    }

    /// The port for physical addresses of the target's pages.
    ///
    /// # Errors
    /// Same as [`Ports::access_bits`].
    fn frames(&mut self) -> Result<&mut dyn Frames, Missing> {
        Err(Missing::on_this_machine("physical addresses"))
    }

    /// The port for regions made by another program.
    ///
    /// # Errors
    /// Same as [`Ports::access_bits`].
    fn region_source(&mut self) -> Result<&mut dyn RegionSource, Missing> {
        Err(Missing::on_this_machine("region sources"))
    }

    /// Current memory pressure of the host.
    ///
    /// # Errors
    /// Same as [`Ports::access_bits`].
    fn pressure(&mut self) -> Result<Pressure, Missing> {
        Err(Missing::on_this_machine("pressure figures"))
    }

    /// The view of the tiers and of the tier of each page.
    ///
    /// # Errors
    /// Same as [`Ports::access_bits`].
    fn placement(&mut self) -> Result<&dyn crate::PlacementView, Missing> {
        Err(Missing::on_this_machine("placement figures"))
    }

    /// Resident bytes of the target by node, as last measured. Called for every window; never
    /// blocks on a measurement.
    ///
    /// # Errors
    /// Same as [`Ports::access_bits`].
    fn residence(&mut self) -> Result<Arc<Residence>, Missing> {
        Err(Missing::on_this_machine("figures of resident memory"))
    }

    /// Charges CPU time of a policy, or of an instrument's own arithmetic, to the machine. No-op on
    /// a live machine, where that time has already passed.
    fn charge(&mut self, _work: Duration) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SpaceId;

    #[test]
    fn runs_of_young_entries() {
        let mut set = AccessedSet::default();
        set.reset(&Range::new(SpaceId(0), 0, 70 * 4096), Level::PTE, false);
        for bit in [1, 2, 63, 64, 69] {
            set.young[bit / 64] |= 1 << (bit % 64);
        }
        let pages = |run: Range| (run.start / 4096, run.end / 4096);
        let runs: Vec<_> = set.young_runs().map(pages).collect();
        assert_eq!(runs, [(1, 3), (63, 65), (69, 70)]);
        assert_eq!(set.young_count(), 5);
    }
}
