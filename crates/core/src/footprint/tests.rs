//! Regions are narrowed to resident memory.

use super::*;
use crate::{Backing, PAGE_SIZE, SpaceResidence, Time};
use proptest::prelude::*;

const HOT: f32 = 40.0;

fn range(start: u64, end: u64) -> Range {
    Range::new(SpaceId(1), start * PAGE_SIZE, end * PAGE_SIZE)
}

/// Pages `start` to `end`, with hits in 40 samples; not probed without hits.
fn region((start, end): (u64, u64), hits: Option<f32>) -> Region {
    Region {
        age: 7,
        ..Region::sampled(
            range(start, end),
            hits.unwrap_or(0.0),
            if hits.is_some() { 40 } else { 0 },
        )
    }
}

fn mapping((start, end): (u64, u64)) -> Mapping {
    let (backing, name) = (Backing::Anonymous, "".into());
    Mapping { range: range(start, end), backing, name, writable: true, object: None }
}

/// Pages of the extent, and how many of them are resident.
fn extent(((start, end), pages): ((u64, u64), u64)) -> Extent {
    Extent { range: range(start, end), resident: pages * PAGE_SIZE, swapped: 0 }
}

fn residence(extents: Option<&[((u64, u64), u64)]>) -> Residence {
    let extents = extents.map(|all| all.iter().copied().map(extent).collect());
    let (space, taken) = (SpaceId(1), Time(0));
    let spaces = vec![SpaceResidence { space, taken, bytes: 0, extents, placed: None }];
    Residence { spaces, ..Residence::default() }
}

fn mapped(parts: &[(u64, u64)]) -> Mappings {
    let mappings = parts.iter().copied().map(mapping).collect();
    Mappings { mappings, ..Mappings::default() }
}

/// First page, one past the last page, hits, and resident bytes.
type Row = (u64, u64, f32, Option<u64>);

fn rows(snapshot: &Snapshot) -> Vec<Row> {
    let row = |r: &Region| (r.range.start / PAGE_SIZE, r.range.end / PAGE_SIZE, r.hits, r.resident);
    snapshot.regions.iter().map(row).collect()
}

fn fitted(regions: Vec<Region>, maps: &[(u64, u64)], at: &[((u64, u64), u64)]) -> Vec<Row> {
    let mut snapshot = Snapshot { regions, ..Snapshot::default() };
    fit(&mut snapshot, &mapped(maps), &residence(Some(at)));
    rows(&snapshot)
}

// A reservation of 1000 pages of which 3 and 4 were touched, and half of 10 to 12.
#[test]
fn an_untouched_reservation_has_no_regions() {
    let regions = vec![region((0, 1000), Some(0.0))];
    let found = fitted(regions, &[(0, 1000)], &[((3, 5), 2), ((10, 12), 1)]);
    assert_eq!(found, [(3, 5, 0.0, None), (10, 12, 0.0, Some(PAGE_SIZE))]);
}

// Two regions without resident pages: one is accessed, so it was populated after the
// measurement. Its mapped pages count, 20 to 24 and 26 to 30. One without samples is removed.
#[test]
fn accessed_memory_counts_before_it_is_measured() {
    let regions =
        vec![region((0, 20), Some(0.0)), region((20, 30), Some(HOT)), region((30, 40), None)];
    let found = fitted(regions, &[(0, 24), (26, 40)], &[]);
    assert_eq!(found, [(20, 24, HOT, None), (26, 30, HOT, None)]);
}

// A heap that grew into two further entries of 2 MiB, 512 to 1536, since its first one was found
// resident: they count where each of them was seen by its entry, and not where a region was
// sampled.
#[test]
fn accessed_entries_count_before_they_are_measured() {
    let seen = |level| {
        let grown = Region { level, ..region((0, 1536), Some(HOT)) };
        let idle = Region { level, ..region((1536, 2048), Some(0.0)) };
        fitted(vec![grown, idle], &[(0, 2048)], &[((0, 512), 512)])
    };
    assert_eq!(seen(Some(Level::PMD)), [(0, 1536, HOT, None)]);
    assert_eq!(seen(None), [(0, 512, HOT, None)]);
}

