//! A store like FASTER (Chandramouli et al., SIGMOD 2018): a hash index over a log in memory whose
//! newest part is updated in place.
//!
//! From the paper and its C++ source (core/hash_bucket.h, record.h, persistent_memory_malloc.h,
//! benchmark-dir): buckets of a cache line with seven entries of eight bytes and a link to an
//! overflow bucket; half as many buckets as keys, as a power of two. An entry is an address of 48
//! bits and a tag of 14; keys with equal bucket and tag share an entry, and are found by following
//! the previous addresses of records. A record is a header of eight bytes, key and value,
//! eight-byte aligned; pages are 32 MiB. Records in the newest 90 % of the log are updated in
//! place, older ones copied to the tail (read-copy-update).
//!
//! The whole log is in memory, as the NEMO paper runs it. When its pages run out, the oldest page
//! is compacted: its live records are appended to the tail.

use super::access_trace::AccessTrace;
use super::hashed::{ChangedValues, Hashed, log2_up};
use super::heat::Heat;
use super::heat::lines;
use super::{Plan, Store, area};
use crate::description::Area;
use crate::permutation::mixed;

const BUCKET: u64 = 64;
const ENTRIES: usize = 7;
const RECORD_HEADER: u64 = 8;
/// `Address::kOffsetBits` is 25.
const PAGE: u64 = 32 << 20;
const TAG_BITS: u32 = 14;
/// Default of the mutable fraction of the log.
pub(super) const MUTABLE: f64 = 0.9;
/// Records of the oldest page that each append examines for compaction, once pages run out.
const COMPACTED: u64 = 4;

const INDEX: usize = 0;
const OVERFLOW: usize = 1;
const TAIL: usize = 2;
const LOG: usize = 3;

/// Sizes of the index and the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    plan: Plan,
    buckets: u32,
    record: u64,
    page: u64,
    per: u64,
    pages: u64,
    mutable_pages: u64,
}

impl Layout {
    /// A layout with a log of `log` bytes, by default large enough that all data are mutable at the
    /// default fraction; a share of `mutable` of it is updated in place.
    ///
    /// # Errors
    /// The data do not fit into the log.
    pub(super) fn new(plan: Plan, log: Option<u64>, mutable: f64) -> Result<Self, String> {
        if !(0.0..=1.0).contains(&mutable) {
            return Err("mutable is a share within 0..1".into());
        }
        let record = (RECORD_HEADER + plan.key + plan.value).next_multiple_of(8);
        // Small stores have small pages, a sixteenth of the data. Assumed: the source has one page
        // size.
        let page = PAGE.min((plan.most() * record / 16).next_power_of_two()).max(record);
        let per = page / record;
        let needed = plan.most().div_ceil(per);
        let pages = log.map_or((needed as f64 / MUTABLE).ceil() as u64 + 4, |log| log / page);
        if pages < needed + needed / 10 + 4 {
            let least = (needed + needed / 10 + 4) * page;
            return Err(format!("the log must hold the data and a tenth more: {least} bytes"));
        }
        let buckets = log2_up(plan.most().div_ceil(2));
        let mutable_pages = (pages as f64 * mutable) as u64;
        Ok(Self { plan, buckets, record, page, per, pages, mutable_pages })
    }

    pub(super) fn areas(&self) -> Vec<Area> {
        vec![
            area("index", BUCKET << self.buckets),
            area("overflow", BUCKET * self.overflows()),
            area("tail", 4096),
            area("log", self.pages * self.page),
        ]
    }

    fn overflows(&self) -> u64 {
        ((1u64 << self.buckets) / 8).max(64)
    }

    pub(super) fn at(&self, slot: u64) -> u64 {
        (slot / self.per) % self.pages * self.page + slot % self.per * self.record
    }

    /// Whether every record of a load lies in the mutable part.
    pub(super) fn all_mutable(&self) -> bool {
        self.plan.most().div_ceil(self.per) < self.mutable_pages
    }

    /// Accesses of a read, by area.
    pub(super) fn heat(&self) -> Vec<Heat> {
        let key = RECORD_HEADER + self.plan.key;
        let record = lines(key) + lines(self.plan.value);
        vec![Heat::anywhere(INDEX, 1.0), Heat::by_key(LOG, record, self.per, self.page)]
    }
}

/// An entry of the index: records with one tag, the newest first.
#[derive(Clone, Debug)]
struct Entry {
    tag: u64,
    records: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    key: u64,
    value: u64,
}

/// The store: its state after the load by arithmetic, and all changes since.
#[derive(Debug)]
pub(super) struct Faster {
    layout: Layout,
    hashed: Hashed,
    index: ChangedValues<Vec<Entry>>,
    records: ChangedValues<Record>,
    tail: u64,
    /// The oldest live record slot: the first of its page.
    head: u64,
    compacted: u64,
}

fn tag(key: u64) -> u64 {
    mixed(key) >> (64 - TAG_BITS)
}

impl Faster {
    /// The store after the keys `0..loaded` were inserted in order.
    pub(super) fn new(layout: Layout, loaded: u64) -> Self {
        Self {
            layout,
            hashed: Hashed::new(layout.buckets, layout.plan.most(), loaded),
            index: ChangedValues::default(),
            records: ChangedValues::default(),
            tail: loaded,
            head: 0,
            compacted: 0,
        }
    }

    fn record(&self, slot: u64) -> Record {
        self.records.get(slot).copied().unwrap_or(Record { key: slot, value: slot })
    }

