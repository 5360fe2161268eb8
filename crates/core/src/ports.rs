//! Ports: everything an instrument or a policy may ever ask a machine for.
//!
//! A capability is a fact of the running machine: a port is asked for, and either given or
//! explained away by a [`Missing`].

use std::sync::Arc;
use std::time::Duration;

use crate::{
    Addr, BusRecord, Error, ErrorKind, HintFault, Level, Lost, Mappings, Missing, PageEvent,
    Pressure, Radix, Range, Residence, Result, Rule, Sample, Snapshot, Time,
};

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// The time has come.
    Deadline,
    /// A port has something to say (a notification, a full buffer).
    Event,
    /// Spaces or mappings of the target changed.
    TargetChanged,
    /// The last space of the target is gone.
    Gone,
    /// The user asked to stop.
    Stop,
}

/// The machine's clock.
pub trait Clock {
    /// Now.
    fn now(&self) -> Time;

    /// Lets time pass until `until`, or until something happens. A time already past returns at
    /// once.
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

/// What is observed, and the clock of the machine that it runs on.
pub trait Target: Clock {
    /// Spaces and mappings, read anew if what is known is older than `max_age` or known to have
    /// changed. The same `Arc` comes back while nothing changed.
    ///
    /// # Errors
    /// If they cannot be read although the target is there.
    fn mappings(&mut self, max_age: Duration) -> Result<Arc<Mappings>>;

    /// CPU time spent so far.
    fn cpu_time(&self) -> CpuTime;

    /// CPU time that the caller's own thread spent so far, system calls included: what an instrument
    /// holds its budget against. Cheap enough to be read on every step.
    fn own_time(&self) -> Duration {
        self.cpu_time().profiler
    }
}

/// What a probe does to the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProbeOp {
    /// Looks.
    Test,
    /// Looks and clears ACCESSED, atomically.
    TestAndClear,
    /// Clears ACCESSED, atomically; whoever asks does not care whether it was set, and a machine that would
    /// have to work that out may say old.
    Clear,
}

/// What a probe found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum State {
    /// The space is gone.
    Gone,
    /// No mapping holds the address.
    #[default]
    Unmapped,
    /// An entry on the way is not present.
    Absent,
    /// Present, ACCESSED clear.
    Old,
    /// Present, ACCESSED set.
    Young,
    /// The machine will not judge this entry (tables shared between processes).
    Refused,
}

/// What kind of entry was judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LeafKind {
    /// None was.
    #[default]
    None,
    /// It points to a table.
    Table,
    /// A page of its level's size.
    Page,
    /// A page of a huge-page pool (hugetlbfs).
    Hugetlb,
    /// A page without a descriptor: device memory, the zero page.
    Special,
}

/// The answer to a probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Judged {
    /// What was found.
    pub state: State,
    /// The level of the entry that was judged or absent: above the one asked for where a leaf
    /// or a hole ends the walk. `None` if there was no walk.
    pub reached: Option<Level>,
    /// What the entry is.
    pub kind: LeafKind,
    /// DIRTY of the entry, where it is a leaf and the machine tells: it was written to since it was
    /// mapped or written back. Nothing here clears it.
    pub dirty: bool,
}

/// One entry to look at, and the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// An address that the entry covers.
    pub at: Addr,
    /// The level of the entry.
    pub level: Level,
    /// Look, clear, or both.
    pub op: ProbeOp,
    /// Out: the answer.
    pub answer: Judged,
}

impl Probe {
    /// A probe that only looks.
    #[must_use]
    pub fn test(at: Addr, level: Level) -> Self {
        Self { at, level, op: ProbeOp::Test, answer: Judged::default() }
    }

    /// A probe that looks and clears.
    #[must_use]
    pub fn test_and_clear(at: Addr, level: Level) -> Self {
        Self { op: ProbeOp::TestAndClear, ..Self::test(at, level) }
    }

    /// A probe that clears, whatever was there.
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

/// How a scan goes about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ScanMode {
    /// Clear ACCESSED of what is judged.
    pub clear: bool,
    /// Skip what lies under an upper entry found old. With `clear`, upper entries are cleared
    /// too, before what lies beneath them.
    pub prune: bool,
    /// Fill in [`AccessedSet::present`].
    pub present: bool,
}

/// The answer to a scan: a bit per entry of a level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessedSet {
    /// What was scanned, whole entries.
    pub range: Range,
    /// The level of the entries.
    pub level: Level,
    /// Bit i: the entry at `range.start + i * level.entry_bytes()` was young. A young leaf above
    /// the level sets the bits of all entries that it stands for.
    pub young: Vec<u64>,
    /// Likewise for present entries; empty if not asked for.
    pub present: Vec<u64>,
}

impl Default for AccessedSet {
    fn default() -> Self {
        Self { range: Range::default(), level: Level::PTE, young: Vec::new(), present: Vec::new() }
    }
}

