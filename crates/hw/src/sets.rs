//! A set-associative array of 64-bit keys with a 64-bit value each: the storage of TLBs and
//! paging-structure caches.
//!
//! Apart from its entries a set has a 16-bit partial tag for each of its ways, which are compared
//! all at once; full keys are compared only on a partial match. So a miss touches a line of the
//! host's cache, a hit two lines. Key zero is invalid. The low [`INDEX_SHIFT`] bits of a key are
//! not part of the set index.

use crate::config::Replacement;
use crate::replacement::{MAX_ORDERED, Order, plru_touch, plru_victim, xorshift};
use crate::tag_match;

/// Position of the lowest bit of the set index in a key.
pub(crate) const INDEX_SHIFT: u32 = 16;

/// Number of ways of a block.
const LANES: usize = 16;

/// Largest number of ways under LRU of which time stamps are compared: a hit stores one word, and
/// waits for none.
const STAMPED: usize = 4;

/// Position of a key in the array: block after block, lane after lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slot(u32);

impl Slot {
    #[inline(always)]
    fn new(block: usize, lane: usize) -> Self {
        Self((block * LANES + lane) as u32)
    }

    #[inline(always)]
    fn at(self) -> usize {
        self.0 as usize
    }
}

/// Up to sixteen ways of a set.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct Block {
    marks: [u16; LANES],
    /// Order of use under LRU of 5 to 16 ways; empty ways are last.
    order: Order,
}

/// State of replacement policies that is not in the blocks.
#[derive(Clone, Debug)]
enum State {
    /// LRU of 5 to 16 ways: no state here, [`Block::order`] has it.
    Ordered,
    /// LRU of other numbers of ways: time stamp of each slot's last use; 0 = empty.
    Stamped { used: Vec<u32>, clock: u32 },
    /// Tree bits, one word per set.
    TreePlru(Vec<u64>),
    /// State of the random number generator.
    Random(u64),
}

#[derive(Clone, Debug)]
pub(crate) struct Sets {
    ways: usize,
    /// Blocks per set.
    depth: usize,
    mask: u64,
    /// Lowest bit of a key above the set index, from which partial tags are taken.
    mark_shift: u32,
    blocks: Vec<Block>,
    /// Keys and their values, by slot.
    entries: Vec<(u64, u64)>,
    state: State,
}

impl Sets {
    /// An empty array of `entries` keys in sets of `ways`; the geometry was checked by `config`.
    pub(crate) fn new(entries: usize, ways: usize, replacement: Replacement) -> Self {
        let sets = entries / ways;
        debug_assert!(sets.is_power_of_two() && sets * ways == entries);
        let depth = ways.div_ceil(LANES);
        let slots = sets * depth * LANES;
        let state = match replacement {
            Replacement::Lru if (STAMPED + 1..=MAX_ORDERED).contains(&ways) => State::Ordered,
            Replacement::Lru => State::Stamped { used: vec![0; slots], clock: 0 },
            Replacement::TreePlru => State::TreePlru(vec![0; sets]),
            Replacement::Random { seed } => State::Random(seed | 1),
        };
        let order = Order::new(ways.min(MAX_ORDERED));
        let block = Block { marks: [0; LANES], order };
        Self {
            ways,
            depth,
            mask: sets as u64 - 1,
            mark_shift: INDEX_SHIFT + sets.trailing_zeros(),
            blocks: vec![block; sets * depth],
            entries: vec![(0, 0); slots],
            state,
        }
    }

    #[inline(always)]
    fn set_of(&self, key: u64) -> usize {
        ((key >> INDEX_SHIFT) & self.mask) as usize
    }

    #[inline(always)]
    fn mark_of(&self, key: u64) -> u16 {
        (key >> self.mark_shift ^ key) as u16
    }

    #[inline(always)]
    pub(crate) fn find(&self, key: u64) -> Option<Slot> {
        let (set, mark) = (self.set_of(key), self.mark_of(key));
        if self.depth == 1 {
            return self.find_in(set, key, mark);
        }
        self.find_deep(set, key, mark)
    }

    #[cold]
    fn find_deep(&self, set: usize, key: u64, mark: u16) -> Option<Slot> {
        let mut blocks = set * self.depth..(set + 1) * self.depth;
        blocks.find_map(|block| self.find_in(block, key, mark))
    }

