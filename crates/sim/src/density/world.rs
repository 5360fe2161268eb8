//! The target and its accesses: what is mapped, and whether an entry was loaded within a time.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use tierscope_core::{
    Backing, Error, ErrorKind, Level, Mapping, Mappings, Range, RangeSet, Result, Space, SpaceId,
    Time,
};
use tierscope_workloads::description::Pattern;
use tierscope_workloads::{Segment, Workload};

use super::Config;
use super::flow::{Flow, Loop, Mix};
use super::flushes::Flushes;
use super::piece::{Piece, Point};
use super::places::Places;
use super::profile::{Profile, Strand};
use crate::Truth;
use crate::account::TIERS;
use crate::placement::Watermarks;

/// The one space.
pub(super) const SPACE: SpaceId = SpaceId(0);
/// Areas begin on multiples of this.
const ALIGNED: u64 = 2 << 20;
/// Between areas is at least this.
const APART: u64 = 1 << 30;
/// Profiles kept at a time, at least; and the strands that all of those kept may have beyond that.
const KEPT: usize = 64;
const KEPT_STRANDS: usize = 1 << 18;
/// Rates that differ by less are alike: one world goes on. Bits are drawn that much too often or too seldom
/// at worst, a fraction of what a frequency out of 40 samples can tell; how far the target comes is worked out
/// without that.
const ALIKE: f64 = 0.03;
/// Rates are worked out this closely.
const SOLVED: f64 = 1e-3;
/// How often rate and walks are worked out from one another, at most.
const ROUNDS: usize = 8;
/// Accesses a second from which that begins.
const GUESS: f64 = 1e7;

/// The workload on its addresses.
#[derive(Debug)]
pub(super) struct World {
    config: Config,
    workload: Workload,
    pub(super) bases: Vec<u64>,
    pub(super) mappings: Arc<Mappings>,
    /// What is ever accessed; the rest stays as it is.
    pub(super) ever: RangeSet,
    profiles: BTreeMap<u64, Arc<Profile>>,
    /// Of these, the one that was asked for last.
    last: Option<Arc<Profile>>,
    /// Accesses a second from a time on: where a segment begins, and where pages moved.
    paces: BTreeMap<u64, f64>,
    /// Where memory lies.
    pub(super) places: Places,
    /// Flushes beside those of the configuration.
    pub(super) flushes: Flushes,
    cycle: Loop,
}

impl World {
    /// # Errors
    /// If the areas do not fit into the address space.
    pub(super) fn new(config: &Config, workload: &Workload) -> Result<Self> {
        let mut next = config.first;
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
        let mappings = Arc::new(mappings(workload, &bases));
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
        let strands = profile.layers.iter().map(Vec::len).sum::<usize>().max(1);
        if self.profiles.len() >= KEPT.max(KEPT_STRANDS / strands) {
            self.profiles.pop_first();
        }
        let (begin, profile) = (profile.begin, Arc::new(profile));
        self.profiles.insert(begin, Arc::clone(&profile));
        profile
    }

    fn profile(&self, segment: &Segment, begin: u64, rate: f64) -> Profile {
        Profile::new(&self.config, &self.workload, segment, &self.bases, (begin, rate))
    }

    /// Accesses a second that the workload wants.
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

    /// Which accesses walk depends on the rate, and the rate on that: goes from one to the other until the rate
    /// differs by less than `close`. `None` if that of `first` does so already; tiers carry `others` as well.
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

    /// How fast the target goes through a profile as memory lies now; `stolen` of its time is lost, and
    /// tiers carry `others`, lines a second read and written, as well.
    pub(super) fn flow(&self, profile: &Profile, stolen: f64, others: &[[f64; TIERS]; 2]) -> Flow {
        let mut mix = Mix::default();
        for strand in profile.layers.iter().flatten() {
            let pages = self.places.pages(&strand.range);
            let all = pages.iter().sum::<u64>().max(1) as f64;
            mix.add(strand.share, &strand.hits_of, &pages.map(|pages| pages as f64 / all));
        }
        let segment = self.workload.segment_at(Duration::from_nanos(profile.begin));
        self.cycle.solve(&mix, self.wanted(&segment), stolen, others)
    }