impl AccessedSet {
    /// Makes it an all-clear answer for `range`, widened to whole entries of `level`.
    pub fn reset(&mut self, range: &Range, level: Level, present: bool) {
        self.range = level.align(range);
        self.level = level;
        let words = self.entries().div_ceil(64) as usize;
        self.young.clear();
        self.young.resize(words, 0);
        self.present.clear();
        self.present.resize(if present { words } else { 0 }, 0);
    }

    /// Entries that it answers for.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.range.bytes() >> self.level.shift()
    }

    /// Whether entry `index` was young.
    #[must_use]
    pub fn is_young(&self, index: u64) -> bool {
        self.young[(index / 64) as usize] >> (index % 64) & 1 == 1
    }

    /// Young entries.
    #[must_use]
    pub fn young_count(&self) -> u64 {
        self.young.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// The runs of young entries, in order of address.
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

    /// The first entry from `index` on that is young, or not.
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

/// What a scan cost and met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanStats {
    /// Entries of any level looked at.
    pub visited: u64,
    /// Present entries of the level.
    pub present: u64,
    /// Young entries of the level.
    pub young: u64,
    /// Upper entries found old whose subtree was skipped.
    pub pruned: u64,
    /// Present leaves met, by level (index 0 = level 1).
    pub leaves: [u64; 5],
}

/// What a flush did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flushed {
    /// CPUs whose translations of the target were dropped.
    pub cpus: u32,
}

/// ACCESSED bits of page-table entries.
pub trait AccessBits {
    /// Levels, and which of them tell.
    fn radix(&self) -> Radix;

    /// Judges a batch, in order. One call per sampling interval is the idea.
    ///
    /// # Errors
    /// If the machine cannot judge at all. A vanished space is an answer ([`State::Gone`]).
    fn probe(&mut self, probes: &mut [Probe]) -> Result<()>;

    /// Judges every entry of `level` in `range`; `set` is made to fit.
    ///
    /// # Errors
    /// If the machine cannot judge at all, or the level is not proven. A space that vanished
    /// gives an all-clear set.
    fn scan(
        &mut self,
        range: &Range,
        level: Level,
        mode: ScanMode,
        set: &mut AccessedSet,
    ) -> Result<ScanStats>;

    /// Drops the target's translations from the TLBs and paging-structure caches of the CPUs that run
    /// it. From then on the first access to a page walks to it, and the first access beneath an upper
    /// entry reads that entry: bits cleared before are set again by it. Returns before the CPUs have
    /// finished, at the cost of an interrupt to each.
    ///
    /// # Errors
    /// [`ErrorKind::Missing`] if this machine cannot.
    fn flush(&mut self) -> Result<Flushed> {
        Err(Error::new(ErrorKind::Missing, "translations cannot be flushed")
            .cause("this machine has no means to")
            .remedy("go without (--no-flush); what TLBs hold then cannot be judged"))
    }
}

/// Sampled accesses.
pub trait Samples {
    /// Appends what came since the last call, in order of time.
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

/// Page events, in order of time.
pub trait PageEvents {
    /// Appends what came since the last call.
    fn drain(&mut self, out: &mut Vec<PageEvent>) -> Lost;
}

/// Names a registered telemetry rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId(pub u32);

/// A notification: a hint that a rule's trigger held somewhere. Re-check before acting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The rule.
    pub rule: RuleId,
    /// When.
    pub time: Time,
}

/// Programmable counters in the memory controller (NEMO, section 3).
pub trait Counters {
    /// Installs a rule.
    ///
    /// # Errors
    /// If the rule is not valid or there is no room for it; says how much is missing.
    fn register(&mut self, rule: &Rule) -> Result<RuleId>;

    /// Installs a rule with that many states, where a table says which key selects which of them.
    /// [`Counters::register`] gives every sub-region that the filter lets through its own.
    ///
    /// # Errors
    /// As [`Counters::register`]; machines whose keys select states in their order have as many as
    /// there are keys.
    fn register_states(&mut self, rule: &Rule, _states: u64) -> Result<RuleId> {
        self.register(rule)
    }

    /// Removes a rule with all that it counted.
    ///
    /// # Errors
    /// There is no such rule.
    fn unregister(&mut self, rule: RuleId) -> Result<()>;

    /// Physical memory whose requests they see: first bytes, and one past the last, ascending.
    fn sees(&self) -> Vec<(u64, u64)> {
        vec![(0, BusRecord::LAST_ADDRESS + 1)]
    }

    /// Lets `key` select state `index`, or none. With an offset, `index` is the region's first state.
    ///
    /// # Errors
    /// If the rule, the key or the index is not ours to use.
    fn translate(&mut self, rule: RuleId, key: u64, index: Option<u32>) -> Result<()>;

    /// Reads the first `out.len()` states, folded over all controllers.
    ///
    /// # Errors
    /// If there is no such rule or it has fewer states.
    fn read(&mut self, rule: RuleId, out: &mut [u64]) -> Result<()>;