    /// Finds a key in a block. A partial tag may match other keys too.
    #[inline(always)]
    fn find_in(&self, block: usize, key: u64, mark: u16) -> Option<Slot> {
        let mut matching = tag_match::of_sixteen(&self.blocks[block].marks, mark);
        while matching != 0 {
            let slot = Slot::new(block, matching.trailing_zeros() as usize);
            if self.holds(slot, key) {
                return Some(slot);
            }
            matching &= matching - 1;
        }
        None
    }

    /// Whether a slot, which may be any, has the key.
    #[inline(always)]
    pub(crate) fn holds(&self, slot: Slot, key: u64) -> bool {
        self.entries.get(slot.at()).is_some_and(|(held, _)| *held == key)
    }

    /// Finds a key and marks it as used. Returns its value.
    #[inline(always)]
    pub(crate) fn use_key(&mut self, key: u64) -> Option<u64> {
        let slot = self.find(key)?;
        self.touch(slot);
        Some(self.value(slot))
    }

    /// The value of the key in a slot.
    #[inline(always)]
    pub(crate) fn value(&self, slot: Slot) -> u64 {
        self.entries[slot.at()].1
    }

    /// Changes the value of the key in a slot.
    #[inline(always)]
    pub(crate) fn set_value(&mut self, slot: Slot, value: u64) {
        self.entries[slot.at()].1 = value;
    }

    /// Marks a slot as used, for the replacement policy.
    #[inline(always)]
    pub(crate) fn touch(&mut self, slot: Slot) {
        match &mut self.state {
            State::Ordered => self.blocks[slot.at() / LANES].order.touch(slot.at() % LANES),
            State::Stamped { used, clock } => {
                if *clock == u32::MAX {
                    *clock = renumber(used, self.depth * LANES);
                }
                *clock += 1;
                used[slot.at()] = *clock;
            }
            State::TreePlru(bits) => {
                let (set, way) =
                    (slot.at() / (self.depth * LANES), slot.at() % (self.depth * LANES));
                bits[set] = plru_touch(bits[set], self.ways, way);
            }
            State::Random(_) => {}
        }
    }

    #[inline(always)]
    fn slot_of(&self, set: usize, way: usize) -> Slot {
        Slot::new(set * self.depth, way)
    }

    /// Inserts a key that is not in the array, and marks it as used. Returns the evicted key and
    /// its value; key 0 if the way was empty.
    #[inline(always)]
    pub(crate) fn insert(&mut self, key: u64, value: u64) -> (u64, u64) {
        debug_assert!(key != 0 && self.find(key).is_none());
        let (set, mark) = (self.set_of(key), self.mark_of(key));
        let slot = self.reuse(set);
        self.blocks[slot.at() / LANES].marks[slot.at() % LANES] = mark;
        std::mem::replace(&mut self.entries[slot.at()], (key, value))
    }

    /// Returns an empty way, or else the policy's victim, and marks it as used.
    #[inline(always)]
    fn reuse(&mut self, set: usize) -> Slot {
        let (ways, first) = (self.ways, self.slot_of(set, 0).at());
        let way = match &mut self.state {
            State::Ordered => return Slot::new(set, self.blocks[set].order.reuse_last(self.ways)),
            // Empty ways were never used.
            State::Stamped { used, .. } => {
                let used = &used[first..][..ways];
                used.try_into().map_or_else(|_| least(used), least_of_four)
            }
            State::TreePlru(bits) => empty(&self.entries[first..][..ways])
                .unwrap_or_else(|| plru_victim(bits[set], ways)),
            State::Random(state) => empty(&self.entries[first..][..ways])
                .unwrap_or_else(|| (xorshift(state) % ways as u64) as usize),
        };
        let slot = self.slot_of(set, way);
        self.touch(slot);
        slot
    }

    /// Empties the slot.
    pub(crate) fn remove(&mut self, slot: Slot) {
        let (block, lane) = (&mut self.blocks[slot.at() / LANES], slot.at() % LANES);
        block.marks[lane] = 0;
        self.entries[slot.at()] = (0, 0);
        match &mut self.state {
            State::Ordered => block.order.retire(lane, self.ways),
            State::Stamped { used, .. } => used[slot.at()] = 0,
            State::TreePlru(_) | State::Random(_) => {}
        }
    }

    /// Removes every key for which `gone` returns true.
    pub(crate) fn remove_if(&mut self, mut gone: impl FnMut(u64) -> bool) {
        for at in 0..self.entries.len() {
            let key = self.entries[at].0;
            if key != 0 && gone(key) {
                self.remove(Slot(at as u32));
            }
        }
    }

