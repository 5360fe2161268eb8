//! Makes extents of runs of pages: blocks of 2 MiB, joined where their pages are alike.

use std::sync::Arc;

use tierscope_core::{Extent, Range, SpaceId};

use super::page_runs::PageRun;

/// Size and alignment of a block. Inside of a block, only the numbers of its pages are kept.
const BLOCK: u64 = 2 << 20;
/// Maximum number of extents of a space.
const MOST: usize = 4096;
/// Steps in which the density of neighbouring blocks is compared: empty, full, and 16 between.
const STEPS: u64 = 16;

/// The extents of a space in the making, in order of address.
#[derive(Debug, Default)]
pub(super) struct ExtentList {
    list: Vec<Extent>,
    /// The block that the last run was in, if its end was not reached.
    open: Option<Extent>,
}

impl ExtentList {
    /// Adds a run of pages of `mapping`; all runs before it have lower addresses.
    pub(super) fn add(&mut self, mapping: &Range, run: PageRun) {
        let (mut at, end) = (run.start.max(mapping.start), run.end.min(mapping.end));
        while at < end {
            let begin = at & !(BLOCK - 1);
            let limit = begin.saturating_add(BLOCK).min(mapping.end);
            let block = Range { start: begin.max(mapping.start), end: limit, ..*mapping };
            if at == block.start && block.end <= end {
                // Whole blocks, all at once.
                let whole = if end == mapping.end { end } else { end & !(BLOCK - 1) };
                self.close();
                self.push(extent(Range { end: whole, ..block }, whole - at, run.swapped));
                at = whole;
                continue;
            }
            let next = end.min(block.end);
            if self.open.is_none_or(|open| open.range != block) {
                self.close();
                self.open = Some(extent(block, 0, false));
            }
            if let Some(open) = &mut self.open {
                let part = extent(block, next - at, run.swapped);
                open.resident += part.resident;
                open.swapped += part.swapped;
            }
            at = next;
        }
    }

    /// The extents, at most [`MOST`].
    pub(super) fn finish(mut self) -> Arc<[Extent]> {
        self.close();
        tighten(&mut self.list, MOST);
        self.list.into()
    }

    fn close(&mut self) {
        if let Some(open) = self.open.take() {
            self.push(open);
        }
    }

    fn push(&mut self, extent: Extent) {
        match self.list.last_mut() {
            Some(last) if last.range.touches(&extent.range) && is_like(last, &extent) => {
                join(last, &extent);
            }
            _ => self.list.push(extent),
        }
        if self.list.len() >= 4 * MOST {
            tighten(&mut self.list, MOST);
        }
    }
}

fn extent(range: Range, bytes: u64, swapped: bool) -> Extent {
    let (resident, swapped) = if swapped { (0, bytes) } else { (bytes, 0) };
    Extent { range, resident, swapped }
}

fn join(extent: &mut Extent, next: &Extent) {
    extent.range.end = next.range.end;
    extent.resident += next.resident;
    extent.swapped += next.swapped;
}

/// Whether two extents have about the same density.
fn is_like(a: &Extent, b: &Extent) -> bool {
    let step = |extent: &Extent, bytes: u64| {
        let all = u128::from(extent.range.bytes().max(1));
        match bytes == extent.range.bytes() {
            true => STEPS as u128 + 1,
            false => (u128::from(bytes) * u128::from(STEPS)).div_ceil(all),
        }
    };
    step(a, a.resident) == step(b, b.resident) && step(a, a.swapped) == step(b, b.swapped)
}

/// Bytes that would be misplaced if two extents became one: the gap, or those by which their
/// densities differ.
fn misplaced(a: &Extent, b: &Extent) -> u64 {
    let gap = b.range.start - a.range.end;
    if gap > 0 {
        return gap;
    }
    let [one, other] = [a, b].map(|extent| u128::from(extent.range.bytes()));
    let difference =
        |mine: u64, theirs: u64| (u128::from(mine) * other).abs_diff(u128::from(theirs) * one);
    let sum = difference(a.resident, b.resident) + difference(a.swapped, b.swapped);
    (sum / one.max(other).max(1)) as u64
}

