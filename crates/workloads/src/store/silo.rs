//! A store like Silo (Tu et al., SOSP 2013): records under a tree like Masstree (Mao et al.,
//! EuroSys 2012), read and updated by transactions.
//!
//! From the papers and Silo's source (tuple.h, txn_impl.h, its Masstree): nodes hold 15 keys; a
//! node spans five cache lines, of which a search prefetches the first four; a key's first eight
//! bytes are in the node, the rest in a suffix bag of the leaf. A record is a header of 32 bytes
//! with lock, version and size, and the value. A transaction reads the version, the value and at
//! its end the version again; a write locks the record, updates it in place, and unlocks it with a
//! new version. A full leaf is split in halves, except at the right end of the tree, where a new
//! leaf takes only the new key; inner nodes are split in halves.
//!
//! Keys are loaded in order, as Silo's own YCSB does: so leaves are full and the tree need not be
//! built. Leaves, the inner nodes of each level, and bags lie apart from each other here; in Silo
//! their addresses follow the order of allocation.

use std::borrow::Cow;

use super::access_trace::AccessTrace;
use super::hashed::ChangedValues;
use super::heat::{Heat, lines};
use super::{Plan, Store, area};
use crate::description::Area;

/// Keys of a node; an inner node has one more child.
const WIDTH: usize = 15;
const CHILDREN: u64 = 16;
/// Children that remain in the left node after a split.
const HALF: u64 = 8;
/// Upper bound on the number of levels: 8^20 leaves.
const LEVELS: u64 = 20;
const NODE: u64 = 320;
const PREFETCHED: u64 = 256;
/// Bytes of a key that the node itself holds.
const SLICE: u64 = 8;
/// `dbtuple` including its link to an older version.
const HEADER: u64 = 32;
/// `allocator::AllocAlignment`.
const ALIGNED: u64 = 16;

/// An inner node's number holds its level above this bit, and its index below.
const LEVEL: u32 = 48;

const INNER: usize = 0;
const LEAVES: usize = 1;
const RECORDS: usize = 2;
const BAGS: usize = 3;

/// Sizes of nodes, records and bags.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    plan: Plan,
    record: u64,
    bag: u64,
    leaves: u64,
}

impl Layout {
    pub(super) fn new(plan: Plan) -> Self {
        let rest = plan.key.saturating_sub(SLICE);
        // Inserts at random keys would leave leaves half full; inserts at the end fill them.
        let leaves = plan.most().div_ceil(WIDTH as u64) + plan.inserts.div_ceil(HALF) + 1;
        Self {
            plan,
            record: (HEADER + plan.value).next_multiple_of(ALIGNED),
            bag: (WIDTH as u64 * rest).next_multiple_of(ALIGNED),
            leaves,
        }
    }

    pub(super) fn areas(&self) -> Vec<Area> {
        let mut areas = vec![
            area("inner nodes", self.level(LEVELS)),
            area("leaves", NODE * self.leaves),
            area("records", self.record * self.plan.most()),
        ];
        if self.bag > 0 {
            areas.push(area("key suffixes", self.bag * self.leaves));
        }
        areas
    }

    /// Offset of the nodes of an inner level; all nodes but the last of a level have at least eight
    /// children.
    fn level(&self, level: u64) -> u64 {
        let mut nodes = self.leaves;
        let below = (1..level).map(|_| {
            nodes = nodes / HALF + 2;
            nodes
        });
        below.sum::<u64>() * NODE
    }

    /// Accesses of a read, by area.
    pub(super) fn heat(&self) -> Vec<Heat> {
        let shape = Shape::of(self.plan.keys);
        let mut heat = vec![
            Heat::by_key(LEAVES, 4.0, WIDTH as u64, NODE),
            Heat::by_key(RECORDS, 1.0 + lines(HEADER + self.plan.value), 1, self.record),
        ];
        for (level, nodes) in (1..).zip(&shape.counts[1..]) {
            heat.push(Heat::within(INNER, 4.0, self.level(level), nodes * NODE));
        }
        if self.bag > 0 {
            let suffix = self.plan.key - SLICE;
            heat.push(Heat::by_key(BAGS, lines(suffix), WIDTH as u64, self.bag));
        }
        heat
    }
}

/// The shape of a tree after inserting keys in order: number of nodes per level, from the leaves
/// up.
#[derive(Clone, Debug)]
struct Shape {
    counts: Vec<u64>,
}

impl Shape {
    fn of(keys: u64) -> Self {
        let mut counts = vec![keys.div_ceil(WIDTH as u64).max(1)];
        while counts[counts.len() - 1] > 1 {
            let children = counts[counts.len() - 1];
            // Every split takes eight children from the last node, which keeps at least nine.
            counts.push(1 + children.saturating_sub(CHILDREN).div_ceil(HALF));
        }
        Self { counts }
    }

    /// Number of the first node of a level; leaves are level 0.
    fn first(level: usize) -> u64 {
        (level as u64) << LEVEL
    }

    /// Number of keys under a node of a level, unless it is the last of its level.
    fn span(level: usize) -> u64 {
        WIDTH as u64 * HALF.pow(level as u32)
    }
}

