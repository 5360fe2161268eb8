//! A store like FlexKVS (Kaufmann et al., ASPLOS 2016), as the HeMem and NEMO papers run it.
//!
//! From its source (HeMem's copy: server/hashtable.c, ialloc.c, iokvs.h, settings.c): a hash table
//! of 64-byte buckets, each with a lock, five items and their hashes, filled from the last to the
//! first; further items are chained to the fifth. An item is a header of 24 bytes, the key and the
//! value, unaligned, appended to the segment of its core. An updated value is a new item; the old
//! one is counted as freed in its segment's header. A segment with 80 % freed items is cleaned: its
//! live items are appended again, at most 32 of them per request.
//!
//! There are two differences. The smallest segment that the source mentions is the default, as a
//! gigabyte per core would dwarf small stores. And the original fails to set when the log is full;
//! here the segment with most freed items is then cleaned before it reaches 80 %.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::access_trace::AccessTrace;
use super::hashed::{ChangedValues, Hashed, log2_up};
use super::heat::{Heat, lines};
use super::{Plan, Store, area};
use crate::description::Area;

/// `struct item`.
const HEADER: u64 = 24;
const REFCOUNT: u64 = 16;
/// `struct hash_bucket`, and the offset of its lock.
const BUCKET: u64 = 64;
const LOCK: u64 = 60;
const DIRECT: usize = 5;
/// `struct segment_header`, rounded up by the allocator.
const SEGMENT_HEADER: u64 = 48;
/// `settings.segsize`, the smallest value that the source mentions.
pub(super) const SEGMENT: u64 = 256 << 10;
const MOST_SEGMENT: u64 = 1 << 42;
/// `settings.clean_ratio`.
const CLEAN: f64 = 0.8;
/// Items cleaned per request (`ialloc_cleanup_item`).
const CLEANED: usize = 32;
/// Extra space for items that are freed but not cleaned yet: at 80 % freed items, cleaning the
/// emptiest segments pays. Assumed: the source preallocates 700 GiB whatever the data.
const SPARE: f64 = 0.5;

const TABLE: usize = 0;
const HEADERS: usize = 1;
const LOG: usize = 2;
const NONE: u64 = u64::MAX;

/// Sizes of the table and the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    plan: Plan,
    buckets: u32,
    segment: u64,
    per: u64,
    segments: u64,
}

impl Layout {
    /// A layout with segments of `segment` bytes.
    ///
    /// # Errors
    /// An item does not fit into a segment.
    pub(super) fn new(plan: Plan, segment: u64) -> Result<Self, String> {
        let item = HEADER + plan.key + plan.value;
        if segment > MOST_SEGMENT {
            return Err(format!("a segment has at most {MOST_SEGMENT} bytes"));
        }
        let per = segment / item;
        if per == 0 {
            return Err(format!(
                "an item of {item} bytes does not fit into a segment: give segment="
            ));
        }
        let full = plan.most().div_ceil(per);
        let spare =
            if plan.writes { (full as f64 * SPARE) as u64 + 2 * MOST_LANES } else { MOST_LANES };
        // One bucket per three keys, as a power of two: 1.5 to 3 keys per bucket on average.
        // Assumed: in the source it is a setting.
        let buckets = log2_up(plan.most().div_ceil(3));
        Ok(Self { plan, buckets, segment, per, segments: full + spare })
    }

    pub(super) fn areas(&self) -> Vec<Area> {
        vec![
            area("table", BUCKET << self.buckets),
            area("headers", self.segments * SEGMENT_HEADER),
            area("log", self.segments * self.segment),
        ]
    }

    /// Offset of an item's slot in the log; the first key's slot is 0.
    pub(super) fn at(&self, slot: u64) -> u64 {
        (slot / self.per) * self.segment + (slot % self.per) * self.item()
    }

    fn item(&self) -> u64 {
        HEADER + self.plan.key + self.plan.value
    }

    /// Accesses of a read, by area: the lock twice, two updates of the reference count, header and
    /// key, the value.
    pub(super) fn heat(&self) -> Vec<Heat> {
        let item = 2.0 + lines(HEADER + self.plan.key) + lines(self.plan.value);
        vec![Heat::anywhere(TABLE, 2.0), Heat::by_key(LOG, item, self.per, self.segment)]
    }
}

/// Number of allocators for which segments are kept in reserve.
const MOST_LANES: u64 = 256;

#[derive(Clone, Debug)]
struct Bucket {
    direct: [u64; DIRECT],
    behind: Vec<u64>,
}

