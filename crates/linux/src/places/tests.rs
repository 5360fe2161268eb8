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
    };
    Mappings { mappings: ranges.iter().map(mapping).collect(), ..Mappings::default() }
}

fn places(fake: Fake, ranges: &[Range]) -> Places<Fake> {
    let tiers = vec![vec![(Node(0), 0)], vec![(Node(1), 0)]];
    let mut places = Places::new(fake, Layout { tiers }, Vec::new());
    places.map(&mappings(ranges));
    places
}

/// Spaces whose mappings are on the map.
fn looked_at(places: &Places<Fake>) -> Vec<SpaceId> {
    let inner = places.inner.borrow();
    let mut spaces: Vec<_> = inner.rows.iter().map(|row| row.range.space).collect();
    spaces.dedup();
    spaces
}

/// Advances time, so that the known state becomes old.
fn later(places: &Places<Fake>, seconds: u64) {
    places.inner.borrow_mut().kernel.now += seconds * 1_000_000_000;
}

fn number(places: &Places<Fake>, at: u64) -> Option<u32> {
    places.page_at(&pages(at, at + 1)).map(|id| id.0)
}

// 1000 pages in the slow tier, except for 100..200 in the fast one and 300..310 not resident.
fn some() -> Fake {
    let mut fake = Fake::with_pages(1000, 1);
    (100..200).for_each(|number| fake.put(number, 0));
    (300..310).for_each(|number| fake.free_page(number));
    fake
}

#[test]
fn pages_are_where_the_kernel_says() {
    let places = places(some(), &[pages(0, 1000)]);
    let tier = |at: u64| places.tier_of(places.page_at(&pages(at, at + 1)).unwrap());
    assert_eq!([tier(0), tier(150), tier(999)], [Some(Tier(1)), Some(Tier(0)), Some(Tier(1))]);
    assert_eq!((number(&places, 305), number(&places, 1000)), (None, None));
    assert_eq!(number(&places, 700), Some(700));
    assert_eq!(places.range_of(PageId(700)), Some(pages(700, 701)));
    assert_eq!(places.range_of(PageId(1000)), None, "set aside, but not mapped");
    let resident = |range, tier| places.resident(&range, Tier(tier)) >> 12;
    assert_eq!([resident(pages(0, 1000), 0), resident(pages(0, 1000), 1)], [100, 890]);
    assert_eq!([resident(pages(190, 305), 0), resident(pages(190, 305), 1)], [10, 100]);
    assert_eq!(resident(pages(0, 1000), 9), 0);
    let uses: Vec<(u64, u64)> =
        places.tiers().iter().map(|of| (of.capacity >> 12, of.used >> 12)).collect();
    assert_eq!(uses, [(1100, 100), (1890, 890)]);
}

#[test]
fn what_moved_is_seen() {
    let mut places = places(some(), &[pages(0, 1000)]);
    assert_eq!(places.resident(&pages(600, 700), Tier(0)), 0);
    (600..700).for_each(|page| places.inner.borrow_mut().kernel.put(page, 0));
    assert_eq!(places.resident(&pages(600, 700), Tier(0)), 0, "nobody has looked again");
    places.refresh(&[pages(600, 700)]);
    assert_eq!(places.resident(&pages(600, 700), Tier(0)), 100 << 12);
    // Moves by other programs are seen within a second or two.
    (600..700).for_each(|page| places.inner.borrow_mut().kernel.put(page, 1));
    later(&places, 2);
    assert_eq!(places.resident(&pages(600, 700), Tier(0)), 0);
}

// A block that a caller asks for every second.
#[test]
fn what_nobody_moves_is_asked_about_less_and_less() {
    let places = places(Fake::with_pages(1024, 1), &[pages(0, 1024)]);
    let asked = || places.inner.borrow().kernel.located / 512;
    let mut looks = Vec::new();
    for second in 0..64 {
        let before = asked();
        assert_eq!(places.resident(&pages(0, 512), Tier(1)), 512 << 12);
        looks.extend((asked() > before).then_some(second));
        later(&places, 1);
    }
    assert_eq!(looks, [0, 1, 3, 7, 15, 31, 47, 63]);
    places.inner.borrow_mut().kernel.put(3, 0);
    later(&places, 16);
    assert_eq!(places.resident(&pages(0, 512), Tier(0)), 1 << 12);
    places.inner.borrow_mut().kernel.put(4, 0);
    later(&places, 1);
    assert_eq!(
        places.resident(&pages(0, 512), Tier(0)),
        2 << 12,
        "what changed is asked about soon"
    );
}

// After one request by a caller, and without moves, the sweep queries each block after 1 s, 2, 4,
// 8, 16 and again 16 s, counted from the first refresh that reached it.
#[test]
fn a_round_leaves_out_what_is_fresh() {
    let mut places = places(Fake::with_pages(512 * 20, 1), &[pages(0, 512 * 20)]);
    let asked = |places: &Places<Fake>| places.inner.borrow().kernel.located / 512;
    let refresh = |places: &mut Places<Fake>, seconds: u64| {
        for _ in 0..10 * seconds {
            places.inner.borrow_mut().kernel.now += 100_000_000;
            places.refresh(&[]);
        }
    };
    refresh(&mut places, 60);
    assert_eq!(asked(&places), 0, "nobody wanted to know");
    assert_eq!(places.resident(&pages(0, 1), Tier(1)), 1 << 12);
    refresh(&mut places, 60);
    let rounds = asked(&places) / 20;
    assert!((5..=7).contains(&rounds), "{rounds} rounds in a minute");
    assert_eq!(places.resident(&pages(0, 512 * 20), Tier(1)), (512 * 20) << 12);
}

