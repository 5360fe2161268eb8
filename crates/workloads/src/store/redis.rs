//! A store like Redis, as the Telescope article runs it.
//!
//! From its source (dict.c, db.c, object.c, sds.h; 7.0) and jemalloc's size classes: a table of
//! pointers, a power of two and at least as many as keys; chains of 24-byte entries, the newest
//! first; the key, a string (SDS) of its own; an object of 16 bytes with the time of last use,
//! written by every read; the value, a string of its own, or embedded in its object up to 44 bytes.
//! An updated value is a new object and string; freed memory is reused in last-in, first-out order.
//! Each kind of allocation has an area of its own.
//!
//! Left out: incremental rehashing (the table has its final size), and the client's buffers.

use super::access_trace::AccessTrace;
use super::hashed::{ChangedValues, Hashed, log2_up};
use super::heat::Heat;
use super::heat::lines;
use super::{Plan, Store, area};
use crate::description::Area;

const POINTER: u64 = 8;
/// `dictEntry`, and the offset of its value pointer.
const ENTRY: u64 = 24;
const ENTRY_VALUE: u64 = 8;
/// `robj`, which holds the time of last use.
const OBJECT: u64 = 16;
/// `OBJ_ENCODING_EMBSTR_SIZE_LIMIT`.
const EMBEDDED: u64 = 44;

const TABLE: usize = 0;
const ENTRIES: usize = 1;
const KEYS: usize = 2;
const OBJECTS: usize = 3;
const VALUES: usize = 4;

/// Sizes of the table and of each kind of allocation, by size class.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    plan: Plan,
    buckets: u32,
    entry: u64,
    key: u64,
    object: u64,
    value: u64,
}

impl Layout {
    pub(super) fn new(plan: Plan) -> Self {
        let embedded = plan.value <= EMBEDDED;
        Self {
            plan,
            buckets: log2_up(plan.most()),
            entry: class(ENTRY),
            key: class(string(plan.key)),
            object: class(if embedded { OBJECT + string(plan.value) } else { OBJECT }),
            value: if embedded { 0 } else { class(string(plan.value)) },
        }
    }

    pub(super) fn areas(&self) -> Vec<Area> {
        // A new value is allocated before the old one is freed.
        let values = self.plan.most() + 1;
        let mut areas = vec![
            area("table", POINTER << self.buckets),
            area("entries", self.entry * self.plan.most()),
            area("keys", self.key * self.plan.most()),
            area("objects", self.object * values),
        ];
        if self.value > 0 {
            areas.push(area("values", self.value * values));
        }
        areas
    }

    /// Accesses of a read, by area.
    pub(super) fn heat(&self) -> Vec<Heat> {
        let (key, value) = (lines(string(self.plan.key)), lines(string(self.plan.value)));
        let embedded = if self.value == 0 { value } else { 0.0 };
        // Half of the other entries of a chain precede the key: the newer ones, at higher
        // addresses, so on average in the upper half.
        let keys = self.plan.keys;
        let (below, above) = (keys / 2, keys - keys / 2);
        let others = keys as f64 / (1u64 << self.buckets) as f64 / 2.0;
        let mut heat = vec![
            Heat::anywhere(TABLE, 1.0),
            Heat::within(ENTRIES, others, self.entry * below, self.entry * above),
            Heat::within(KEYS, others * key, self.key * below, self.key * above),
            Heat::by_key(ENTRIES, 1.0, 1, self.entry),
            Heat::by_key(KEYS, key, 1, self.key),
            Heat::by_key(OBJECTS, 1.0 + embedded, 1, self.object),
        ];
        if self.value > 0 {
            heat.push(Heat::by_key(VALUES, value, 1, self.value));
        }
        heat
    }
}

/// Bytes of an SDS string: a header that depends on the length, the bytes, and a zero.
fn string(bytes: u64) -> u64 {
    let header = match bytes {
        0..=255 => 3,
        256..=65_535 => 5,
        65_536..=0xFFFF_FFFF => 9,
        _ => 17,
    };
    header + bytes + 1
}

/// jemalloc's size classes: multiples of 16 up to 128, then four between powers of two.
fn class(bytes: u64) -> u64 {
    if bytes <= 128 {
        return bytes.next_multiple_of(16);
    }
    bytes.next_multiple_of(bytes.next_power_of_two() / 8)
}

