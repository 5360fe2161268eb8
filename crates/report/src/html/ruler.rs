//! The page's address scale: the areas shown, concatenated, in units that fit into 32 bits. The
//! page sees 64-bit addresses only as text, for the start of an area.

use tierscope_core::{PAGE_SHIFT, Range};

/// Areas laid end to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ruler {
    /// The areas, sorted and disjoint.
    areas: Vec<Range>,
    /// The unit at which each area begins.
    bases: Vec<u32>,
    /// log2 of the bytes per unit; a unit is a page unless that would take more than 2^32 units.
    shift: u32,
}

impl Ruler {
    pub(super) fn new(areas: Vec<Range>) -> Self {
        let fits = |shift: &u32| {
            let units = areas.iter().map(|area| u128::from(units(area.bytes(), *shift)));
            units.sum::<u128>() <= u128::from(u32::MAX)
        };
        let shift = (PAGE_SHIFT..64).find(fits).unwrap_or(63);
        let mut base = 0;
        let bases = areas.iter().map(|area| {
            let here = base;
            base += units(area.bytes(), shift) as u32;
            here
        });
        let bases = bases.collect();
        Self { areas, bases, shift }
    }

    pub(super) fn unit_bytes(&self) -> u64 {
        1 << self.shift
    }

    /// Each area with its first unit and its length in units.
    pub(super) fn areas(&self) -> impl Iterator<Item = (&Range, u32, u32)> {
        let with_units = |(area, base): (_, &u32)| (area, *base, self.units_of(area));
        self.areas.iter().zip(&self.bases).map(with_units)
    }

    fn units_of(&self, area: &Range) -> u32 {
        units(area.bytes(), self.shift) as u32
    }

    /// The units of the visible parts of `range`: first unit, and one past the last.
    pub(super) fn place(&self, range: Range) -> impl Iterator<Item = (u32, u32)> + '_ {
        let key = (range.space, range.start);
        let first = self.areas.partition_point(|area| (area.space, area.end) <= key);
        let areas = self.areas[first..].iter().zip(&self.bases[first..]);
        areas.map_while(move |(area, base)| {
            let common = area.intersect(&range)?;
            let from = (common.start - area.start) >> self.shift;
            let to = units(common.end - area.start, self.shift);
            Some((base + from as u32, base + to as u32))
        })
    }
}

/// Number of units that `bytes` bytes take.
fn units(bytes: u64, shift: u32) -> u64 {
    bytes.div_ceil(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tierscope_core::SpaceId;

    fn pages(space: u32, start: u64, end: u64) -> Range {
        Range::new(SpaceId(space), start << 12, end << 12)
    }

    //  space 0: pages 10..14 and 20..22; space 1: 10..11
    //  units          0..4      4..6              6..7
    #[test]
    fn areas_lie_end_to_end() {
        let ruler = Ruler::new(vec![pages(0, 10, 14), pages(0, 20, 22), pages(1, 10, 11)]);
        let place = |range| ruler.place(range).collect::<Vec<_>>();
        assert_eq!(place(pages(0, 12, 21)), [(2, 4), (4, 5)]);
        assert_eq!(place(pages(1, 0, 100)), [(6, 7)]);
        assert_eq!(place(pages(0, 14, 20)), []);
        assert_eq!(ruler.unit_bytes(), 4096);
    }

    #[test]
    fn petabytes_are_counted_in_larger_units() {
        let ruler = Ruler::new(vec![Range::new(SpaceId(0), 0, 1 << 50)]);
        assert_eq!(ruler.unit_bytes(), 1 << 19, "2^50 bytes in at most 2^32 - 1 units");
        let all: Vec<_> = ruler.place(Range::new(SpaceId(0), 0, 1 << 50)).collect();
        assert_eq!(all, [(0, 1 << 31)]);
    }

    proptest! {
        // Compares every page's unit with the number of visible pages before it.
        #[test]
        fn every_page_lies_where_counting_puts_it(lengths in prop::collection::vec((1u64..5, 0u64..4), 1..6)) {
            let (mut areas, mut at) = (Vec::new(), 0);
            for (length, gap) in lengths {
                at += gap + 1;
                areas.push(pages(0, at, at + length));
                at += length;
            }
            let shown = |page: u64| areas.iter().any(|a| a.intersect(&pages(0, page, page + 1)).is_some());
            let ruler = Ruler::new(areas.clone());
            for page in 0..at + 2 {
                let before = (0..page).filter(|p| shown(*p)).count() as u32;
                let want: Vec<_> = shown(page).then_some((before, before + 1)).into_iter().collect();
                prop_assert_eq!(ruler.place(pages(0, page, page + 1)).collect::<Vec<_>>(), want);
            }
        }
    }
}
