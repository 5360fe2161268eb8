//! Naive models: vectors of sets, a plain implementation of each rule, no code shared with the fast
//! models.

use std::collections::VecDeque;

use tierscope_hw::config::Replacement;

/// A set-associative array of key-value pairs.
pub(crate) struct Array<K, V> {
    pub(crate) sets: Vec<Set<K, V>>,
    random: u64,
}

pub(crate) struct Set<K, V> {
    pub(crate) slots: Vec<Option<(K, V)>>,
    policy: Policy,
}

enum Policy {
    /// Occupied ways, the most recently used first.
    Lru(VecDeque<usize>),
    /// Inner nodes of the tree in breadth-first order; true points right.
    Tree(Vec<bool>),
    Random,
}

impl<K: PartialEq + Copy, V: Copy> Array<K, V> {
    pub(crate) fn new(entries: usize, ways: usize, replacement: Replacement) -> Self {
        let random = if let Replacement::Random { seed } = replacement { seed | 1 } else { 0 };
        let sets = (0..entries / ways).map(|_| Set::new(ways, replacement)).collect();
        Self { sets, random }
    }

    pub(crate) fn get(&self, set: u64, key: K) -> Option<V> {
        let set = &self.sets[set as usize % self.sets.len()];
        set.slots.iter().flatten().find(|(k, _)| *k == key).map(|(_, v)| *v)
    }

    pub(crate) fn touch(&mut self, set: u64, key: K) {
        let index = set as usize % self.sets.len();
        let set = &mut self.sets[index];
        let way = set.way(key).expect("only what is in is touched");
        set.touch(way);
    }

    /// Inserts or updates a pair. Returns the evicted one.
    pub(crate) fn put(&mut self, set: u64, key: K, value: V) -> Option<(K, V)> {
        let index = set as usize % self.sets.len();
        let set = &mut self.sets[index];
        if let Some(way) = set.way(key) {
            set.slots[way] = Some((key, value));
            set.touch(way);
            return None;
        }
        let empty = set.slots.iter().position(Option::is_none);
        let way = empty.unwrap_or_else(|| set.victim(&mut self.random));
        let gone = set.slots[way].replace((key, value));
        set.touch(way);
        gone
    }

    pub(crate) fn remove(&mut self, set: u64, key: K) -> Option<(K, V)> {
        let index = set as usize % self.sets.len();
        let set = &mut self.sets[index];
        let way = set.way(key)?;
        set.remove(way)
    }

    pub(crate) fn remove_if(&mut self, gone: impl Fn(&K) -> bool) {
        for set in &mut self.sets {
            for way in 0..set.slots.len() {
                if set.slots[way].as_ref().is_some_and(|(key, _)| gone(key)) {
                    set.remove(way);
                }
            }
        }
    }

    pub(crate) fn pairs(&self) -> impl Iterator<Item = (K, V)> + '_ {
        self.sets.iter().flat_map(|set| set.slots.iter().flatten().copied())
    }
}

impl<K: PartialEq, V> Set<K, V> {
    fn new(ways: usize, replacement: Replacement) -> Self {
        let policy = match replacement {
            Replacement::Lru => Policy::Lru(VecDeque::new()),
            Replacement::TreePlru => Policy::Tree(vec![false; ways - 1]),
            Replacement::Random { .. } => Policy::Random,
        };
        Self { slots: (0..ways).map(|_| None).collect(), policy }
    }

    fn way(&self, key: K) -> Option<usize> {
        self.slots.iter().position(|slot| slot.as_ref().is_some_and(|(k, _)| *k == key))
    }

    fn touch(&mut self, way: usize) {
        let ways = self.slots.len();
        match &mut self.policy {
            Policy::Lru(order) => {
                order.retain(|other| *other != way);
                order.push_front(way);
            }
            Policy::Tree(tree) => walk_tree(tree, ways, |_, middle, bit| {
                let in_right = way >= middle;
                *bit = !in_right;
                in_right
            }),
            Policy::Random => {}
        }
    }

    fn victim(&mut self, random: &mut u64) -> usize {
        let ways = self.slots.len();
        match &mut self.policy {
            Policy::Lru(order) => *order.back().expect("a full set has an order"),
            Policy::Tree(tree) => {
                let mut way = 0;
                walk_tree(tree, ways, |low, middle, bit| {
                    way = if *bit { middle } else { low };
                    *bit
                });
                way
            }
            Policy::Random => {
                *random ^= *random << 13;
                *random ^= *random >> 7;
                *random ^= *random << 17;
                (*random % ways as u64) as usize
            }
        }
    }

    fn remove(&mut self, way: usize) -> Option<(K, V)> {
        if let Policy::Lru(order) = &mut self.policy {
            order.retain(|other| *other != way);
        }
        self.slots[way].take()
    }
}

/// Descends from the root; `go` gets a node's first way, the first way of its right half, and its
/// bit, and returns whether to descend to the right.
fn walk_tree(tree: &mut [bool], ways: usize, mut go: impl FnMut(usize, usize, &mut bool) -> bool) {
    let (mut node, mut low, mut high) = (0, 0, ways);
    while high - low > 1 {
        let middle = (low + high) / 2;
        let right = go(low, middle, &mut tree[node]);
        node = 2 * node + if right { 2 } else { 1 };
        (low, high) = if right { (middle, high) } else { (low, middle) };
    }
}
