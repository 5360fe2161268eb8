use std::sync::Arc;

use proptest::prelude::*;
use tierscope_core::{Mapping, Node, SpaceId};

use super::*;
use crate::mover::fake::{Fake, page};

fn pages(start: u64, end: u64) -> Range {
    Range::new(SpaceId(0), page(start), page(end))
}

fn mappings(ranges: &[Range]) -> Mappings {
    let mapping = |range: &Range| Mapping {
        range: *range,
        backing: Backing::Anonymous,
        name: Arc::from(""),
        writable: true,
        object: None,
    };
    Mappings { mappings: ranges.iter().map(mapping).collect(), ..Mappings::default() }
}

fn page_tiers(fake: Fake, ranges: &[Range]) -> PageTiers<Fake> {
    let tiers = vec![vec![(Node(0), 0)], vec![(Node(1), 0)]];
    let mut map = PageTiers::new(fake, Layout { tiers }, Vec::new());
    map.map(&mappings(ranges));
    map
}

/// Spaces whose mappings are on the map.
fn mapped_spaces(map: &PageTiers<Fake>) -> Vec<SpaceId> {
    let inner = map.inner.borrow();
    let mut spaces: Vec<_> = inner.rows.iter().map(|row| row.range.space).collect();
    spaces.dedup();
    spaces
}

/// Advances time, so that the known state becomes old.
fn later(map: &PageTiers<Fake>, seconds: u64) {
    map.inner.borrow_mut().kernel.now += seconds * 1_000_000_000;
}

fn id(map: &PageTiers<Fake>, at: u64) -> Option<u32> {
    map.page_at(&pages(at, at + 1)).map(|id| id.0)
}

// 1000 pages in the slow tier, except for 100..200 in the fast one and 300..310 not resident.
fn some() -> Fake {
    let mut fake = Fake::with_pages(1000, 1);
    (100..200).for_each(|number| fake.put(number, 0));
    (300..310).for_each(|number| fake.free_page(number));
    fake
}

#[test]
fn tiers_are_those_of_the_kernel() {
    let map = page_tiers(some(), &[pages(0, 1000)]);
    let tier = |at: u64| map.tier_of(map.page_at(&pages(at, at + 1)).unwrap());
    assert_eq!([tier(0), tier(150), tier(999)], [Some(Tier(1)), Some(Tier(0)), Some(Tier(1))]);
    assert_eq!((id(&map, 305), id(&map, 1000)), (None, None));
    assert_eq!(id(&map, 700), Some(700));
    assert_eq!(map.range_of(PageId(700)), Some(pages(700, 701)));
    assert_eq!(map.range_of(PageId(1000)), None, "reserved, but not mapped");
    let resident = |range, tier| map.resident(&range, Tier(tier)) >> 12;
    assert_eq!([resident(pages(0, 1000), 0), resident(pages(0, 1000), 1)], [100, 890]);
    assert_eq!([resident(pages(190, 305), 0), resident(pages(190, 305), 1)], [10, 100]);
    assert_eq!(resident(pages(0, 1000), 9), 0);
    let uses: Vec<(u64, u64)> =
        map.tiers().iter().map(|of| (of.capacity >> 12, of.used >> 12)).collect();
    assert_eq!(uses, [(1100, 100), (1890, 890)]);
}

#[test]
fn moves_are_seen_after_a_refresh() {
    let mut map = page_tiers(some(), &[pages(0, 1000)]);
    assert_eq!(map.resident(&pages(600, 700), Tier(0)), 0);
    (600..700).for_each(|page| map.inner.borrow_mut().kernel.put(page, 0));
    assert_eq!(map.resident(&pages(600, 700), Tier(0)), 0, "not queried again yet");
    map.refresh(&[pages(600, 700)]);
    assert_eq!(map.resident(&pages(600, 700), Tier(0)), 100 << 12);
    // Moves by other programs are seen within a second or two.
    (600..700).for_each(|page| map.inner.borrow_mut().kernel.put(page, 1));
    later(&map, 2);
    assert_eq!(map.resident(&pages(600, 700), Tier(0)), 0);
}

