//! The target and its accesses: mappings, and whether an entry was loaded within a time.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use tierscope_core::{
    Backing, Error, ErrorKind, Level, Mapping, Mappings, PAGE_SIZE, Range, RangeSet, Result, Space,
    Time,
};
use tierscope_workloads::description::Pattern;
use tierscope_workloads::{Segment, Workload};

use super::Config;
use super::access_range::{AccessRange, Point};
use super::flow::{Flow, Loop, Mix, Patterns};
use super::flushes::Flushes;
use super::places::Places;
use super::profile::{AccessStream, Profile};
use super::space::SPACE;
use crate::Truth;
use crate::account::TIERS;
use crate::placement::Watermarks;

/// Alignment of areas.
const ALIGNED: u64 = 2 << 20;
/// Minimum distance between areas.
const APART: u64 = 1 << 30;
/// Minimum number of cached profiles, and the total number of streams up to which more are cached.
const KEPT: usize = 64;
const KEPT_STREAMS: usize = 1 << 18;
/// A change of the rate below this share is ignored, and the world continues as it is. At worst
/// bits are drawn too often or too rarely by this share, a fraction of the resolution of a
/// frequency out of 40 samples; the target's progress is computed from the exact rate.
const ALIKE: f64 = 0.03;
/// Precision of a new segment's rate.
const SOLVED: f64 = 1e-3;
/// Largest number of iterations between rate and walks.
const ROUNDS: usize = 8;
/// Accesses a second at the start of the iteration.
const GUESS: f64 = 1e7;

/// A workload with the addresses of its areas.
#[derive(Debug)]
pub(super) struct World {
    config: Config,
    workload: Workload,
    pub(super) bases: Vec<u64>,
    pub(super) mappings: Arc<Mappings>,
    /// Ranges that are ever accessed; all other entries keep their state.
    pub(super) ever: RangeSet,
    profiles: BTreeMap<u64, Arc<Profile>>,
    /// The profile used last.
    last: Option<Arc<Profile>>,
    /// Accesses a second from a time on: at the beginning of a segment, and after moves.
    paces: BTreeMap<u64, f64>,
    /// Placement of memory.
    pub(super) places: Places,
    /// Flushes in addition to those of the configuration.
    pub(super) flushes: Flushes,
    cycle: Loop,
}

impl World {
    /// # Errors
    /// The areas do not fit into the address space.
    pub(super) fn new(config: &Config, workload: &Workload) -> Result<Self> {
        let mut next =
            if config.huge { config.first.next_multiple_of(ALIGNED) } else { config.first };
        let mut bases = Vec::with_capacity(workload.areas.len());
        for area in &workload.areas {
            bases.push(next);
            next = (next + area.bytes).next_multiple_of(ALIGNED) + APART;
        }
        let reach = 1u64 << (12 + 9 * u32::from(config.radix.levels) - 1);
        if next > reach {
            return Err(Error::new(
                ErrorKind::Usage,
                format!("workload {} does not fit into the address space", workload.name),
            )
            .cause(format!("{} levels reach {reach:#x}", config.radix.levels))
            .remedy("choose a machine of 5 levels, or make the areas smaller"));
        }
        let mappings = Arc::new(mappings(workload, &bases, config.leaf()));
        let ever = ever(workload, &bases);
        let tiers = &config.hardware.tiers;
        let marks = Watermarks::of_tiers(tiers, 0, config.watermark_scale, config.min_free_kib);
        Ok(Self {
            places: Places::new(tiers, &marks, &config.placement, &mappings)?,
            cycle: Loop::new(
                &config.hardware,
                f64::from(config.cores),
                config.overlap,
                config.pause.as_nanos() as f64,
            ),
            config: config.clone(),
            workload: workload.clone(),
            bases,
            mappings,
            ever,
            profiles: BTreeMap::new(),
            flushes: Flushes::default(),
            last: None,
            paces: BTreeMap::new(),
        })
    }

    pub(super) fn truth(&self) -> Truth {
        let mut begin = Duration::ZERO;
        let rates = self.workload.phases.iter().map(|phase| {
            let segment = self.workload.segment_at(begin);
            begin += phase.duration;
            self.solve(&segment, segment.begin.as_nanos() as u64).1
        });
        Truth::new(self.workload.clone(), self.bases.clone(), SPACE, rates.collect())
    }

