//! Blocks of memory with known heat, merged into regions that tile all mapped memory.

use tierscope_core::{Range, Region};

/// Whether a block overlaps one of the areas, which are sorted.
pub(crate) fn is_mapped(areas: &[Range], block: &Range) -> bool {
    let next = areas.partition_point(|area| (area.space, area.end) <= (block.space, block.start));
    areas.get(next).is_some_and(|area| area.intersect(block).is_some())
}

/// Known heat of a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct BlockHeat {
    /// The block, within one area.
    pub(crate) range: Range,
    /// Same as [`Region::hits`].
    pub(crate) hits: f32,
    /// Same as [`Region::samples`].
    pub(crate) samples: u32,
    /// Same as [`Region::age`].
    pub(crate) age: u32,
}

impl BlockHeat {
    fn region(&self) -> Region {
        let BlockHeat { range, hits, samples, age } = *self;
        Region { age, ..Region::sampled(range, hits, samples) }
    }

    /// Heat class: 0 without a hit, else 1 + the eighth of 0..1 that holds the frequency; `None`
    /// without samples.
    fn heat(&self) -> Option<u32> {
        let frequency = self.region().frequency();
        (self.samples > 0).then_some(if frequency > 0.0 { 1 + (frequency * 8.0) as u32 } else { 0 })
    }

    fn is_like(&self, next: &BlockHeat) -> bool {
        self.range.touches(&next.range)
            && self.heat() == next.heat()
            && self.samples == next.samples
    }

    /// Merges a neighbour of like heat: hits become the mean over all bytes, the age the smaller
    /// one.
    fn join(&mut self, next: &BlockHeat) {
        let (mine, theirs) = (self.range.bytes() as f32, next.range.bytes() as f32);
        self.hits = (self.hits * mine + next.hits * theirs) / (mine + theirs);
        self.age = self.age.min(next.age);
        self.range.end = next.range.end;
    }
}

/// Regions that tile `areas`: the spots, which are sorted and disjoint, and `rest` of the ranges
/// between them. Neighbours of like heat become one region.
pub(crate) fn regions(
    areas: &[Range],
    spots: impl IntoIterator<Item = BlockHeat>,
    rest: impl Fn(Range) -> BlockHeat,
) -> Vec<Region> {
    let mut joined: Vec<BlockHeat> = Vec::new();
    let mut push = |spot: BlockHeat| match joined.last_mut() {
        Some(last) if last.is_like(&spot) => last.join(&spot),
        _ => joined.push(spot),
    };
    let mut spots = spots.into_iter().peekable();
    for area in areas {
        let mut filled = area.start;
        while let Some(spot) = spots.peek() {
            let Some(range) = spot.range.intersect(area) else {
                if (spot.range.space, spot.range.start) >= (area.space, area.end) {
                    break;
                }
                spots.next();
                continue;
            };
            if filled < range.start {
                push(rest(Range::new(area.space, filled, range.start)));
            }
            push(BlockHeat { range, ..*spot });
            filled = range.end;
            if spot.range.end > area.end {
                break;
            }
            spots.next();
        }
        if filled < area.end {
            push(rest(Range::new(area.space, filled, area.end)));
        }
    }
    joined.iter().map(BlockHeat::region).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::SpaceId;

    fn spot(start: u64, end: u64, hits: f32) -> BlockHeat {
        BlockHeat { range: Range::new(SpaceId(0), start, end), hits, samples: 40, age: 1 }
    }

    fn drawn(areas: &[(u64, u64)], spots: &[BlockHeat]) -> Vec<(u64, u64, f32)> {
        let areas: Vec<Range> = areas.iter().map(|(a, b)| Range::new(SpaceId(0), *a, *b)).collect();
        let rest = |range| BlockHeat { range, hits: 0.0, samples: 40, age: 9 };
        let regions = regions(&areas, spots.iter().copied(), rest);
        regions.iter().map(|r| (r.range.start, r.range.end, r.hits)).collect()
    }

    // area  |0         100|     |200       300|
    // spots    10###20##30   90...210 (spans the gap)
    #[test]
    fn blocks_of_known_heat_tile_the_areas() {
        let spots = [spot(10, 20, 40.0), spot(20, 30, 40.0), spot(90, 210, 10.0)];
        assert_eq!(
            drawn(&[(0, 100), (200, 300)], &spots),
            [
                (0, 10, 0.0),
                (10, 30, 40.0),
                (30, 90, 0.0),
                (90, 100, 10.0),
                (200, 210, 10.0),
                (210, 300, 0.0)
            ]
        );
    }

    #[test]
    fn blocks_outside_of_the_areas_are_left_out() {
        assert_eq!(drawn(&[(50, 60)], &[spot(0, 10, 1.0), spot(70, 80, 1.0)]), [(50, 60, 0.0)]);
    }

    // 40, 39 and 20 of 40 are 1.0, 0.975 and 0.5: eighths 8, 7 and 4.
    #[test]
    fn neighbours_of_like_heat_are_joined() {
        let spots = [spot(0, 10, 39.0), spot(10, 20, 38.0), spot(20, 30, 20.0)];
        assert_eq!(drawn(&[(0, 30)], &spots), [(0, 20, 38.5), (20, 30, 20.0)]);
    }
}
