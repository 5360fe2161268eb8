//! A recording as a machine: its windows arrive at their recorded times, and memory is placed by a
//! policy.
//!
//! Everything mapped begins in the slow tier, unless a bound places it. Accesses are known only as
//! far as they were recorded: the share of a region's probes that found it accessed is taken for
//! the share of its bytes that were accessed. In a recording without mappings (damo and perf have
//! none), memory is mapped from the first window on that has a region of it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tierscope_core::metrics::moves::{Moved, is_ping_pong};
use tierscope_core::{
    AccessBits, AccessedSet, Action, ActionKind, Budget, Clock, CpuTime, Failure, Level, Mapping,
    Mappings, Missing, Mover, Outcome, PAGE_SHIFT, PAGE_SIZE, PageId, PlacementView, Ports,
    Pressure, Probe, Radix, Range, RangeSet, Region, RegionSource, Result, ScanMode, ScanStats,
    Snapshot, State, Target, Tier, TierPressure, TierUse, Time, Wake,
};
use tierscope_record::Recording;
use tierscope_sim::config::Costs;
use tierscope_sim::exact::Watermarks;

const FAST: Tier = Tier(0);
const SLOW: Tier = Tier(1);

/// Placement of memory, and the queue of moves; shared by the machine and its mover.
#[derive(Debug)]
struct Places {
    mapped: RangeSet,
    fast: RangeSet,
    /// Memory that begins in the fast tier.
    begins_fast: RangeSet,
    /// Promoted, and not seen accessed since.
    unused: RangeSet,
    capacity: u64,
    waiting: VecDeque<Action>,
    outcomes: Vec<Outcome>,
    /// Moves of the last minute: time and ranges.
    lately: VecDeque<(Time, RangeSet)>,
    moved: Moved,
    /// Nanoseconds to move a byte.
    byte_ns: f64,
    /// Time up to which the mover has worked, and its busy time in total, in nanoseconds.
    time: f64,
    spent: f64,
}

fn one(range: Range) -> RangeSet {
    std::iter::once(range).collect()
}

fn both(a: &RangeSet, b: &RangeSet) -> RangeSet {
    a.as_slice().iter().chain(b.as_slice()).copied().collect()
}

/// The first `bytes` of a set, in order of address.
fn prefix(set: &RangeSet, mut bytes: u64) -> RangeSet {
    let take = |range: &Range| {
        let end = range.start + bytes.min(range.bytes());
        bytes -= end - range.start;
        (end > range.start).then_some(Range { end, ..*range })
    };
    set.as_slice().iter().filter_map(take).collect()
}

/// Regions of a window that were seen accessed; hits in unknown ones are ignored.
pub(super) fn accessed(snapshot: &Snapshot) -> impl Iterator<Item = &Region> {
    snapshot.regions.iter().filter(|region| region.hits > 0.0 && !region.is_unknown())
}

impl Places {
    /// Replaces the mapped ranges.
    fn map(&mut self, mappings: &Mappings) {
        let mapped: RangeSet = mappings.mappings.iter().map(|mapping| mapping.range).collect();
        let new = mapped.minus(&self.mapped).intersect(&self.begins_fast);
        let room = self.capacity.saturating_sub(self.fast.bytes());
        self.mapped = mapped;
        self.fast = both(&self.fast.intersect(&self.mapped), &prefix(&new, room));
        let left = self.unused.intersect(&self.mapped);
        self.moved.wasted += self.unused.bytes() - left.bytes();
        self.unused = left;
    }

    /// Applies a window's accesses. Returns the bytes accessed, and how many of them were in the
    /// fast tier.
    fn see(&mut self, snapshot: &Snapshot) -> [f64; 2] {
        let mut seen = [0.0; 2];
        for region in accessed(snapshot) {
            let here = self.mapped.intersect(&one(region.range));
            seen[0] += here.bytes() as f64 * region.frequency();
            seen[1] += self.fast.intersect(&here).bytes() as f64 * region.frequency();
        }
        let touched: RangeSet = accessed(snapshot).map(|region| region.range).collect();
        let left = self.unused.minus(&touched);
        self.moved.reaccessed += self.unused.bytes() - left.bytes();
        self.unused = left;
        seen
    }