    /// Appends the notifications since the last call.
    fn notifications(&mut self, out: &mut Vec<Notice>);
}

/// A piece of the target's memory, and where it lies physically.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framed {
    /// The addresses of the target.
    pub range: Range,
    /// The physical address of its first byte; the others follow.
    pub frame: u64,
}

impl Framed {
    /// Appends it, as a part of the last piece if it goes on there both ways.
    pub fn append_to(self, out: &mut Vec<Framed>) {
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

/// Physical addresses of the target's memory, by which memory controllers know it.
pub trait Frames {
    /// Appends what of `range` is in memory, in order of its addresses. Pages that move or go
    /// meanwhile make it old.
    ///
    /// # Errors
    /// If the machine hides them. A space that vanished has none.
    fn locate(&mut self, range: &Range, out: &mut Vec<Framed>) -> Result<()>;
}

/// Somebody else's regions: the kernel's DAMON, an imported recording.
pub trait RegionSource {
    /// The next snapshot, if one has ended since the last call.
    ///
    /// # Errors
    /// If the source fails or says something that cannot be read.
    fn next(&mut self) -> Result<Option<Snapshot>>;
}

/// Sees what crosses the memory bus. Batches hold 256 records or more where there are as many;
/// machines are generic over it, and `()` costs nothing.
pub trait BusObserver {
    /// Sees a batch, in order of time.
    fn observe(&mut self, batch: &[BusRecord]);

    /// Its counters, if it is telemetry that software can program.
    fn counters(&mut self) -> Option<&mut dyn Counters> {
        None
    }

    /// What software did with its registers since the last call, for whoever charges the time.
    fn take_work(&mut self) -> RegisterWork {
        RegisterWork::default()
    }
}

/// What a driver did with the registers of telemetry in a memory controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegisterWork {
    /// Writes to control registers.
    pub writes: u64,
    /// Lines invalidated and loaded.
    pub lines: u64,
}

impl BusObserver for () {
    #[inline]
    fn observe(&mut self, _: &[BusRecord]) {}
}

/// A machine as instruments and policies see it: its target, and the ports it may have.
pub trait Ports: Target {
    /// ACCESSED bits.
    ///
    /// # Errors
    /// [`Missing`]: why this machine has none, and what would change that.
    fn access_bits(&mut self) -> Result<&mut dyn AccessBits, Missing> {
        Err(Missing::on_this_machine("access bits"))
    }

    /// Sampled accesses.
    ///
    /// # Errors
    /// As [`Ports::access_bits`].
    fn samples(&mut self) -> Result<&mut dyn Samples, Missing> {
        Err(Missing::on_this_machine("samples"))
    }

    /// Hint faults.
    ///
    /// # Errors
    /// As [`Ports::access_bits`].
    fn hint_faults(&mut self) -> Result<&mut dyn HintFaults, Missing> {
        Err(Missing::on_this_machine("hint faults"))
    }

    /// Page events.
    ///
    /// # Errors
    /// As [`Ports::access_bits`].
    fn page_events(&mut self) -> Result<&mut dyn PageEvents, Missing> {
        Err(Missing::on_this_machine("page events"))
    }

    /// Counters in the memory controller.
    ///
    /// # Errors
    /// As [`Ports::access_bits`].
    fn counters(&mut self) -> Result<&mut dyn Counters, Missing> {
        Err(Missing::on_this_machine("counters"))
    }

    /// Physical addresses.
    ///
    /// # Errors
    /// As [`Ports::access_bits`].
    fn frames(&mut self) -> Result<&mut dyn Frames, Missing> {
        Err(Missing::on_this_machine("physical addresses"))
    }

    /// Somebody else's regions.
    ///
    /// # Errors
    /// As [`Ports::access_bits`].
    fn region_source(&mut self) -> Result<&mut dyn RegionSource, Missing> {
        Err(Missing::on_this_machine("region sources"))
    }

    /// Memory pressure of the host.
    ///
    /// # Errors
    /// As [`Ports::access_bits`].
    fn pressure(&mut self) -> Result<Pressure, Missing> {
        Err(Missing::on_this_machine("pressure figures"))
    }

    /// Where pages are.
    ///
    /// # Errors
    /// As [`Ports::access_bits`].
    fn placement(&mut self) -> Result<&dyn crate::PlacementView, Missing> {
        Err(Missing::on_this_machine("placement figures"))
    }

    /// How much of the target is in memory, and on which nodes: as it was found last. Every window
    /// asks; nobody is kept waiting for an answer.
    ///
    /// # Errors
    /// As [`Ports::access_bits`].
    fn residence(&mut self) -> Result<Arc<Residence>, Missing> {
        Err(Missing::on_this_machine("figures of resident memory"))
    }

    /// Charges CPU time that a policy, or an instrument's own arithmetic, spent to the machine. A live
    /// machine has paid already.
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
