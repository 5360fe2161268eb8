//! A set-associative array of 64-bit keys: what TLBs and paging-structure caches are made of.
//!
//! Keys lie set by set in one flat array; way and replacement state are found without a pointer
//! to follow. Zero is no key. The low [`INDEX_SHIFT`] bits of a key never choose its set.

use crate::config::Replacement;
use crate::replacement::{MAX_ORDERED, Order, plru_touch, plru_victim, xorshift};

/// The bits of a key from here on choose its set.
pub(crate) const INDEX_SHIFT: u32 = 16;

/// Where a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    /// Its place in an array of [`Sets::len`] items.
    pub(crate) place: usize,
    set: usize,
    way: usize,
}

/// What replacement other than LRU of few ways keeps.
#[derive(Clone, Debug)]
enum State {
    /// Nothing: [`Sets::orders`] is all there is.
    Ordered,
    /// LRU of many ways: when each was last used; 0 = empty.
    Stamped { used: Vec<u32>, clock: u32 },
    /// The tree's bits, a word per set.
    TreePlru(Vec<u64>),
    /// The generator's state.
    Random(u64),
}

#[derive(Clone, Debug)]
pub(crate) struct Sets {
    ways: usize,
    mask: u64,
    keys: Vec<u64>,
    /// Under LRU of few ways: their order, a word per set, empty ways last. Otherwise empty.
    orders: Vec<Order>,
    state: State,
}

impl Sets {
    /// `entries` keys in sets of `ways`; the geometry was checked by `config`.
    pub(crate) fn new(entries: usize, ways: usize, replacement: Replacement) -> Self {
        let sets = entries / ways;
        debug_assert!(sets.is_power_of_two() && sets * ways == entries);
        let state = match replacement {
            Replacement::Lru if ways <= MAX_ORDERED => State::Ordered,
            Replacement::Lru => State::Stamped { used: vec![0; entries], clock: 0 },
            Replacement::TreePlru => State::TreePlru(vec![0; sets]),
            Replacement::Random { seed } => State::Random(seed | 1),
        };
        let orders = match state {
            State::Ordered => vec![Order::new(ways); sets],
            _ => Vec::new(),
        };
        Self { ways, mask: sets as u64 - 1, keys: vec![0; entries], orders, state }
    }

    /// Slots, for arrays that lie beside this one.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    #[inline(always)]
    pub(crate) fn find(&self, key: u64) -> Option<Slot> {
        let set = ((key >> INDEX_SHIFT) & self.mask) as usize;
        let first = set * self.ways;
        let way = find_way(&self.keys[first..][..self.ways], key);
        (way < self.ways).then_some(Slot { place: first + way, set, way })
    }

    /// Tells the replacement policy that the slot was used.
    #[inline(always)]
    pub(crate) fn touch(&mut self, slot: Slot) {
        match self.orders.get_mut(slot.set) {
            Some(order) => order.touch(slot.way),
            None => self.touch_unordered(slot),
        }
    }

    fn touch_unordered(&mut self, Slot { place, set, way }: Slot) {
        match &mut self.state {
            State::Stamped { used, clock } => {
                if *clock == u32::MAX {
                    *clock = renumber(used, self.ways);
                }
                *clock += 1;
                used[place] = *clock;
            }
            State::TreePlru(bits) => bits[set] = plru_touch(bits[set], self.ways, way),
            State::Random(_) | State::Ordered => {}
        }
    }

    /// Puts in a key that is not there, and touches it. Returns its slot and the key it pushed
    /// out, 0 if the slot was empty.
    #[inline]
    pub(crate) fn insert(&mut self, key: u64) -> (Slot, u64) {
        debug_assert!(key != 0 && self.find(key).is_none());
        let set = ((key >> INDEX_SHIFT) & self.mask) as usize;
        let way = match self.orders.get_mut(set) {
            Some(order) => order.reuse_last(self.ways),
            None => self.reuse(set),
        };
        let slot = Slot { place: set * self.ways + way, set, way };
        (slot, std::mem::replace(&mut self.keys[slot.place], key))
    }