    /// Advances the mover to `until`: each action takes effect as a whole at the end of its
    /// duration.
    fn work(&mut self, until: Time) {
        while let Some(action) = self.waiting.front().copied() {
            let part = self.wanted(&action);
            let took = part.bytes() as f64 * self.byte_ns;
            if self.time + took > until.0 as f64 {
                return;
            }
            self.time += took;
            self.spent += took;
            self.waiting.pop_front();
            let outcome = self.carry_out(&action, &part);
            self.outcomes.push(outcome);
        }
        self.time = self.time.max(until.0 as f64);
    }

    /// The part of an action's range that is in the other tier and fits into the destination.
    fn wanted(&self, action: &Action) -> RangeSet {
        let here = self.mapped.intersect(&one(action.range));
        match action.kind {
            ActionKind::Move(FAST) => {
                let room = self.capacity.saturating_sub(self.fast.bytes());
                prefix(&here.minus(&self.fast), room)
            }
            ActionKind::Move(SLOW) => here.intersect(&self.fast),
            _ => RangeSet::default(),
        }
    }

    fn carry_out(&mut self, action: &Action, part: &RangeSet) -> Outcome {
        let now = Time(self.time as u64);
        let here = self.mapped.intersect(&one(action.range));
        let (failed, why) = match action.kind {
            ActionKind::Move(FAST) => {
                let left = here.minus(&self.fast).bytes() - part.bytes();
                (left, (left > 0).then_some(Failure::NoRoom))
            }
            ActionKind::Move(SLOW) => (0, None),
            ActionKind::Move(_) => (here.bytes(), Some(Failure::NoRoom)),
            // A recording does not contain huge pages, so they cannot be split or collapsed.
            _ => (here.bytes(), Some(Failure::Unsupported)),
        };
        let why = why.or(here.is_empty().then_some(Failure::Unmapped));
        match action.kind {
            ActionKind::Move(FAST) => self.promote(part),
            ActionKind::Move(SLOW) => self.demote(part),
            _ => {}
        }
        self.note(part, now);
        if let Some(why) = why.filter(|_| failed > 0) {
            self.moved.fails(why, failed);
        }
        Outcome { id: action.id, time: now, done: part.bytes(), failed, why }
    }

    fn promote(&mut self, part: &RangeSet) {
        self.moved.moves(SLOW, FAST, part.bytes());
        self.fast = both(&self.fast, part);
        self.unused = both(&self.unused, part);
    }

    fn demote(&mut self, part: &RangeSet) {
        self.moved.moves(FAST, SLOW, part.bytes());
        self.fast = self.fast.minus(part);
        self.moved.wasted += self.unused.intersect(part).bytes();
        self.unused = self.unused.minus(part);
    }

    /// Counts bytes that were also moved within the ping-pong interval before, and remembers this
    /// move.
    fn note(&mut self, part: &RangeSet, now: Time) {
        while self.lately.front().is_some_and(|(time, _)| !is_ping_pong(*time, now)) {
            self.lately.pop_front();
        }
        let again: RangeSet = self
            .lately
            .iter()
            .flat_map(|(_, set)| set.intersect(part).as_slice().to_vec())
            .collect();
        self.moved.ping_pong += again.bytes();
        if !part.is_empty() {
            self.lately.push_back((now, part.clone()));
        }
    }
}

/// A recording as a machine that delivers one window at a time.
pub(super) struct Replayed<'a> {
    recording: &'a Recording,
    /// Index of the next window.
    index: usize,
    now: Time,
    end: Time,
    layout: Arc<Mappings>,
    /// Memory of the windows so far, of a recording without mappings.
    listed: RangeSet,
    places: Arc<Mutex<Places>>,
    tiers: Vec<TierUse>,
    /// Bytes seen accessed so far, and of them those in the fast tier at that time.
    pub(super) seen: [f64; 2],
    /// CPU time that the policy has reported.
    pub(super) policy: Duration,
    stop: Arc<AtomicBool>,
}

/// The mover of a replayed recording.
pub(super) struct Hands(Arc<Mutex<Places>>);

