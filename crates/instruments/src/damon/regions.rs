//! DAMON's sampling regions: how they are created, merged, split and fitted to areas.

use std::time::Duration;

use tierscope_core::{Level, PAGE_SIZE, Probe, Range, Rng, State};

/// A sampling region (`struct damon_region`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SampledRegion {
    pub(super) range: Range,
    /// Sampling intervals of this window with an access (`nr_accesses`).
    pub(super) accesses: u32,
    /// Sampling intervals of the previous window with an access (`last_nr_accesses`).
    pub(super) last: u32,
    /// Windows for which the count has stayed about the same.
    pub(super) age: u32,
    /// Coarsest leaf found in this window.
    pub(super) level: Option<Level>,
    /// The machine refused a probe of this window.
    pub(super) refused: bool,
}

impl SampledRegion {
    pub(super) fn new(range: Range) -> Self {
        Self { range, accesses: 0, last: 0, age: 0, level: None, refused: false }
    }

    pub(super) fn judge(&mut self, probe: &Probe) {
        if matches!(probe.answer.state, State::Young | State::Old) {
            self.level = self.level.max(probe.answer.reached);
        }
        self.accesses += u32::from(probe.is_young());
        self.refused |= probe.answer.state == State::Refused;
    }

    /// `kdamond_reset_aggregated`: resets the count.
    pub(super) fn start_over(&mut self) {
        self.last = self.accesses;
        self.accesses = 0;
        self.level = None;
        self.refused = false;
    }

    /// Rescales the age, which is counted in windows, to a new window length
    /// (`damon_age_for_new_attrs`).
    pub(super) fn rescale_age(&mut self, old: Duration, new: Duration) {
        let age = u128::from(self.age) * old.as_nanos() / new.as_nanos();
        self.age = u32::try_from(age).unwrap_or(u32::MAX);
    }

    fn grow_old(&mut self, threshold: u32) {
        let alike = self.accesses.abs_diff(self.last) <= threshold;
        self.age = if alike { self.age.saturating_add(1) } else { 0 };
    }

    fn is_like(&self, next: &SampledRegion, threshold: u32) -> bool {
        self.accesses.abs_diff(next.accesses) <= threshold
    }

    /// `damon_merge_two_regions`: counts and ages become means weighted by size, rounded down.
    fn merge(&mut self, next: &SampledRegion) {
        let (mine, theirs) = (u128::from(self.range.bytes()), u128::from(next.range.bytes()));
        let mean = |a: u32, b: u32| {
            ((u128::from(a) * mine + u128::from(b) * theirs) / (mine + theirs)) as u32
        };
        self.accesses = mean(self.accesses, next.accesses);
        self.age = mean(self.age, next.age);
        self.level = self.level.max(next.level);
        self.refused |= next.refused;
        self.range.end = next.range.end;
    }
}

/// `__damon_va_init_regions`: cuts areas evenly into about `min_regions` regions per space.
pub(super) fn initial(areas: &[Range], min_regions: usize) -> Vec<SampledRegion> {
    let total: u64 = areas.iter().map(Range::bytes).sum();
    let size = (total / min_regions as u64).max(PAGE_SIZE);
    let cut = |area: &Range| evenly(*area, area.bytes() / size);
    areas.iter().flat_map(cut).map(SampledRegion::new).collect()
}

/// `damon_va_evenly_split_region`: `pieces` pieces of whole pages, the last one takes the rest. A
/// range whose pieces would be smaller than a page is not cut.
fn evenly(range: Range, pieces: u64) -> Vec<Range> {
    let pieces = pieces.max(1);
    let size = range.bytes() / pieces / PAGE_SIZE * PAGE_SIZE;
    if size == 0 {
        return vec![range];
    }
    let piece = |i: u64| {
        let start = range.start + i * size;
        let end = if i + 1 == pieces { range.end } else { start + size };
        Range::new(range.space, start, end)
    };
    (0..pieces).map(piece).collect()
}

/// `damon_set_regions`: drops regions outside of the areas; the first and the last region of an
/// area grow or shrink to its bounds, holes between regions become regions, and so does an area
/// without any. A region that overlaps two areas stays with the first.
pub(super) fn set_areas(zones: Vec<SampledRegion>, areas: &[Range]) -> Vec<SampledRegion> {
    let mut set: Vec<SampledRegion> = Vec::with_capacity(zones.len() + areas.len());
    let mut rest = zones.into_iter().peekable();
    for area in areas {
        let ends_before =
            |z: &SampledRegion| (z.range.space, z.range.end) <= (area.space, area.start);
        while rest.next_if(ends_before).is_some() {}
        let first = set.len();
        while let Some(zone) = rest.next_if(|zone| zone.range.intersect(area).is_some()) {
            let filled =
                if set.len() == first { zone.range.start } else { set[set.len() - 1].range.end };
            if filled < zone.range.start {
                set.push(SampledRegion::new(Range::new(area.space, filled, zone.range.start)));
            }
            set.push(zone);
        }
        if set.len() == first {
            set.push(SampledRegion::new(*area));
            continue;
        }
        set[first].range.start = area.start;
        let last = set.len() - 1;
        set[last].range.end = area.end;
    }
    set
}

