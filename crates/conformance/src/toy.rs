//! The toy machine: page tables as plain sets of young entries, and virtual time.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::time::Duration;

use tierscope_core::{
    Access, AccessBits, AccessedSet, Addr, Backing, Clock, Counters, CpuTime, Flushed, FrameRun,
    Frames, HintFault, HintFaults, HotLists, Judged, LeafKind, Level, Lost, Mapping, Mappings,
    Missing, PAGE_SHIFT, Ports, Probe, ProbeOp, Radix, Range, RangeSet, Result, Rng, Sample,
    Samples, ScanMode, ScanStats, Space, SpaceId, State, Target, Time, Unknown, Wake,
};

use crate::counters::NaiveCounters;
use crate::hot_lists::NaiveHotLists;

/// A multiplicative hash: keys are page numbers, never hostile, and tests touch millions of them.
#[derive(Clone, Copy, Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(u64::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 32;
    }
}

type FastSet<K> = HashSet<K, BuildHasherDefault<Mix>>;
type FastMap<K, V> = HashMap<K, V, BuildHasherDefault<Mix>>;

/// Accesses of the target between two points in time: calls the function for every address.
pub type Workload = Box<dyn FnMut(Time, Time, &mut dyn FnMut(Addr))>;

/// An event that happens to the target at a set time.
#[derive(Clone, Debug)]
pub enum Event {
    /// The target's mappings are replaced by these. A space without a mapping is gone; the target
    /// itself, if it gets no other mappings later.
    Layout(Vec<Range>),
    /// The user requests a stop.
    Stop,
}

/// The toy machine.
pub struct Toy {
    radix: Radix,
    now: Time,
    workload: Workload,
    events: Vec<(Time, Event)>,
    mappings: Arc<Mappings>,
    mapped: RangeSet,
    huge: RangeSet,
    hidden: Vec<(Range, Unknown)>,
    young: FastSet<(Level, SpaceId, u64)>,
    probes: u64,
    /// Sampled accesses; `None` until they are first drained.
    samples: Option<Sampled>,
    /// Armed pages, and the time at which each was armed.
    armed: FastMap<(SpaceId, u64), Time>,
    faults: Vec<HintFault>,
    counters: NaiveCounters,
    hot_lists: NaiveHotLists,
}

/// log2 of the physical memory per space; virtual addresses map to it linearly.
const SPACE_SHIFT: u32 = 40;

/// The physical address of a virtual address.
pub(crate) fn frame(at: Addr) -> u64 {
    (u64::from(at.space.0) << SPACE_SHIFT) + at.at
}

/// Sampling period: one in this many touches is sampled.
const SAMPLED: u64 = 100;

#[derive(Default)]
struct Sampled {
    touches: u64,
    taken: Vec<Sample>,
}

impl Sampled {
    fn note(&mut self, at: Addr, time: Time) {
        self.touches += 1;
        if self.touches.is_multiple_of(SAMPLED) {
            self.taken.push(Sample { time, at, access: Access::Load, core: 0, tier: None });
        }
    }
}

impl Toy {
    /// A machine with four levels that maps `layout`, 4 KiB pages, all present.
    #[must_use]
    pub fn new(layout: &[Range], workload: Workload) -> Self {
        let mut toy = Self {
            radix: Radix::X86_64,
            now: Time(0),
            workload,
            events: Vec::new(),
            mappings: Arc::default(),
            mapped: RangeSet::default(),
            huge: RangeSet::default(),
            hidden: Vec::new(),
            young: FastSet::default(),
            probes: 0,
            samples: None,
            armed: FastMap::default(),
            faults: Vec::new(),
            counters: NaiveCounters::default(),
            hot_lists: NaiveHotLists::default(),
        };
        toy.map(layout);
        toy
    }

    /// Replaces the page-table geometry.
    #[must_use]
    pub fn with_radix(mut self, radix: Radix) -> Self {
        self.radix = radix;
        self
    }

    /// Maps these ranges, which must be aligned to 2 MiB, with 2 MiB leaves.
    #[must_use]
    pub fn with_huge_pages(mut self, ranges: &[Range]) -> Self {
        self.huge = ranges.iter().copied().collect();
        self
    }