fn places(shared: &Mutex<Places>) -> MutexGuard<'_, Places> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a> Replayed<'a> {
    /// A machine at the start of the recording, with a fast tier of `capacity` bytes, and the
    /// memory that begins there. The duration of moves follows from `costs`.
    pub(super) fn new(
        recording: &'a Recording,
        (capacity, begins_fast): (u64, RangeSet),
        costs: &Costs,
        stop: Arc<AtomicBool>,
    ) -> Result<Self> {
        let time = recording.time().unwrap_or_default();
        let mut all = Places {
            mapped: RangeSet::default(),
            fast: RangeSet::default(),
            begins_fast,
            unused: RangeSet::default(),
            capacity,
            waiting: VecDeque::new(),
            outcomes: Vec::new(),
            lately: VecDeque::new(),
            moved: Moved::default(),
            byte_ns: costs.moves.byte_ns(),
            time: time.start.0 as f64,
            spent: 0.0,
        };
        let layout = match recording.commits().is_empty() {
            true => Arc::default(),
            false => recording.layout(0)?,
        };
        all.map(&layout);
        Ok(Self {
            recording,
            index: 0,
            now: time.start,
            end: time.end,
            layout,
            listed: RangeSet::default(),
            places: Arc::new(Mutex::new(all)),
            tiers: Vec::new(),
            seen: [0.0; 2],
            policy: Duration::ZERO,
            stop,
        })
    }

    pub(super) fn mover(&self) -> Hands {
        Hands(Arc::clone(&self.places))
    }

    /// Moves so far, as if the run ended now, and their CPU time.
    pub(super) fn moved(&self) -> (Moved, Duration) {
        let places = places(&self.places);
        let wasted = places.moved.wasted + places.unused.bytes();
        let spent = Duration::from_nanos(places.spent as u64);
        (Moved { wasted, ..places.moved.clone() }, spent)
    }

    /// Reads the layout of the window whose regions are `snapshot`. Without mappings, what windows
    /// have listed so far is mapped.
    fn read_layout(&mut self, snapshot: &Snapshot) -> Result<()> {
        let layout = self.recording.layout(self.index)?;
        if !layout.mappings.is_empty() {
            self.layout = layout;
            return Ok(());
        }
        let regions = snapshot.regions.iter().map(|region| region.range).collect();
        let listed = both(&self.listed, &regions);
        if listed != self.listed || self.layout.spaces != layout.spaces {
            let mappings = listed.as_slice().iter().copied().map(Mapping::anonymous).collect();
            self.layout = Arc::new(Mappings { mappings, ..Mappings::clone(&layout) });
            self.listed = listed;
        }
        Ok(())
    }

    /// Bytes mapped now.
    pub(super) fn mapped(&self) -> u64 {
        places(&self.places).mapped.bytes()
    }

    /// End of the last window.
    pub(super) fn end(&self) -> Time {
        self.end
    }

    fn tier_uses(&self) -> Vec<TierUse> {
        let places = places(&self.places);
        let (all, fast) = (places.mapped.bytes(), places.fast.bytes());
        vec![
            TierUse { tier: FAST, capacity: places.capacity, used: fast },
            // Practically unlimited: twice the mapped bytes.
            TierUse { tier: SLOW, capacity: 2 * all, used: all - fast },
        ]
    }
}

impl Clock for Replayed<'_> {
    fn now(&self) -> Time {
        self.now
    }

    fn wait(&mut self, until: Time) -> Wake {
        if self.stop.load(Ordering::Relaxed) {
            return Wake::Stop;
        }
        self.now = self.now.max(until);
        places(&self.places).work(self.now);
        if self.now >= self.end && self.index >= self.recording.commits().len() {
            return Wake::Gone;
        }
        Wake::Deadline
    }
}

impl Target for Replayed<'_> {
    fn mappings(&mut self, _: Duration) -> Result<Arc<Mappings>> {
        Ok(Arc::clone(&self.layout))
    }

    fn cpu_time(&self) -> CpuTime {
        CpuTime { profiler: self.policy, target: Duration::ZERO }
    }
}

