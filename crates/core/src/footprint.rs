//! Narrows regions to resident memory, so that reports and policies count memory that exists.
//!
//! Instruments tile all mapped memory with regions. Of a reservation that was never touched, of a
//! file whose pages are not in memory, and of swapped memory, an instrument sees the same as of idle
//! memory: no access. The machine knows the difference ([`Extent`]).

use crate::{Extent, Mapping, Mappings, PAGE_SHIFT, Range, Region, Residence, Snapshot, SpaceId};

/// Number of regions that a snapshot may be cut into, unless it had more before: an instrument
/// limits its regions, and cuts must not defeat that.
const FEW: usize = 256;

/// Narrows the regions of the spaces whose extents are known:
///
/// - [`Region::resident`] is set. A region is cut where it would misplace bytes otherwise: at gaps
///   between extents, and at borders between extents of different density. If that made too many
///   regions, only the cuts that misplace most are made.
/// - A region without resident memory is removed, unless it is known to be accessed: then its memory
///   was populated after the measurement, and all mapped bytes of it count.
/// - Resident memory that no region lists becomes a region that was not probed.
///
/// Regions of other spaces stay as they are. The time taken is linear in regions, extents and
/// mappings.
pub fn fit(snapshot: &mut Snapshot, mappings: &Mappings, residence: &Residence) {
    if residence.spaces.iter().any(|of| of.extents.is_some()) {
        fit_within(snapshot, mappings, residence, snapshot.regions.len().max(FEW));
    }
}

/// [`fit`], with a limit on the number of regions. More are left only if the snapshot's own regions
/// and the memory between them are more.
fn fit_within(snapshot: &mut Snapshot, mappings: &Mappings, residence: &Residence, most: usize) {
    let regions = std::mem::take(&mut snapshot.regions);
    let mut pieces = Pieces { regions: &regions, list: Vec::with_capacity(regions.len()) };
    let mut next = 0;
    for of in &residence.spaces {
        let Some(extents) = &of.extents else { continue };
        let begin = regions.partition_point(|region| region.range.space < of.space);
        let end = regions.partition_point(|region| region.range.space <= of.space);
        pieces.keep(next..begin);
        pieces.narrow(begin..end, extents, in_space(&mappings.mappings, of.space));
        next = end;
    }
    pieces.keep(next..regions.len());
    let joined = join(pieces.list, most);
    snapshot.regions = joined.iter().map(|piece| piece.region(&regions)).collect();
}

/// The mappings of a space.
fn in_space(mappings: &[Mapping], space: SpaceId) -> &[Mapping] {
    let begin = mappings.partition_point(|mapping| mapping.range.space < space);
    let end = mappings.partition_point(|mapping| mapping.range.space <= space);
    &mappings[begin..end]
}

/// A part of a region, or of memory that no region lists.
#[derive(Clone, Copy, Debug)]
struct Piece {
    range: Range,
    resident: u64,
    /// Index of the region.
    of: Option<usize>,
}

impl Piece {
    fn region(&self, regions: &[Region]) -> Region {
        let range = self.range;
        let resident = (self.resident < range.bytes()).then_some(self.resident);
        match self.of {
            Some(index) => Region { range, resident, ..regions[index] },
            None => Region {
                range,
                hits: 0.0,
                samples: 0,
                age: 0,
                level: None,
                confidence: 0.0,
                rate: None,
                unknown: None,
                resident,
            },
        }
    }

    fn belongs_with(&self, next: &Piece) -> bool {
        self.of == next.of && self.range.space == next.range.space
    }

    /// Bytes that would be misplaced if this piece and the next one had their resident bytes spread
    /// evenly over both.
    fn misplaced(&self, next: &Piece) -> u64 {
        let gap = next.range.start - self.range.end;
        if gap > 0 {
            return gap;
        }
        let [one, other] = [self, next].map(|piece| u128::from(piece.range.bytes()));
        let (mine, theirs) = (u128::from(self.resident), u128::from(next.resident));
        let difference = (mine * other).abs_diff(theirs * one);
        (difference / one.max(other).max(1)) as u64
    }
}

/// Pieces in the making, in order of address.
struct Pieces<'a> {
    regions: &'a [Region],
    list: Vec<Piece>,
}