/// Joins neighbours until at most `most` extents are left, the most similar ones first.
fn tighten(list: &mut Vec<Extent>, most: usize) {
    let Some(joins) = list.len().checked_sub(most).filter(|joins| *joins > 0) else { return };
    let mut costs: Vec<u64> = list.windows(2).map(|pair| misplaced(&pair[0], &pair[1])).collect();
    let dearest = *costs.select_nth_unstable(joins - 1).1;
    // Others may cost as much as the dearest join; not all of them are needed.
    let mut equal = joins - costs.iter().filter(|cost| **cost < dearest).count();
    let mut last: Option<Extent> = None;
    let mut joined: Vec<Extent> = Vec::with_capacity(most);
    for extent in list.drain(..) {
        let cost = last.map_or(u64::MAX, |last| misplaced(&last, &extent));
        let joins = cost < dearest || (cost == dearest && equal > 0);
        match joined.last_mut() {
            Some(before) if joins => {
                equal -= usize::from(cost == dearest);
                join(before, &extent);
            }
            _ => joined.push(extent),
        }
        last = Some(extent);
    }
    *list = joined;
}

/// Extents of a space whose resident pages are in `runs`, sorted; `mappings` are its mappings.
pub(super) fn of_runs(
    mappings: &[Range],
    space: SpaceId,
    runs: impl Iterator<Item = (u64, u64)>,
) -> Arc<[Extent]> {
    let mut extents = ExtentList::default();
    let mut rest = mappings;
    for (start, end) in runs {
        let run = PageRun { start, end, swapped: false };
        rest = &rest[rest.iter().take_while(|mapping| mapping.end <= start).count()..];
        let range = Range::new(space, start, end);
        for mapping in rest.iter().take_while(|mapping| mapping.start < range.end) {
            extents.add(mapping, run);
        }
    }
    extents.finish()
}

