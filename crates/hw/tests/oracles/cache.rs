//! Compares the cache with a naive model.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use tierscope_hw::Cache;
use tierscope_hw::cache::{Reply, Request};
use tierscope_hw::config::{CacheGeometry, Replacement};

use crate::naive::Array;
use crate::operations;
use crate::replay::{POLICIES, geometry, words};

/// Lines and whether they are dirty. One slice, so that the set index is the low bits of the line.
struct Naive {
    lines: Array<u64, bool>,
}

impl Naive {
    fn new(config: &CacheGeometry) -> Self {
        let (sets, ways) = (config.sets as usize, config.ways as usize);
        Self { lines: Array::new(sets * ways, ways, config.replacement) }
    }

    fn allocate(&mut self, line: u64, dirty: bool) -> Reply {
        let known = self.lines.get(line, line);
        let gone = self.lines.put(line, line, dirty || known == Some(true));
        let writeback = gone.filter(|(_, dirty)| *dirty).map(|(line, _)| line * 64);
        Reply { hit: known.is_some(), writeback }
    }

    fn evict(&mut self, line: u64) -> Reply {
        let gone = self.lines.remove(line, line);
        let writeback = gone.filter(|(_, dirty)| *dirty).map(|(line, _)| line * 64);
        Reply { hit: gone.is_some(), writeback }
    }
}

struct Pair {
    fast: Cache,
    naive: Naive,
}

impl Pair {
    fn new(ways: u32, replacement: Replacement) -> Self {
        let config = geometry(1, 4, ways, replacement);
        Self { fast: Cache::new(&config, 38).expect("it is possible"), naive: Naive::new(&config) }
    }

    /// Performs the operation encoded in the word on both, and compares.
    fn step(&mut self, word: u64) {
        let line = word % 128;
        let address = line * 64 + word / 128 % 64;
        let holds = self.naive.lines.get(line, line).is_some();
        assert_eq!(self.fast.holds(address), holds);
        let (fast, naive) = match word >> 60 {
            0..=7 => (self.fast.access(address, Request::Read), self.naive.allocate(line, false)),
            8..=13 => (self.fast.access(address, Request::Write), self.naive.allocate(line, true)),
            14 => (self.fast.access(address, Request::NonTemporal), self.naive.evict(line)),
            _ => (self.fast.flush(address), self.naive.evict(line)),
        };
        assert_eq!(fast, naive, "line {line}");
    }

    fn compare_contents(&self) {
        let fast: BTreeMap<u64, bool> = self.fast.contents().collect();
        let naive: BTreeMap<u64, bool> =
            self.naive.lines.pairs().map(|(line, dirty)| (line * 64, dirty)).collect();
        assert_eq!(fast, naive);
    }
}

/// Associativities with specialised code in the model, and without.
fn shapes() -> impl Iterator<Item = (u32, Replacement)> {
    let any = [1, 2, 8, 11, 12, 15, 16, 20, 24].map(|ways| (ways, Replacement::Lru));
    let others = [2, 8, 16].into_iter().flat_map(|ways| POLICIES.map(|policy| (ways, policy)));
    any.into_iter().chain(others)
}

#[test]
fn equals_the_naive_cache_for_long() {
    for (ways, replacement) in shapes() {
        let mut pair = Pair::new(ways, replacement);
        words(u64::from(ways), operations()).for_each(|word| pair.step(word));
        pair.compare_contents();
    }
}

#[test]
fn slices_change_the_sets_and_nothing_else() {
    let mut sliced = Cache::new(&geometry(3, 4, 8, Replacement::Lru), 38).expect("possible");
    let mut inside = BTreeSet::new();
    for word in words(5, 50_000) {
        let address = word % 4096 * 64;
        let reply = sliced.access(address, Request::Write);
        assert_eq!(reply.hit, inside.contains(&address));
        inside.insert(address);
        if let Some(gone) = reply.writeback {
            assert!(inside.remove(&gone), "only what was in is written back, once");
        }
        assert!(inside.len() <= 3 * 4 * 8);
    }
    let contents: BTreeSet<u64> = sliced.contents().map(|(address, _)| address).collect();
    assert_eq!(contents, inside);
}

proptest! {
    #[test]
    fn equals_the_naive_cache(
        words in prop::collection::vec(any::<u64>(), 0..400),
        shape in prop::sample::select(shapes().collect::<Vec<_>>()),
    ) {
        let mut pair = Pair::new(shape.0, shape.1);
        for word in words {
            pair.step(word);
            pair.compare_contents();
        }
    }
}
