//! A store like memcached, as the MULTI-CLOCK paper and the Telescope article run it.
//!
//! From its source (memcached.h, items.c, slabs.c, assoc.c; 1.6): a table of chains, the newest
//! item first, with at most 1.5 items per bucket; an item is a header of 48 bytes, 8 bytes of CAS,
//! the key with a zero, 4 bytes of flags, the value and a line end. Items lie in chunks of size
//! classes, each 1.25 times the previous one, in pages of 1 MiB whose chunks are allocated from the
//! last to the first; freed chunks are reused in last-in, first-out order. Items larger than half a
//! page are a header and chunks of 512 KiB. An updated value is a new item. Items of a class are
//! linked in the order in which they were set. There is memory for all of them, so none is evicted.
//!
//! Left out: the maintainer thread, which moves items between the hot, warm and cold lists of a
//! class, and the connection's buffers.

use super::access_trace::AccessTrace;
use super::hashed::{ChangedValues, Hashed, log2_up};
use super::heat::Heat;
use super::heat::lines;
use super::{Plan, Store, area};
use crate::description::Area;

/// `struct _stritem` including its CAS.
const HEADER: u64 = 56;
const NEXT: u64 = 0;
const PREVIOUS: u64 = 8;
const CHAIN: u64 = 16;
const REFCOUNT: u64 = 36;
/// `struct _strchunk`.
const CHUNK_HEADER: u64 = 48;
const POINTER: u64 = 8;
/// `settings.slab_page_size`, `slab_chunk_size_max`, `factor`, and the smallest chunk
/// (`settings.chunk_size` and the header).
const PAGE: u64 = 1 << 20;
const LARGEST: u64 = PAGE / 2;
const FACTOR: f64 = 1.25;
const SMALLEST: u64 = 96;
/// Default of `hashpower`.
const LEAST_BUCKETS: u32 = 16;
const NONE: u64 = u64::MAX;

const TABLE: usize = 0;
const SLABS: usize = 1;
const CHUNKS: usize = 2;

/// Sizes of the table, the slabs and the chunks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    plan: Plan,
    buckets: u32,
    /// Bytes of an item's chunk; of its header's chunk for large items.
    chunk: u64,
    per: u64,
    /// Chunks of a large item, without its header.
    more: u64,
    slots: u64,
}

impl Layout {
    pub(super) fn new(plan: Plan) -> Self {
        let item = HEADER + plan.key + 1 + 4 + plan.value + 2;
        let (chunk, more) = match item {
            0..=LARGEST => (class(item), 0),
            _ => (
                class(HEADER + plan.key + 1 + 4 + CHUNK_HEADER),
                (plan.value + 2).div_ceil(LARGEST - CHUNK_HEADER),
            ),
        };
        let per = PAGE / chunk;
        // One slot more than items: a new value is set before the old one is freed.
        let slots = (plan.most() + 1).next_multiple_of(per);
        let buckets = log2_up((plan.most() * 2).div_ceil(3)).max(LEAST_BUCKETS);
        Self { plan, buckets, chunk, per, more, slots }
    }

    pub(super) fn areas(&self) -> Vec<Area> {
        let mut areas = vec![
            area("table", POINTER << self.buckets),
            area("slabs", self.slots / self.per * PAGE),
        ];
        if self.more > 0 {
            areas.push(area("chunks", self.slots * self.more * LARGEST));
        }
        areas
    }

    /// Offset of a slot's chunk: the chunks of a page are used from its end.
    pub(super) fn at(&self, slot: u64) -> u64 {
        slot / self.per * PAGE + (self.per - 1 - slot % self.per) * self.chunk
    }