    /// The accesses at a time.
    pub(super) fn profile_at(&mut self, time: u64) -> Arc<Profile> {
        if let Some(last) = &self.last
            && (last.begin..last.end).contains(&time)
        {
            return Arc::clone(last);
        }
        if let Some((_, known)) = self.profiles.range(..=time).next_back()
            && time < known.end
        {
            self.last = Some(Arc::clone(known));
            return Arc::clone(known);
        }
        let segment = self.workload.segment_at(Duration::from_nanos(time));
        let start = segment.begin.as_nanos() as u64;
        let pace = self.paces.range(start..=time).next_back();
        let begin = pace.map_or(start, |(begin, _)| *begin);
        let mut profile = match pace {
            Some((begin, rate)) => self.profile(&segment, *begin, *rate),
            None => {
                let (profile, rate) = self.solve(&segment, begin);
                self.paces.insert(begin, rate);
                profile
            }
        };
        if let Some((next, _)) = self.paces.range(time + 1..profile.end).next() {
            profile.end = *next;
        }
        self.keep(profile)
    }

    fn keep(&mut self, profile: Profile) -> Arc<Profile> {
        let streams = profile.layers.iter().map(Vec::len).sum::<usize>().max(1);
        if self.profiles.len() >= KEPT.max(KEPT_STREAMS / streams) {
            self.profiles.pop_first();
        }
        let (begin, profile) = (profile.begin, Arc::new(profile));
        self.profiles.insert(begin, Arc::clone(&profile));
        profile
    }

    fn profile(&self, segment: &Segment, begin: u64, rate: f64) -> Profile {
        Profile::new(&self.config, &self.workload, segment, &self.bases, (begin, rate))
    }

    /// Rate that the workload sets, in accesses a second.
    fn wanted(&self, segment: &Segment) -> Option<f64> {
        self.workload.phase(segment).rate.map(|rate| rate as f64).or(self.config.rate)
    }

    /// The accesses of a segment from `begin` on, at the rate that caches and tiers allow.
    fn solve(&self, segment: &Segment, begin: u64) -> (Profile, f64) {
        let last = self.paces.values().next_back().copied();
        let guess = self.wanted(segment).or(last).unwrap_or(GUESS);
        let first = self.profile(segment, begin, guess);
        let solved = self.converge(segment, (begin, guess), &first, SOLVED, &[[0.0; TIERS]; 2]);
        solved.unwrap_or((first, guess))
    }

    /// Iterates between the walking accesses, which depend on the rate, and the rate, which depends
    /// on them, until the rate changes by less than `close`. `None` if the rate of `first` is
    /// already that close; `others` are additional lines a second that tiers carry.
    fn converge(
        &self,
        segment: &Segment,
        (begin, mut rate): (u64, f64),
        first: &Profile,
        close: f64,
        others: &[[f64; TIERS]; 2],
    ) -> Option<(Profile, f64)> {
        let mut profile = None;
        for _ in 0..ROUNDS {
            let solved = self.flow(profile.as_ref().unwrap_or(first), 0.0, others).rate;
            if (solved / rate - 1.0).abs() < close {
                break;
            }
            rate = solved;
            profile = Some(self.profile(segment, begin, rate));
        }
        profile.map(|profile| (profile, rate))
    }

    /// Speed of the target under a profile and the present placement; `stolen` is the share of its
    /// time that is lost, and `others` are additional lines a second that tiers read and write.
    pub(super) fn flow(&self, profile: &Profile, stolen: f64, others: &[[f64; TIERS]; 2]) -> Flow {
        let mut patterns = Patterns { burst: self.workload.burst, ..Patterns::default() };
        for layer in &profile.layers {
            let mut mix = Mix::default();
            for stream in layer {
                let pages = self.places.pages(&stream.range);
                let all = pages.iter().sum::<u64>().max(1) as f64;
                let places = pages.map(|pages| pages as f64 / all);
                self.cycle.add(&mut mix, stream.share, &stream.hits_of, &places);
                self.cycle.add(&mut patterns.all, stream.share, &stream.hits_of, &places);
                mix.chases += if stream.chases { stream.share } else { 0.0 };
                patterns.all.chases += if stream.chases { stream.share } else { 0.0 };
            }
            patterns.each.push(mix);
        }
        let segment = self.workload.segment_at(Duration::from_nanos(profile.begin));
        self.cycle.solve(&patterns, self.wanted(&segment), stolen, others)
    }