    /// Hides these ranges, which must be sorted and disjoint: probes of refused memory are refused,
    /// and a guest's accesses set no bit.
    #[must_use]
    pub fn with_hidden(mut self, ranges: &[(Range, Unknown)]) -> Self {
        self.hidden = ranges.to_vec();
        self
    }

    /// Adds an event at a set time.
    #[must_use]
    pub fn with_event(mut self, at: Time, event: Event) -> Self {
        self.events.push((at, event));
        self.events.sort_by_key(|(at, _)| *at);
        self
    }

    /// Number of probes judged so far.
    #[must_use]
    pub fn probes(&self) -> u64 {
        self.probes
    }

    /// Accesses `addr`: a walk sets ACCESSED at every level.
    pub fn touch(&mut self, addr: Addr) {
        let leaf = self.leaf_level(addr);
        touch(&mut self.young, addr, leaf, self.radix.levels);
    }

    fn map(&mut self, layout: &[Range]) {
        let ids: HashSet<SpaceId> = layout.iter().map(|range| range.space).collect();
        let name = |id: &SpaceId| Space { id: *id, name: format!("toy[{}]", id.0).into() };
        let mut spaces: Vec<Space> = ids.iter().map(name).collect();
        spaces.sort_by_key(|space| space.id);
        let mut mappings: Vec<Mapping> = layout.iter().copied().map(anonymous).collect();
        mappings.sort_by_key(|mapping| mapping.range);
        self.mapped = layout.iter().copied().collect();
        self.mappings =
            Arc::new(Mappings { taken: self.now, spaces, mappings, ..Mappings::default() });
    }

    fn leaf_level(&self, addr: Addr) -> Level {
        if holds(&self.huge, addr) { Level::PMD } else { Level::PTE }
    }

    fn run(&mut self, until: Time) {
        let (young, huge, levels) = (&mut self.young, &self.huge, self.radix.levels);
        let (samples, armed, faults) = (&mut self.samples, &mut self.armed, &mut self.faults);
        let (counters, hot_lists) = (&mut self.counters, &mut self.hot_lists);
        (self.workload)(self.now, until, &mut |addr| {
            let leaf = if holds(huge, addr) { Level::PMD } else { Level::PTE };
            touch(young, addr, leaf, levels);
            if let Some(samples) = samples {
                samples.note(addr, until);
            }
            if !counters.is_idle() {
                counters.see(frame(addr));
            }
            if !hot_lists.is_idle() {
                hot_lists.see(frame(addr));
            }
            if !armed.is_empty()
                && let Some(since) = armed.remove(&(addr.space, addr.at >> PAGE_SHIFT))
            {
                let (time, access) = (until, Access::Load);
                faults.push(HintFault { time, armed: since, at: addr, access, core: 0 });
            }
        });
        self.hot_lists.advance(until);
        self.now = until;
    }

    fn judge(&mut self, at: Addr, level: Level, op: ProbeOp) -> Judged {
        if !self.mappings.has_space(at.space) {
            return Judged { state: State::Gone, ..Judged::default() };
        }
        if !holds(&self.mapped, at) {
            return Judged::default();
        }
        if let Some((_, why)) = self.hidden.iter().find(|(range, _)| range.contains(at)) {
            let refused = Judged { state: State::Refused, ..Judged::default() };
            let old = Judged {
                state: State::Old,
                reached: Some(level.max(self.leaf_level(at))),
                kind: LeafKind::Page,
                dirty: false,
            };
            return if *why == Unknown::Refused { refused } else { old };
        }
        let leaf = self.leaf_level(at);
        let level = level.max(leaf);
        let key = (level, at.space, at.at >> level.shift());
        let young = match op {
            ProbeOp::Test => self.young.contains(&key),
            ProbeOp::TestAndClear | ProbeOp::Clear => self.young.remove(&key),
        };
        Judged {
            state: if young { State::Young } else { State::Old },
            reached: Some(level),
            kind: if level == leaf { LeafKind::Page } else { LeafKind::Table },
            dirty: false,
        }
    }
}