#[derive(Clone, Debug, Default)]
struct Leaf {
    /// Pairs of key and record, sorted by key.
    keys: Vec<(u64, u64)>,
    next: Option<u64>,
}

#[derive(Clone, Debug)]
struct Inner {
    /// The lowest key under each child except the first.
    bounds: Vec<u64>,
    children: Vec<u64>,
}

/// The store: its state after the load by arithmetic, and all changes since.
#[derive(Debug)]
pub(super) struct Silo {
    layout: Layout,
    loaded: u64,
    shape: Shape,
    leaves: ChangedValues<Leaf>,
    inner: ChangedValues<Inner>,
    values: ChangedValues<u64>,
    root: u64,
    /// Number of levels above the leaves.
    height: usize,
    /// Number of nodes of each level.
    fresh: Vec<u64>,
    fresh_record: u64,
}

impl Silo {
    /// The store after the keys `0..loaded` were inserted in order.
    pub(super) fn new(layout: Layout, loaded: u64) -> Self {
        let shape = Shape::of(loaded);
        let height = shape.counts.len() - 1;
        Self {
            layout,
            loaded,
            root: Shape::first(height),
            height,
            fresh: shape.counts.clone(),
            fresh_record: loaded,
            shape,
            leaves: ChangedValues::default(),
            inner: ChangedValues::default(),
            values: ChangedValues::default(),
        }
    }

    fn leaf(&self, number: u64) -> Cow<'_, Leaf> {
        self.leaves.look(number, || self.loaded_leaf(number))
    }

    fn loaded_leaf(&self, number: u64) -> Leaf {
        let first = number * WIDTH as u64;
        let keys = (first..self.loaded.min(first + WIDTH as u64)).map(|key| (key, key)).collect();
        Leaf { keys, next: (number + 1 < self.shape.counts[0]).then_some(number + 1) }
    }

    fn loaded_inner(&self, number: u64, level: usize) -> Inner {
        let at = number - Shape::first(level);
        let below = self.shape.counts[level - 1];
        let last = at + 1 == self.shape.counts[level];
        let children = at * HALF..if last { below } else { (at + 1) * HALF };
        let base = Shape::first(level - 1);
        let bounds = children.clone().skip(1).map(|child| child * Shape::span(level - 1));
        Inner { bounds: bounds.collect(), children: children.map(|child| base + child).collect() }
    }

    /// The child of an inner node whose range holds the key.
    fn child(&self, number: u64, level: usize, key: u64) -> u64 {
        if let Some(node) = self.inner.get(number) {
            return node.children[node.bounds.partition_point(|bound| *bound <= key)];
        }
        let at = number - Shape::first(level);
        let below = self.shape.counts[level - 1];
        let last = at + 1 == self.shape.counts[level];
        let (first, end) = (at * HALF, if last { below } else { (at + 1) * HALF });
        let base = Shape::first(level - 1);
        base + (key / Shape::span(level - 1)).clamp(first, end - 1)
    }

    /// Descends to the leaf of a key; also returns the inner nodes on the path, from the root.
    fn descend(&self, key: u64, trace: &mut AccessTrace) -> (u64, Vec<u64>) {
        let (mut node, mut path) = (self.root, Vec::with_capacity(self.height));
        for level in (1..=self.height).rev() {
            trace.read(INNER, self.inner_at(node), PREFETCHED);
            path.push(node);
            node = self.child(node, level, key);
        }
        trace.read(LEAVES, node * NODE, PREFETCHED);
        (node, path)
    }

    fn inner_at(&self, number: u64) -> u64 {
        self.layout.level(number >> LEVEL) + (number & ((1 << LEVEL) - 1)) * NODE
    }

    /// Allocates a node of a level, and returns its number.
    fn another(&mut self, level: usize) -> u64 {
        if level == self.fresh.len() {
            self.fresh.push(0);
        }
        self.fresh[level] += 1;
        Shape::first(level) + self.fresh[level] - 1
    }

    fn suffix(
        &self,
        leaf: u64,
        at: usize,
        trace: &mut AccessTrace,
        touch: fn(&mut AccessTrace, usize, u64, u64),
    ) {
        let rest = self.layout.plan.key.saturating_sub(SLICE);
        if rest > 0 {
            touch(trace, BAGS, leaf * self.layout.bag + at as u64 * rest, rest);
        }
    }

    /// The record of a key.
    fn find(&self, key: u64, trace: &mut AccessTrace) -> Option<u64> {
        let (leaf, _) = self.descend(key, trace);
        let node = self.leaf(leaf);
        let at = node.keys.binary_search_by_key(&key, |held| held.0).ok()?;
        self.suffix(leaf, at, trace, AccessTrace::read);
        Some(node.keys[at].1)
    }

    fn at(&self, record: u64) -> u64 {
        record * self.layout.record
    }

    fn read_record(&self, record: u64, trace: &mut AccessTrace) -> u64 {
        trace.read(RECORDS, self.at(record), HEADER + self.layout.plan.value);
        self.values.get(record).copied().unwrap_or(record)
    }

    /// Commit check of a transaction: reads the record's version again.
    fn validate(&self, record: u64, trace: &mut AccessTrace) {
        trace.read(RECORDS, self.at(record), 1);
    }

    fn change(&mut self, record: u64, value: u64, trace: &mut AccessTrace) {
        trace.update(RECORDS, self.at(record));
        trace.write(RECORDS, self.at(record), HEADER + self.layout.plan.value);
        trace.write(RECORDS, self.at(record), 1);
        self.values.set(record, value);
    }

    fn insert(&mut self, key: u64, value: u64, trace: &mut AccessTrace) -> bool {
        let (leaf, path) = self.descend(key, trace);
        if self.fresh_record == self.layout.plan.most() || self.fresh[0] + 1 >= self.layout.leaves {
            return false;
        }
        let record = self.fresh_record;
        self.fresh_record += 1;
        self.values.set(record, value);
        trace.write(RECORDS, self.at(record), HEADER + self.layout.plan.value);
        let mut node = self.leaf(leaf).into_owned();
        let at = node.keys.partition_point(|held| held.0 < key);
        trace.update(LEAVES, leaf * NODE);
        if node.keys.len() < WIDTH {
            node.keys.insert(at, (key, record));
            trace.write(LEAVES, leaf * NODE, NODE);
            self.suffix(leaf, at, trace, AccessTrace::write);
            self.leaves.set(leaf, node);
            return true;
        }
        let right = self.another(0);
        let keys = if at == WIDTH && node.next.is_none() {
            vec![(key, record)]
        } else {
            node.keys.insert(at, (key, record));
            node.keys.split_off(node.keys.len() / 2)
        };
        let bound = keys[0].0;
        let new = Leaf { keys, next: node.next.replace(right) };
        for number in [leaf, right] {
            trace.write(LEAVES, number * NODE, NODE);
            self.suffix(number, 0, trace, AccessTrace::write);
        }
        self.leaves.set(leaf, node);
        self.leaves.set(right, new);
        self.link(bound, right, leaf, path, trace);
        true
    }

    /// Inserts `right` as the child after `left`, with `bound` as its lowest key; splits full
    /// nodes, up to the root.
    fn link(
        &mut self,
        bound: u64,
        right: u64,
        left: u64,
        mut path: Vec<u64>,
        trace: &mut AccessTrace,
    ) {
        let (mut bound, mut right, mut left) = (bound, right, left);
        for level in 1.. {
            let Some(number) = path.pop() else {
                let root = self.another(level);
                self.inner.set(root, Inner { bounds: vec![bound], children: vec![left, right] });
                trace.write(INNER, self.inner_at(root), NODE);
                self.root = root;
                self.height += 1;
                return;
            };
            let initial = self.inner.get(number).cloned();
            let mut node = initial.unwrap_or_else(|| self.loaded_inner(number, level));
            let at = node.bounds.partition_point(|other| *other <= bound);
            node.bounds.insert(at, bound);
            node.children.insert(at + 1, right);
            trace.write(INNER, self.inner_at(number), NODE);
            if node.children.len() <= CHILDREN as usize {
                self.inner.set(number, node);
                return;
            }
            let children = node.children.split_off(HALF as usize);
            let mut bounds = node.bounds.split_off(HALF as usize - 1);
            bound = bounds.remove(0);
            (left, right) = (number, self.another(level));
            trace.write(INNER, self.inner_at(right), NODE);
            self.inner.set(number, node);
            self.inner.set(right, Inner { bounds, children });
        }
    }
}