    /// From `now` on accesses come as fast as memory allows where it lies now and with `others`, lines a second that
    /// tiers read and write as well; unless that is about as fast as before.
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
        // Nobody has looked beyond now: one that begins here is replaced.
        if begin < now {
            Arc::make_mut(&mut profile).end = now;
            self.profiles.insert(begin, profile);
        }
        self.paces.insert(now, rate);
        self.keep(next);
    }

    /// The accesses within `from..to`, the latest first, each with the part of the time that it is
    /// for.
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

    /// Whether an entry of `level` was loaded within `from..to`, after having been cleared at `from`.
    ///
    /// From when the caches forget, the first access finds none of them in its way. Before that it
    /// counts if they do not hold the entry: where nobody came by since they forgot last, or where it
    /// comes so late that they dropped it meanwhile.
    pub(super) fn loaded(&mut self, entry: Range, level: Level, (from, to): (u64, u64)) -> bool {
        let number = usize::from(level.number());
        let Forgets { all, upper } = self.forgets_after(from);
        let free = if level == Level::PTE { from } else { upper };
        if self.any(entry, (from.max(free), to), Kind::Walks, |_, _| true)
            || self.any(entry, (from.max(all), to), Kind::Hits, |_, _| true)
        {
            return true;
        }
        let (kind, end) =
            if level == Level::PTE { (Kind::Hits, all) } else { (Kind::Walks, upper) };
        let hidden = (from, end.min(to));
        if !self.any(entry, hidden, kind, |_, _| true) {
            return false;
        }
        if !self.held(entry, level, from) {
            return true;
        }
        let dropped = |strand: &Strand| strand.loads[number] > HARDLY;
        let drops = self.profile_at(from).overlapping(entry).any(dropped);
        kind == Kind::Walks
            && drops
            && self.any(entry, hidden, kind, |strand, point| unit(point) < strand.loads[number])
    }

    /// Whether the caches hold an entry at a time, for somebody walked to it.
    fn held(&mut self, entry: Range, level: Level, time: u64) -> bool {
        let held = self.profile_at(time).held[usize::from(level.number())];
        let since = time - (held * 1e9).min(time as f64) as u64;
        let Forgets { all, upper } = self.forgot_before(time);
        if level == Level::PTE {
            let since = since.max(all);
            return self.any(entry, (since, time), Kind::Walks, |_, _| true)
                || self.any(entry, (since, time), Kind::Hits, |_, _| true);
        }
        // The first access after a flush walks, whatever the TLB would have held.
        let since = since.max(upper);
        self.any(entry, (since, time), Kind::Walks, |_, _| true)
            || upper == all && self.any(entry, (since, time), Kind::Hits, |_, _| true)
    }

    /// Whether there is an access of that kind to the entry within the time that counts.
    fn any(
        &mut self,
        entry: Range,
        times: (u64, u64),
        kind: Kind,
        mut counts: impl FnMut(&Strand, &Point) -> bool,
    ) -> bool {
        self.profiles(times, |profile, times| profile.any(entry, times, kind, &mut counts))
            .is_break()
    }

    /// When translations are forgotten after a time. Flushes come in the middle of their periods, so
    /// that none falls together with the wake-ups of an instrument of the same period; ticks at whole
    /// periods, as in exact mode.
    pub(super) fn forgets_after(&self, time: u64) -> Forgets {
        let next = |every: u64, offset: u64| (time + offset) / every * every + every - offset;
        let all = self.config.flush.map(nanos).map_or(u64::MAX, |every| next(every, every / 2));
        let all = all.min(self.flushes.after(time).unwrap_or(u64::MAX));
        let tick = self.config.tick.map(nanos).map_or(u64::MAX, |every| next(every, 0));
        Forgets { all, upper: all.min(tick) }
    }

    /// When they were forgotten last, up to and with a time; 0 for never.
    pub(super) fn forgot_before(&self, time: u64) -> Forgets {
        let last =
            |every: u64, offset: u64| ((time + offset) / every * every).saturating_sub(offset);
        let all = self.config.flush.map(nanos).map_or(0, |every| last(every, every / 2));
        let all = all.max(self.flushes.before(time).unwrap_or(0));
        let tick = self.config.tick.map(nanos).map_or(0, |every| last(every, 0));
        Forgets { all, upper: all.max(tick) }
    }

    /// The target at `now`.
    pub(super) fn mappings(&self, now: Time) -> Arc<Mappings> {
        debug_assert!(self.mappings.taken <= now);
        Arc::clone(&self.mappings)
    }
}