impl Bucket {
    fn link(&mut self, item: u64) {
        match self.direct.iter().rposition(|slot| *slot == NONE) {
            Some(free) => self.direct[free] = item,
            None => {
                self.behind.insert(0, self.direct[DIRECT - 1]);
                self.direct[DIRECT - 1] = item;
            }
        }
    }

    fn items(&self) -> impl Iterator<Item = u64> + '_ {
        self.direct.iter().copied().filter(|slot| *slot != NONE).chain(self.behind.iter().copied())
    }

    fn replace(&mut self, old: u64, new: u64) {
        let mut all = self.direct.iter_mut().chain(&mut self.behind);
        *all.find(|slot| **slot == old).expect("it is linked") = new;
    }
}

#[derive(Clone, Copy, Debug)]
struct Item {
    key: u64,
    value: u64,
}

/// The store: its state after the load by arithmetic, and all changes since.
#[derive(Debug)]
pub(super) struct FlexKvs {
    layout: Layout,
    hashed: Hashed,
    buckets: ChangedValues<Bucket>,
    items: ChangedValues<Item>,
    /// Per core: its open segment, and the number of items in it.
    current: Vec<Option<(u64, u64)>>,
    fresh: u64,
    free: Vec<u64>,
    /// Number of freed items of each full segment, and the segments ranked by that number.
    freed: BTreeMap<u64, u64>,
    ranked: BTreeSet<(u64, u64)>,
    /// Number of freed items of each open segment.
    early: BTreeMap<u64, u64>,
    cleaning: VecDeque<u64>,
}

impl FlexKvs {
    /// The store after the keys `0..loaded` were set in order, on the first of `cores`.
    pub(super) fn new(layout: Layout, loaded: u64, cores: u32) -> Self {
        let per = layout.per;
        let mut current = vec![None; cores.max(1) as usize];
        if !loaded.is_multiple_of(per) {
            current[0] = Some((loaded / per, loaded % per));
        }
        Self {
            layout,
            hashed: Hashed::new(layout.buckets, layout.plan.most(), loaded),
            buckets: ChangedValues::default(),
            items: ChangedValues::default(),
            current,
            fresh: loaded.div_ceil(per),
            free: Vec::new(),
            freed: BTreeMap::new(),
            ranked: BTreeSet::new(),
            early: BTreeMap::new(),
            cleaning: VecDeque::new(),
        }
    }

    fn item(&self, slot: u64) -> Item {
        self.items.get(slot).copied().unwrap_or(Item { key: slot, value: slot })
    }

    fn initial(hashed: &Hashed, bucket: u64) -> Bucket {
        let mut made = Bucket { direct: [NONE; DIRECT], behind: Vec::new() };
        hashed.loaded(bucket).into_iter().for_each(|key| made.link(key));
        made
    }

    /// Looks up a key as `hasht_get` does: the hashes of direct items are in the bucket, those of
    /// chained items in the items.
    fn find(&self, key: u64, trace: &mut AccessTrace) -> Option<u64> {
        let number = self.hashed.bucket(key);
        let bucket = self.buckets.look(number, || Self::initial(&self.hashed, number));
        let key_bytes = HEADER + self.layout.plan.key;
        trace.update(TABLE, number * BUCKET + LOCK);
        if let Some(slot) =
            bucket.direct.iter().copied().find(|s| *s != NONE && self.item(*s).key == key)
        {
            trace.read(LOG, self.layout.at(slot), key_bytes);
            return Some(slot);
        }
        let last = bucket.direct[DIRECT - 1];
        if last != NONE {
            trace.read(LOG, self.layout.at(last), 8);
        }
        for slot in &bucket.behind {
            let found = self.item(*slot).key == key;
            trace.read(LOG, self.layout.at(*slot), if found { key_bytes } else { HEADER });
            if found {
                return Some(*slot);
            }
        }
        None
    }

    fn unlock(&self, key: u64, trace: &mut AccessTrace) {
        trace.write(TABLE, self.hashed.bucket(key) * BUCKET + LOCK, 1);
    }

    /// Allocates a slot at the end of the core's segment. The last free segments are reserved for
    /// cleaning.
    fn allocate(&mut self, core: usize, cleans: bool, trace: &mut AccessTrace) -> Option<u64> {
        let core = core % self.current.len();
        let per = self.layout.per;
        let (segment, used) = match self.current[core] {
            Some(open) => open,
            None => (self.open(if cleans { 0 } else { self.current.len() as u64 })?, 0),
        };
        trace.update(HEADERS, segment * SEGMENT_HEADER);
        let full = used + 1 == per;
        self.current[core] = (!full).then_some((segment, used + 1));
        if full {
            self.close(segment);
        }
        Some(segment * per + used)
    }

