//! A write-back, write-allocate cache of physical lines.
//!
//! The state of a set is contiguous, with tags of 32 bits, so that a look-up touches one or two
//! lines of the host's cache.

use tierscope_core::Result;

use crate::cache_set::{CacheSet, SetAccess};
use crate::config::{CacheGeometry, Replacement};
use crate::host::prefetch;
use crate::replacement::{plru_touch, plru_victim, xorshift};

/// Address bits in a tag; the other two bits are flags.
pub(crate) const TAG_BITS: u32 = 30;
const DIRTY: u32 = 1;
const VALID: u32 = 2;
const TAG_SHIFT: u32 = 2;

/// Kind of an access to a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// A load, a page-table read or a prefetch: a missing line is fetched.
    Read,
    /// A store: a missing line is fetched, and the line becomes dirty.
    Write,
    /// A non-temporal store: bypasses the cache; a cached line is evicted (Intel SDM volume 1,
    /// section 10.4.6.2).
    NonTemporal,
}

/// Result of an access to a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reply {
    /// Whether the line was cached.
    pub hit: bool,
    /// First byte of an evicted dirty line: a write to memory.
    pub writeback: Option<u64>,
}

#[derive(Clone, Debug)]
enum State {
    /// LRU with at most 12 ways.
    Twelve(Vec<CacheSet<12>>),
    Sixteen(Vec<CacheSet<16>>),
    /// LRU with more than 16 ways, and all other replacement policies.
    Plain(Plain),
}

/// Tags set by set; under LRU in the order of use, the most recently used first.
#[derive(Clone, Debug)]
struct Plain {
    tags: Vec<u32>,
    policy: Policy,
}

#[derive(Clone, Debug)]
enum Policy {
    Lru,
    /// Tree bits, one word per set.
    Tree(Vec<u64>),
    /// State of the random number generator.
    Random(u64),
}

/// A cache with its contents.
#[derive(Clone, Debug)]
pub struct Cache {
    state: State,
    ways: usize,
    line_shift: u32,
    set_shift: u32,
    slices: u32,
}

/// Position of a line: its set, and its tag in the clean state. Callers that access a line
/// repeatedly compute it once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place {
    set: usize,
    tag: u32,
}

impl Cache {
    /// An empty cache for a machine with `physical_bits` bits of physical addresses.
    ///
    /// # Errors
    /// The geometry is impossible: [`CacheGeometry::check`].
    pub fn new(config: &CacheGeometry, physical_bits: u32) -> Result<Self> {
        config.check(physical_bits)?;
        let sets = config.sets as usize * config.slices as usize;
        let ways = config.ways as usize;
        let plain = |policy| State::Plain(Plain { tags: vec![0; sets * ways], policy });
        let state = match (config.replacement, ways) {
            (Replacement::Lru, ..=12) => State::Twelve(vec![CacheSet::new(ways); sets]),
            (Replacement::Lru, ..=16) => State::Sixteen(vec![CacheSet::new(ways); sets]),
            (Replacement::Lru, _) => plain(Policy::Lru),
            (Replacement::TreePlru, _) => plain(Policy::Tree(vec![0; sets])),
            (Replacement::Random { seed }, _) => plain(Policy::Random(seed | 1)),
        };
        Ok(Self {
            state,
            ways,
            line_shift: config.line.trailing_zeros(),
            set_shift: config.sets.trailing_zeros(),
            slices: config.slices,
        })
    }

    /// Line size in bytes.
    #[must_use]
    pub fn line_bytes(&self) -> u64 {
        1 << self.line_shift
    }

    /// Accesses the line that contains the physical address.
    #[inline]
    pub fn access(&mut self, address: u64, request: Request) -> Reply {
        self.access_at(self.place(address), request)
    }

    /// As [`Cache::access`], for a line whose position is already computed.
    #[inline(always)]
    pub fn access_at(&mut self, place: Place, request: Request) -> Reply {
        match request {
            Request::Read => self.allocate(place, false),
            Request::Write => self.allocate(place, true),
            Request::NonTemporal => self.evict(place),
        }
    }

    /// Whether the line is cached. Changes nothing.
    #[inline]
    #[must_use]
    pub fn holds(&self, address: u64) -> bool {
        let place = self.place(address);
        match &self.state {
            State::Twelve(sets) => sets[place.set].holds(place.tag),
            State::Sixteen(sets) => sets[place.set].holds(place.tag),
            State::Plain(plain) => {
                let tags = &plain.tags[place.set * self.ways..][..self.ways];
                tags.iter().any(|tag| tag & !DIRTY == place.tag)
            }
        }
    }