fn anonymous(range: Range) -> Mapping {
    Mapping { range, backing: Backing::Anonymous, name: "".into(), writable: true, object: None }
}

fn holds(set: &RangeSet, addr: Addr) -> bool {
    let ranges = set.as_slice();
    let next = ranges.partition_point(|r| (r.space, r.end) <= (addr.space, addr.at));
    ranges.get(next).is_some_and(|range| range.contains(addr))
}

fn touch(young: &mut FastSet<(Level, SpaceId, u64)>, addr: Addr, leaf: Level, levels: u8) {
    for level in (leaf.number()..=levels).filter_map(Level::new) {
        young.insert((level, addr.space, addr.at >> level.shift()));
    }
}

impl Clock for Toy {
    fn now(&self) -> Time {
        self.now
    }

    fn wait(&mut self, until: Time) -> Wake {
        let due = |events: &[(Time, Event)]| events.first().is_some_and(|(at, _)| *at <= until);
        if !due(&self.events) {
            self.run(until.max(self.now));
            return Wake::Deadline;
        }
        let (at, event) = self.events.remove(0);
        self.run(at.max(self.now));
        match event {
            Event::Stop => Wake::Stop,
            Event::Layout(layout) => {
                self.map(&layout);
                let returns =
                    self.events.iter().any(|(_, event)| matches!(event, Event::Layout(_)));
                if layout.is_empty() && !returns { Wake::Gone } else { Wake::TargetChanged }
            }
        }
    }
}

impl Target for Toy {
    fn mappings(&mut self, _: Duration) -> Result<Arc<Mappings>> {
        Ok(Arc::clone(&self.mappings))
    }

    fn cpu_time(&self) -> CpuTime {
        // 0.1 µs per probe: the order of magnitude on real hardware.
        CpuTime { profiler: Duration::from_nanos(100 * self.probes), target: self.now - Time(0) }
    }
}

impl AccessBits for Toy {
    fn radix(&self) -> Radix {
        self.radix
    }

    fn probe(&mut self, probes: &mut [Probe]) -> Result<()> {
        self.probes += probes.len() as u64;
        for probe in probes {
            probe.answer = self.judge(probe.at, probe.level, probe.op);
        }
        Ok(())
    }

    fn scan(
        &mut self,
        range: &Range,
        level: Level,
        mode: ScanMode,
        set: &mut AccessedSet,
    ) -> Result<ScanStats> {
        set.reset(range, level, mode.present);
        let op = if mode.clear { ProbeOp::TestAndClear } else { ProbeOp::Test };
        let mut scan = Scan {
            toy: self,
            op,
            mode,
            level,
            judged: FastMap::default(),
            stats: ScanStats::default(),
        };
        for index in 0..set.entries() {
            let at = set.range.start + (index << level.shift());
            let answer = scan.entry(Addr { space: range.space, at }, level);
            let bit = 1 << (index % 64);
            if answer.state == State::Young {
                set.young[(index / 64) as usize] |= bit;
                scan.stats.young += 1;
            }
            if matches!(answer.state, State::Young | State::Old) {
                scan.stats.present += 1;
                if mode.present {
                    set.present[(index / 64) as usize] |= bit;
                }
            }
        }
        Ok(scan.stats)
    }

    fn hidden(&mut self, mappings: &Mappings) -> Result<Vec<(Range, Unknown)>> {
        let parts = self.hidden.iter().flat_map(|(range, why)| {
            let here = move |mapping: &Mapping| Some((mapping.range.intersect(range)?, *why));
            mappings.mappings.iter().filter_map(here)
        });
        Ok(parts.collect())
    }

    /// No translation caches are modelled: there is nothing to drop.
    fn flush(&mut self) -> Result<Flushed> {
        Ok(Flushed { cpus: 1 })
    }
}

/// A scan that caches the answer for every upper entry that it judged, because it visits it again.
struct Scan<'a> {
    toy: &'a mut Toy,
    op: ProbeOp,
    mode: ScanMode,
    level: Level,
    judged: FastMap<(Level, u64), Judged>,
    stats: ScanStats,
}