    /// Opens a free segment, if more than `reserve` are left.
    fn open(&mut self, reserve: u64) -> Option<u64> {
        let left = self.free.len() as u64 + self.layout.segments - self.fresh;
        (left > reserve).then(|| {
            self.free.pop().unwrap_or_else(|| {
                self.fresh += 1;
                self.fresh - 1
            })
        })
    }

    /// Closes a full segment: its freed items count from now on.
    fn close(&mut self, segment: u64) {
        if let Some(freed) = self.early.remove(&segment) {
            self.count(segment, freed);
        }
    }

    /// Counts `more` freed items of a full segment, which becomes free when all its items are
    /// freed.
    fn count(&mut self, segment: u64, more: u64) {
        let before = self.freed.get(&segment).copied().unwrap_or_default();
        let freed = before + more;
        self.ranked.remove(&(before, segment));
        if freed == self.layout.per {
            self.freed.remove(&segment);
            self.free.push(segment);
        } else {
            self.freed.insert(segment, freed);
            self.ranked.insert((freed, segment));
        }
    }

    fn write(&mut self, slot: u64, item: Item, trace: &mut AccessTrace) {
        self.items.set(slot, item);
        trace.write(LOG, self.layout.at(slot), self.layout.item());
    }

    /// Drops the last reference to an item.
    fn unref(&mut self, slot: u64, trace: &mut AccessTrace) {
        let segment = slot / self.layout.per;
        trace.update(LOG, self.layout.at(slot) + REFCOUNT);
        trace.update(HEADERS, segment * SEGMENT_HEADER);
        let open = self.current.iter().flatten().any(|(current, _)| *current == segment);
        if open {
            *self.early.entry(segment).or_default() += 1;
        } else {
            self.count(segment, 1);
        }
    }

    /// Selects the next segment to clean, if cleaning one pays.
    fn choose(&mut self) {
        let per = self.layout.per;
        let left = self.layout.segments - self.fresh + self.free.len() as u64;
        let short = left <= 2 * self.current.len() as u64;
        let worth = if short { 1 } else { (per as f64 * CLEAN).ceil() as u64 };
        if let Some((_, segment)) = self.ranked.last().filter(|(freed, _)| *freed >= worth) {
            self.cleaning.extend(segment * per..(segment + 1) * per);
        }
    }

    /// Appends the live items of the segment that is being cleaned to the core's segment.
    fn clean(&mut self, core: usize, trace: &mut AccessTrace) {
        for _ in 0..CLEANED {
            let Some(slot) = self.cleaning.pop_front() else { return };
            let item = self.item(slot);
            let number = self.hashed.bucket(item.key);
            let bucket = self.buckets.look(number, || Self::initial(&self.hashed, number));
            trace.read(LOG, self.layout.at(slot), HEADER);
            if !bucket.items().any(|linked| linked == slot) {
                continue;
            }
            let Some(place) = self.allocate(core, true, trace) else {
                self.cleaning.clear();
                return;
            };
            trace.read(LOG, self.layout.at(slot), self.layout.item());
            self.write(place, item, trace);
            self.find(item.key, trace);
            self.relink(item.key, Some(slot), place);
            self.unlock(item.key, trace);
            self.unref(slot, trace);
        }
    }

    fn relink(&mut self, key: u64, old: Option<u64>, new: u64) {
        let number = self.hashed.bucket(key);
        let bucket = self.buckets.entry(number, || Self::initial(&self.hashed, number));
        match old {
            Some(old) => bucket.replace(old, new),
            None => bucket.link(new),
        }
    }
}

impl Store for FlexKvs {
    fn get(&mut self, key: u64, trace: &mut AccessTrace) -> Option<u64> {
        let slot = self.find(key, trace);
        if let Some(slot) = slot {
            trace.update(LOG, self.layout.at(slot) + REFCOUNT);
        }
        self.unlock(key, trace);
        let slot = slot?;
        let value = HEADER + self.layout.plan.key;
        trace.read(LOG, self.layout.at(slot) + value, self.layout.plan.value);
        trace.update(LOG, self.layout.at(slot) + REFCOUNT);
        Some(self.item(slot).value)
    }

    fn put(&mut self, key: u64, value: u64, core: usize, trace: &mut AccessTrace) -> bool {
        if self.cleaning.is_empty() {
            self.choose();
        }
        self.clean(core, trace);
        let Some(slot) = self.allocate(core, false, trace) else {
            trace.read(HEADERS, 0, SEGMENT_HEADER);
            return false;
        };
        self.write(slot, Item { key, value }, trace);
        let old = self.find(key, trace);
        self.relink(key, old, slot);
        self.unlock(key, trace);
        if let Some(old) = old {
            self.unref(old, trace);
        }
        true
    }
}