/// `damon_region_sz_limit`: monitored bytes over the minimum number of regions, at least a page.
pub(super) fn size_limit(zones: &[SampledRegion], min_regions: usize) -> u64 {
    let total: u64 = zones.iter().map(|zone| zone.range.bytes()).sum();
    (total / min_regions as u64).max(PAGE_SIZE)
}

/// `kdamond_merge_regions`, with a tenth of the highest count as the first threshold
/// (`kdamond_fn`): merges, and repeats with twice the threshold while there are too many regions
/// and the threshold is below the maximum count.
///
/// Every round increments the ages, as in the kernel.
pub(super) fn merge(zones: &mut Vec<SampledRegion>, limit: u64, max_regions: usize, samples: u32) {
    let highest = zones.iter().map(|zone| zone.accesses).max().unwrap_or(0);
    let mut threshold = highest / 10;
    loop {
        merge_alike(zones, threshold, limit);
        if zones.len() <= max_regions || threshold >= samples {
            return;
        }
        threshold = (threshold * 2).max(1);
    }
}

/// `damon_merge_regions_of`: merges neighbours whose counts differ by at most `threshold`.
fn merge_alike(zones: &mut Vec<SampledRegion>, threshold: u32, limit: u64) {
    zones.iter_mut().for_each(|zone| zone.grow_old(threshold));
    zones.dedup_by(|next, zone| {
        let merges = zone.range.touches(&next.range)
            && zone.is_like(next, threshold)
            && zone.range.bytes() + next.range.bytes() <= limit;
        if merges {
            zone.merge(next);
        }
        merges
    });
}

/// Splits regions and remembers their last number (`kdamond_split_regions`).
#[derive(Debug, Default)]
pub(super) struct Splitter {
    last_count: usize,
}

impl Splitter {
    /// Splits every region into two, unless there are more than half of the maximum already; into
    /// three if their number has not changed since the last split and there is room, in case the
    /// middle differs.
    pub(super) fn split(
        &mut self,
        zones: &mut Vec<SampledRegion>,
        max_regions: usize,
        rng: &mut Rng,
    ) {
        let count = zones.len();
        if count > max_regions / 2 {
            return;
        }
        let at_rest = self.last_count == count && count < max_regions / 3;
        let parts = if at_rest { 3 } else { 2 };
        *zones = zones.drain(..).flat_map(|zone| split(zone, parts, rng)).collect();
        self.last_count = count;
    }
}

/// `damon_split_regions_of`: splits off the left one to nine tenths, at a page boundary, and then
/// splits the remainder again. Regions of two pages or less stay whole.
fn split(mut zone: SampledRegion, parts: u32, rng: &mut Rng) -> Vec<SampledRegion> {
    let mut rights = Vec::with_capacity(parts as usize);
    for _ in 1..parts {
        if zone.range.bytes() <= 2 * PAGE_SIZE {
            break;
        }
        let left = random_left(zone.range.bytes(), rng);
        if left == 0 {
            continue;
        }
        let mut right = zone.clone();
        zone.range.end = zone.range.start + left;
        right.range.start = zone.range.end;
        rights.push(right);
    }
    rights.push(zone);
    rights.reverse();
    rights
}

/// One to nine tenths of a region in whole pages; 0 where a tenth is less than a page.
pub(crate) fn random_left(bytes: u64, rng: &mut Rng) -> u64 {
    (1 + rng.below(9)) * bytes / 10 / PAGE_SIZE * PAGE_SIZE
}

#[cfg(test)]
mod tests {
    use super::super::test_range as r;
    use super::*;
    use proptest::prelude::{Just, Strategy, any, prop, prop_assert, proptest};

    const P: u64 = PAGE_SIZE;

    fn zone(start: u64, end: u64, accesses: u32) -> SampledRegion {
        SampledRegion { accesses, ..SampledRegion::new(r(start * P, end * P)) }
    }

    /// Ranges in units of pages.
    fn pages(zones: &[SampledRegion]) -> Vec<(u64, u64)> {
        zones.iter().map(|zone| (zone.range.start / P, zone.range.end / P)).collect()
    }