impl Pieces<'_> {
    /// Adds regions as they are.
    fn keep(&mut self, regions: std::ops::Range<usize>) {
        for of in regions {
            let region = &self.regions[of];
            self.list.push(Piece { range: region.range, resident: region.bytes(), of: Some(of) });
        }
    }

    /// Adds the resident parts of regions, and those of memory between them, of one space.
    fn narrow(&mut self, of: std::ops::Range<usize>, extents: &[Extent], mappings: &[Mapping]) {
        let parts = mapped_parts(extents, mappings);
        let (mut rest, mut at) = (parts.as_slice(), 0);
        for index in of {
            let region = &self.regions[index];
            let start = at.min(region.range.start);
            rest = self.take(rest, &Range { start, end: region.range.start, ..region.range }, None);
            let begun = self.list.len();
            rest = self.take(rest, &region.range, Some(index));
            if self.list.len() == begun && region.is_accessed() {
                self.populate(index, mappings);
            }
            at = region.range.end;
        }
        if let Some(last) = rest.last() {
            let start = at.min(last.range.end);
            self.take(rest, &Range { start, ..last.range }, None);
        }
    }

    /// Adds the common parts of `span` and `parts` as pieces of region `of`; returns the parts that
    /// reach beyond the span.
    fn take<'p>(&mut self, parts: &'p [Extent], span: &Range, of: Option<usize>) -> &'p [Extent] {
        let mut rest = parts;
        while let Some(part) = rest.first() {
            if let Some(range) = part.range.intersect(span) {
                let resident = share(part, &range);
                if resident > 0 {
                    self.list.push(Piece { range, resident, of });
                }
            }
            if part.range.end > span.end {
                break;
            }
            rest = &rest[1..];
        }
        rest
    }

    /// Adds the mapped parts of a region whose memory was populated after the measurement.
    fn populate(&mut self, of: usize, mappings: &[Mapping]) {
        let range = self.regions[of].range;
        let from = mappings.partition_point(|mapping| mapping.range.end <= range.start);
        let mapped = mappings[from..].iter().map_while(|mapping| mapping.range.intersect(&range));
        for range in mapped {
            self.list.push(Piece { range, resident: range.bytes(), of: Some(of) });
        }
    }
}

/// The extents, cut to what is mapped now.
fn mapped_parts(extents: &[Extent], mappings: &[Mapping]) -> Vec<Extent> {
    let mut parts = Vec::with_capacity(extents.len());
    let mut rest = mappings;
    for extent in extents {
        let ended = |mapping: &&Mapping| mapping.range.end <= extent.range.start;
        rest = &rest[rest.iter().take_while(ended).count()..];
        for mapping in rest {
            let Some(range) = mapping.range.intersect(&extent.range) else { break };
            parts.push(Extent { range, resident: share(extent, &range), swapped: 0 });
        }
    }
    parts
}

/// Resident bytes of `range`, a part of `extent`, spread evenly; the shares of all parts of an
/// extent add up to its resident bytes.
fn share(extent: &Extent, range: &Range) -> u64 {
    let all = u128::from(extent.range.bytes().max(1));
    let up_to =
        |at: u64| (u128::from(extent.resident) * u128::from(at - extent.range.start) / all) as u64;
    up_to(range.end) - up_to(range.start)
}

/// Joins pieces of the same region until at most `most` are left, those first for which it misplaces
/// the fewest bytes; those for which it misplaces less than a page in any case.
fn join(pieces: Vec<Piece>, most: usize) -> Vec<Piece> {
    let least = least_cut(&pieces, most);
    let mut joined: Vec<Piece> = Vec::with_capacity(pieces.len().min(most));
    let mut last_part: Option<Piece> = None;
    for piece in pieces {
        let joins = last_part
            .is_some_and(|last| last.belongs_with(&piece) && last.misplaced(&piece) < least);
        match joined.last_mut() {
            Some(before) if joins => {
                before.range.end = piece.range.end;
                before.resident += piece.resident;
            }
            _ => joined.push(piece),
        }
        last_part = Some(piece);
    }
    joined
}

/// The least number of misplaced bytes for which pieces are cut: a power of two, at least a page.
fn least_cut(pieces: &[Piece], most: usize) -> u64 {
    let mut cuts = [0; u64::BITS as usize];
    let mut pieces_of_regions = pieces.len();
    for pair in pieces.windows(2).filter(|pair| pair[0].belongs_with(&pair[1])) {
        pieces_of_regions -= 1;
        cuts[pair[0].misplaced(&pair[1]).max(1).ilog2() as usize] += 1;
    }
    let mut room = most.saturating_sub(pieces_of_regions);
    let fits = |power: &u32| {
        let left = room.checked_sub(cuts[*power as usize]);
        room = left.unwrap_or(room);
        left.is_some()
    };
    let powers = (PAGE_SHIFT..u64::BITS).rev().take_while(fits).last();
    powers.map_or(u64::MAX, |power| 1 << power)
}

#[cfg(test)]
mod tests {
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
            range: range(start, end),
            hits: hits.unwrap_or(0.0),
            samples: if hits.is_some() { 40 } else { 0 },
            age: 7,
            level: None,
            confidence: 1.0,
            rate: None,
            unknown: None,
            resident: None,
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
        Residence { tiers: Vec::new(), spaces }
    }

    fn mapped(parts: &[(u64, u64)]) -> Mappings {
        let mappings = parts.iter().copied().map(mapping).collect();
        Mappings { mappings, ..Mappings::default() }
    }

    /// First page, one past the last page, hits, and resident bytes.
    type Row = (u64, u64, f32, Option<u64>);

    fn rows(snapshot: &Snapshot) -> Vec<Row> {
        let row =
            |r: &Region| (r.range.start / PAGE_SIZE, r.range.end / PAGE_SIZE, r.hits, r.resident);
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
        // page. The bytes of a region are those of its extents.
        #[test]
        fn pages_agree_with_a_naive_oracle(
            maps in parts(), listed in parts(), held in parts(), whole in any::<bool>(),
        ) {
            let maps: Vec<_> = laid_out(&maps).into_iter().map(|(part, _)| part).collect();
            let heat = |value: u64| match value { 0 => None, value => Some(HOT * (value % 2) as f32) };
            let listed: Vec<_> = laid_out(&listed).into_iter().map(|(part, v)| region(part, heat(v))).collect();
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
}