    /// Evicts the line (CLFLUSH, or migration of its page).
    pub fn flush(&mut self, address: u64) -> Reply {
        self.evict(self.place(address))
    }

    /// Prefetches into the host's cache the set that an access to the line would read. Changes
    /// nothing in the model.
    #[inline(always)]
    pub fn prefetch_host(&self, Place { set, .. }: Place) {
        match &self.state {
            State::Twelve(sets) => prefetch(sets, set),
            State::Sixteen(sets) => prefetch(sets, set),
            State::Plain(plain) => prefetch(&plain.tags, set * self.ways),
        }
    }

    /// First bytes of all cached lines, and whether they are dirty; in unspecified order.
    pub fn contents(&self) -> impl Iterator<Item = (u64, bool)> + '_ {
        let count = (self.slices as usize) << self.set_shift;
        let lines = move |set: usize| {
            let tags: Vec<(u32, bool)> = match &self.state {
                State::Twelve(sets) => sets[set].tags().collect(),
                State::Sixteen(sets) => sets[set].tags().collect(),
                State::Plain(plain) => plain.tags_of(set, self.ways),
            };
            tags.into_iter().map(move |(tag, dirty)| (self.address(set, tag), dirty))
        };
        (0..count).flat_map(lines)
    }

    /// Position of the line that contains the physical address.
    #[inline(always)]
    #[must_use]
    pub fn place(&self, address: u64) -> Place {
        let line = address >> self.line_shift;
        let set = line & ((1 << self.set_shift) - 1);
        let tag = line >> self.set_shift;
        debug_assert!(tag < 1 << TAG_BITS, "{address:#x} lies beyond the tags");
        let slice = if self.slices == 1 { 0 } else { slice_of(line, self.slices) };
        Place {
            set: (u64::from(slice) << self.set_shift | set) as usize,
            tag: (tag as u32) << TAG_SHIFT | VALID,
        }
    }

    fn address(&self, set: usize, tag: u32) -> u64 {
        let low = set as u64 & ((1 << self.set_shift) - 1);
        (u64::from(tag >> TAG_SHIFT) << self.set_shift | low) << self.line_shift
    }

    #[inline(always)]
    fn allocate(&mut self, place: Place, store: bool) -> Reply {
        let used = match &mut self.state {
            State::Twelve(sets) => sets[place.set].allocate(self.ways, place.tag, store),
            State::Sixteen(sets) => sets[place.set].allocate(self.ways, place.tag, store),
            State::Plain(plain) => plain.allocate(place, self.ways, store),
        };
        self.reply(place.set, used)
    }

    #[inline(always)]
    fn reply(&self, set: usize, used: SetAccess) -> Reply {
        Reply { hit: used.hit, writeback: used.evicted.map(|tag| self.address(set, tag)) }
    }

    fn evict(&mut self, place: Place) -> Reply {
        let used = match &mut self.state {
            State::Twelve(sets) => sets[place.set].evict(self.ways, place.tag),
            State::Sixteen(sets) => sets[place.set].evict(self.ways, place.tag),
            State::Plain(plain) => plain.evict(place, self.ways),
        };
        self.reply(place.set, used.unwrap_or(SetAccess { hit: false, evicted: None }))
    }
}

impl Plain {
    fn tags_of(&self, set: usize, ways: usize) -> Vec<(u32, bool)> {
        let tags = self.tags[set * ways..][..ways].iter().filter(|tag| **tag != 0);
        tags.map(|tag| (*tag, tag & DIRTY != 0)).collect()
    }

    fn allocate(&mut self, Place { set, tag }: Place, ways: usize, store: bool) -> SetAccess {
        let tags = &mut self.tags[set * ways..][..ways];
        let dirty = if store { DIRTY } else { 0 };
        let (hit, gone) = match &mut self.policy {
            Policy::Lru => use_sorted(tags, tag, dirty),
            Policy::Tree(bits) => {
                let bits = &mut bits[set];
                let (way, hit, gone) = use_in_place(tags, tag, dirty, || plru_victim(*bits, ways));
                *bits = plru_touch(*bits, ways, way);
                (hit, gone)
            }
            Policy::Random(state) => {
                let victim = || (xorshift(state) % ways as u64) as usize;
                let (_, hit, gone) = use_in_place(tags, tag, dirty, victim);
                (hit, gone)
            }
        };
        SetAccess { hit, evicted: (gone & DIRTY != 0).then_some(gone) }
    }

