//! Random words and small machines for the tests.

use tierscope_core::Rng;
use tierscope_hw::config::{
    CacheGeometry, Inclusion, PageSize, PscArray, Replacement, TlbArray, Translation,
};

pub(crate) const POLICIES: [Replacement; 3] =
    [Replacement::Lru, Replacement::TreePlru, Replacement::Random { seed: 9 }];

pub(crate) const INCLUSIONS: [Inclusion; 3] =
    [Inclusion::Neither, Inclusion::Inclusive, Inclusion::Exclusive];

/// Random words, `count` of them.
pub(crate) fn words(seed: u64, count: u64) -> impl Iterator<Item = u64> {
    let mut rng = Rng::seeded(seed);
    (0..count).map(move |_| rng.next_u64())
}

/// A machine with tiny TLBs and caches, so that evictions are frequent.
pub(crate) fn small(levels: u8, inclusion: Inclusion, replacement: Replacement) -> Translation {
    use PageSize::{G1, K4, M2};
    let array = |pages: &[PageSize], entries, ways| TlbArray {
        pages: pages.to_vec(),
        entries,
        ways,
        replacement,
        source: "test".into(),
        assumed: vec![],
    };
    let psc = |(level, entries, ways)| PscArray {
        level,
        entries,
        ways,
        replacement,
        source: "test".into(),
        assumed: vec![],
    };
    Translation {
        levels,
        inclusion,
        l1: vec![array(&[K4], 8, 4), array(&[M2], 4, 2), array(&[G1], 2, 2)],
        l2: vec![array(&[K4, M2], 32, 8)],
        psc: (2..=levels)
            .zip([(8, 4), (4, 4), (2, 2), (2, 1)])
            .map(|(l, (e, w))| psc((l, e, w)))
            .collect(),
        source: "test".into(),
        assumed: vec![],
    }
}

/// A cache with lines of 64 bytes and the given geometry.
pub(crate) fn geometry(
    slices: u32,
    sets: u32,
    ways: u32,
    replacement: Replacement,
) -> CacheGeometry {
    CacheGeometry {
        slices,
        sets,
        ways,
        line: 64,
        replacement,
        source: "test".into(),
        assumed: vec![],
    }
}