// Of 16 pages 5 are resident, by count only. Pages 2 to 4 are known to be accessed, so that they
// are two of the five, and the other 14 pages have three. If only one page was resident when it was
// measured, the measurement is older than the accesses.
#[test]
fn accessed_pages_are_the_resident_ones() {
    let seen = |level, resident| {
        let hot = Region { level, ..region((2, 4), Some(HOT)) };
        let idle = [region((0, 2), Some(0.0)), region((4, 16), Some(0.0))];
        fitted(vec![idle[0], hot, idle[1]], &[(0, 16)], &[((0, 16), resident)])
    };
    let share = |pages: u64, of: u64, all: u64| Some(pages * PAGE_SIZE * of / all);
    let [first, last] = [share(3, 2, 14), Some(3 * PAGE_SIZE - 3 * PAGE_SIZE * 2 / 14)];
    let pages = [(0, 2, 0.0, first), (2, 4, HOT, None), (4, 16, 0.0, last)];
    assert_eq!(seen(Some(Level::PTE), 5), pages);
    assert_eq!(seen(Some(Level::PTE), 1)[1], (2, 4, HOT, share(1, 2, 16)));
    assert_eq!(
        seen(Some(Level::PMD), 5)[1],
        (2, 4, HOT, share(5, 2, 16)),
        "an entry has 512 pages"
    );
}

// 4 to 8 are resident; the region lists 5 and 6.
#[test]
fn memory_that_no_region_lists_was_not_probed() {
    let found = fitted(vec![region((5, 7), Some(HOT))], &[(0, 9)], &[((4, 8), 4)]);
    assert_eq!(found, [(4, 5, 0.0, None), (5, 7, HOT, None), (7, 8, 0.0, None)]);
}

// Pages 0 to 512 are full, of the next 512 only one is resident: cut there, since 511 pages
// would be misplaced.
#[test]
fn a_region_is_cut_where_the_density_changes() {
    let full_and_sparse = [((0, 512), 512), ((512, 1024), 1)];
    let found = fitted(vec![region((0, 1024), Some(0.0))], &[(0, 1024)], &full_and_sparse);
    assert_eq!(found, [(0, 512, 0.0, None), (512, 1024, 0.0, Some(PAGE_SIZE))]);
}

#[test]
fn without_extents_nothing_changes() {
    let regions = vec![region((0, 4), Some(0.0)), region((4, 8), None)];
    let mut snapshot = Snapshot { regions, ..Snapshot::default() };
    let before = snapshot.clone();
    fit(&mut snapshot, &mapped(&[]), &residence(None));
    fit(&mut snapshot, &mapped(&[]), &Residence::default());
    assert_eq!(snapshot, before);
}

// Gaps of 1, 8 and 64 pages: with two cuts allowed, the smallest stays inside of a region.
#[test]
fn the_widest_gaps_are_cut_out_first() {
    let extents = [((0, 1), 1), ((2, 3), 1), ((11, 12), 1), ((76, 77), 1)];
    let regions = vec![region((0, 100), Some(0.0))];
    let mut snapshot = Snapshot { regions, ..Snapshot::default() };
    fit_within(&mut snapshot, &mapped(&[(0, 100)]), &residence(Some(&extents)), 3);
    let want = [(0, 3, 0.0, Some(2 * PAGE_SIZE)), (11, 12, 0.0, None), (76, 77, 0.0, None)];
    assert_eq!(rows(&snapshot), want);
}

/// Consecutive parts: gap before it, pages, and a third value.
type Parts = Vec<(u64, u64, u64)>;

fn parts() -> impl Strategy<Value = Parts> {
    prop::collection::vec((0u64..4, 1u64..9, 0u64..9), 0..8)
}

fn laid_out(parts: &Parts) -> Vec<((u64, u64), u64)> {
    let mut at = 0;
    let place = |&(gap, pages, value): &(u64, u64, u64)| {
        let start = at + gap;
        at = start + pages;
        ((start, at), value)
    };
    parts.iter().map(place).collect()
}