    fn evict(&mut self, Place { set, tag }: Place, ways: usize) -> Option<SetAccess> {
        let tags = &mut self.tags[set * ways..][..ways];
        let way = tags.iter().position(|other| other & !DIRTY == tag)?;
        let gone = std::mem::take(&mut tags[way]);
        if let Policy::Lru = self.policy {
            tags[way..].rotate_left(1);
        }
        Some(SetAccess { hit: true, evicted: (gone & DIRTY != 0).then_some(gone) })
    }
}

/// The slice of a line. Vendors do not publish their hashes; any hash with an even distribution
/// serves (Fibonacci hashing, Knuth volume 3, section 6.4).
#[inline(always)]
fn slice_of(line: u64, slices: u32) -> u32 {
    let hash = line.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    ((hash * u64::from(slices)) >> 32) as u32
}

/// Accesses a line in a set whose tags are in the order of use. Returns whether it hit, and the
/// evicted tag.
fn use_sorted(ways: &mut [u32], tag: u32, dirty: u32) -> (bool, u32) {
    let found = ways.iter().position(|way| way & !DIRTY == tag);
    let end = found.unwrap_or(ways.len() - 1);
    let last = ways[end];
    ways.copy_within(..end, 1);
    ways[0] = tag | dirty | if found.is_some() { last & DIRTY } else { 0 };
    (found.is_some(), if found.is_some() { 0 } else { last })
}

/// Accesses a line in place; a missing line replaces the first empty way, or else the one that
/// `victim` returns. Returns the way, whether it hit, and the evicted tag.
#[inline(always)]
fn use_in_place(
    ways: &mut [u32],
    tag: u32,
    dirty: u32,
    victim: impl FnOnce() -> usize,
) -> (usize, bool, u32) {
    if let Some(way) = ways.iter().position(|way| way & !DIRTY == tag) {
        ways[way] |= dirty;
        return (way, true, 0);
    }
    let way = ways.iter().position(|way| *way == 0).unwrap_or_else(victim);
    (way, false, std::mem::replace(&mut ways[way], tag | dirty))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry(sets: u32, ways: u32, replacement: Replacement) -> CacheGeometry {
        CacheGeometry {
            slices: 1,
            sets,
            ways,
            line: 64,
            replacement,
            source: "toy".into(),
            assumed: vec![],
        }
    }

    /// Two sets of two ways: lines 0, 2, 4 share a set.
    fn toy() -> Cache {
        Cache::new(&geometry(2, 2, Replacement::Lru), 32).expect("the toy is possible")
    }

    const MISS: Reply = Reply { hit: false, writeback: None };
    const HIT: Reply = Reply { hit: true, writeback: None };

    #[test]
    fn a_dirty_line_is_written_back_when_it_leaves() {
        let mut cache = toy();
        assert_eq!(cache.access(5, Request::Write), MISS);
        assert_eq!(cache.access(2 * 64, Request::Read), MISS);
        assert_eq!(cache.access(63, Request::Read), HIT, "the same line");
        assert_eq!(cache.access(4 * 64, Request::Read), MISS, "line 2 was clean");
        let reply = cache.access(6 * 64, Request::Read);
        assert_eq!(reply, Reply { hit: false, writeback: Some(0) }, "line 0 was dirty");
        assert_eq!(cache.access(64, Request::Read), MISS, "the other set is empty");
    }

    #[test]
    fn non_temporal_stores_bypass_and_evict() {
        let mut cache = toy();
        assert_eq!(cache.access(0, Request::NonTemporal), MISS);
        assert!(!cache.holds(0), "nothing was fetched");
        cache.access(0, Request::Write);
        let reply = cache.access(32, Request::NonTemporal);
        assert_eq!(reply, Reply { hit: true, writeback: Some(0) });
        assert!(!cache.holds(0));
    }

    #[test]
    fn slices_share_lines_evenly() {
        let mut count = [0u32; 22];
        (0..220_000).for_each(|line| count[slice_of(line, 22) as usize] += 1);
        assert!(count.iter().all(|n| n.abs_diff(10_000) < 500), "{count:?}");
    }

    #[test]
    fn tags_must_reach_all_addresses() {
        let error = Cache::new(&geometry(2, 2, Replacement::Lru), 46).expect_err("too far");
        assert!(error.to_string().contains("2^37"), "{error}");
    }
}