    // 300 pages and at least 10 regions: 30 pages each. 200 / 30 = 6 pieces of 33 pages, the last
    // of 35; 10 pages are fewer than 30 and stay whole; 90 make 3.
    #[test]
    fn areas_begin_evenly_cut() {
        let zones = initial(&[r(0, 200 * P), r(300 * P, 310 * P), r(400 * P, 490 * P)], 10);
        assert_eq!(
            pages(&zones),
            [
                (0, 33),
                (33, 66),
                (66, 99),
                (99, 132),
                (132, 165),
                (165, 200),
                (300, 310),
                (400, 430),
                (430, 460),
                (460, 490),
            ]
        );
    }

    #[test]
    fn an_area_smaller_than_its_pieces_stays_whole() {
        assert_eq!(evenly(r(0, 2 * P), 3), [r(0, 2 * P)]);
        assert_eq!(evenly(r(0, 2 * P), 0), [r(0, 2 * P)]);
    }

    // Size limit 100 pages, threshold 2.
    // pages    0   10  20  30  40     120  130
    // counts   | 4 | 5 | 9 | . gap .   | 9 | 8
    #[test]
    fn like_neighbours_merge_within_the_size_limit() {
        let mut zones = vec![
            zone(0, 10, 4),
            zone(10, 20, 5),
            zone(20, 30, 9),
            zone(40, 120, 9),
            zone(120, 130, 8),
            zone(130, 141, 8),
        ];
        merge_alike(&mut zones, 2, 100 * P);
        // 4 and 5 merge into 4 (4.5 rounded down), 9 is too far; 40..130 is 90 pages, 101 too many.
        assert_eq!(pages(&zones), [(0, 20), (20, 30), (40, 130), (130, 141)]);
        let counts: Vec<u32> = zones.iter().map(|zone| zone.accesses).collect();
        assert_eq!(counts, [4, 9, 8, 8], "(80 x 9 + 10 x 8) / 90 = 8.9, rounded down");
    }

    // 1 page of 1, 3 pages of 5: (1 + 15) / 4 = 4. Ages 9 and 1: 12 / 4 = 3.
    #[test]
    fn merged_counts_and_ages_are_means_by_size() {
        let mut left = SampledRegion { age: 9, ..zone(0, 1, 1) };
        left.merge(&SampledRegion { age: 1, ..zone(1, 4, 5) });
        assert_eq!((left.accesses, left.age), (4, 3));
    }

    #[test]
    fn ages_grow_while_counts_stay() {
        let mut zones = vec![
            SampledRegion { last: 8, age: 4, ..zone(0, 1, 10) },
            SampledRegion { last: 2, age: 4, ..zone(2, 3, 10) },
        ];
        merge_alike(&mut zones, 2, P);
        assert_eq!((zones[0].age, zones[1].age), (5, 0));
    }

    // Counts 0 9 0 9 ...: a tenth of nine is zero, so nothing merges; then 1, 2, 4, 8, 16.
    #[test]
    fn too_many_regions_raise_the_threshold() {
        let alternating = |max| {
            let mut zones: Vec<SampledRegion> =
                (0..20).map(|i| zone(i, i + 1, if i % 2 == 0 { 0 } else { 9 })).collect();
            merge(&mut zones, 10 * P, max, 20);
            zones.len()
        };
        assert_eq!(alternating(20), 20);
        assert_eq!(alternating(19), 2, "up to the size limit of ten pages");
    }

    #[test]
    fn no_threshold_reaches_beyond_the_samples() {
        let mut zones: Vec<SampledRegion> = (0..20).map(|i| zone(2 * i, 2 * i + 1, 0)).collect();
        merge(&mut zones, 10 * P, 3, 20);
        assert_eq!(zones.len(), 20, "none of them touch");
    }

    #[test]
    fn splits_leave_one_to_nine_tenths() {
        let mut rng = Rng::seeded(3);
        let mut cuts: Vec<u64> =
            (0..200).map(|_| pages(&split(zone(0, 100, 7), 2, &mut rng))[0].1).collect();
        cuts.sort_unstable();
        cuts.dedup();
        assert_eq!(cuts, [10, 20, 30, 40, 50, 60, 70, 80, 90]);
    }

    #[test]
    fn a_third_part_comes_off_the_left() {
        let mut rng = Rng::seeded(3);
        for _ in 0..100 {
            let parts = pages(&split(zone(0, 1000, 7), 3, &mut rng));
            assert_eq!(parts.len(), 3);
            assert!(parts[1].1 >= 100 && parts[1].1 <= 900, "{parts:?}");
            assert!(parts[0].1 <= 9 * parts[1].1 / 10, "{parts:?}");
        }
    }

    #[test]
    fn two_pages_stay_whole() {
        let mut rng = Rng::seeded(1);
        assert_eq!(split(zone(0, 2, 0), 3, &mut rng), [zone(0, 2, 0)]);
    }