    /// Accesses of a read, by area.
    pub(super) fn heat(&self) -> Vec<Heat> {
        // Header and key; two updates of the reference count. Half of the other items of a chain
        // precede the key: the newer ones, at higher addresses, so on average in the upper half.
        let (found, value) = (lines(HEADER - CHAIN + self.plan.key), lines(self.plan.value));
        let others = self.plan.keys as f64 / (1u64 << self.buckets) as f64 / 2.0;
        let head = 2.0 + found;
        let slabs = |touches| Heat::by_key(SLABS, touches, self.per, PAGE);
        let used = self.plan.keys.div_ceil(self.per) * PAGE;
        let upper = self.plan.keys / 2 / self.per * PAGE;
        let mut heat = vec![
            Heat::anywhere(TABLE, 1.0),
            Heat::within(SLABS, others * found, upper, used - upper),
        ];
        match self.more {
            0 => heat.push(slabs(head + value)),
            more => heat.extend([
                slabs(head),
                Heat::by_key(CHUNKS, more as f64 + value, 1, more * LARGEST),
            ]),
        }
        heat
    }
}

/// The smallest size class for that number of bytes.
fn class(bytes: u64) -> u64 {
    let mut size = SMALLEST;
    while size < bytes && size < LARGEST {
        size = ((size as f64 * FACTOR) as u64).next_multiple_of(8).min(LARGEST);
    }
    size
}

#[derive(Clone, Copy, Debug)]
struct Item {
    key: u64,
    value: u64,
}

/// An item's neighbours in the list of its class: towards the tail and towards the head.
#[derive(Clone, Copy, Debug)]
struct Links {
    next: u64,
    previous: u64,
}

/// The store: its state after the load by arithmetic, and all changes since.
#[derive(Debug)]
pub(super) struct Memcached {
    layout: Layout,
    hashed: Hashed,
    loaded: u64,
    chains: ChangedValues<Vec<u64>>,
    items: ChangedValues<Item>,
    links: ChangedValues<Links>,
    head: u64,
    fresh: u64,
    free: Vec<u64>,
}

impl Memcached {
    /// The store after the keys `0..loaded` were set in order.
    pub(super) fn new(layout: Layout, loaded: u64) -> Self {
        Self {
            layout,
            hashed: Hashed::new(layout.buckets, layout.plan.most(), loaded),
            loaded,
            chains: ChangedValues::default(),
            items: ChangedValues::default(),
            links: ChangedValues::default(),
            head: loaded.checked_sub(1).unwrap_or(NONE),
            fresh: loaded,
            free: Vec::new(),
        }
    }

    fn item(&self, slot: u64) -> Item {
        self.items.get(slot).copied().unwrap_or(Item { key: slot, value: slot })
    }

    fn link(&self, slot: u64) -> Links {
        let loaded = || Links {
            next: slot.checked_sub(1).unwrap_or(NONE),
            previous: if slot + 1 < self.loaded { slot + 1 } else { NONE },
        };
        self.links.get(slot).copied().unwrap_or_else(loaded)
    }

    fn chain(hashed: &Hashed, bucket: u64) -> Vec<u64> {
        let mut chain = hashed.loaded(bucket);
        chain.reverse();
        chain
    }

    /// Follows a chain to a key: its item, and the preceding item.
    fn find(&self, key: u64, trace: &mut AccessTrace) -> Option<(u64, Option<u64>)> {
        let bucket = self.hashed.bucket(key);
        trace.read(TABLE, bucket * POINTER, POINTER);
        let mut before = None;
        for slot in self.chains.look(bucket, || Self::chain(&self.hashed, bucket)).iter() {
            trace.read(SLABS, self.layout.at(*slot) + CHAIN, HEADER - CHAIN + self.layout.plan.key);
            if self.item(*slot).key == key {
                return Some((*slot, before));
            }
            before = Some(*slot);
        }
        None
    }