    fn initial(hashed: &Hashed, bucket: u64) -> Vec<Entry> {
        let mut entries: Vec<Entry> = Vec::new();
        for key in hashed.loaded(bucket) {
            match entries.iter_mut().find(|entry| entry.tag == tag(key)) {
                Some(entry) => entry.records.insert(0, key),
                None => entries.push(Entry { tag: tag(key), records: vec![key] }),
            }
        }
        entries
    }

    /// Reads the bucket, and its overflow bucket if the entry is there or does not exist.
    fn read_index(
        &self,
        bucket: u64,
        entry: Option<usize>,
        entries: usize,
        trace: &mut AccessTrace,
    ) {
        trace.read(INDEX, bucket * BUCKET, BUCKET);
        if entries > ENTRIES && entry.is_none_or(|at| at >= ENTRIES) {
            trace.read(OVERFLOW, self.overflow(bucket), BUCKET);
        }
    }

    fn overflow(&self, bucket: u64) -> u64 {
        bucket % self.layout.overflows() * BUCKET
    }

    /// The newest record of a key.
    fn find(&self, key: u64, trace: &mut AccessTrace) -> Option<u64> {
        let bucket = self.hashed.bucket(key);
        let entries = self.index.look(bucket, || Self::initial(&self.hashed, bucket));
        let at = entries.iter().position(|entry| entry.tag == tag(key));
        self.read_index(bucket, at, entries.len(), trace);
        let live = entries[at?].records.iter().filter(|slot| **slot >= self.head);
        for slot in live {
            trace.read(LOG, self.layout.at(*slot), RECORD_HEADER + self.layout.plan.key);
            if self.record(*slot).key == key {
                return Some(*slot);
            }
        }
        None
    }

    /// Whether a record may be updated in place.
    fn is_mutable(&self, slot: u64) -> bool {
        let page = |slot: u64| slot / self.layout.per;
        page(self.tail) - page(slot) < self.layout.mutable_pages
    }

    fn write_value(&mut self, slot: u64, record: Record, trace: &mut AccessTrace) {
        self.records.set(slot, record);
        let value = RECORD_HEADER + self.layout.plan.key;
        trace.write(LOG, self.layout.at(slot) + value, self.layout.plan.value);
    }

    fn append(&mut self, record: Record, trace: &mut AccessTrace) {
        let slot = self.tail;
        self.tail += 1;
        trace.update(TAIL, 0);
        self.records.set(slot, record);
        trace.write(LOG, self.layout.at(slot), self.layout.record);
        let (bucket, head) = (self.hashed.bucket(record.key), self.head);
        let overflow = self.overflow(bucket);
        let entries = self.index.entry(bucket, || Self::initial(&self.hashed, bucket));
        let at = entries.iter().position(|entry| entry.tag == tag(record.key));
        let at = at.unwrap_or_else(|| {
            entries.push(Entry { tag: tag(record.key), records: Vec::new() });
            entries.len() - 1
        });
        entries[at].records.retain(|old| *old >= head);
        entries[at].records.insert(0, slot);
        match at {
            0..ENTRIES => trace.update(INDEX, bucket * BUCKET + 8 * at as u64),
            _ => trace.update(OVERFLOW, overflow + 8 * (at - ENTRIES) as u64 % BUCKET),
        }
    }

    /// Compacts the oldest page while pages run out.
    fn compact(&mut self, trace: &mut AccessTrace) {
        let (per, pages) = (self.layout.per, self.layout.pages);
        let used = |store: &Self| (store.tail + COMPACTED) / per - store.head / per + 1;
        let mut budget = COMPACTED;
        // The tail must not reach the head's page.
        while used(self) + 2 > pages && (budget > 0 || used(self) > pages - 1) {
            let slot = self.head + self.compacted;
            let record = self.record(slot);
            trace.read(LOG, self.layout.at(slot), RECORD_HEADER + self.layout.plan.key);
            if self.find(record.key, trace) == Some(slot) {
                trace.read(LOG, self.layout.at(slot), self.layout.record);
                self.append(record, trace);
            }
            self.compacted += 1;
            budget = budget.saturating_sub(1);
            if self.compacted == per {
                (self.head..self.head + per).for_each(|old| self.records.forget(old));
                self.head += per;
                self.compacted = 0;
            }
        }
    }
}

impl Store for Faster {
    fn get(&mut self, key: u64, trace: &mut AccessTrace) -> Option<u64> {
        let slot = self.find(key, trace)?;
        let value = RECORD_HEADER + self.layout.plan.key;
        trace.read(LOG, self.layout.at(slot) + value, self.layout.plan.value);
        Some(self.record(slot).value)
    }

    fn put(&mut self, key: u64, value: u64, _core: usize, trace: &mut AccessTrace) -> bool {
        let found = self.find(key, trace);
        match found.filter(|slot| self.is_mutable(*slot)) {
            Some(slot) => self.write_value(slot, Record { key, value }, trace),
            None => {
                self.compact(trace);
                self.append(Record { key, value }, trace);
            }
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
        let slot = self.find(key, trace)?;
        let old = self.record(slot).value;
        let from = RECORD_HEADER + self.layout.plan.key;
        trace.read(LOG, self.layout.at(slot) + from, self.layout.plan.value);
        if self.is_mutable(slot) {
            self.write_value(slot, Record { key, value }, trace);
        } else {
            self.compact(trace);
            self.append(Record { key, value }, trace);
        }
        Some(old)
    }
}