    /// All keys and their values, in unspecified order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.entries.iter().copied().filter(|(key, _)| *key != 0)
    }

    #[cfg(test)]
    fn at_the_end_of_its_clock(mut self) -> Self {
        let State::Stamped { clock, .. } = &mut self.state else { panic!("it keeps no clock") };
        *clock = u32::MAX - 5;
        self
    }
}

/// The first empty way of a set.
#[inline(never)]
fn empty(set: &[(u64, u64)]) -> Option<usize> {
    set.iter().position(|(key, _)| *key == 0)
}

/// Index of the first minimum, without branches.
#[inline(always)]
fn least_of_four([a, b, c, d]: &[u32; 4]) -> usize {
    let ((first, low), (last, high)) =
        (if b < a { (1, b) } else { (0, a) }, if d < c { (3, d) } else { (2, c) });
    if high < low { last } else { first }
}

/// Index of the first minimum.
fn least(used: &[u32]) -> usize {
    let mut best = 0;
    for way in 1..used.len() {
        best = if used[way] < used[best] { way } else { best };
    }
    best
}

/// Compacts the time stamps of every set, preserving their order. Returns the highest one.
#[cold]
fn renumber(used: &mut [u32], slots: usize) -> u32 {
    for set in used.chunks_mut(slots) {
        let mut order: Vec<usize> = (0..slots).filter(|way| set[*way] != 0).collect();
        order.sort_by_key(|way| set[*way]);
        for (rank, way) in order.into_iter().enumerate() {
            set[way] = rank as u32 + 1;
        }
    }
    slots as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key of set `set`; `number` distinguishes keys of a set.
    fn key(set: u64, number: u64) -> u64 {
        (number << 40) | (set << INDEX_SHIFT) | 1
    }

    fn touch(sets: &mut Sets, key: u64) -> u64 {
        match sets.find(key) {
            Some(slot) => {
                sets.touch(slot);
                0
            }
            None => sets.insert(key, !key).0,
        }
    }

    //   two ways:  A  B  (touch A)  C pushes out B, not A
    #[test]
    fn the_least_recently_used_is_evicted() {
        let mut sets = Sets::new(4, 2, Replacement::Lru);
        let [a, b, c] = [1, 2, 3].map(|number| key(1, number));
        assert_eq!([a, b, a].map(|k| touch(&mut sets, k)), [0, 0, 0]);
        assert_eq!(touch(&mut sets, c), b);
        assert_eq!(touch(&mut sets, key(0, 9)), 0, "the other set is empty");
    }

    #[test]
    fn an_emptied_way_is_filled_first() {
        for replacement in
            [Replacement::Lru, Replacement::TreePlru, Replacement::Random { seed: 3 }]
        {
            let mut sets = Sets::new(4, 4, replacement);
            (1..=4).for_each(|n| assert_eq!(touch(&mut sets, key(0, n)), 0));
            let slot = sets.find(key(0, 3)).expect("it is in");
            sets.remove(slot);
            assert_eq!(touch(&mut sets, key(0, 5)), 0, "{replacement:?}");
            assert_ne!(touch(&mut sets, key(0, 6)), 0, "{replacement:?}");
        }
    }

    #[test]
    fn the_first_minimum_of_four_is_found() {
        for number in 0..256u32 {
            let of = [number & 3, number >> 2 & 3, number >> 4 & 3, number >> 6];
            assert_eq!(least_of_four(&of), least(&of), "{of:?}");
        }
    }

    #[test]
    fn order_survives_the_end_of_the_clock() {
        let mut sets = Sets::new(32, 32, Replacement::Lru).at_the_end_of_its_clock();
        (1..=32).for_each(|n| assert_eq!(touch(&mut sets, key(0, n)), 0));
        for number in 33..99 {
            assert_eq!(touch(&mut sets, key(0, number)), key(0, number - 32));
        }
    }

    // Sixteen sets and partial tags of 16 bits: bits 36 and up of a key are not in its partial tag.
    #[test]
    fn keys_of_the_same_mark_are_distinguished() {
        let mut sets = Sets::new(64, 4, Replacement::Lru);
        let keys: Vec<u64> = (1..=4).map(|number| number << 36 | 1).collect();
        assert!(keys.iter().all(|key| sets.mark_of(*key) == sets.mark_of(keys[0])));
        keys.iter().for_each(|key| assert_eq!(touch(&mut sets, *key), 0));
        let value = keys.iter().map(|key| sets.find(*key).map(|slot| sets.value(slot)));
        assert!(value.eq(keys.iter().map(|key| Some(!key))));
        assert_eq!(sets.find(5 << 36 | 1), None);
    }
}