#[test]
fn huge_pages_have_one_number() {
    let mut fake = Fake::with_pages(1024, 1);
    fake.huge.insert(page(512));
    let places = places(fake, &[pages(0, 1024)]);
    assert_eq!(
        [number(&places, 511), number(&places, 512), number(&places, 700)],
        [Some(511), Some(512), Some(512)]
    );
    assert_eq!(places.range_of(PageId(512)), Some(pages(512, 1024)));
}

// A heap that grows keeps its page ids; a mapping that ends frees them.
#[test]
fn numbers_follow_mappings() {
    let mut places = places(Fake::with_pages(3000, 1), &[pages(0, 100), pages(1000, 1100)]);
    assert_eq!((number(&places, 1000), number(&places, 50)), (Some(0), Some((1 << 14) + 50)));
    places.map(&mappings(&[pages(0, 100), pages(1000, 3000)]));
    assert_eq!((number(&places, 2999), number(&places, 50)), (Some(1999), Some((1 << 14) + 50)));
    places.map(&mappings(&[pages(0, 50)]));
    assert_eq!((number(&places, 1000), number(&places, 49)), (None, Some((1 << 14) + 49)));
    assert_eq!(places.resident(&pages(0, 3000), Tier(1)), 50 << 12);
    places.map(&mappings(&[pages(0, 50), pages(2000, 2001)]));
    assert_eq!(number(&places, 2000), Some(0));
}

#[test]
fn a_capacity_is_what_is_left_of_it() {
    let tiers = vec![vec![(Node(0), 0)], vec![(Node(1), 0)]];
    let mut places = Places::new(some(), Layout { tiers }, vec![Some(150 << 12), None]);
    places.map(&mappings(&[pages(0, 1000)]));
    places.resident(&pages(0, 1000), Tier(0));
    places.refresh(&[]);
    assert_eq!((places.tiers()[0].capacity, places.free(Tier(0))), (150 << 12, 50 << 12));
    places.set_keep_free(980 << 12);
    places.refresh(&[]);
    assert_eq!(places.free(Tier(0)), 20 << 12, "1000 are free on the node, 980 stay so");
}

#[test]
fn a_target_that_is_gone_has_no_pages() {
    let mut places = places(some(), &[pages(0, 1000)]);
    places.inner.get_mut().kernel.gone = true;
    assert_eq!((number(&places, 0), places.resident(&pages(0, 1000), Tier(1))), (None, 0));
    assert_eq!(looked_at(&places), [SpaceId(0)]);
}

// A reservation of 256 TiB is ignored; of one of 8 TiB at most `MOST_LOOKS` blocks are queried per
// refresh.
#[test]
fn reservations_do_no_harm() {
    let far = 1 << 30;
    let wide = Range::new(SpaceId(0), page(far), page(far) + (8 << 40));
    let wider = Range::new(SpaceId(1), 0, 256 << 40);
    let mut places = places(some(), &[pages(0, 1000), wide, wider]);
    assert_eq!(places.resident(&wide, Tier(0)), 0);
    places.refresh(&[]);
    let asked = places.inner.borrow().kernel.located;
    assert!(asked <= 2 * u64::from(MOST_LOOKS) * 512, "{asked}");
    assert_eq!(number(&places, 5), Some(5));
    assert_eq!(looked_at(&places), [SpaceId(0)]);
}

proptest! {
    // Compared with the fake kernel's state, for random moves and mappings.
    #[test]
    fn as_if_every_page_were_asked(
        moves in prop::collection::vec((0u64..1500, 1u64..200, 0i32..3), 0..12),
        cuts in prop::collection::btree_set(1u64..1500, 2..6),
    ) {
        let cuts: Vec<u64> = cuts.into_iter().collect();
        let ranges: Vec<Range> = cuts.chunks_exact(2).map(|cut| pages(cut[0], cut[1])).collect();
        let mut places = places(Fake::with_pages(1400, 1), &ranges);
        for (at, count, node) in moves {
            for page in at..(at + count).min(1400) {
                let kernel = &mut places.inner.get_mut().kernel;
                if node == 2 { kernel.free_page(page) } else { kernel.put(page, node) }
            }
            places.refresh(&[pages(at, at + count)]);
        }
        let mapped = |at: u64| ranges.iter().any(|range| range.covers(&pages(at, at + 1)));
        let mut counted = [0, 0];
        for at in 0..1500 {
            let node = places.inner.borrow().kernel.node_of(at).filter(|_| mapped(at));
            let id = places.page_at(&pages(at, at + 1));
            prop_assert_eq!(id.is_some(), node.is_some());
            if let (Some(id), Some(node)) = (id, node) {
                prop_assert_eq!(places.range_of(id), Some(pages(at, at + 1)));
                prop_assert_eq!(places.tier_of(id), Some(Tier(node as u8)));
                counted[node as usize] += 4096;
            }
        }
        for (tier, bytes) in (0..).zip(counted) {
            prop_assert_eq!(places.resident(&pages(0, 1500), Tier(tier)), bytes);
            let parts: u64 = (0..30).map(|n| places.resident(&pages(n * 50, n * 50 + 50), Tier(tier))).sum();
            prop_assert_eq!(parts, bytes);
        }
    }
}
