//! Which of the target's addresses a unit of physical memory holds.

use tierscope_core::{FrameRun, Ports, Range, Result};

use crate::block_heat::BlockHeat;

/// Bytes of addresses translated per call.
const STRETCH: u64 = 1 << 34;

/// The target's memory in the devices, as last read.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    /// Sorted by address.
    runs: Vec<FrameRun>,
    /// Indices of `runs`, sorted by physical address.
    by_frame: Vec<usize>,
}

impl Places {
    /// Translates the areas; `sees` are the physical ranges of the devices, ascending.
    ///
    /// # Errors
    /// If physical addresses are hidden.
    pub(super) fn read(
        ports: &mut dyn Ports,
        areas: &[Range],
        sees: &[(u64, u64)],
    ) -> Result<Self> {
        let mut found = Vec::new();
        for area in areas {
            let mut start = area.start;
            while start < area.end {
                let stop = area.end.min(start.saturating_add(STRETCH));
                ports.frames()?.locate(&Range::new(area.space, start, stop), &mut found)?;
                start = stop;
            }
        }
        let mut runs = Vec::new();
        for run in found.iter().flat_map(|run| within(*run, sees)) {
            run.append_to(&mut runs);
        }
        Ok(Self::of_runs(runs))
    }

    fn of_runs(runs: Vec<FrameRun>) -> Self {
        let mut by_frame: Vec<usize> = (0..runs.len()).collect();
        by_frame.sort_by_key(|index| runs[*index].frame);
        Self { runs, by_frame }
    }

    /// The target's addresses within `bytes` of physical memory from `address` on, in parts.
    pub(super) fn of(&self, address: u64, bytes: u64) -> impl Iterator<Item = Range> + '_ {
        let end = address.saturating_add(bytes);
        let frame_end = |run: &FrameRun| run.frame + run.range.bytes();
        let first = self.by_frame.partition_point(|index| frame_end(&self.runs[*index]) <= address);
        let there = self.by_frame[first..].iter().map(|index| &self.runs[*index]);
        there.take_while(move |run| run.frame < end).filter_map(move |run| {
            let from = address.max(run.frame) - run.frame;
            let to = end.min(frame_end(run)) - run.frame;
            let at = |offset: u64| run.range.start + offset;
            (from < to).then(|| Range::new(run.range.space, at(from), at(to)))
        })
    }

    /// All memory in the devices: `hot`, which is sorted and within it, and `cold` between. Of hot
    /// parts that overlap, the first counts.
    pub(super) fn fill(
        &self,
        hot: Vec<BlockHeat>,
        cold: impl Fn(Range) -> BlockHeat,
    ) -> Vec<BlockHeat> {
        let mut filled = Vec::with_capacity(2 * hot.len() + self.runs.len());
        let mut hot = hot.into_iter().peekable();
        for run in &self.runs {
            let Range { space, mut start, end } = run.range;
            while let Some(spot) =
                hot.next_if(|spot| (spot.range.space, spot.range.start) < (space, end))
            {
                let from = spot.range.start.max(start);
                if from >= spot.range.end {
                    continue;
                }
                if start < from {
                    filled.push(cold(Range::new(space, start, from)));
                }
                start = spot.range.end.min(end);
                filled.push(BlockHeat { range: Range::new(space, from, start), ..spot });
            }
            if start < end {
                filled.push(cold(Range::new(space, start, end)));
            }
        }
        filled
    }
}

/// The parts of a run within the devices.
fn within(run: FrameRun, sees: &[(u64, u64)]) -> impl Iterator<Item = FrameRun> + '_ {
    sees.iter().filter_map(move |(first, end)| {
        let start = run.frame.max(*first);
        let stop = (run.frame + run.range.bytes()).min(*end);
        let at = |frame: u64| run.range.start + (frame - run.frame);
        (start < stop).then(|| FrameRun {
            range: Range::new(run.range.space, at(start), at(stop)),
            frame: start,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::SpaceId;

    const MIB: u64 = 1 << 20;

    fn run(start: u64, end: u64, frame: u64) -> FrameRun {
        let range = Range::new(SpaceId(0), start * MIB, end * MIB);
        FrameRun { range, frame: frame * MIB }
    }

    fn mib(range: &Range) -> (u64, u64) {
        (range.start / MIB, range.end / MIB)
    }

    // 10..13 MiB lie at 100, 20..21 at 103: the unit of 2 MiB at 102 holds the last of the one and
    // all of the other.
    #[test]
    fn a_unit_may_hold_several_parts() {
        let places = Places::of_runs(vec![run(10, 13, 100), run(20, 21, 103)]);
        let of = |address: u64| {
            places.of(address * MIB, 2 * MIB).map(|range| mib(&range)).collect::<Vec<_>>()
        };
        assert_eq!(of(100), [(10, 12)]);
        assert_eq!(of(102), [(12, 13), (20, 21)]);
        assert_eq!((of(98), of(104)), (vec![], vec![]));
    }

    #[test]
    fn memory_of_other_devices_is_cut_off() {
        let sees = [(0, 12 * MIB), (18 * MIB, 30 * MIB)];
        let cut: Vec<_> = within(run(100, 110, 10), &sees).map(|part| mib(&part.range)).collect();
        assert_eq!(cut, [(100, 102), (108, 110)]);
    }

    // |10   ##   16|  |20 ##22|: all of it is hot or cold, nothing twice.
    #[test]
    fn what_is_not_hot_is_cold() {
        let places = Places::of_runs(vec![run(10, 16, 100), run(20, 22, 0)]);
        let spot = |start: u64, end: u64, hits: f32| BlockHeat {
            range: Range::new(SpaceId(0), start * MIB, end * MIB),
            hits,
            samples: 40,
            age: 1,
        };
        let hot = vec![spot(12, 14, 9.0), spot(13, 15, 8.0), spot(21, 22, 7.0)];
        let cold = |range| BlockHeat { range, hits: 0.0, samples: 40, age: 5 };
        let all: Vec<_> = places.fill(hot, cold).iter().map(|s| (mib(&s.range), s.hits)).collect();
        let expected = [
            ((10, 12), 0.0),
            ((12, 14), 9.0),
            ((14, 15), 8.0),
            ((15, 16), 0.0),
            ((20, 21), 0.0),
            ((21, 22), 7.0),
        ];
        assert_eq!(all, expected);
    }
}