/// Delivers each window once its end time is reached.
impl RegionSource for Replayed<'_> {
    fn next(&mut self) -> Result<Option<Snapshot>> {
        let due = self.recording.commits().get(self.index).filter(|row| row.end <= self.now);
        if due.is_none() {
            return Ok(None);
        }
        let snapshot = self.recording.snapshot(self.index)?;
        self.read_layout(&snapshot)?;
        self.index += 1;
        let mut places = places(&self.places);
        places.map(&self.layout);
        let seen = places.see(&snapshot);
        self.seen.iter_mut().zip(seen).for_each(|(sum, more)| *sum += more);
        Ok(Some(snapshot))
    }
}

/// Pages of the past cannot be probed: every probe is refused, so that a policy's guesses that need
/// a probe stay unconfirmed.
impl AccessBits for Replayed<'_> {
    fn radix(&self) -> Radix {
        self.recording.meta().machine.radix.unwrap_or(Radix::X86_64)
    }

    fn probe(&mut self, probes: &mut [Probe]) -> Result<()> {
        probes.iter_mut().for_each(|probe| probe.answer.state = State::Refused);
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
        Ok(ScanStats::default())
    }
}

/// Pages are numbered consecutively over all mappings, in order of address.
impl PlacementView for Replayed<'_> {
    fn tiers(&self) -> &[TierUse] {
        &self.tiers
    }

    fn tier_of(&self, page: PageId) -> Option<Tier> {
        let here = one(self.range_of(page)?);
        let is_fast = !places(&self.places).fast.intersect(&here).is_empty();
        Some(if is_fast { FAST } else { SLOW })
    }

    fn page_at(&self, range: &Range) -> Option<PageId> {
        let mut before = 0;
        for mapping in &self.layout.mappings {
            if mapping.range.space == range.space
                && (mapping.range.start..mapping.range.end).contains(&range.start)
            {
                let number = before + ((range.start - mapping.range.start) >> PAGE_SHIFT);
                return u32::try_from(number).ok().map(PageId);
            }
            before += mapping.range.bytes() >> PAGE_SHIFT;
        }
        None
    }

    fn range_of(&self, page: PageId) -> Option<Range> {
        let mut left = u64::from(page.0);
        for mapping in &self.layout.mappings {
            let pages = mapping.range.bytes() >> PAGE_SHIFT;
            if left < pages {
                let start = mapping.range.start + (left << PAGE_SHIFT);
                return Some(Range { start, end: start + PAGE_SIZE, ..mapping.range });
            }
            left -= pages;
        }
        None
    }

    fn resident(&self, range: &Range, tier: Tier) -> u64 {
        let places = places(&self.places);
        let here = places.mapped.intersect(&one(*range));
        let fast = places.fast.intersect(&here).bytes();
        match tier {
            FAST => fast,
            SLOW => here.bytes() - fast,
            _ => 0,
        }
    }
}

impl Ports for Replayed<'_> {
    fn access_bits(&mut self) -> Result<&mut dyn AccessBits, Missing> {
        Ok(self)
    }

    fn region_source(&mut self) -> Result<&mut dyn RegionSource, Missing> {
        Ok(self)
    }

    fn pressure(&mut self) -> Result<Pressure, Missing> {
        let uses = self.tier_uses();
        let all = uses.iter().map(|of| of.capacity >> PAGE_SHIFT).sum();
        let of = |of: &TierUse| {
            let marks = Watermarks::of(of.capacity >> PAGE_SHIFT, all, 10, None);
            let free = of.capacity.saturating_sub(of.used);
            let [low, high] = [marks.low, marks.high].map(|pages| pages << PAGE_SHIFT);
            TierPressure { tier: of.tier, free, low, high, reads: None }
        };
        Ok(Pressure { tiers: uses.iter().map(of).collect(), ..Pressure::default() })
    }

    fn placement(&mut self) -> Result<&dyn PlacementView, Missing> {
        self.tiers = self.tier_uses();
        Ok(self)
    }

    fn charge(&mut self, work: Duration) {
        self.policy += work;
    }
}

impl Mover for Hands {
    fn submit(&mut self, actions: &[Action], _: Budget) -> Result<()> {
        places(&self.0).waiting.extend(actions);
        Ok(())
    }

