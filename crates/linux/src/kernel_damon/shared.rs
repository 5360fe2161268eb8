//! Regions of processes that share memory: what lies in a view becomes regions where the memory is
//! listed, each part of which has the region with the most hits of all processes.

use std::collections::BTreeSet;

use tierscope_core::{Range, Region};

use crate::shared_memory::Translation;

/// Translates regions of processes, and sorts them by range.
pub(crate) fn translated(regions: Vec<Region>, memory: &Translation) -> Vec<Region> {
    let (mut out, mut shared) = (Vec::new(), Vec::new());
    for region in regions {
        memory.split(&region.range, |from, to| {
            let own = from == to && memory.users(&to).next().is_none();
            let list = if own { &mut out } else { &mut shared };
            list.push(Region { range: to, ..region });
        });
    }
    out.append(&mut united(shared));
    out.sort_by_key(|region| region.range);
    out
}

/// Disjoint regions, each with the most hits of all regions that overlap it.
fn united(mut regions: Vec<Region>) -> Vec<Region> {
    regions.sort_by_key(|region| region.range);
    let borders: BTreeSet<u64> =
        regions.iter().flat_map(|region| [region.range.start, region.range.end]).collect();
    let (mut out, mut active, mut next) = (Vec::<Region>::new(), Vec::<Region>::new(), 0);
    for (start, end) in borders.iter().zip(borders.iter().skip(1)) {
        while let Some(region) = regions.get(next).filter(|region| region.range.start <= *start) {
            active.push(*region);
            next += 1;
        }
        active.retain(|region| region.range.end > *start);
        let Some(most) = active.iter().max_by(|a, b| a.hits.total_cmp(&b.hits)) else { continue };
        let range = Range { start: *start, end: *end, ..most.range };
        match out.last_mut() {
            Some(last) if last.range.touches(&range) && is_like(last, most) => {
                last.range.end = *end
            }
            _ => out.push(Region { range, ..*most }),
        }
    }
    out
}

fn is_like(one: &Region, other: &Region) -> bool {
    (one.hits.to_bits(), one.age) == (other.hits.to_bits(), other.age)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared_memory::tests::one_object;
    use tierscope_core::SpaceId;

    const PAGE: u64 = 4096;

    fn region(space: u32, pages: (u64, u64), hits: f32) -> Region {
        Region {
            age: 3,
            ..Region::sampled(Range::new(SpaceId(space), pages.0 * PAGE, pages.1 * PAGE), hits, 40)
        }
    }

    // Eight pages of an object, at page 8 of one process and at page 32 of another. The first one's
    // region begins before the object; the second one accesses two pages only, more often.
    #[test]
    fn memory_has_the_most_hits_of_its_users() {
        let mappings = one_object(8 * PAGE, &[8 * PAGE, 32 * PAGE]);
        let memory = mappings.mappings[0].range;
        let regions = vec![
            region(0, (6, 12), 5.0),
            region(0, (12, 16), 0.0),
            region(1, (32, 34), 2.0),
            region(1, (34, 36), 40.0),
            region(1, (36, 40), 0.0),
        ];
        let translated = translated(regions, &Translation::of(&mappings));
        let own = translated.iter().find(|region| region.range.space == SpaceId(0)).unwrap();
        assert_eq!((own.range, own.hits), (region(0, (6, 8), 0.0).range, 5.0));
        let of_memory = |region: &&Region| region.range.space == memory.space;
        let page = |at: u64| (at - memory.start) / PAGE;
        let found: Vec<_> = translated
            .iter()
            .filter(of_memory)
            .map(|region| (page(region.range.start), page(region.range.end), region.hits))
            .collect();
        assert_eq!(found, [(0, 2, 5.0), (2, 4, 40.0), (4, 8, 0.0)]);
        assert!(translated.is_sorted_by_key(|region| region.range));
    }
}