impl Scan<'_> {
    fn entry(&mut self, at: Addr, level: Level) -> Judged {
        if self.mode.prune && self.pruned_above(at, level) {
            return Judged::default();
        }
        self.judge_once(at, level)
    }

    fn pruned_above(&mut self, at: Addr, level: Level) -> bool {
        let top = self.toy.radix.levels;
        for upper in (level.number() + 1..=top).rev().filter_map(Level::new) {
            if self.judge_once(at, upper).state != State::Young {
                return true;
            }
        }
        false
    }

    fn judge_once(&mut self, at: Addr, level: Level) -> Judged {
        let level = level.max(self.toy.leaf_level(at));
        let key = (level, at.at >> level.shift());
        if let Some(known) = self.judged.get(&key) {
            return *known;
        }
        let answer = self.toy.judge(at, level, self.op);
        if answer.reached.is_some() {
            self.stats.visited += 1;
            if level > self.level {
                self.judged.insert(key, answer);
            }
        }
        if answer.kind == LeafKind::Page {
            self.stats.leaves[usize::from(level.number()) - 1] += 1;
        }
        answer
    }
}

/// Samples one in a hundred touches, available as soon as the simulated interval ends.
impl Samples for Toy {
    fn drain(&mut self, out: &mut Vec<Sample>) -> Lost {
        out.append(&mut self.samples.get_or_insert_default().taken);
        Lost(0)
    }
}

impl HintFaults for Toy {
    fn arm(&mut self, ranges: &[Range]) -> Result<()> {
        let wanted: RangeSet = ranges.iter().copied().collect();
        for range in wanted.intersect(&self.mapped).as_slice() {
            for page in range.start >> PAGE_SHIFT..range.end >> PAGE_SHIFT {
                self.armed.entry((range.space, page)).or_insert(self.now);
            }
        }
        Ok(())
    }

    fn drain(&mut self, out: &mut Vec<HintFault>) -> Lost {
        out.append(&mut self.faults);
        Lost(0)
    }
}

impl Ports for Toy {
    fn access_bits(&mut self) -> Result<&mut dyn AccessBits, Missing> {
        Ok(self)
    }

    fn samples(&mut self) -> Result<&mut dyn Samples, Missing> {
        Ok(self)
    }

    fn hint_faults(&mut self) -> Result<&mut dyn HintFaults, Missing> {
        Ok(self)
    }

    fn counters(&mut self) -> Result<&mut dyn Counters, Missing> {
        Ok(&mut self.counters)
    }

    fn hot_lists(&mut self) -> Result<&mut dyn HotLists, Missing> {
        Ok(&mut self.hot_lists)
    }

    fn frames(&mut self) -> Result<&mut dyn Frames, Missing> {
        Ok(self)
    }
}

impl Frames for Toy {
    fn locate(&mut self, range: &Range, out: &mut Vec<FrameRun>) -> Result<()> {
        let wanted: RangeSet = [*range].into_iter().collect();
        let there = wanted.intersect(&self.mapped);
        out.extend(
            there.as_slice().iter().map(|part| FrameRun { range: *part, frame: frame(part.at(0)) }),
        );
        Ok(())
    }
}

/// A workload that touches random pages of `hot`, `per_second` times a second, evenly over time.
#[must_use]
pub fn random_touches(hot: &[Range], per_second: u64, seed: u64) -> Workload {
    let hot: RangeSet = hot.iter().copied().collect();
    let bytes = hot.bytes();
    let mut rng = Rng::seeded(seed);
    let count_until = move |at: Time| u128::from(at.0) * u128::from(per_second) / 1_000_000_000;
    Box::new(move |from, to, touch| {
        for _ in count_until(from)..count_until(to) {
            let mut offset = rng.below(bytes);
            let skip = |range: &&Range| {
                let inside = offset < range.bytes();
                if !inside {
                    offset -= range.bytes();
                }
                inside
            };
            let range = hot.as_slice().iter().find(skip).expect("the offset lies within");
            touch(range.at(offset));
        }
    })
}

/// A target that touches nothing.
#[must_use]
pub fn idle() -> Workload {
    Box::new(|_, _, _| {})
}
