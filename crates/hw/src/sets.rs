//! A set-associative array of 64-bit keys: what TLBs and paging-structure caches are made of.
//!
//! Keys lie set by set in one flat array; way and replacement state are found without a pointer
//! to follow. Zero is no key. The low [`INDEX_SHIFT`] bits of a key never choose its set.

use crate::config::Replacement;
use crate::replacement::{plru_touch, plru_victim, xorshift};

/// The bits of a key from here on choose its set.
pub(crate) const INDEX_SHIFT: u32 = 16;

/// Where a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    set: u32,
    way: u32,
}

#[derive(Clone, Debug)]
enum State {
    /// When each way was last used; 0 = empty.
    Lru { used: Vec<u32>, clock: u32 },
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
    state: State,
}

impl Sets {
    /// `entries` keys in sets of `ways`; the geometry was checked by `config`.
    pub(crate) fn new(entries: usize, ways: usize, replacement: Replacement) -> Self {
        let sets = entries / ways;
        debug_assert!(sets.is_power_of_two() && sets * ways == entries);
        let state = match replacement {
            Replacement::Lru => State::Lru { used: vec![0; entries], clock: 0 },
            Replacement::TreePlru => State::TreePlru(vec![0; sets]),
            Replacement::Random { seed } => State::Random(seed | 1),
        };
        Self { ways, mask: sets as u64 - 1, keys: vec![0; entries], state }
    }

    /// Slots, for arrays that lie beside this one.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The slot's place in an array of [`Sets::len`] items.
    #[inline(always)]
    pub(crate) fn place(&self, slot: Slot) -> usize {
        slot.set as usize * self.ways + slot.way as usize
    }

    #[inline(always)]
    pub(crate) fn find(&self, key: u64) -> Option<Slot> {
        let set = (key >> INDEX_SHIFT) & self.mask;
        let way = find_way(self.set(set as usize), key);
        (way < self.ways).then_some(Slot { set: set as u32, way: way as u32 })
    }

    #[inline(always)]
    fn set(&self, set: usize) -> &[u64] {
        &self.keys[set * self.ways..][..self.ways]
    }

    /// Tells the replacement policy that the slot was used.
    #[inline(always)]
    pub(crate) fn touch(&mut self, slot: Slot) {
        let place = self.place(slot);
        match &mut self.state {
            State::Lru { used, clock } => {
                if *clock == u32::MAX {
                    *clock = renumber(used, self.ways);
                }
                *clock += 1;
                used[place] = *clock;
            }
            State::TreePlru(bits) => {
                let bits = &mut bits[slot.set as usize];
                *bits = plru_touch(*bits, self.ways, slot.way as usize);
            }
            State::Random(_) => {}
        }
    }

    /// Puts in a key that is not there, and touches it. Returns its slot and the key it pushed
    /// out, 0 if the slot was empty.
    pub(crate) fn insert(&mut self, key: u64) -> (Slot, u64) {
        debug_assert!(key != 0 && self.find(key).is_none());
        let set = ((key >> INDEX_SHIFT) & self.mask) as usize;
        let slot = Slot { set: set as u32, way: self.victim(set) as u32 };
        let place = self.place(slot);
        let evicted = std::mem::replace(&mut self.keys[place], key);
        self.touch(slot);
        (slot, evicted)
    }

    /// An empty way if there is one, else what the policy gives up.
    fn victim(&mut self, set: usize) -> usize {
        let ways = self.ways;
        if let State::Lru { used, .. } = &self.state {
            return least(&used[set * ways..][..ways]);
        }
        let empty = find_way(self.set(set), 0);
        if empty < ways {
            return empty;
        }
        match &mut self.state {
            State::TreePlru(bits) => plru_victim(bits[set], ways),
            State::Random(state) => (xorshift(state) % ways as u64) as usize,
            State::Lru { .. } => unreachable!("decided above"),
        }
    }

    /// Empties the slot.
    pub(crate) fn remove(&mut self, slot: Slot) {
        let place = self.place(slot);
        self.empty(place);
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
        if let State::Lru { used, .. } = &mut self.state {
            used[place] = 0;
        }
    }

    /// The keys that are in, in no order that means anything.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.keys.iter().copied().enumerate().filter(|(_, key)| *key != 0)
    }

    #[cfg(test)]
    fn at_the_end_of_its_clock(mut self) -> Self {
        if let State::Lru { clock, .. } = &mut self.state {
            *clock = u32::MAX - 5;
        }
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
        let mut sets = Sets::new(4, 4, Replacement::Lru).at_the_end_of_its_clock();
        (1..=4).for_each(|n| assert_eq!(touch(&mut sets, key(0, n)), 0));
        for number in 5..40 {
            assert_eq!(touch(&mut sets, key(0, number)), key(0, number - 4));
        }
    }
}
