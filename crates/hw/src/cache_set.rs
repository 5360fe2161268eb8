//! A cache set with LRU of few ways: up to twelve ways fit into one line of the host's cache, up to
//! sixteen into two.

use crate::replacement::Order;
use crate::tag_match;

/// Tags of up to `LANES` ways, their order of use, and a dirty bit for each. Tag zero marks an
/// empty way.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct CacheSet<const LANES: usize> {
    tags: [u32; LANES],
    dirty: u32,
    /// Order of use; empty ways are last.
    order: Order,
}

/// Result of an access to a set.
pub(crate) struct SetAccess {
    pub(crate) hit: bool,
    /// Tag of an evicted dirty line.
    pub(crate) evicted: Option<u32>,
}

impl<const LANES: usize> CacheSet<LANES> {
    pub(crate) fn new(ways: usize) -> Self {
        debug_assert!(ways <= LANES);
        Self { tags: [0; LANES], dirty: 0, order: Order::new(ways) }
    }

    /// Accesses a line, and fetches it if it is missing.
    #[inline(always)]
    pub(crate) fn allocate(&mut self, ways: usize, tag: u32, store: bool) -> SetAccess {
        let matching = self.matching(tag);
        let hit = matching != 0;
        let way = if hit { matching.trailing_zeros() as usize } else { self.order.last(ways) };
        self.order.touch(way);
        let bit = 1u32 << way;
        let dirty = self.dirty;
        let kept = if hit { dirty } else { dirty & !bit };
        self.dirty = kept | u32::from(store) << way;
        let old = std::mem::replace(&mut self.tags[way], tag);
        SetAccess { hit, evicted: (kept != dirty).then_some(old) }
    }

    /// Evicts a line; `None` if it was not cached.
    pub(crate) fn evict(&mut self, ways: usize, tag: u32) -> Option<SetAccess> {
        let way = self.tags.iter().position(|other| *other == tag)?;
        self.order.retire(way, ways);
        self.tags[way] = 0;
        let dirty = self.dirty >> way & 1 == 1;
        self.dirty &= !(1 << way);
        Some(SetAccess { hit: true, evicted: dirty.then_some(tag) })
    }

    #[inline(always)]
    pub(crate) fn holds(&self, tag: u32) -> bool {
        self.matching(tag) != 0
    }

    /// Tags of the cached lines, and whether they are dirty.
    pub(crate) fn tags(&self) -> impl Iterator<Item = (u32, bool)> + '_ {
        let tags = self.tags.iter().enumerate().filter(|(_, tag)| **tag != 0);
        tags.map(|(way, tag)| (*tag, self.dirty >> way & 1 == 1))
    }

    /// Bit mask of the way whose tag matches; 0 if none does.
    #[inline(always)]
    fn matching(&self, tag: u32) -> u32 {
        let mut found = 0;
        for (four, tags) in self.tags.as_chunks::<4>().0.iter().enumerate() {
            found |= tag_match::of_four(tags, tag) << (4 * four);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_takes_one_line_of_the_host_or_two() {
        assert_eq!((size_of::<CacheSet<12>>(), size_of::<CacheSet<16>>()), (64, 128));
    }

    //   three ways: 7 8d 9   use 7   10 evicts 8, which was dirty
    //   9 is evicted   11 takes its way
    #[test]
    fn the_least_recently_used_is_evicted_with_its_dirty_bit() {
        let mut set = CacheSet::<12>::new(3);
        let mut go = |tag, store| {
            let used = set.allocate(3, tag, store);
            (used.hit, used.evicted)
        };
        assert_eq!([(7, false), (8, true), (9, false)].map(|(t, s)| go(t, s)), [(false, None); 3]);
        assert_eq!(go(7, false), (true, None));
        assert_eq!(go(10, false), (false, Some(8)));
        assert!(set.evict(3, 9).is_some_and(|used| used.evicted.is_none()));
        assert!(set.evict(3, 9).is_none() && !set.holds(9));
        assert!(set.allocate(3, 11, true).evicted.is_none(), "it was empty");
        let mut tags: Vec<_> = set.tags().collect();
        tags.sort_unstable();
        assert_eq!(tags, [(7, false), (10, false), (11, true)]);
    }
}
