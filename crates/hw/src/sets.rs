//! A set-associative array of 64-bit keys with a 64-bit value each: the storage of TLBs and
//! paging-structure caches.
//!
//! A set begins with a 16-bit partial tag for each of its ways, which are compared all at once;
//! full keys are compared only on a partial match. So a miss touches half a line of the host's
//! cache, a hit two lines. Key zero is invalid. The low [`INDEX_SHIFT`] bits of a key are not part
//! of the set index.

use crate::config::Replacement;
use crate::replacement::{MAX_ORDERED, Order, plru_touch, plru_victim, xorshift};
use crate::tag_match;

/// Position of the lowest bit of the set index in a key.
pub(crate) const INDEX_SHIFT: u32 = 16;

/// Number of ways of a block.
const LANES: usize = 16;

/// Position of a key in the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    block: usize,
    lane: usize,
}

/// Up to sixteen ways of a set.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct Block {
    marks: [u16; LANES],
    /// Order of use under LRU of few ways; empty ways are last.
    order: Order,
    /// Keys and their values.
    entries: [(u64, u64); LANES],
}

/// State of replacement policies that is not in the blocks.
#[derive(Clone, Debug)]
enum State {
    /// LRU of few ways: no state here, [`Block::order`] has it.
    Ordered,
    /// LRU of many ways: time stamp of each way's last use; 0 = empty.
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
    state: State,
}

impl Sets {
    /// An empty array of `entries` keys in sets of `ways`; the geometry was checked by `config`.
    pub(crate) fn new(entries: usize, ways: usize, replacement: Replacement) -> Self {
        let sets = entries / ways;
        debug_assert!(sets.is_power_of_two() && sets * ways == entries);
        let state = match replacement {
            Replacement::Lru if ways <= MAX_ORDERED => State::Ordered,
            Replacement::Lru => State::Stamped { used: vec![0; entries], clock: 0 },
            Replacement::TreePlru => State::TreePlru(vec![0; sets]),
            Replacement::Random { seed } => State::Random(seed | 1),
        };
        let depth = ways.div_ceil(LANES);
        let order = Order::new(ways.min(MAX_ORDERED));
        let block = Block { marks: [0; LANES], order, entries: [(0, 0); LANES] };
        Self {
            ways,
            depth,
            mask: sets as u64 - 1,
            mark_shift: INDEX_SHIFT + sets.trailing_zeros(),
            blocks: vec![block; sets * depth],
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
            let lane = self.blocks[set].find(key, mark)?;
            return Some(Slot { block: set, lane });
        }
        self.find_deep(set, key, mark)
    }

    #[cold]
    fn find_deep(&self, set: usize, key: u64, mark: u16) -> Option<Slot> {
        let found = |block: usize| Some(Slot { block, lane: self.blocks[block].find(key, mark)? });
        (set * self.depth..(set + 1) * self.depth).find_map(found)
    }

    /// Finds a key and marks it as used. Returns its value.
    #[inline(always)]
    pub(crate) fn use_key(&mut self, key: u64) -> Option<u64> {
        if let State::Ordered = self.state {
            let (set, mark) = (self.set_of(key), self.mark_of(key));
            return self.blocks[set].use_key(key, mark);
        }
        self.use_unordered(key)
    }

    #[inline(never)]
    fn use_unordered(&mut self, key: u64) -> Option<u64> {
        let slot = self.find(key)?;
        self.touch_unordered(slot);
        Some(self.value(slot))
    }

    /// The value of the key in a slot.
    #[inline(always)]
    pub(crate) fn value(&self, slot: Slot) -> u64 {
        self.blocks[slot.block].entries[slot.lane % LANES].1
    }

    /// Changes the value of the key in a slot.
    #[inline(always)]
    pub(crate) fn set_value(&mut self, slot: Slot, value: u64) {
        self.blocks[slot.block].entries[slot.lane % LANES].1 = value;
    }

    /// Marks a slot as used, for the replacement policy.
    #[inline(always)]
    pub(crate) fn touch(&mut self, slot: Slot) {
        if let State::Ordered = self.state {
            self.blocks[slot.block].order.touch(slot.lane);
        } else {
            self.touch_unordered(slot);
        }
    }

    fn touch_unordered(&mut self, slot: Slot) {
        let (set, way) = self.way_of(slot);
        match &mut self.state {
            State::Stamped { used, clock } => {
                if *clock == u32::MAX {
                    *clock = renumber(used, self.ways);
                }
                *clock += 1;
                used[set * self.ways + way] = *clock;
            }
            State::TreePlru(bits) => bits[set] = plru_touch(bits[set], self.ways, way),
            State::Random(_) | State::Ordered => {}
        }
    }

    fn way_of(&self, slot: Slot) -> (usize, usize) {
        (slot.block / self.depth, slot.block % self.depth * LANES + slot.lane)
    }