    /// Allocates a chunk for an item; a new page is first cut into chunks.
    fn allocate(&mut self, trace: &mut AccessTrace) -> u64 {
        if let Some(slot) = self.free.pop() {
            trace.read(SLABS, self.layout.at(slot), POINTER);
            return slot;
        }
        let slot = self.fresh;
        self.fresh += 1;
        if slot.is_multiple_of(self.layout.per) {
            (slot..slot + self.layout.per)
                .for_each(|cut| trace.write(SLABS, self.layout.at(cut), HEADER));
        }
        slot
    }

    /// Accesses the parts of a value.
    fn value(
        &self,
        slot: u64,
        trace: &mut AccessTrace,
        touch: fn(&mut AccessTrace, usize, u64, u64),
    ) {
        let (layout, plan) = (&self.layout, &self.layout.plan);
        if layout.more == 0 {
            return touch(trace, SLABS, layout.at(slot) + HEADER + plan.key + 5, plan.value);
        }
        let (mut left, first) = (plan.value, slot * layout.more);
        for chunk in first..first + layout.more {
            let bytes = left.min(LARGEST - CHUNK_HEADER);
            touch(trace, CHUNKS, chunk * LARGEST, CHUNK_HEADER + bytes);
            left -= bytes;
        }
    }

    /// Inserts the item at the head of its chain and of its class's list.
    fn insert(&mut self, slot: u64, item: Item, trace: &mut AccessTrace) {
        self.items.set(slot, item);
        let bucket = self.hashed.bucket(item.key);
        self.chains.entry(bucket, || Self::chain(&self.hashed, bucket)).insert(0, slot);
        trace.write(TABLE, bucket * POINTER, POINTER);
        self.links.set(slot, Links { next: self.head, previous: NONE });
        trace.write(SLABS, self.layout.at(slot) + NEXT, CHAIN);
        if self.head != NONE {
            self.links.set(self.head, Links { previous: slot, ..self.link(self.head) });
            trace.write(SLABS, self.layout.at(self.head) + PREVIOUS, POINTER);
        }
        self.head = slot;
    }

    /// Unlinks the item from its chain, in which `before` precedes it, and from its class's list;
    /// frees its chunk.
    fn unlink(&mut self, slot: u64, before: Option<u64>, trace: &mut AccessTrace) {
        let bucket = self.hashed.bucket(self.item(slot).key);
        self.chains
            .entry(bucket, || Self::chain(&self.hashed, bucket))
            .retain(|other| *other != slot);
        match before {
            Some(before) => trace.write(SLABS, self.layout.at(before) + CHAIN, POINTER),
            None => trace.write(TABLE, bucket * POINTER, POINTER),
        }
        let Links { next, previous } = self.link(slot);
        match previous {
            NONE => self.head = next,
            newer => {
                self.links.set(newer, Links { next, ..self.link(newer) });
                trace.write(SLABS, self.layout.at(newer) + NEXT, POINTER);
            }
        }
        if next != NONE {
            self.links.set(next, Links { previous, ..self.link(next) });
            trace.write(SLABS, self.layout.at(next) + PREVIOUS, POINTER);
        }
        trace.write(SLABS, self.layout.at(slot), HEADER);
        self.free.push(slot);
    }
}

impl Store for Memcached {
    fn get(&mut self, key: u64, trace: &mut AccessTrace) -> Option<u64> {
        let (slot, _) = self.find(key, trace)?;
        trace.update(SLABS, self.layout.at(slot) + REFCOUNT);
        self.value(slot, trace, AccessTrace::read);
        trace.update(SLABS, self.layout.at(slot) + REFCOUNT);
        Some(self.item(slot).value)
    }

    fn put(&mut self, key: u64, value: u64, _core: usize, trace: &mut AccessTrace) -> bool {
        let slot = self.allocate(trace);
        trace.write(SLABS, self.layout.at(slot), HEADER + self.layout.plan.key + 5);
        self.value(slot, trace, AccessTrace::write);
        let old = self.find(key, trace);
        if let Some((old, before)) = old {
            self.unlink(old, before, trace);
        }
        self.insert(slot, Item { key, value }, trace);
        true
    }
}