    /// Sets the rate from `now` on according to the present placement, with `others` as additional
    /// lines a second that tiers read and write; a small change is ignored.
    pub(super) fn repace(&mut self, now: u64, others: &[[f64; TIERS]; 2]) {
        let mut profile = self.profile_at(now);
        let begin = profile.begin;
        let Some(before) = self.paces.get(&begin).copied() else { return };
        let segment = self.workload.segment_at(Duration::from_nanos(now));
        let changed = self.converge(&segment, (now, before), &profile, ALIKE, others);
        let Some((mut next, rate)) = changed else { return };
        next.end = profile.end;
        self.profiles.remove(&begin);
        self.last = None;
        // No query has gone beyond `now`: a profile that begins at `now` is replaced.
        if begin < now {
            Arc::make_mut(&mut profile).end = now;
            self.profiles.insert(begin, profile);
        }
        self.paces.insert(now, rate);
        self.keep(next);
    }

    /// The profiles of `from..to`, the latest first, each with its part of the time.
    pub(super) fn profiles(
        &mut self,
        (from, to): (u64, u64),
        mut visit: impl FnMut(&Profile, (u64, u64)) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut end = to;
        while from < end {
            let profile = self.profile_at(end - 1);
            let begin = from.max(profile.begin);
            visit(&profile, (begin, end))?;
            end = begin;
        }
        ControlFlow::Continue(())
    }

    /// Whether an entry of `level` was loaded within `from..to`, after a clear at `from`.
    ///
    /// After the next flush the first access misses in all caches. Until then an access is visible
    /// only if the caches do not hold the entry: if it is the first one since the previous flush,
    /// or if the entry was evicted meanwhile.
    pub(super) fn loaded(&mut self, entry: Range, level: Level, (from, to): (u64, u64)) -> bool {
        let all = self.forgets_after(from);
        let uncovered = (from.max(all), to);
        if self.any(entry, uncovered, Kind::Walks, |_| true)
            || self.any(entry, uncovered, Kind::Hits, |_| true)
        {
            return true;
        }
        let hidden = (from, all.min(to));
        if self.is_leaf(level) {
            return self.any(entry, hidden, Kind::Walks, |_| true)
                || self.any(entry, hidden, Kind::Hits, |_| true) && !self.held_leaf(entry, from);
        }
        let since = self.held_since(entry, level, from);
        if !self.any_at_all(entry, (since.unwrap_or(from), from)) {
            // No cache holds the entry. Without an access since the last flush the TLBs are empty
            // too.
            let forgot = self.forgot_before(from);
            let filled = since.is_none_or(|since| since > forgot);
            return self.any(entry, hidden, Kind::Walks, |_| true)
                || !filled && self.any(entry, hidden, Kind::Hits, |_| true);
        }
        self.reloaded(entry, level, hidden) || self.refilled(entry, level, hidden)
    }

    /// Whether an access that would hit the TLBs walks within a time, as the first to its page
    /// since the last flush, and finds the entry evicted from the caches above.
    fn refilled(&mut self, entry: Range, level: Level, (from, to): (u64, u64)) -> bool {
        let forgot = self.forgot_before(from);
        let size = self.config.leaf().entry_bytes();
        let mut first = Vec::new();
        let _ = self.profiles((from, to), |profile, times| {
            let missed = profile.residency.missed(entry.start, level, false);
            for stream in profile.overlapping(entry) {
                let share = stream.loads(level, missed);
                let all_in = stream.turns(size) * (from - forgot) as f64 / 1e9 > FILLED;
                let hits = stream.hits.as_ref().filter(|_| share > HARDLY && !all_in);
                let Some(hits) = hits else { continue };
                let _ = hits.points((entry.start, entry.end), times, |point| {
                    if unit(point) < share {
                        first.push((point.at & !(size - 1), point.time));
                    }
                    ControlFlow::Continue(())
                });
            }
            ControlFlow::Continue(())
        });
        let page = |at: u64| Range::new(SPACE, at, at + size);
        first.into_iter().any(|(at, time)| !self.any_at_all(page(at), (forgot, time)))
    }

