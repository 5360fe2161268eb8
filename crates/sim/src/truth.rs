//! What is hot when.

use std::time::Duration;

use tierscope_core::{Mappings, Range, RangeSet, SpaceId, Time};
use tierscope_workloads::{Segment, Workload};

/// The ranges that a workload declares hot, at the addresses where a machine has put them.
#[derive(Clone, Debug)]
pub struct Truth {
    pub(crate) workload: Workload,
    pub(crate) bases: Vec<u64>,
    pub(crate) space: SpaceId,
}

impl Truth {
    /// The truth about a process that began to run at time 0: its areas are the mappings of `space`
    /// that bear their names. `None` if one is not there.
    #[must_use]
    pub fn of(workload: &Workload, space: SpaceId, mappings: &Mappings) -> Option<Self> {
        let base = |name: &str| {
            let here = mappings.mappings.iter().filter(|mapping| mapping.range.space == space);
            here.map(|mapping| (&*mapping.name, mapping.range.start)).find(|(n, _)| *n == name)
        };
        let bases = workload.areas.iter().map(|area| base(&area.name).map(|(_, start)| start));
        Some(Self { workload: workload.clone(), bases: bases.collect::<Option<_>>()?, space })
    }

    /// The areas that the workload accesses in some phase.
    #[must_use]
    pub fn accessed(&self) -> RangeSet {
        let accesses = self.workload.phases.iter().flat_map(|phase| &phase.accesses);
        let range = |area: usize| {
            let start = self.bases[area];
            Range::new(self.space, start, start + self.workload.areas[area].bytes)
        };
        accesses.map(|access| range(access.area)).collect()
    }

    /// The segment of the workload that is on at a time.
    #[must_use]
    pub fn segment_at(&self, time: Time) -> Segment {
        self.workload.segment_at(Duration::from_nanos(time.0))
    }

    /// The hot ranges at a time.
    #[must_use]
    pub fn hot_at(&self, time: Time) -> RangeSet {
        self.workload.hot_at(&self.segment_at(time), &self.bases, self.space)
    }

    /// The name of the phase that is on at a time.
    #[must_use]
    pub fn phase_at(&self, time: Time) -> &str {
        &self.workload.phases[self.segment_at(time).phase].name
    }
}