/// A key's value, and the slot that holds it.
#[derive(Clone, Copy, Debug)]
struct StoredValue {
    slot: u64,
    value: u64,
}

/// The store. Keys are never removed, so the entry and the key string of the `n`-th key are in slot
/// `n`.
#[derive(Debug)]
pub(super) struct Redis {
    layout: Layout,
    hashed: Hashed,
    /// The keys of each changed bucket, newest first.
    chains: ChangedValues<Vec<u64>>,
    held: ChangedValues<StoredValue>,
    fresh: u64,
    free: Vec<u64>,
}

impl Redis {
    /// The store after the keys `0..loaded` were set in order.
    pub(super) fn new(layout: Layout, loaded: u64) -> Self {
        Self {
            layout,
            hashed: Hashed::new(layout.buckets, layout.plan.most(), loaded),
            chains: ChangedValues::default(),
            held: ChangedValues::default(),
            fresh: loaded,
            free: Vec::new(),
        }
    }

    fn chain(hashed: &Hashed, bucket: u64) -> Vec<u64> {
        let mut chain = hashed.loaded(bucket);
        chain.reverse();
        chain
    }

    fn find(&self, key: u64, trace: &mut AccessTrace) -> Option<StoredValue> {
        let bucket = self.hashed.bucket(key);
        trace.read(TABLE, bucket * POINTER, POINTER);
        for there in self.chains.look(bucket, || Self::chain(&self.hashed, bucket)).iter() {
            trace.read(ENTRIES, there * self.layout.entry, ENTRY);
            trace.read(KEYS, there * self.layout.key, string(self.layout.plan.key));
            if *there == key {
                let loaded = StoredValue { slot: key, value: key };
                return Some(self.held.get(key).copied().unwrap_or(loaded));
            }
        }
        None
    }

    fn allocate(&mut self) -> u64 {
        self.free.pop().unwrap_or_else(|| {
            self.fresh += 1;
            self.fresh - 1
        })
    }

    fn value(
        &self,
        slot: u64,
        trace: &mut AccessTrace,
        touch: fn(&mut AccessTrace, usize, u64, u64),
    ) {
        let bytes = string(self.layout.plan.value);
        match self.layout.value {
            0 => touch(trace, OBJECTS, slot * self.layout.object + OBJECT, bytes),
            size => touch(trace, VALUES, slot * size, bytes),
        }
    }
}

impl Store for Redis {
    fn get(&mut self, key: u64, trace: &mut AccessTrace) -> Option<u64> {
        let held = self.find(key, trace)?;
        trace.update(OBJECTS, held.slot * self.layout.object);
        self.value(held.slot, trace, AccessTrace::read);
        Some(held.value)
    }

    fn put(&mut self, key: u64, value: u64, _core: usize, trace: &mut AccessTrace) -> bool {
        let slot = self.allocate();
        self.value(slot, trace, AccessTrace::write);
        trace.write(OBJECTS, slot * self.layout.object, OBJECT);
        match self.find(key, trace) {
            Some(old) => {
                trace.write(ENTRIES, key * self.layout.entry + ENTRY_VALUE, POINTER);
                // Reads the object's reference count before freeing it.
                trace.read(OBJECTS, old.slot * self.layout.object, OBJECT);
                self.free.push(old.slot);
            }
            None => {
                let bucket = self.hashed.bucket(key);
                self.chains.entry(bucket, || Self::chain(&self.hashed, bucket)).insert(0, key);
                trace.write(KEYS, key * self.layout.key, string(self.layout.plan.key));
                trace.write(ENTRIES, key * self.layout.entry, ENTRY);
                trace.write(TABLE, bucket * POINTER, POINTER);
            }
        }
        self.held.set(key, StoredValue { slot, value });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_classes_are_jemalloc_s() {
        for (bytes, size) in [
            (1, 16),
            (24, 32),
            (128, 128),
            (129, 160),
            (161, 192),
            (257, 320),
            (1025, 1280),
            (2048, 2048),
            (5_000_010, 5 << 20),
        ] {
            assert_eq!(class(bytes), size, "{bytes}");
        }
    }
}