    /// Whether a walk within a time finds that the caches evicted the entry since the previous
    /// walk. In a set that each tick empties, the first walk after a tick does.
    fn reloaded(&mut self, entry: Range, level: Level, (from, to): (u64, u64)) -> bool {
        if !self.profile_at(from).residency.is_emptied(entry.start, level) {
            return self.walked_up(entry, level, (from, to), false);
        }
        let tick = self.config.tick.map_or(u64::MAX, nanos);
        let (last, next) = (from / tick * tick, (from / tick + 1).saturating_mul(tick));
        self.walked_up(entry, level, (next, to), true)
            || !self.walked_up(entry, level, (last, from), true)
                && self.walked_up(entry, level, (from, to.min(next)), true)
    }

    /// Whether a walk within a time looks an entry up in the cache of a level and misses it; with
    /// `surely`, every such look-up misses.
    fn walked_up(
        &mut self,
        entry: Range,
        level: Level,
        (from, to): (u64, u64),
        surely: bool,
    ) -> bool {
        self.profiles((from, to), |profile, times| {
            let missed = match surely {
                true => 1.0,
                false => profile.residency.missed(entry.start, level, false),
            };
            if missed <= HARDLY {
                return ControlFlow::Continue(());
            }
            for stream in profile.overlapping(entry) {
                let share = stream.loads(level, missed);
                let Some(walks) = stream.walks.as_ref().filter(|_| share > HARDLY) else {
                    continue;
                };
                walks.points((entry.start, entry.end), times, |point| {
                    if unit(point) < share {
                        ControlFlow::Break(())
                    } else {
                        ControlFlow::Continue(())
                    }
                })?;
            }
            ControlFlow::Continue(())
        })
        .is_break()
    }

    /// Whether the TLBs hold a page at a time.
    fn held_leaf(&mut self, page: Range, time: u64) -> bool {
        let held = self.profile_at(time).residency.tlb[1];
        let since = before(time, held).max(self.forgot_before(time));
        self.any_at_all(page, (since, time))
    }

    /// The time since which a walk through the entry makes a cache hold it, or an entry below it,
    /// at `time`; `None` if there is no such cache.
    fn held_since(&mut self, entry: Range, level: Level, time: u64) -> Option<u64> {
        let held = self.profile_at(time).residency.held(entry.start, level);
        (held > 0.0).then(|| before(time, held).max(self.forgot_before(time)))
    }

    fn any_at_all(&mut self, entry: Range, times: (u64, u64)) -> bool {
        self.any(entry, times, Kind::Walks, |_| true)
            || self.any(entry, times, Kind::Hits, |_| true)
    }

    /// Whether entries of a level are leaves; split pages excepted.
    pub(super) fn is_leaf(&self, level: Level) -> bool {
        level <= self.config.leaf()
    }

    /// Whether there is an access of that kind to the entry within the time that satisfies
    /// `counts`.
    fn any(
        &mut self,
        entry: Range,
        times: (u64, u64),
        kind: Kind,
        mut counts: impl FnMut(&Point) -> bool,
    ) -> bool {
        self.profiles(times, |profile, times| profile.any(entry, times, kind, &mut counts))
            .is_break()
    }

    /// The next flush after a time. Periodic flushes happen in the middle of their periods, so that
    /// none coincides with the wake-ups of an instrument of the same period.
    pub(super) fn forgets_after(&self, time: u64) -> u64 {
        let next = |every: u64| (time + every / 2) / every * every + every - every / 2;
        let all = self.config.flush.map(nanos).map_or(u64::MAX, next);
        all.min(self.flushes.after(time).unwrap_or(u64::MAX))
    }

    /// The last flush at or before a time; 0 for none.
    pub(super) fn forgot_before(&self, time: u64) -> u64 {
        let last = |every: u64| ((time + every / 2) / every * every).saturating_sub(every / 2);
        let all = self.config.flush.map(nanos).map_or(0, last);
        all.max(self.flushes.before(time).unwrap_or(0))
    }

    /// The target at `now`.
    pub(super) fn mappings(&self, now: Time) -> Arc<Mappings> {
        debug_assert!(self.mappings.taken <= now);
        Arc::clone(&self.mappings)
    }
}

/// Expected accesses to a page since a flush above which the page was certainly accessed.
const FILLED: f64 = 16.0;

/// Miss rate below which a cache is taken to keep an entry forever.
const HARDLY: f64 = 1e-9;

/// The time that many seconds before a time.
fn before(time: u64, seconds: f64) -> u64 {
    time - (seconds * 1e9).min(time as f64) as u64
}

