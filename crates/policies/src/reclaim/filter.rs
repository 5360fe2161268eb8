//! Selects the page tables to scan: Linux's two Bloom filters (mm/vmscan.c, `update_bloom_filter`,
//! `test_bloom_filter`), 2^15 bits and two hashes each. A walk tests against one and fills the
//! other; then they are swapped.

use super::generations::Key;

/// log2 of a filter's bits, the kernel's `BLOOM_FILTER_SHIFT`.
const SHIFT: u32 = 15;
const WORDS: usize = (1 << SHIFT) / 64;

/// A Bloom filter.
#[derive(Clone, Debug)]
struct Filter(Box<[u64; WORDS]>);

impl Default for Filter {
    fn default() -> Self {
        Self(Box::new([0; WORDS]))
    }
}

/// Two indices of 15 bits from one hash, as in `get_item_key`.
fn bits((space, number): Key) -> [usize; 2] {
    let mut hash = number ^ u64::from(space.0).rotate_left(40);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^= hash >> 31;
    let mask = (1u64 << SHIFT) - 1;
    [(hash & mask) as usize, (hash >> SHIFT & mask) as usize]
}

impl Filter {
    fn insert(&mut self, key: Key) {
        bits(key).into_iter().for_each(|bit| self.0[bit / 64] |= 1 << (bit % 64));
    }

    fn has(&self, key: Key) -> bool {
        bits(key).into_iter().all(|bit| self.0[bit / 64] >> (bit % 64) & 1 == 1)
    }
}

/// The filter that is tested, and the one that is filled.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filters {
    /// The tested filter; `None` before the first walk, when every table passes.
    tested: Option<Filter>,
    filled: Filter,
}

impl Filters {
    pub(crate) fn passes(&self, key: Key) -> bool {
        self.tested.as_ref().is_none_or(|filter| filter.has(key))
    }

    /// Adds a table for the next walk: during a walk to the other filter, and between walks
    /// (look-around before eviction) to the one that the next walk tests.
    pub(crate) fn note(&mut self, key: Key, walking: bool) {
        match &mut self.tested {
            _ if walking => self.filled.insert(key),
            Some(tested) => tested.insert(key),
            None => {}
        }
    }

    /// Swaps the filters at the end of a walk.
    pub(crate) fn turn(&mut self) {
        self.tested = Some(std::mem::take(&mut self.filled));
    }
}

/// `suitable_to_scan`: on average, at least one young PTE per cache line.
pub(crate) fn is_dense(young: u64, present: u64) -> bool {
    young * 8 >= present && young > 0
}

#[cfg(test)]
mod tests {
    use tierscope_core::SpaceId;

    use super::*;

    #[test]
    fn noted_tables_pass_in_the_next_walk_only() {
        let mut filters = Filters::default();
        let key = |number| (SpaceId(0), number);
        assert!(filters.passes(key(5)), "nothing is known yet");
        (0..1000).for_each(|number| filters.note(key(number), true));
        assert!(filters.passes(key(70_000)));
        filters.turn();
        assert!((0..1000).all(|number| filters.passes(key(number))));
        // 2000 of 32,768 bits are set: 0.4 % of the other tables pass.
        let others = (10_000..20_000).filter(|number| filters.passes(key(*number))).count();
        assert!(others < 100, "{others} of 10,000");
        filters.turn();
        assert!(!filters.passes(key(5)));
        filters.note(key(5), false);
        assert!(filters.passes(key(5)));
    }

    #[test]
    fn one_in_eight_is_dense() {
        assert_eq!(
            [(0, 0), (1, 8), (1, 9), (64, 512), (63, 512)].map(|(y, p)| is_dense(y, p)),
            [false, true, false, true, false]
        );
    }
}