impl Store for Silo {
    fn get(&mut self, key: u64, trace: &mut AccessTrace) -> Option<u64> {
        let record = self.find(key, trace)?;
        let value = self.read_record(record, trace);
        self.validate(record, trace);
        Some(value)
    }

    fn put(&mut self, key: u64, value: u64, _core: usize, trace: &mut AccessTrace) -> bool {
        match self.find(key, trace) {
            Some(record) => self.change(record, value, trace),
            None => return self.insert(key, value, trace),
        }
        true
    }

    fn modify(
        &mut self,
        key: u64,
        value: u64,
        _core: usize,
        trace: &mut AccessTrace,
    ) -> Option<u64> {
        let record = self.find(key, trace)?;
        let old = self.read_record(record, trace);
        self.change(record, value, trace);
        Some(old)
    }

    fn scan(&mut self, key: u64, count: u32, trace: &mut AccessTrace) -> Option<Vec<u64>> {
        let (leaf, _) = self.descend(key, trace);
        let (mut next, mut found) = (Some(leaf), Vec::new());
        while let Some(number) = next.filter(|_| found.len() < count as usize) {
            if number != leaf {
                trace.read(LEAVES, number * NODE, PREFETCHED);
            }
            let node = self.leaf(number);
            let wanted = node.keys.iter().filter(|held| held.0 >= key);
            for (_, record) in wanted.take(count as usize - found.len()) {
                found.push((*record, self.read_record(*record, trace)));
            }
            next = node.next;
        }
        found.iter().for_each(|(record, _)| self.validate(*record, trace));
        Some(found.into_iter().map(|(_, value)| value).collect())
    }
}
