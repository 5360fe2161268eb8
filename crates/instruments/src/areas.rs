//! Mapped areas: the address ranges that regions tile.
//!
//! Region-based instruments create their first regions from the target's mappings and follow the
//! mappings as they change (Telescope article, "Region Management"; Linux mm/damon/vaddr.c,
//! `damon_va_update`).

use std::time::Duration;

use std::sync::Arc;

use tierscope_core::{Backing, Mapping, Mappings, Ports, Range, Result, Time};

/// What `read` makes of the target's mappings, if an update is due: at `due`, which is then
/// advanced by `every`.
///
/// # Errors
/// If the mappings cannot be read, or `read` fails; `due` is not changed.
pub(crate) fn if_due<T>(
    ports: &mut dyn Ports,
    due: &mut Time,
    every: Duration,
    read: impl FnOnce(&mut dyn Ports, Arc<Mappings>) -> Result<T>,
) -> Result<Option<T>> {
    let now = ports.now();
    if now < *due {
        return Ok(None);
    }
    let mappings = ports.mappings(every)?;
    let result = read(ports, mappings)?;
    *due = now + every;
    Ok(Some(result))
}

/// The target's areas ([`mapped_areas`], at most `limit`), if an update is due ([`if_due`]).
///
/// # Errors
/// If the mappings cannot be read; `due` is not changed.
pub(crate) fn refresh(
    ports: &mut dyn Ports,
    due: &mut Time,
    every: Duration,
    limit: usize,
) -> Result<Option<Vec<Range>>> {
    if_due(ports, due, every, |_, mappings| Ok(mapped_areas(&mappings.mappings, limit)))
}

/// The mapped areas of a target, sorted: adjacent mappings are joined, then the smallest gaps
/// closed until at most `limit` areas are left. Gaps between spaces are never closed.
///
/// The kernel's own mappings (vdso, vvar) are left out.
pub(crate) fn mapped_areas(mappings: &[Mapping], limit: usize) -> Vec<Range> {
    let mut areas: Vec<Range> = Vec::new();
    for mapping in mappings.iter().filter(|m| m.backing != Backing::Kernel) {
        match areas.last_mut() {
            Some(last) if last.touches(&mapping.range) => last.end = mapping.range.end,
            _ => areas.push(mapping.range),
        }
    }
    close_smallest_gaps(&mut areas, limit);
    areas
}

fn close_smallest_gaps(areas: &mut Vec<Range>, limit: usize) {
    if areas.len() <= limit {
        return;
    }
    let gap = |pair: &[Range]| pair[1].start - pair[0].end;
    let same_space = |pair: &&[Range]| pair[0].space == pair[1].space;
    let mut gaps: Vec<u64> = areas.windows(2).filter(same_space).map(gap).collect();
    let too_many = (areas.len() - limit).min(gaps.len());
    if too_many == 0 {
        return;
    }
    let widest = *gaps.select_nth_unstable(too_many - 1).1;
    // More gaps may have the width of the widest one to be closed than are needed.
    let narrower = gaps.iter().filter(|gap| **gap < widest).count();
    let mut as_wide = too_many - narrower;
    areas.dedup_by(|next, last| {
        if next.space != last.space {
            return false;
        }
        let gap = next.start - last.end;
        let close = gap < widest || (gap == widest && as_wide > 0);
        if close {
            as_wide -= usize::from(gap == widest);
            last.end = next.end;
        }
        close
    });
}

/// Fits sorted, disjoint `regions` to `areas`: parts outside of the areas are cut off, uncovered
/// parts become new regions made by `blank`. `clip` makes a part of an existing region.
pub(crate) fn fit<R>(
    regions: &[R],
    areas: &[Range],
    range_of: impl Fn(&R) -> Range,
    clip: impl Fn(&R, Range) -> R,
    blank: impl Fn(Range) -> R,
) -> Vec<R> {
    let mut fitted = Vec::with_capacity(regions.len() + areas.len());
    let mut rest = regions;
    for area in areas {
        let ends_before = |r: &R| (range_of(r).space, range_of(r).end) <= (area.space, area.start);
        rest = &rest[rest.partition_point(ends_before)..];
        let mut filled = area.start;
        for region in rest {
            let Some(part) = range_of(region).intersect(area) else { break };
            if filled < part.start {
                fitted.push(blank(Range::new(area.space, filled, part.start)));
            }
            fitted.push(clip(region, part));
            filled = part.end;
        }
        if filled < area.end {
            fitted.push(blank(Range::new(area.space, filled, area.end)));
        }
    }
    fitted
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tierscope_core::SpaceId;

    fn r(space: u32, start: u64, end: u64) -> Range {
        Range::new(SpaceId(space), start, end)
    }

    fn mappings(ranges: &[Range]) -> Vec<Mapping> {
        ranges.iter().copied().map(Mapping::anonymous).collect()
    }

    // 0-10 and 10-20 touch. Gaps: 5 (20..25), 70 (30..100), 5 (110..115).
    #[test]
    fn neighbours_join_then_the_smallest_gaps_close() {
        let maps =
            mappings(&[r(0, 0, 10), r(0, 10, 20), r(0, 25, 30), r(0, 100, 110), r(0, 115, 120)]);
        assert_eq!(mapped_areas(&maps, 9).len(), 4);
        assert_eq!(mapped_areas(&maps, 3), [r(0, 0, 30), r(0, 100, 110), r(0, 115, 120)]);
        assert_eq!(mapped_areas(&maps, 2), [r(0, 0, 30), r(0, 100, 120)]);
        assert_eq!(mapped_areas(&maps, 1), [r(0, 0, 120)]);
    }

    #[test]
    fn regions_of_two_spaces_never_merge() {
        let maps = mappings(&[r(0, 0, 10), r(1, 10, 20)]);
        assert_eq!(mapped_areas(&maps, 1), [r(0, 0, 10), r(1, 10, 20)]);
    }

    fn fit_ranges(regions: &[Range], areas: &[Range]) -> Vec<Range> {
        fit(regions, areas, |r| *r, |_, part| part, |range| range)
    }

    // regions    [0   10)[10   20)      [30 40)
    // areas         [5           25)       [35   50)
    #[test]
    fn regions_follow_their_areas() {
        let fitted =
            fit_ranges(&[r(0, 0, 10), r(0, 10, 20), r(0, 30, 40)], &[r(0, 5, 25), r(0, 35, 50)]);
        assert_eq!(fitted, [r(0, 5, 10), r(0, 10, 20), r(0, 20, 25), r(0, 35, 40), r(0, 40, 50)]);
    }

    /// Sorted, disjoint ranges, from (gap, length) pairs.
    fn chain(steps: Vec<(u64, u64)>) -> Vec<Range> {
        let mut at = 0;
        steps
            .into_iter()
            .map(|(gap, len)| {
                let range = r(0, at + gap, at + gap + len);
                at = range.end;
                range
            })
            .collect()
    }

    proptest! {
        #[test]
        fn fitted_regions_tile_the_areas(
            regions in prop::collection::vec((0u64..9, 1u64..9), 0..9),
            areas in prop::collection::vec((1u64..9, 1u64..20), 0..9),
        ) {
            let (regions, areas) = (chain(regions), chain(areas));
            let fitted = fit_ranges(&regions, &areas);
            let mut at = fitted.iter();
            for area in &areas {
                let mut filled = area.start;
                while filled < area.end {
                    let next = at.next().expect("the area is tiled");
                    prop_assert_eq!(next.start, filled);
                    filled = next.end;
                }
                prop_assert_eq!(filled, area.end);
            }
            prop_assert!(at.next().is_none());
        }
    }
}