    fn poll(&mut self, out: &mut Vec<Outcome>) -> Result<()> {
        out.append(&mut places(&self.0).outcomes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::Unknown;
    use tierscope_core::{ActionId, Region, SpaceId};

    fn r(start: u64, end: u64) -> Range {
        Range::new(SpaceId(0), start * PAGE_SIZE, end * PAGE_SIZE)
    }

    fn toy(capacity: u64) -> Places {
        Places {
            mapped: one(r(0, 100)),
            begins_fast: RangeSet::default(),
            fast: RangeSet::default(),
            unused: RangeSet::default(),
            capacity: capacity * PAGE_SIZE,
            waiting: VecDeque::new(),
            outcomes: Vec::new(),
            lately: VecDeque::new(),
            moved: Moved::default(),
            byte_ns: 1.0 / PAGE_SIZE as f64,
            time: 0.0,
            spent: 0.0,
        }
    }

    fn order(id: u64, range: Range, to: Tier) -> Action {
        Action { id: ActionId(id), after: None, range, kind: ActionKind::Move(to) }
    }

    // A page takes a nanosecond: the move of 10..20 ends after 10 ns. The fast tier holds 15 pages:
    // five of 30..50 fit.
    #[test]
    fn moves_take_time_and_room() {
        let mut places = toy(15);
        places.waiting.extend([order(0, r(10, 20), FAST), order(1, r(30, 50), FAST)]);
        places.work(Time(9));
        assert!(places.fast.is_empty());
        places.work(Time(100));
        assert_eq!(places.fast.as_slice(), [r(10, 20), r(30, 35)]);
        let [first, second] = &places.outcomes[..] else { panic!("both ended") };
        assert_eq!((first.done, first.failed, first.time), (10 * PAGE_SIZE, 0, Time(10)));
        assert_eq!((second.done, second.failed), (5 * PAGE_SIZE, 15 * PAGE_SIZE));
        assert_eq!(second.why, Some(Failure::NoRoom));
    }

    // 0..10 is promoted; half of the probes find 0..4 accessed; 6..10 is demoted again at once.
    #[test]
    fn accessed_memory_was_worth_its_promotion() {
        let mut places = toy(50);
        places.waiting.push_back(order(0, r(0, 10), FAST));
        places.work(Time(20));
        let (hits, samples) = (20.0, 40);
        let region = Region::sampled(r(0, 4), hits, samples);
        let far = Region { range: r(50, 54), ..region };
        let snapshot = Snapshot { regions: vec![region, far], samples, ..Snapshot::default() };
        let page = PAGE_SIZE as f64;
        assert_eq!(places.see(&snapshot), [4.0 * page, 2.0 * page]);
        places.waiting.push_back(order(1, r(6, 10), SLOW));
        places.work(Time(30));
        let moved = &places.moved;
        assert_eq!((moved.reaccessed, moved.wasted), (4 * PAGE_SIZE, 4 * PAGE_SIZE));
        assert_eq!((moved.ping_pong, moved.demoted), (4 * PAGE_SIZE, 4 * PAGE_SIZE));
        assert_eq!(places.unused.bytes(), 2 * PAGE_SIZE);
    }

    // 0..10 is promoted. Half of the probes find 0..4 accessed, and also 4..8 and 50..54, which are
    // unknown. So 4 pages count by half, and of the promoted pages only 0..4 count as used.
    #[test]
    fn unknown_memory_counts_for_nothing() {
        let mut places = toy(50);
        places.waiting.push_back(order(0, r(0, 10), FAST));
        places.work(Time(20));
        let known = Region::sampled(r(0, 4), 20.0, 40);
        let unknown = |range| Region { range, unknown: Some(Unknown::Evidence), ..known };
        let regions = vec![known, unknown(r(4, 8)), unknown(r(50, 54))];
        let seen = places.see(&Snapshot { regions, samples: 40, ..Snapshot::default() });
        assert_eq!(seen, [2.0 * PAGE_SIZE as f64; 2]);
        assert_eq!(places.moved.reaccessed, 4 * PAGE_SIZE);
        assert_eq!(places.unused.as_slice(), [r(4, 10)]);
    }
}
