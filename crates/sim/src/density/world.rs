//! The target and its accesses: what is mapped, and whether an entry was loaded within a time.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use tierscope_core::{
    Backing, Error, ErrorKind, Level, Mapping, Mappings, Range, RangeSet, Result, Space, SpaceId,
    Time,
};
use tierscope_workloads::Workload;
use tierscope_workloads::description::Pattern;

use super::Config;
use super::piece::{Piece, Point};
use super::profile::{Profile, Strand};

/// The one space.
pub(super) const SPACE: SpaceId = SpaceId(0);
/// Where the first area begins: on a multiple of 2 MiB and of nothing larger, as the kernel maps large
/// anonymous memory (mm/huge_memory.c, `thp_get_unmapped_area`; since 6.7 for all).
const FIRST: u64 = (1 << 40) + (346 << 20);
/// Areas begin on multiples of this.
const ALIGNED: u64 = 2 << 20;
/// Between areas is at least this.
const APART: u64 = 1 << 30;
/// Profiles kept at a time.
const KEPT: usize = 64;

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
}

impl World {
    /// # Errors
    /// If the areas do not fit into the address space.
    pub(super) fn new(config: &Config, workload: &Workload) -> Result<Self> {
        let mut next = FIRST;
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
        let workload = workload.clone();
        let config = config.clone();
        Ok(Self { config, workload, bases, mappings, ever, profiles: BTreeMap::new() })
    }

    pub(super) fn workload(&self) -> &Workload {
        &self.workload
    }

    /// The accesses at a time.
    pub(super) fn profile_at(&mut self, time: u64) -> Arc<Profile> {
        if let Some((_, known)) = self.profiles.range(..=time).next_back()
            && time < known.end
        {
            return Arc::clone(known);
        }
        let segment = self.workload.segment_at(Duration::from_nanos(time));
        let profile = Arc::new(Profile::new(&self.config, &self.workload, &segment, &self.bases));
        if self.profiles.len() >= KEPT {
            self.profiles.pop_first();
        }
        self.profiles.insert(profile.begin, Arc::clone(&profile));
        profile
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
    pub(super) fn loaded(&mut self, entry: Range, level: Level, (from, to): (u64, u64)) -> bool {
        let flushed = self.flushed_after(from);
        let found = self.profiles((from, to), |profile, times| {
            for strand in profile.overlapping(entry) {
                strand.loads_within(entry, level, times, flushed)?;
            }
            ControlFlow::Continue(())
        });
        found.is_break()
    }

    /// The first flush after a time. Flushes come in the middle of their periods, so that none falls
    /// together with the wake-ups of an instrument of the same period.
    pub(super) fn flushed_after(&self, time: u64) -> u64 {
        let Some(every) = self.config.flush else { return u64::MAX };
        let every = every.as_nanos() as u64;
        (time + every / 2) / every * every + every.div_ceil(2)
    }

    /// The target at `now`.
    pub(super) fn mappings(&self, now: Time) -> Arc<Mappings> {
        debug_assert!(self.mappings.taken <= now);
        Arc::clone(&self.mappings)
    }
}

/// Less than this many loads are none.
const HARDLY: f64 = 1e-9;

impl Strand {
    /// Breaks if an access within `times` loaded the entry, which was cleared before; after `flushed`
    /// no cache hides anything.
    pub(super) fn loads_within(
        &self,
        entry: Range,
        level: Level,
        times: (u64, u64),
        flushed: u64,
    ) -> ControlFlow<()> {
        self.each_load(entry, level, times, flushed, |_| ControlFlow::Break(()))
    }

    /// Visits the accesses within `times` that load the entries of `level` they lie in.
    pub(super) fn each_load(
        &self,
        bytes: Range,
        level: Level,
        (from, to): (u64, u64),
        flushed: u64,
        mut visit: impl FnMut(&Point) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let span = (bytes.start, bytes.end);
        let share = self.loads[usize::from(level.number())];
        if let Some(walks) = &self.walks {
            let hidden = walks.expected(bytes.bytes(), flushed.min(to).saturating_sub(from));
            let from = if share * hidden < HARDLY { from.max(flushed) } else { from };
            walks.points(span, (from, to), |point| {
                let loads = point.time >= flushed || share >= 1.0 || unit(point) < share;
                if loads { visit(point) } else { ControlFlow::Continue(()) }
            })?;
        }
        match &self.hits {
            Some(hits) => hits.points(span, (from.max(flushed), to), visit),
            None => ControlFlow::Continue(()),
        }
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