proptest! {
    // Page by page: mapped and resident pages are in the region that holds them, or in one
    // that was not probed; other pages are in none, but for accessed regions without a resident
    // page. The bytes of all regions are those of the extents.
    #[test]
    fn pages_agree_with_a_naive_oracle(
        maps in parts(), listed in parts(), held in parts(), whole in any::<bool>(),
    ) {
        let maps: Vec<_> = laid_out(&maps).into_iter().map(|(part, _)| part).collect();
        let heat = |value: u64| match value { 0 => None, value => Some(HOT * (value % 2) as f32) };
        let level = |value: u64| (value > 4).then_some(Level::PTE);
        let listed: Vec<_> = laid_out(&listed).into_iter()
            .map(|(part, v)| Region { level: level(v), ..region(part, heat(v)) }).collect();
        let held: Vec<_> = laid_out(&held).into_iter().map(|(part, v)| match part.1 - part.0 {
            pages if whole => (part, pages),
            pages => (part, v.min(pages)),
        }).collect();
        let mut snapshot = Snapshot { regions: listed.clone(), ..Snapshot::default() };
        fit(&mut snapshot, &mapped(&maps), &residence(Some(&held)));
        let is_mapped = |page: u64| maps.iter().any(|m| (m.0..m.1).contains(&page));
        let on = |page: u64| held.iter().any(|(e, pages)| (e.0..e.1).contains(&page) && *pages > 0);
        let is_in = |region: &&Region, page: u64| region.range.covers(&range(page, page + 1));
        let late = |region: &Region| region.is_accessed()
            && !(0..99).any(|page| is_in(&region, page) && is_mapped(page) && on(page));
        for page in 0..99 {
            let source = listed.iter().find(|region| is_in(region, page));
            let found = snapshot.regions.iter().find(|region| is_in(region, page));
            if whole {
                let counts = is_mapped(page) && (on(page) || source.is_some_and(late));
                prop_assert_eq!(found.is_some(), counts, "page {}", page);
            }
            if let Some(found) = found {
                let like = |region: &Region| (region.hits, region.samples, region.age);
                prop_assert_eq!(like(found), source.map_or((0.0, 0, 0), like));
            }
        }
        let sum: u64 = snapshot.regions.iter().filter(|r| !is_late_part(r, &listed, &late)).map(Region::bytes).sum();
        let naive: u64 = held.iter().map(|(e, pages)| {
            // Shares of the mapped pages, spread evenly and rounded for each run of pages.
            let extent = extent((*e, *pages));
            let mapped = |m: &(u64, u64)| range(m.0, m.1).intersect(&extent.range);
            maps.iter().filter_map(mapped).map(|part| share(&extent, &part)).sum::<u64>()
        }).sum();
        prop_assert_eq!(sum, naive);
        prop_assert!(snapshot.regions.iter().all(|r| r.bytes() > 0 && r.bytes() <= r.range.bytes()));
        prop_assert!(snapshot.regions.is_sorted_by(|a, b| a.range.end <= b.range.start));
    }

    // A limit leaves the sums of each region as they are.
    #[test]
    fn a_limit_keeps_the_sums(held in parts(), cut in 1u64..40, most in 0usize..9) {
        let held: Vec<_> = laid_out(&held).into_iter().map(|(part, _)| (part, part.1 - part.0)).collect();
        let regions = vec![region((0, cut), Some(0.0)), region((cut, 99), Some(1.0))];
        let sums = |most: usize| {
            let mut snapshot = Snapshot { regions: regions.clone(), ..Snapshot::default() };
            fit_within(&mut snapshot, &mapped(&[(0, 99)]), &residence(Some(&held)), most);
            let of = |hits: f32| {
                let of = snapshot.regions.iter().filter(|region| region.hits == hits);
                of.map(Region::bytes).sum::<u64>()
            };
            ([of(0.0), of(1.0)], snapshot.regions.len())
        };
        let ((all, _), (limited, count)) = (sums(usize::MAX), sums(most));
        prop_assert_eq!(all, limited);
        prop_assert!(count <= most.max(2));
    }
}

/// Whether the region is a part of one that counts before it is measured.
fn is_late_part(part: &Region, listed: &[Region], late: &dyn Fn(&Region) -> bool) -> bool {
    listed.iter().any(|region| region.range.covers(&part.range) && late(region))
}