fn nanos(every: Duration) -> u64 {
    every.as_nanos() as u64
}

/// Whether an access hits the TLB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Walks,
    Hits,
}

impl Profile {
    /// Breaks at the first access of that kind to the entry within `times` that satisfies `counts`.
    fn any(
        &self,
        entry: Range,
        times: (u64, u64),
        kind: Kind,
        counts: &mut impl FnMut(&Point) -> bool,
    ) -> ControlFlow<()> {
        for stream in self.overlapping(entry) {
            let accesses = match kind {
                Kind::Walks => &stream.walks,
                Kind::Hits => &stream.hits,
            };
            let Some(accesses) = accesses else { continue };
            accesses.points((entry.start, entry.end), times, |point| {
                if counts(point) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
        }
        ControlFlow::Continue(())
    }
}

impl AccessStream {
    /// Share of the walks that load an entry of a level above the leaves, where `missed` of the
    /// look-ups in its cache miss.
    fn loads(&self, level: Level, missed: f64) -> f64 {
        let number = usize::from(level.number());
        if self.sweeps { self.loads[number] } else { self.loads[number - 1] * missed }
    }

    /// Least number of accesses a second to a page of `bytes` bytes.
    fn turns(&self, bytes: u64) -> f64 {
        let rate: f64 = self.ranges().map(|accesses| accesses.rate).sum();
        rate * (bytes.min(self.range.bytes()) / PAGE_SIZE).max(1) as f64
    }

    /// Visits the accesses within `times` that may load the entries of a level that they touch, and
    /// whether they certainly do ([`World::loaded`]); the next flush is at `forgets`.
    pub(super) fn each_load(
        &self,
        bytes: Range,
        (level, leaf): (Level, bool),
        (from, to): (u64, u64),
        forgets: u64,
        mut visit: impl FnMut(&Point, bool),
    ) {
        let span = (bytes.start, bytes.end);
        let always = leaf || self.loads[usize::from(level.number())] >= 1.0;
        if let Some(walks) = &self.walks {
            let _ = walks.points(span, (from, to), |point| {
                visit(point, always || point.time >= forgets);
                ControlFlow::Continue(())
            });
        }
        if let Some(hits) = &self.hits {
            let _ = hits.points(span, (from, to), |point| {
                visit(point, point.time >= forgets);
                ControlFlow::Continue(())
            });
        }
    }

    /// The walking and the hitting process.
    pub(super) fn ranges(&self) -> impl Iterator<Item = &AccessRange> {
        self.walks.iter().chain(&self.hits)
    }
}

fn unit(point: &Point) -> f64 {
    super::hash::unit(point.bits)
}

/// Areas end on whole pages of the leaf level.
fn mappings(workload: &Workload, bases: &[u64], leaf: Level) -> Mappings {
    let mapping = |(area, base): (&tierscope_workloads::description::Area, &u64)| Mapping {
        range: leaf.align(&Range::new(SPACE, *base, base + area.bytes)),
        backing: Backing::Anonymous,
        name: area.name.as_str().into(),
        writable: true,
        object: None,
    };
    Mappings {
        taken: Time(0),
        spaces: vec![Space { id: SPACE, name: workload.name.as_str().into() }],
        mappings: workload.areas.iter().zip(bases).map(mapping).collect(),
        ..Mappings::default()
    }
}

/// Everything that some phase accesses: of a moving window all the ranges that it may reach.
fn ever(workload: &Workload, bases: &[u64]) -> RangeSet {
    let mut ranges: Vec<Range> = Vec::new();
    let mut begin = Duration::ZERO;
    for phase in &workload.phases {
        let drifts = |a: &tierscope_workloads::description::Access| {
            matches!(a.pattern, Pattern::Drift { .. })
        };
        if phase.accesses.iter().any(drifts) {
            ranges.extend(phase.accesses.iter().filter(|a| a.weight > 0.0).map(|access| {
                let start = bases[access.area] + access.from;
                Range::new(SPACE, start, start + access.bytes)
            }));
        } else {
            let densities = workload.densities(&workload.segment_at(begin));
            let used = densities.iter().filter(|density| density.weight > 0.0);
            ranges.extend(used.map(|density| density.part.at(bases, SPACE)));
        }
        begin += phase.duration;
    }
    ranges.into_iter().collect()
}