// A block that a caller asks for every second.
#[test]
fn unchanged_blocks_are_queried_ever_less_often() {
    let map = page_tiers(Fake::with_pages(1024, 1), &[pages(0, 1024)]);
    let queries = || map.inner.borrow().kernel.located / 512;
    let mut queried_in = Vec::new();
    for second in 0..64 {
        let before = queries();
        assert_eq!(map.resident(&pages(0, 512), Tier(1)), 512 << 12);
        queried_in.extend((queries() > before).then_some(second));
        later(&map, 1);
    }
    assert_eq!(queried_in, [0, 1, 3, 7, 15, 31, 47, 63]);
    map.inner.borrow_mut().kernel.put(3, 0);
    later(&map, 16);
    assert_eq!(map.resident(&pages(0, 512), Tier(0)), 1 << 12);
    map.inner.borrow_mut().kernel.put(4, 0);
    later(&map, 1);
    assert_eq!(
        map.resident(&pages(0, 512), Tier(0)),
        2 << 12,
        "a changed block is queried again soon"
    );
}

// After one request by a caller, and without moves, the sweep queries each block after 1 s, 2, 4,
// 8, 16 and again 16 s, counted from the first refresh that reached it.
#[test]
fn the_sweep_skips_fresh_blocks() {
    let mut map = page_tiers(Fake::with_pages(512 * 20, 1), &[pages(0, 512 * 20)]);
    let queries = |map: &PageTiers<Fake>| map.inner.borrow().kernel.located / 512;
    let refresh = |map: &mut PageTiers<Fake>, seconds: u64| {
        for _ in 0..10 * seconds {
            map.inner.borrow_mut().kernel.now += 100_000_000;
            map.refresh(&[]);
        }
    };
    refresh(&mut map, 60);
    assert_eq!(queries(&map), 0, "no caller has asked yet");
    assert_eq!(map.resident(&pages(0, 1), Tier(1)), 1 << 12);
    refresh(&mut map, 60);
    let sweeps = queries(&map) / 20;
    assert!((5..=7).contains(&sweeps), "{sweeps} sweeps in a minute");
    assert_eq!(map.resident(&pages(0, 512 * 20), Tier(1)), (512 * 20) << 12);
}

#[test]
fn a_huge_page_has_one_id() {
    let mut fake = Fake::with_pages(1024, 1);
    fake.huge.insert(page(512));
    let map = page_tiers(fake, &[pages(0, 1024)]);
    assert_eq!([id(&map, 511), id(&map, 512), id(&map, 700)], [Some(511), Some(512), Some(512)]);
    assert_eq!(map.range_of(PageId(512)), Some(pages(512, 1024)));
}

// A heap that grows keeps its page ids; a mapping that ends frees them.
#[test]
fn page_ids_follow_mappings() {
    let mut map = page_tiers(Fake::with_pages(3000, 1), &[pages(0, 100), pages(1000, 1100)]);
    assert_eq!((id(&map, 1000), id(&map, 50)), (Some(0), Some((1 << 14) + 50)));
    map.map(&mappings(&[pages(0, 100), pages(1000, 3000)]));
    assert_eq!((id(&map, 2999), id(&map, 50)), (Some(1999), Some((1 << 14) + 50)));
    map.map(&mappings(&[pages(0, 50)]));
    assert_eq!((id(&map, 1000), id(&map, 49)), (None, Some((1 << 14) + 49)));
    assert_eq!(map.resident(&pages(0, 3000), Tier(1)), 50 << 12);
    map.map(&mappings(&[pages(0, 50), pages(2000, 2001)]));
    assert_eq!(id(&map, 2000), Some(0));
}

