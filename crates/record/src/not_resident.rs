//! Mapped bytes that no region counts because they are not in memory: swapped, never touched, or
//! only in a file.

use tierscope_core::{Backing, Extent, Mappings, Range, Region, Residence, SpaceId};

/// The mappings in force, and whether each is anonymous memory.
#[derive(Debug, Default)]
pub(crate) struct Layout(Vec<(Range, bool)>);

/// Mapped bytes of a space that are not resident. Together with the bytes of the regions they add
/// up to the mapped bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotResident {
    pub(crate) space: SpaceId,
    /// Bytes in swap.
    pub(crate) swapped: u64,
    /// Bytes of anonymous memory that were never populated.
    pub(crate) reserved: u64,
    /// Bytes of files, shared memory and the kernel's own mappings that are not in memory.
    pub(crate) absent: u64,
}

impl Layout {
    pub(crate) fn of(mappings: &Mappings) -> Self {
        let is_anonymous =
            |backing| matches!(backing, Backing::Anonymous | Backing::Heap | Backing::Stack);
        let all = mappings.mappings.iter();
        Self(all.map(|mapping| (mapping.range, is_anonymous(mapping.backing))).collect())
    }

    /// Bytes that are not resident of each space whose extents are known; `regions` are sorted.
    pub(crate) fn not_resident(
        &self,
        regions: &[Region],
        residence: &Residence,
    ) -> Vec<NotResident> {
        let of = |space: SpaceId, extents: &[Extent]| {
            let regions = in_space(regions, space, |region| region.range.space);
            let mappings = in_space(&self.0, space, |(range, _)| range.space);
            Parts { mappings, regions, extents }.not_resident(space)
        };
        let spaces = residence.spaces.iter();
        spaces.filter_map(|found| Some(of(found.space, found.extents.as_deref()?))).collect()
    }
}

/// The part of a sorted list that is in a space.
fn in_space<T>(list: &[T], space: SpaceId, space_of: impl Fn(&T) -> SpaceId) -> &[T] {
    let begin = list.partition_point(|one| space_of(one) < space);
    let end = list.partition_point(|one| space_of(one) <= space);
    &list[begin..end]
}

/// All parts of one space.
struct Parts<'a> {
    mappings: &'a [(Range, bool)],
    regions: &'a [Region],
    extents: &'a [Extent],
}

