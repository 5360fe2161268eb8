//! Finds the parts of a range that are in a given tier.

use tierscope_core::{PAGE_SIZE, PlacementView, Range, Tier};

/// Minimum size to which ranges are divided, unless fewer bytes are wanted.
const GRAIN: u64 = 2 << 20;

/// Parts of `range` with memory in `tier`, and the bytes that each has there, up to `left` bytes,
/// which is reduced by their sum. A range only partly in the tier is halved and searched further.
pub(super) fn parts(
    view: &dyn PlacementView,
    range: &Range,
    tier: Tier,
    left: &mut u64,
) -> Vec<(Range, u64)> {
    let mut found = Vec::new();
    let mut waiting = vec![*range];
    while let Some(part) = waiting.pop()
        && *left >= PAGE_SIZE
    {
        let here = view.resident(&part, tier);
        if here == 0 {
            continue;
        }
        let whole = here >= part.bytes();
        if here <= *left && (whole || part.bytes() <= GRAIN) {
            *left -= here;
            found.push((part, here));
        } else if part.bytes() <= PAGE_SIZE {
            continue;
        } else {
            let (below, above) = halves(&part);
            waiting.push(above);
            waiting.push(below);
        }
    }
    found
}

/// Splits a range in two, at the multiple of the largest power of two near its middle.
fn halves(range: &Range) -> (Range, Range) {
    let middle = range.start + range.bytes() / 2;
    let mask = |grain: u64| middle & !(grain - 1);
    let fits = |grain: &u64| mask(*grain) > range.start;
    let grains = [1 << 30, GRAIN, PAGE_SIZE, 1];
    let cut = mask(grains.into_iter().find(fits).unwrap_or(1)).max(range.start + 1);
    (Range { end: cut, ..*range }, Range { start: cut, ..*range })
}

#[cfg(test)]
mod tests {
    use tierscope_conformance::tiers::{Size, Tiered};
    use tierscope_conformance::toy::idle;

    use super::*;
    use crate::trace::range;

    // Blocks of 2 MiB in the fast tier, the slow, the slow, and half in each.
    fn machine() -> Tiered {
        let sizes = [Size::without_marks(4096), Size::without_marks(4096)];
        let mut machine = Tiered::new(&sizes, &[range(0, 2048)], false, idle());
        machine.fill(&range(0, 2048));
        machine.place(&range(512, 1280), Tier(1));
        machine
    }

    fn pages(found: Vec<(Range, u64)>) -> Vec<(u64, u64, u64)> {
        let page = |at: u64| (at - range(0, 1).start) >> 12;
        found.iter().map(|(r, bytes)| (page(r.start), page(r.end), bytes >> 12)).collect()
    }

    #[test]
    fn memory_of_a_tier_is_found() {
        let mut left = u64::MAX;
        let found = parts(&machine(), &range(0, 2048), Tier(1), &mut left);
        assert_eq!(pages(found), [(512, 1024, 512), (1024, 1536, 512), (1536, 2048, 256)]);
    }

    #[test]
    fn at_most_the_wanted_pages_are_taken() {
        let mut left = 600 << 12;
        let found = parts(&machine(), &range(0, 2048), Tier(1), &mut left);
        assert_eq!((pages(found.clone())[0], left), ((512, 1024, 512), 0));
        assert_eq!(found.iter().map(|(_, bytes)| bytes >> 12).sum::<u64>(), 600);
    }
}