    /// An empty way if there is one, else what the policy gives up; it is touched.
    fn reuse(&mut self, set: usize) -> usize {
        let way = match self.empty_way(set) {
            Some(way) => way,
            None => self.victim(set),
        };
        self.touch_unordered(Slot { place: set * self.ways + way, set, way });
        way
    }

    fn victim(&mut self, set: usize) -> usize {
        let ways = self.ways;
        match &mut self.state {
            State::Ordered => self.orders[set].last(ways),
            State::Stamped { used, .. } => least(&used[set * ways..][..ways]),
            State::TreePlru(bits) => plru_victim(bits[set], ways),
            State::Random(state) => (xorshift(state) % ways as u64) as usize,
        }
    }

    fn empty_way(&self, set: usize) -> Option<usize> {
        self.keys[set * self.ways..][..self.ways].iter().position(|key| *key == 0)
    }

    /// Empties the slot.
    pub(crate) fn remove(&mut self, slot: Slot) {
        self.empty(slot.place);
    }

    /// Empties every slot whose key is to go.
    pub(crate) fn remove_if(&mut self, mut gone: impl FnMut(u64) -> bool) {
        for place in 0..self.keys.len() {
            if self.keys[place] != 0 && gone(self.keys[place]) {
                self.empty(place);
            }
        }
    }

    fn empty(&mut self, place: usize) {
        self.keys[place] = 0;
        match &mut self.state {
            State::Ordered => {
                self.orders[place / self.ways].retire(place % self.ways, self.ways);
            }
            State::Stamped { used, .. } => used[place] = 0,
            State::TreePlru(_) | State::Random(_) => {}
        }
    }

    /// The keys that are in, in no order that means anything.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.keys.iter().copied().enumerate().filter(|(_, key)| *key != 0)
    }

    #[cfg(test)]
    fn at_the_end_of_its_clock(mut self) -> Self {
        let State::Stamped { clock, .. } = &mut self.state else { panic!("it keeps no clock") };
        *clock = u32::MAX - 5;
        self
    }
}

/// The way that holds `key`, or the number of ways. Compares all ways whatever it finds: which
/// way hits is as good as random, and a branch on it would be mispredicted.
#[inline(always)]
fn find_way(set: &[u64], key: u64) -> usize {
    match set.len() {
        4 => find_among::<4>(set, key),
        6 => find_among::<6>(set, key),
        8 => find_among::<8>(set, key),
        12 => find_among::<12>(set, key),
        16 => find_among::<16>(set, key),
        ways => set.iter().position(|k| *k == key).unwrap_or(ways),
    }
}

#[inline(always)]
fn find_among<const WAYS: usize>(set: &[u64], key: u64) -> usize {
    let set: &[u64; WAYS] = set.try_into().expect("its length was matched");
    let mut found = WAYS;
    for way in (0..WAYS).rev() {
        found = if set[way] == key { way } else { found };
    }
    found
}

/// The first of the smallest.
fn least(used: &[u32]) -> usize {
    let mut best = 0;
    for way in 1..used.len() {
        best = if used[way] < used[best] { way } else { best };
    }
    best
}

/// Lets every set count from one again, in the same order; returns the highest count.
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

    /// Set `set`, and something to tell keys of a set apart.
    fn key(set: u64, number: u64) -> u64 {
        (number << 40) | (set << INDEX_SHIFT) | 1
    }

    fn touch(sets: &mut Sets, key: u64) -> u64 {
        match sets.find(key) {
            Some(slot) => {
                sets.touch(slot);
                0
            }
            None => sets.insert(key).1,
        }
    }

    //   two ways:  A  B  (touch A)  C pushes out B, not A
    #[test]
    fn the_least_recently_used_goes() {
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
}
