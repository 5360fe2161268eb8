//! Memory whose ACCESSED bits tell nothing: refused by the machine, or of a guest. Instruments on
//! ACCESSED bits leave it out of their areas and report it as unknown, with the reason.

use std::time::Duration;

use tierscope_core::{Mappings, Ports, Range, RangeSet, Region, Result, SpaceId, Time, Unknown};

use crate::areas::{if_due, mapped_areas};

/// The hidden parts of a target's memory, as of the last update.
#[derive(Debug, Default)]
pub(crate) struct Hidden {
    /// Sorted by range, disjoint.
    parts: Vec<(Range, Unknown)>,
}

impl Hidden {
    /// Asks the machine which memory is hidden.
    ///
    /// # Errors
    /// If there is no port for ACCESSED bits, or it fails.
    pub(crate) fn update(&mut self, ports: &mut dyn Ports, mappings: &Mappings) -> Result<()> {
        self.parts = ports.access_bits()?.hidden(mappings)?;
        Ok(())
    }

    /// Like [`crate::areas::refresh`], without hidden memory.
    ///
    /// # Errors
    /// Same as [`Hidden::update`], or if the mappings cannot be read; `due` is not changed.
    pub(crate) fn refresh(
        &mut self,
        ports: &mut dyn Ports,
        due: &mut Time,
        every: Duration,
        limit: usize,
    ) -> Result<Option<Vec<Range>>> {
        if_due(ports, due, every, |ports, mappings| self.areas(ports, &mappings, limit))
    }

    /// At most `limit` areas of these mappings, without hidden memory.
    ///
    /// # Errors
    /// Same as [`Hidden::update`].
    pub(crate) fn areas(
        &mut self,
        ports: &mut dyn Ports,
        mappings: &Mappings,
        limit: usize,
    ) -> Result<Vec<Range>> {
        self.update(ports, mappings)?;
        // Each hidden part cuts at most one area in two.
        let limit = limit.saturating_sub(self.count()).max(1);
        Ok(self.cut(mapped_areas(&mappings.mappings, limit)))
    }

    /// Number of hidden parts.
    pub(crate) fn count(&self) -> usize {
        self.parts.len()
    }

    /// The parts of sorted `areas` that are not hidden.
    pub(crate) fn cut(&self, areas: Vec<Range>) -> Vec<Range> {
        if self.parts.is_empty() {
            return areas;
        }
        let hidden: RangeSet = self.parts.iter().map(|(range, _)| *range).collect();
        let visible = |area: Range| {
            let area: RangeSet = [area].into_iter().collect();
            area.minus(&hidden).as_slice().to_vec()
        };
        areas.into_iter().flat_map(visible).collect()
    }

    /// Drops the hidden parts of a space that is gone.
    pub(crate) fn forget(&mut self, gone: &[SpaceId]) {
        self.parts.retain(|(range, _)| !gone.contains(&range.space));
    }

    /// Adds the hidden parts to a window's regions, which hold visible memory only.
    pub(crate) fn add_to(&self, regions: &mut Vec<Region>) {
        if self.parts.is_empty() {
            return;
        }
        let region = |(range, why): &(Range, Unknown)| Region {
            unknown: Some(*why),
            confidence: 0.0,
            ..Region::sampled(*range, 0.0, 0)
        };
        regions.extend(self.parts.iter().map(region));
        regions.sort_unstable_by_key(|region| region.range);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn r(start: u64, end: u64) -> Range {
        Range::new(SpaceId(0), start, end)
    }

    // areas    [0          40)[40  50)   [60 70)
    // hidden      [10 20)                [60 70)
    #[test]
    fn hidden_parts_are_cut_out_and_added_again() {
        let hidden =
            Hidden { parts: vec![(r(10, 20), Unknown::Refused), (r(60, 70), Unknown::Guest)] };
        let areas = hidden.cut(vec![r(0, 40), r(40, 50), r(60, 70)]);
        assert_eq!(areas, [r(0, 10), r(20, 40), r(40, 50)]);
        let mut regions: Vec<Region> =
            areas.iter().map(|area| Region::sampled(*area, 1.0, 40)).collect();
        hidden.add_to(&mut regions);
        let reported: Vec<_> = regions.iter().map(|of| (of.range.start, of.unknown)).collect();
        let (refused, guest) = (Some(Unknown::Refused), Some(Unknown::Guest));
        assert_eq!(reported, [(0, None), (10, refused), (20, None), (40, None), (60, guest)]);
        assert!(regions[1].is_unknown() && !regions[1].is_unseen());
    }

    #[test]
    fn a_space_that_is_gone_hides_nothing() {
        let mut hidden = Hidden { parts: vec![(r(10, 20), Unknown::Refused)] };
        hidden.forget(&[SpaceId(1)]);
        assert_eq!(hidden.count(), 1);
        hidden.forget(&[SpaceId(0)]);
        assert_eq!(hidden.count(), 0);
    }
}