impl Parts<'_> {
    fn not_resident(&self, space: SpaceId) -> NotResident {
        let sum = |bytes: &mut dyn Iterator<Item = u64>| bytes.fold(0, u64::saturating_add);
        let mapped = sum(&mut self.mappings.iter().map(|(range, _)| range.bytes()));
        let filed =
            sum(&mut self.mappings.iter().filter(|part| !part.1).map(|part| part.0.bytes()));
        let counted = sum(&mut self.regions.iter().map(Region::bytes));
        // Each of the others is at most what the ones before it leave.
        let rest = mapped.saturating_sub(counted);
        let swapped = sum(&mut self.extents.iter().map(|extent| self.swapped(extent, false)));
        let swapped = swapped.min(rest);
        let in_files = sum(&mut self.regions.iter().map(|region| self.filed(region)));
        let swapped_of_files =
            sum(&mut self.extents.iter().map(|extent| self.swapped(extent, true)));
        let absent = filed.saturating_sub(in_files).saturating_sub(swapped_of_files);
        let absent = absent.min(rest - swapped);
        NotResident { space, swapped, reserved: rest - swapped - absent, absent }
    }

    /// The common parts of `range` and the mappings; with `filed` only of the mappings
    /// that are not anonymous memory.
    fn mapped(&self, range: Range, filed: bool) -> impl Iterator<Item = Range> {
        let from = self.mappings.partition_point(|(mapped, _)| mapped.end <= range.start);
        let common = self.mappings[from..]
            .iter()
            .map_while(move |(mapped, anonymous)| Some((mapped.intersect(&range)?, *anonymous)));
        common.filter(move |(_, anonymous)| !(filed && *anonymous)).map(|(common, _)| common)
    }

    /// Bytes of a region that are not anonymous memory.
    fn filed(&self, region: &Region) -> u64 {
        self.mapped(region.range, true).map(|part| region.bytes_of(&part)).sum()
    }

    /// Swapped bytes of the mapped part of an extent.
    fn swapped(&self, extent: &Extent, filed: bool) -> u64 {
        if extent.swapped == 0 {
            return 0;
        }
        let bytes: u64 = self.mapped(extent.range, filed).map(|part| part.bytes()).sum();
        let all = u128::from(extent.range.bytes().max(1));
        (u128::from(extent.swapped) * u128::from(bytes) / all) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tierscope_core::{Mapping, SpaceResidence, Time};

    const PAGE: u64 = 4096;

    fn range(start: u64, end: u64) -> Range {
        Range::new(SpaceId(1), start * PAGE, end * PAGE)
    }

    fn region(range: Range, resident: Option<u64>) -> Region {
        Region { resident, ..Region::sampled(range, 0.0, 40) }
    }

    fn mapping(range: Range, backing: Backing) -> Mapping {
        Mapping { range, backing, name: "".into(), writable: true, object: None }
    }

    fn residence(extents: Option<Vec<Extent>>) -> Residence {
        let (space, taken, extents) = (SpaceId(1), Time(0), extents.map(Into::into));
        let of = SpaceResidence { space, taken, bytes: 0, extents, placed: None };
        Residence { spaces: vec![of], ..Residence::default() }
    }

    // A heap of 100 pages: 10 resident, 20 swapped, 70 never touched. A file of 50 pages: 5
    // resident, 45 not.
    #[test]
    fn the_rest_is_split_by_backing() {
        let (heap, file) = (range(0, 100), range(100, 150));
        let mappings = vec![mapping(heap, Backing::Heap), mapping(file, Backing::File)];
        let layout = Layout::of(&Mappings { mappings, ..Mappings::default() });
        let regions = [region(range(0, 10), None), region(file, Some(5 * PAGE))];
        let extent = |range, resident, swapped| Extent {
            range,
            resident: resident * PAGE,
            swapped: swapped * PAGE,
        };
        let extents = vec![extent(range(0, 40), 10, 20), extent(file, 5, 0)];
        let found = layout.not_resident(&regions, &residence(Some(extents)));
        let pages = |of: &NotResident| [of.swapped, of.reserved, of.absent].map(|b| b / PAGE);
        assert_eq!(found.iter().map(pages).collect::<Vec<_>>(), [[20, 70, 45]]);
        assert_eq!(layout.not_resident(&regions, &residence(None)), []);
    }

    // Swapped memory that was read back since the measurement counts in its region only.
    #[test]
    fn no_byte_counts_twice() {
        let heap = range(0, 10);
        let mappings = vec![mapping(heap, Backing::Anonymous)];
        let layout = Layout::of(&Mappings { mappings, ..Mappings::default() });
        let extents = vec![Extent { range: heap, resident: 0, swapped: 10 * PAGE }];
        let found = layout.not_resident(&[region(range(0, 8), None)], &residence(Some(extents)));
        let [of] = found[..] else { panic!("{found:?}") };
        assert_eq!([of.swapped, of.reserved, of.absent], [2 * PAGE, 0, 0]);
    }

    proptest! {
        #[test]
        fn all_bytes_add_up_to_the_mapped_ones(
            parts in prop::collection::vec((0u64..9, 1u64..9, any::<bool>(), 0u64..9, 0u64..9), 0..8),
            cut in 1u64..7,
        ) {
            let (mut mappings, mut extents, mut regions) = (Vec::new(), Vec::new(), Vec::new());
            let mut at = 0;
            for (gap, pages, anonymous, resident, swapped) in parts {
                let mapped = range(at + gap, at + gap + pages);
                at += gap + pages;
                let backing = if anonymous { Backing::Anonymous } else { Backing::File };
                mappings.push(mapping(mapped, backing));
                let resident = resident.min(pages) * PAGE;
                let swapped = (swapped * PAGE).min(mapped.bytes() - resident);
                extents.push(Extent { range: mapped, resident, swapped });
                let end = range(0, at.div_ceil(cut)).end.clamp(mapped.start, mapped.end);
                let head = Range { end, ..mapped };
                if head.bytes() > 0 {
                    regions.push(region(head, Some(resident.min(head.bytes()))));
                }
            }
            let mapped: u64 = mappings.iter().map(|mapping| mapping.range.bytes()).sum();
            let counted: u64 = regions.iter().map(Region::bytes).sum();
            let layout = Layout::of(&Mappings { mappings, ..Mappings::default() });
            let found = layout.not_resident(&regions, &residence(Some(extents)))[0];
            prop_assert_eq!(counted + found.swapped + found.reserved + found.absent, mapped);
        }
    }
}