    #[test]
    fn three_parts_only_at_rest_and_with_room() {
        let mut rng = Rng::seeded(1);
        let mut split = |last_count, count: u64, max| {
            let mut zones: Vec<SampledRegion> =
                (0..count).map(|i| zone(i * 1000, (i + 1) * 1000, 0)).collect();
            Splitter { last_count }.split(&mut zones, max, &mut rng);
            zones.len()
        };
        assert_eq!(split(9, 10, 100), 20, "their number changed");
        assert_eq!(split(10, 10, 100), 30);
        assert_eq!(split(10, 10, 30), 20, "ten are not fewer than a third");
        assert_eq!(split(10, 10, 20), 20);
        assert_eq!(split(10, 10, 19), 10, "ten are more than half");
    }

    // regions  [10   20)[20  30)    [40  50)         [70  80)
    // areas  [5                    45)     [52 60)  [66    90)
    #[test]
    fn regions_are_set_to_areas() {
        let zones = vec![zone(10, 20, 1), zone(20, 30, 2), zone(40, 50, 3), zone(70, 80, 4)];
        let set = set_areas(zones, &[r(5 * P, 45 * P), r(52 * P, 60 * P), r(66 * P, 90 * P)]);
        assert_eq!(pages(&set), [(5, 20), (20, 30), (30, 40), (40, 45), (52, 60), (66, 90)]);
        let counts: Vec<u32> = set.iter().map(|zone| zone.accesses).collect();
        assert_eq!(counts, [1, 2, 0, 3, 0, 4]);
    }

    #[test]
    fn a_region_across_a_new_gap_stays_with_the_lower_area() {
        let set = set_areas(vec![zone(0, 100, 9)], &[r(0, 40 * P), r(60 * P, 100 * P)]);
        assert_eq!(pages(&set), [(0, 40), (60, 100)]);
        assert_eq!((set[0].accesses, set[1].accesses), (9, 0));
    }

    #[test]
    fn ages_follow_the_length_of_the_window() {
        let mut zone = SampledRegion { age: 10, ..zone(0, 1, 0) };
        zone.rescale_age(Duration::from_millis(5), Duration::from_millis(8));
        assert_eq!(zone.age, 6, "50 ms are six windows of 8 ms");
    }

    fn tile(zones: &[SampledRegion], areas: &[Range]) {
        let mut at = zones.iter();
        for area in areas {
            let mut filled = area.start;
            while filled < area.end {
                let next = at.next().expect("the area is tiled").range;
                assert_eq!(next.start, filled);
                assert!(next.start.is_multiple_of(P) && !next.is_empty());
                filled = next.end;
            }
            assert_eq!(filled, area.end);
        }
        assert!(at.next().is_none());
    }

    /// Areas of whole pages, from (gap, length) pairs.
    fn chain(steps: &[(u64, u64)]) -> Vec<Range> {
        let mut at = 0;
        steps
            .iter()
            .map(|(gap, len)| {
                let area = r((at + gap) * P, (at + gap + len) * P);
                at += gap + len;
                area
            })
            .collect()
    }

    proptest! {
        /// Windows of random counts, with a change of areas halfway.
        #[test]
        fn regions_tile_their_areas_within_the_limits(
            before in prop::collection::vec((1u64..500, 1u64..5000), 1..4),
            after in prop::collection::vec((1u64..500, 1u64..5000), 1..4),
            (min, max) in (3usize..12).prop_flat_map(|min| (Just(min), 4 * min..200)),
            seed in any::<u64>(),
        ) {
            let mut rng = Rng::seeded(seed);
            let (before, after) = (chain(&before), chain(&after));
            let mut zones = initial(&before, min);
            let mut splitter = Splitter::default();
            for window in 0..16 {
                let areas = if window < 8 { &before } else { &after };
                if window == 8 {
                    zones = set_areas(zones, areas);
                }
                zones.iter_mut().for_each(|zone| zone.accesses = rng.below(21) as u32);
                let limit = size_limit(&zones, min);
                merge(&mut zones, limit, max, 20);
                tile(&zones, areas);
                zones.iter_mut().for_each(SampledRegion::start_over);
                splitter.split(&mut zones, max, &mut rng);
                tile(&zones, areas);
                prop_assert!(zones.len() <= max, "{} > {max}", zones.len());
            }
        }

        /// One area of many pages: merging never leaves fewer regions than the minimum.
        #[test]
        fn merging_stops_at_the_least_number(
            size in 1000u64..100_000,
            min in 3usize..20,
            seed in any::<u64>(),
        ) {
            let mut rng = Rng::seeded(seed);
            let mut zones = initial(&[r(0, size * P)], min);
            let mut splitter = Splitter::default();
            for _ in 0..16 {
                let limit = size_limit(&zones, min);
                merge(&mut zones, limit, 1000, 20);
                prop_assert!(zones.len() >= min, "{} < {min}", zones.len());
                splitter.split(&mut zones, 1000, &mut rng);
            }
        }
    }
}