#[test]
fn free_bytes_respect_the_capacity() {
    let tiers = vec![vec![(Node(0), 0)], vec![(Node(1), 0)]];
    let mut map = PageTiers::new(some(), Layout { tiers }, vec![Some(150 << 12), None]);
    map.map(&mappings(&[pages(0, 1000)]));
    map.resident(&pages(0, 1000), Tier(0));
    map.refresh(&[]);
    assert_eq!((map.tiers()[0].capacity, map.free(Tier(0))), (150 << 12, 50 << 12));
    map.set_keep_free(980 << 12);
    map.refresh(&[]);
    assert_eq!(map.free(Tier(0)), 20 << 12, "1000 are free on the node, 980 stay so");
}

#[test]
fn a_target_that_is_gone_has_no_pages() {
    let mut map = page_tiers(some(), &[pages(0, 1000)]);
    map.inner.get_mut().kernel.gone = true;
    assert_eq!((id(&map, 0), map.resident(&pages(0, 1000), Tier(1))), (None, 0));
    assert_eq!(mapped_spaces(&map), [SpaceId(0)]);
}

// A reservation of 256 TiB is ignored; of one of 8 TiB at most `MAX_QUERIES` blocks are queried per
// refresh.
#[test]
fn reservations_cost_few_queries() {
    let far = 1 << 30;
    let wide = Range::new(SpaceId(0), page(far), page(far) + (8 << 40));
    let wider = Range::new(SpaceId(1), 0, 256 << 40);
    let mut map = page_tiers(some(), &[pages(0, 1000), wide, wider]);
    assert_eq!(map.resident(&wide, Tier(0)), 0);
    map.refresh(&[]);
    let queries = map.inner.borrow().kernel.located;
    assert!(queries <= 2 * u64::from(MAX_QUERIES) * 512, "{queries}");
    assert_eq!(id(&map, 5), Some(5));
    assert_eq!(mapped_spaces(&map), [SpaceId(0)]);
}

proptest! {
    // Compared with the fake kernel's state, for random moves and mappings.
    #[test]
    fn the_map_equals_a_query_of_every_page(
        moves in prop::collection::vec((0u64..1500, 1u64..200, 0i32..3), 0..12),
        cuts in prop::collection::btree_set(1u64..1500, 2..6),
    ) {
        let cuts: Vec<u64> = cuts.into_iter().collect();
        let ranges: Vec<Range> = cuts.chunks_exact(2).map(|cut| pages(cut[0], cut[1])).collect();
        let mut map = page_tiers(Fake::with_pages(1400, 1), &ranges);
        for (at, count, node) in moves {
            for page in at..(at + count).min(1400) {
                let kernel = &mut map.inner.get_mut().kernel;
                if node == 2 { kernel.free_page(page) } else { kernel.put(page, node) }
            }
            map.refresh(&[pages(at, at + count)]);
        }
        let mapped = |at: u64| ranges.iter().any(|range| range.covers(&pages(at, at + 1)));
        let mut counted = [0, 0];
        for at in 0..1500 {
            let node = map.inner.borrow().kernel.node_of(at).filter(|_| mapped(at));
            let id = map.page_at(&pages(at, at + 1));
            prop_assert_eq!(id.is_some(), node.is_some());
            if let (Some(id), Some(node)) = (id, node) {
                prop_assert_eq!(map.range_of(id), Some(pages(at, at + 1)));
                prop_assert_eq!(map.tier_of(id), Some(Tier(node as u8)));
                counted[node as usize] += 4096;
            }
        }
        for (tier, bytes) in (0..).zip(counted) {
            prop_assert_eq!(map.resident(&pages(0, 1500), Tier(tier)), bytes);
            let parts: u64 = (0..30).map(|n| map.resident(&pages(n * 50, n * 50 + 50), Tier(tier))).sum();
            prop_assert_eq!(parts, bytes);
        }
    }
}
