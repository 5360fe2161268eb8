//! Which tables are worth a walk: Linux's two Bloom filters (mm/vmscan.c, `update_bloom_filter`,
//! `test_bloom_filter`), 2^15 bits and two hashes each. A walk asks one and fills the other; then they
//! change places.

use super::generations::Key;

/// `BLOOM_FILTER_SHIFT`.
const SHIFT: u32 = 15;
const WORDS: usize = (1 << SHIFT) / 64;

/// One filter.
#[derive(Clone, Debug)]
struct Filter(Box<[u64; WORDS]>);

impl Default for Filter {
    fn default() -> Self {
        Self(Box::new([0; WORDS]))
    }
}

/// Two numbers of 15 bits out of one hash, as `get_item_key` takes them.
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

/// The one that is asked and the one that is filled.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filters {
    /// `None` before the first walk: everything passes.
    asked: Option<Filter>,
    filled: Filter,
}

impl Filters {
    pub(crate) fn passes(&self, key: Key) -> bool {
        self.asked.as_ref().is_none_or(|filter| filter.has(key))
    }

    /// The next walk is to enter this table: a walk fills the other filter, a look before eviction (between
    /// walks) the one that the next walk asks.
    pub(crate) fn note(&mut self, key: Key, walking: bool) {
        match &mut self.asked {
            _ if walking => self.filled.insert(key),
            Some(asked) => asked.insert(key),
            None => {}
        }
    }

    /// A walk is over.
    pub(crate) fn turn(&mut self) {
        self.asked = Some(std::mem::take(&mut self.filled));
    }
}

/// `suitable_to_scan`: a cache line of PTEs with one young, on average.
pub(crate) fn is_dense(young: u64, present: u64) -> bool {
    young * 8 >= present && young > 0
}

#[cfg(test)]
mod tests {
    use tierscope_core::SpaceId;

    use super::*;

    #[test]
    fn what_was_noted_passes_the_next_walk_alone() {
        let mut filters = Filters::default();
        let key = |number| (SpaceId(0), number);
        assert!(filters.passes(key(5)), "nothing is known yet");
        (0..1000).for_each(|number| filters.note(key(number), true));
        assert!(filters.passes(key(70_000)));
        filters.turn();
        assert!((0..1000).all(|number| filters.passes(key(number))));
        // 2000 of 32,768 bits are set: 0.4 % of the others pass.
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
