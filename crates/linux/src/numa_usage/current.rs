//! Brings what the observing thread has found up to mappings that were read since.

use std::collections::BTreeMap;
use std::sync::Arc;

use tierscope_core::{Mappings, Residence, SpaceId, SpaceResidence};

use super::{extents, survey, with_new};

/// What the observing thread has found.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) residence: Arc<Residence>,
    /// The mappings that its extents are in.
    pub(super) mappings: Arc<Mappings>,
    /// Resident bytes of each process, with all that it shares with others.
    pub(super) read: BTreeMap<SpaceId, u64>,
}

impl Found {
    /// The residence with that of memory which only `mappings` have: what each process has in
    /// memory now, more than before (`read`), is spread evenly over it.
    fn grown(&self, mappings: &Mappings, read: impl Fn(SpaceId) -> Option<u64>) -> Arc<Residence> {
        let mut residence = Arc::clone(&self.residence);
        for (index, of) in self.residence.spaces.iter().enumerate() {
            let new = survey::new_ranges(mappings, &self.mappings, of.space);
            let (Some(known), false) = (&of.extents, new.is_empty()) else { continue };
            let Some(before) = self.read.get(&of.space) else { continue };
            let more = read(of.space).map_or(0, |now| now.saturating_sub(*before));
            let extents = Some(with_new(known, &extents::spread(more, &new)));
            let mut grown = SpaceResidence { extents, ..of.clone() };
            grown.set_bytes(of.bytes + more);
            Arc::make_mut(&mut residence).spaces[index] = grown;
        }
        residence
    }
}

/// The residence at the mappings in use, made once for each.
#[derive(Default)]
pub(super) struct Current {
    of: Option<(Arc<Found>, Arc<Mappings>)>,
    residence: Arc<Residence>,
}

impl Current {
    /// The residence as found, if that was with `mappings`; otherwise with what is new in them.
    pub(super) fn at(
        &mut self,
        found: &Arc<Found>,
        mappings: &Arc<Mappings>,
        read: impl Fn(SpaceId) -> Option<u64>,
    ) -> Arc<Residence> {
        let is_of = |(of, at): &(Arc<Found>, Arc<Mappings>)| {
            Arc::ptr_eq(of, found) && Arc::ptr_eq(at, mappings)
        };
        if !self.of.as_ref().is_some_and(is_of) {
            self.residence = found.grown(mappings, read);
            self.of = Some((Arc::clone(found), Arc::clone(mappings)));
        }
        Arc::clone(&self.residence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use tierscope_core::{Extent, Mapping, Range, Space, Time};

    const SPACE: SpaceId = SpaceId(3);

    fn pages(from: u64, to: u64) -> Range {
        Range::new(SPACE, from << 12, to << 12)
    }

    fn mapped(ranges: &[Range]) -> Arc<Mappings> {
        let spaces = vec![Space { id: SPACE, name: "toy".into() }];
        let mappings = ranges.iter().copied().map(Mapping::anonymous).collect();
        Arc::new(Mappings { spaces, mappings, ..Mappings::default() })
    }

    /// 10 pages are mapped, and 4 resident. With views of other memory, the process has 7.
    fn found() -> Arc<Found> {
        let extents: Arc<[Extent]> =
            [Extent { range: pages(0, 10), resident: 4 << 12, swapped: 0 }].into();
        let (taken, placed) = (Time(5), None);
        let of =
            SpaceResidence { space: SPACE, taken, bytes: 4 << 12, extents: Some(extents), placed };
        let residence = Residence { spaces: vec![of], ..Residence::default() };
        let read = [(SPACE, 7 << 12)].into();
        let mappings = mapped(&[pages(0, 10)]);
        Arc::new(Found { residence: residence.into(), mappings, read })
    }

    // The process has 9 pages now: 2 of the 8 in new mappings.
    #[test]
    fn memory_that_was_mapped_since_has_what_else_is_resident() {
        let (found, calls) = (found(), Cell::new(0));
        let read = |_| {
            calls.set(calls.get() + 1);
            Some(9 << 12)
        };
        let mut current = Current::default();
        let grown = mapped(&[pages(0, 14), pages(20, 24)]);
        let residence = current.at(&found, &grown, read);
        let of = &residence.spaces[0];
        let resident = |range, pages: u64| Extent { range, resident: pages << 12, swapped: 0 };
        let extents =
            [resident(pages(0, 10), 4), resident(pages(10, 14), 1), resident(pages(20, 24), 1)];
        assert_eq!((of.bytes, of.extents.as_deref()), (6 << 12, Some(&extents[..])));
        assert!(Arc::ptr_eq(&current.at(&found, &grown, read), &residence));
        assert_eq!(calls.get(), 1);
    }

    #[test]
    fn what_was_found_stays_without_new_memory() {
        let (found, read) = (found(), |_| panic!("not needed"));
        let mut current = Current::default();
        for ranges in [[pages(0, 10)], [pages(2, 8)]] {
            let residence = current.at(&found, &mapped(&ranges), read);
            assert!(Arc::ptr_eq(&residence, &found.residence));
        }
        let ended = current.at(&found, &mapped(&[pages(0, 11)]), |_| None);
        assert_eq!(ended.spaces[0].bytes, 4 << 12);
    }
}
