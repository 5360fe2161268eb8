//! Address ranges monitored by DAMON: three areas, separated by the two biggest gaps.

use tierscope_core::{Mapping, Range};

/// The areas of a space that are separated by the two biggest gaps between its mappings
/// (`__damon_va_three_regions`); fewer if there are fewer gaps. `mappings` are sorted and of one
/// space.
///
/// An address space is mostly holes, and the two that matter lie around the mmap area:
///
/// ```text
///   0    text heap                  libraries, big maps               stack     2^47
///   |    ##.####....................####.##.########..................###.#     |
///          ^    '---- biggest ----'     ^  ^        '-- 2nd biggest -'   ^
///        small                        small gaps                       small
///        [=======]                  [===============]                [=====]
///         area 0                         area 1                       area 2
/// ```
///
/// Small gaps stay in: a region without accesses costs one probe per interval, and regions that
/// followed every mapping would never become stable in a program that maps and unmaps all the time.
pub(super) fn three_areas(mappings: &[Mapping]) -> Vec<Range> {
    let (Some(first), Some(last)) = (mappings.first(), mappings.last()) else { return Vec::new() };
    let space = first.range.space;
    let gap = |pair: &[Mapping]| Range::new(space, pair[0].range.end, pair[1].range.start);
    let mut gaps: Vec<Range> = mappings.windows(2).map(gap).filter(|g| !g.is_empty()).collect();
    gaps.sort_by_key(|gap| std::cmp::Reverse(gap.bytes()));
    gaps.truncate(2);
    gaps.sort_unstable();
    let starts = std::iter::once(first.range.start).chain(gaps.iter().map(|gap| gap.end));
    let ends = gaps.iter().map(|gap| gap.start).chain(std::iter::once(last.range.end));
    starts.zip(ends).map(|(start, end)| Range::new(space, start, end)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::test_range as r;
    use super::*;
    use tierscope_core::Backing;

    fn areas(ranges: &[(u64, u64)]) -> Vec<Range> {
        let mapping = |&(start, end): &(u64, u64)| Mapping {
            range: r(start, end),
            backing: Backing::Anonymous,
            name: "".into(),
            writable: true,
            object: None,
        };
        three_areas(&ranges.iter().map(mapping).collect::<Vec<_>>())
    }

    // Gaps: 5 (10..15), 70 (30..100), 10 (110..120), 40 (130..170).
    #[test]
    fn the_two_biggest_gaps_set_areas_apart() {
        let found = areas(&[(0, 10), (15, 30), (100, 110), (120, 130), (170, 180)]);
        assert_eq!(found, [r(0, 30), r(100, 130), r(170, 180)]);
    }

    #[test]
    fn of_equal_gaps_the_lower_ones_count() {
        let found = areas(&[(0, 10), (20, 30), (40, 50), (60, 70)]);
        assert_eq!(found, [r(0, 10), r(20, 30), r(40, 70)]);
    }

    #[test]
    fn fewer_gaps_make_fewer_areas() {
        assert_eq!(areas(&[]), []);
        assert_eq!(areas(&[(0, 10), (10, 20)]), [r(0, 20)]);
        assert_eq!(areas(&[(0, 10), (15, 20)]), [r(0, 10), r(15, 20)]);
    }
}