/// When translation caches are emptied for the first time after a clear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Forgets {
    /// TLBs and paging-structure caches.
    pub(super) all: u64,
    /// Paging-structure caches.
    pub(super) upper: u64,
}

/// Caches that drop an entry less often than once in so many uses keep it.
const HARDLY: f64 = 1e-9;

fn nanos(every: Duration) -> u64 {
    every.as_nanos() as u64
}

/// Whether the TLB answers an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Walks,
    Hits,
}

impl Profile {
    /// Breaks at the first access of that kind to the entry within `times` that counts.
    fn any(
        &self,
        entry: Range,
        times: (u64, u64),
        kind: Kind,
        counts: &mut impl FnMut(&Strand, &Point) -> bool,
    ) -> ControlFlow<()> {
        for strand in self.overlapping(entry) {
            let piece = match kind {
                Kind::Walks => &strand.walks,
                Kind::Hits => &strand.hits,
            };
            let Some(piece) = piece else { continue };
            piece.points((entry.start, entry.end), times, |point| {
                if counts(strand, point) {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            })?;
        }
        ControlFlow::Continue(())
    }
}

impl Strand {
    /// Visits the accesses within `times` that may load the entries of `level` they lie in, and says
    /// whether they surely do ([`World::loaded`]).
    pub(super) fn each_load(
        &self,
        bytes: Range,
        level: Level,
        (from, to): (u64, u64),
        forgets: Forgets,
        mut visit: impl FnMut(&Point, bool),
    ) {
        let span = (bytes.start, bytes.end);
        let share = self.loads[usize::from(level.number())];
        let sure =
            |point: &Point| level == Level::PTE || share >= 1.0 || point.time >= forgets.upper;
        if let Some(walks) = &self.walks {
            let _ = walks.points(span, (from, to), |point| {
                visit(point, sure(point));
                ControlFlow::Continue(())
            });
        }
        // Above the leaves only the first after a flush walks.
        let from = if level == Level::PTE { from } else { from.max(forgets.all) };
        if let Some(hits) = &self.hits {
            let _ = hits.points(span, (from, to), |point| {
                visit(point, point.time >= forgets.all);
                ControlFlow::Continue(())
            });
        }
    }

    /// Pages that are accessed, and how often a second each of them is.
    pub(super) fn pages(&self) -> [f64; 2] {
        let rate = self.pieces().map(|piece| piece.rate).sum();
        let pages = self.pieces().next().map_or(0.0, Piece::pages);
        [pages, rate]
    }

    /// Both processes.
    pub(super) fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.walks.iter().chain(&self.hits)
    }
}

fn unit(point: &Point) -> f64 {
    super::hash::unit(point.bits)
}

fn mappings(workload: &Workload, bases: &[u64]) -> Mappings {
    let mapping = |(area, base): (&tierscope_workloads::description::Area, &u64)| Mapping {
        range: Level::PTE.align(&Range::new(SPACE, *base, base + area.bytes)),
        backing: Backing::Anonymous,
        name: area.name.as_str().into(),
        writable: true,
    };
    Mappings {
        taken: Time(0),
        spaces: vec![Space { id: SPACE, name: workload.name.as_str().into() }],
        mappings: workload.areas.iter().zip(bases).map(mapping).collect(),
    }
}

/// Everything that some phase accesses: what a window that moves may reach is taken whole.
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
