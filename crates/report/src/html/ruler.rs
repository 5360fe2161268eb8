//! The page's address scale: the parts of all areas, concatenated, in units that fit into 32 bits.
//! The page sees 64-bit addresses only as text, for the start of a part.

use tierscope_core::{PAGE_SHIFT, Range};

/// Areas laid end to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ruler {
    /// The parts of all areas, sorted and disjoint, each with its first unit.
    parts: Vec<(Range, u32)>,
    /// log2 of the bytes per unit; a unit is a page unless that would take more than 2^32 units.
    shift: u32,
}

impl Ruler {
    /// Of areas, each a list of ranges.
    pub(super) fn new<'a>(areas: impl Iterator<Item = &'a [Range]> + Clone) -> Self {
        let all = areas.flatten();
        let fits = |shift: &u32| {
            let units = all.clone().map(|part| u128::from(units(part.bytes(), *shift)));
            units.sum::<u128>() <= u128::from(u32::MAX)
        };
        let shift = (PAGE_SHIFT..64).find(fits).unwrap_or(63);
        let mut base = 0;
        let placed = all.map(|part| {
            let here = base;
            base += units(part.bytes(), shift) as u32;
            (*part, here)
        });
        let mut parts: Vec<_> = placed.collect();
        parts.sort_unstable_by_key(|(part, _)| *part);
        Self { parts, shift }
    }

    pub(super) fn unit_bytes(&self) -> u64 {
        1 << self.shift
    }

    /// Number of units of a part.
    pub(super) fn units_of(&self, part: &Range) -> u32 {
        units(part.bytes(), self.shift) as u32
    }

    /// The units of the visible parts of `range`, in order of address: first unit, and one past the
    /// last.
    pub(super) fn place(&self, range: Range) -> impl Iterator<Item = (u32, u32)> + '_ {
        let key = (range.space, range.start);
        let first = self.parts.partition_point(|(part, _)| (part.space, part.end) <= key);
        self.parts[first..].iter().map_while(move |(part, base)| {
            let common = part.intersect(&range)?;
            let from = (common.start - part.start) >> self.shift;
            let to = units(common.end - part.start, self.shift);
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

    fn of(areas: &[Vec<Range>]) -> Ruler {
        Ruler::new(areas.iter().map(Vec::as_slice))
    }

    //  space 0: pages 10..14, 16..17, 20..22; space 1: 10..11; 16..17 is in the last area.
    //  units          0..4    7..8     4..6             6..7
    #[test]
    fn areas_lie_end_to_end() {
        let ruler = of(&[
            vec![pages(0, 10, 14), pages(0, 20, 22)],
            vec![pages(1, 10, 11)],
            vec![pages(0, 16, 17)],
        ]);
        let place = |range| ruler.place(range).collect::<Vec<_>>();
        assert_eq!(place(pages(0, 12, 21)), [(2, 4), (7, 8), (4, 5)]);
        assert_eq!(place(pages(1, 0, 100)), [(6, 7)]);
        assert_eq!(place(pages(0, 14, 16)), []);
        assert_eq!(ruler.unit_bytes(), 4096);
    }

    #[test]
    fn petabytes_are_counted_in_larger_units() {
        let ruler = of(&[vec![Range::new(SpaceId(0), 0, 1 << 50)]]);
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
            let ruler = of(std::slice::from_ref(&areas));
            for page in 0..at + 2 {
                let before = (0..page).filter(|p| shown(*p)).count() as u32;
                let want: Vec<_> = shown(page).then_some((before, before + 1)).into_iter().collect();
                prop_assert_eq!(ruler.place(pages(0, page, page + 1)).collect::<Vec<_>>(), want);
            }
        }
    }
}