    fn slot_of(&self, set: usize, way: usize) -> Slot {
        Slot { block: set * self.depth + way / LANES, lane: way % LANES }
    }

    /// Inserts a key that is not in the array, and marks it as used. Returns the evicted key and
    /// its value; key 0 if the way was empty.
    #[inline(always)]
    pub(crate) fn insert(&mut self, key: u64, value: u64) -> (u64, u64) {
        debug_assert!(key != 0 && self.find(key).is_none());
        let (set, mark) = (self.set_of(key), self.mark_of(key));
        if let State::Ordered = self.state {
            let block = &mut self.blocks[set];
            let lane = block.order.reuse_last(self.ways);
            return block.replace(lane, mark, (key, value));
        }
        self.insert_unordered(set, mark, (key, value))
    }

    #[inline(never)]
    fn insert_unordered(&mut self, set: usize, mark: u16, entry: (u64, u64)) -> (u64, u64) {
        let slot = self.reuse(set);
        self.blocks[slot.block].replace(slot.lane, mark, entry)
    }

    /// Returns an empty way, or else the policy's victim, and marks it as used.
    fn reuse(&mut self, set: usize) -> Slot {
        let empty = (0..self.ways).find(|way| self.key(self.slot_of(set, *way)) == 0);
        let way = empty.unwrap_or_else(|| self.victim(set));
        let slot = self.slot_of(set, way);
        self.touch_unordered(slot);
        slot
    }

    fn key(&self, slot: Slot) -> u64 {
        self.blocks[slot.block].entries[slot.lane].0
    }

    fn victim(&mut self, set: usize) -> usize {
        let ways = self.ways;
        match &mut self.state {
            State::Ordered => self.blocks[set].order.last(ways),
            State::Stamped { used, .. } => least(&used[set * ways..][..ways]),
            State::TreePlru(bits) => plru_victim(bits[set], ways),
            State::Random(state) => (xorshift(state) % ways as u64) as usize,
        }
    }

    /// Empties the slot.
    pub(crate) fn remove(&mut self, slot: Slot) {
        let block = &mut self.blocks[slot.block];
        block.marks[slot.lane] = 0;
        block.entries[slot.lane] = (0, 0);
        let (set, way) = self.way_of(slot);
        match &mut self.state {
            State::Ordered => self.blocks[slot.block].order.retire(slot.lane, self.ways),
            State::Stamped { used, .. } => used[set * self.ways + way] = 0,
            State::TreePlru(_) | State::Random(_) => {}
        }
    }

    /// Removes every key for which `gone` returns true.
    pub(crate) fn remove_if(&mut self, mut gone: impl FnMut(u64) -> bool) {
        for block in 0..self.blocks.len() {
            for lane in 0..LANES {
                let slot = Slot { block, lane };
                if self.key(slot) != 0 && gone(self.key(slot)) {
                    self.remove(slot);
                }
            }
        }
    }

    /// All keys and their values, in unspecified order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let all = self.blocks.iter().flat_map(|block| &block.entries);
        all.copied().filter(|(key, _)| *key != 0)
    }

    #[cfg(test)]
    fn at_the_end_of_its_clock(mut self) -> Self {
        let State::Stamped { clock, .. } = &mut self.state else { panic!("it keeps no clock") };
        *clock = u32::MAX - 5;
        self
    }
}

impl Block {
    /// The lane that contains the key. A partial tag may match other keys too.
    #[inline(always)]
    fn find(&self, key: u64, mark: u16) -> Option<usize> {
        let mut matching = tag_match::of_sixteen(&self.marks, mark);
        while matching != 0 {
            let lane = matching.trailing_zeros() as usize;
            if self.entries[lane % LANES].0 == key {
                return Some(lane);
            }
            matching &= matching - 1;
        }
        None
    }

    /// Value of the key, which becomes the most recently used.
    #[inline(always)]
    fn use_key(&mut self, key: u64, mark: u16) -> Option<u64> {
        let lane = self.find(key, mark)?;
        self.order.touch(lane);
        Some(self.entries[lane % LANES].1)
    }

    /// Replaces the entry of a lane. Returns the previous one.
    #[inline(always)]
    fn replace(&mut self, lane: usize, mark: u16, entry: (u64, u64)) -> (u64, u64) {
        self.marks[lane % LANES] = mark;
        std::mem::replace(&mut self.entries[lane % LANES], entry)
    }
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
fn renumber(used: &mut [u32], ways: usize) -> u32 {
    for set in used.chunks_mut(ways) {
        let mut order: Vec<usize> = (0..ways).filter(|way| set[*way] != 0).collect();
        order.sort_by_key(|way| set[*way]);
        for (rank, way) in order.into_iter().enumerate() {
            set[way] = rank as u32 + 1;
        }
    }
    ways as u32
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
