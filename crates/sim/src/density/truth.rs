//! What is hot when.

use std::time::Duration;

use tierscope_core::{RangeSet, Time};
use tierscope_workloads::{Segment, Workload};

use super::world::SPACE;

/// The ranges that a workload declares hot, at the addresses where a machine has put them.
#[derive(Clone, Debug)]
pub struct Truth {
    pub(super) workload: Workload,
    pub(super) bases: Vec<u64>,
}

impl Truth {
    /// The segment of the workload that is on at a time.
    #[must_use]
    pub fn segment_at(&self, time: Time) -> Segment {
        self.workload.segment_at(Duration::from_nanos(time.0))
    }

    /// The hot ranges at a time.
    #[must_use]
    pub fn hot_at(&self, time: Time) -> RangeSet {
        self.workload.hot_at(&self.segment_at(time), &self.bases, SPACE)
    }

    /// The name of the phase that is on at a time.
    #[must_use]
    pub fn phase_at(&self, time: Time) -> &str {
        &self.workload.phases[self.segment_at(time).phase].name
    }
}