/// Extents of mappings of which only the sum of the resident bytes is known: spread evenly. The
/// mappings are sorted.
pub(super) fn spread(bytes: u64, mappings: &[Range]) -> Arc<[Extent]> {
    let all: u64 = mappings.iter().map(Range::bytes).sum();
    let up_to = |at: u64| u128::from(bytes.min(all)) * u128::from(at) / u128::from(all.max(1));
    let mut at = 0;
    let extents = mappings.iter().map(|range| {
        let before = up_to(at);
        at += range.bytes();
        Extent { range: *range, resident: (up_to(at) - before) as u64, swapped: 0 }
    });
    extents.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // 10 bytes of mappings of 30, 10 and 20; no more than is mapped.
    #[test]
    fn bytes_are_spread_evenly() {
        let range = |start, end| Range::new(SpaceId(0), start, end);
        let mappings = [range(0, 30), range(100, 110), range(200, 220)];
        let resident = |bytes| -> Vec<u64> {
            spread(bytes, &mappings).iter().map(|extent| extent.resident).collect()
        };
        assert_eq!(resident(10), [5, 1, 4]);
        assert_eq!(resident(99), [30, 10, 20]);
        assert!(spread(9, &[]).is_empty());
    }
    use proptest::prelude::*;

    const PAGE: u64 = 4096;
    const PAGES: u64 = BLOCK / PAGE;

    fn range(start: u64, end: u64) -> Range {
        Range::new(SpaceId(0), start * PAGE, end * PAGE)
    }

    fn run(start: u64, end: u64, swapped: bool) -> PageRun {
        PageRun { start: start * PAGE, end: end * PAGE, swapped }
    }

    /// First page, one past the last page, resident and swapped pages.
    fn pages(extents: &[Extent]) -> Vec<[u64; 4]> {
        let of = |e: &Extent| [e.range.start, e.range.end, e.resident, e.swapped].map(|b| b / PAGE);
        extents.iter().map(of).collect()
    }

    // A mapping from page 500 to page 3000. Blocks end at 512, 1024, 1536, …: pages 500 to 1100 are
    // full, of the block after that only the first ones; in the next, ten are swapped.
    #[test]
    fn blocks_are_cut_at_mappings() {
        let mut list = ExtentList::default();
        let mapping = range(500, 3000);
        for run in [run(500, 1100, false), run(1540, 1550, true), run(2900, 3000, false)] {
            list.add(&mapping, run);
        }
        let expected =
            [[500, 1024, 524, 0], [1024, 1536, 76, 0], [1536, 2048, 0, 10], [2560, 3000, 100, 0]];
        assert_eq!(pages(&list.finish()), expected);
    }

    // Each third page of 64 blocks: one extent.
    #[test]
    fn blocks_of_the_same_density_are_one_extent() {
        let mut list = ExtentList::default();
        for page in (0..64 * PAGES).step_by(3) {
            list.add(&range(0, 64 * PAGES), run(page, page + 1, false));
        }
        let extents = pages(&list.finish());
        assert_eq!(extents, [[0, 64 * PAGES, (64 * PAGES).div_ceil(3), 0]]);
    }

    // Gaps of 1, 2 and 1 blocks: the widest stays, and of the others one.
    #[test]
    fn the_most_similar_extents_are_joined() {
        let full = |block: u64| {
            let range = range(block * PAGES, (block + 1) * PAGES);
            Extent { range, resident: BLOCK, swapped: 0 }
        };
        let mut list = [0, 2, 5, 7].map(full).to_vec();
        tighten(&mut list, 3);
        let blocks: Vec<_> =
            pages(&list).iter().map(|[start, end, ..]| (start / PAGES, end / PAGES)).collect();
        assert_eq!(blocks, [(0, 3), (5, 6), (7, 8)]);
        assert_eq!(list[0].resident, 2 * BLOCK);
    }

    #[test]
    fn a_space_has_a_limited_number_of_extents() {
        let mut list = ExtentList::default();
        let blocks = 5 * MOST as u64;
        for block in 0..blocks {
            let start = 3 * block * PAGES;
            list.add(&range(0, 4 * blocks * PAGES), run(start, start + PAGES, false));
        }
        let extents = list.finish();
        assert!((MOST / 2..=MOST).contains(&extents.len()), "{}", extents.len());
        assert_eq!(extents.iter().map(|extent| extent.resident).sum::<u64>(), blocks * BLOCK);
    }

    proptest! {
        // Of a list of runs: sums are kept, and each page of a run is in an extent.
        #[test]
        fn extents_agree_with_a_naive_oracle(
            plan in prop::collection::vec((0u64..900, 1u64..1500, any::<bool>()), 0..12),
            edges in (0u64..700, 1u64..9000),
        ) {
            let mapping = range(edges.0, edges.0 + edges.1);
            let mut at = 0;
            let runs: Vec<_> = plan.iter().map(|(gap, length, swapped)| {
                let start = at + gap;
                at = start + length;
                run(start, at, *swapped)
            }).collect();
            let mut list = ExtentList::default();
            runs.iter().for_each(|run| list.add(&mapping, *run));
            let extents = list.finish();
            let naive = |swapped: bool| {
                let of = runs.iter().filter(|run| run.swapped == swapped);
                let inside = |run: &PageRun| Range::new(SpaceId(0), run.start, run.end).intersect(&mapping);
                of.filter_map(inside).map(|range| range.bytes()).sum::<u64>()
            };
            prop_assert_eq!(extents.iter().map(|e| e.resident).sum::<u64>(), naive(false));
            prop_assert_eq!(extents.iter().map(|e| e.swapped).sum::<u64>(), naive(true));
            for extent in extents.iter() {
                prop_assert!(mapping.covers(&extent.range));
                prop_assert!(extent.resident + extent.swapped <= extent.range.bytes());
            }
            prop_assert!(extents.is_sorted_by(|a, b| a.range.end <= b.range.start));
            for run in &runs {
                for page in (run.start..run.end).step_by(PAGE as usize) {
                    let page = Range::new(SpaceId(0), page, page + PAGE);
                    let held = extents.iter().any(|extent| extent.range.covers(&page));
                    prop_assert_eq!(held || !mapping.covers(&page), true);
                }
            }
        }
    }
}
