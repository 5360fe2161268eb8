//! A write-back, write-allocate cache of physical lines.
//!
//! A set's tags lie together, 32 bits each: sixteen ways take one line of the host's cache.

use tierscope_core::Result;

use crate::config::{CacheGeometry, Replacement};
use crate::replacement::{MAX_ORDERED, Order, plru_touch, plru_victim, xorshift};

/// Bits of a tag.
pub(crate) const TAG_BITS: u32 = 30;
const DIRTY: u32 = 1;
const VALID: u32 = 2;
const TAG_SHIFT: u32 = 2;

/// What is asked of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// A load, a page-table read, a prefetch: the line is fetched if it is not there.
    Read,
    /// A store: likewise, and the line becomes dirty.
    Write,
    /// A non-temporal store: goes to memory past the cache; a line that is there leaves it
    /// (Intel SDM volume 1, section 10.4.6.2).
    NonTemporal,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reply {
    /// The line was there.
    pub hit: bool,
    /// First byte of a dirty line that had to leave: a write to memory.
    pub writeback: Option<u64>,
}

#[derive(Clone, Debug)]
enum State {
    /// LRU of few ways: their order, a word per set; empty ways are last.
    Ordered(Vec<Order>),
    /// LRU of many ways: the tags lie in order, the most recently used first.
    Sorted,
    TreePlru(Vec<u64>),
    Random(u64),
}

/// The cache.
#[derive(Clone, Debug)]
pub struct Cache {
    tags: Vec<u32>,
    state: State,
    ways: usize,
    line_shift: u32,
    set_shift: u32,
    slices: u32,
}

/// A line's place: its set, and its tag with [`VALID`], clean.
#[derive(Clone, Copy)]
struct Place {
    set: usize,
    tag: u32,
}

impl Cache {
    /// An empty cache for a machine whose physical addresses have so many bits.
    ///
    /// # Errors
    /// The geometry is impossible: [`CacheGeometry::check`].
    pub fn new(config: &CacheGeometry, physical_bits: u32) -> Result<Self> {
        config.check(physical_bits)?;
        let sets = config.sets as usize * config.slices as usize;
        let state = match config.replacement {
            Replacement::Lru if config.ways as usize <= MAX_ORDERED => {
                State::Ordered(vec![Order::new(config.ways as usize); sets])
            }
            Replacement::Lru => State::Sorted,
            Replacement::TreePlru => State::TreePlru(vec![0; sets]),
            Replacement::Random { seed } => State::Random(seed | 1),
        };
        Ok(Self {
            tags: vec![0; sets * config.ways as usize],
            state,
            ways: config.ways as usize,
            line_shift: config.line.trailing_zeros(),
            set_shift: config.sets.trailing_zeros(),
            slices: config.slices,
        })
    }

    /// Bytes of a line.
    #[must_use]
    pub fn line_bytes(&self) -> u64 {
        1 << self.line_shift
    }

    /// Asks for the line that holds the physical address.
    #[inline]
    pub fn access(&mut self, address: u64, request: Request) -> Reply {
        let place = self.place(address);
        match request {
            Request::Read => self.allocate(place, 0),
            Request::Write => self.allocate(place, DIRTY),
            Request::NonTemporal => self.expel(place),
        }
    }

    /// Whether the line is there. Changes nothing.
    #[inline]
    #[must_use]
    pub fn holds(&self, address: u64) -> bool {
        let place = self.place(address);
        self.ways_of(place.set).iter().any(|tag| tag & !DIRTY == place.tag)
    }

    /// The line leaves (CLFLUSH, a page that moved).
    pub fn flush(&mut self, address: u64) -> Reply {
        self.expel(self.place(address))
    }

    /// Lets the host prefetch what an access to the address would read. Changes nothing.
    #[inline]
    pub fn expect(&self, address: u64) {
        let set = self.place(address).set;
        crate::host::prefetch(&self.tags, set * self.ways);
        if let State::Ordered(orders) = &self.state {
            crate::host::prefetch(orders, set);
        }
    }

    /// First bytes of the lines that are there, and whether they are dirty. In no order that
    /// means anything.
    pub fn contents(&self) -> impl Iterator<Item = (u64, bool)> + '_ {
        let valid = self.tags.iter().enumerate().filter(|(_, tag)| **tag != 0);
        valid.map(|(index, tag)| (self.address(index / self.ways, *tag), tag & DIRTY != 0))
    }

    #[inline(always)]
    fn place(&self, address: u64) -> Place {
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
    fn ways_of(&self, set: usize) -> &[u32] {
        &self.tags[set * self.ways..][..self.ways]
    }

    #[inline(always)]
    fn allocate(&mut self, place: Place, dirty: u32) -> Reply {
        let ways = &mut self.tags[place.set * self.ways..][..self.ways];
        let (hit, evicted) = match &mut self.state {
            State::Ordered(orders) => use_ordered(ways, place.tag, dirty, &mut orders[place.set]),
            State::Sorted => use_sorted(ways, place.tag, dirty),
            State::TreePlru(bits) => {
                let bits = &mut bits[place.set];
                let count = ways.len();
                let (way, hit, evicted) =
                    use_in_place(ways, place.tag, dirty, || plru_victim(*bits, count));
                *bits = plru_touch(*bits, count, way);
                (hit, evicted)
            }
            State::Random(state) => {
                let count = ways.len() as u64;
                let (_, hit, evicted) =
                    use_in_place(ways, place.tag, dirty, || (xorshift(state) % count) as usize);
                (hit, evicted)
            }
        };
        Reply { hit, writeback: self.writeback(place.set, evicted) }
    }

    #[inline(always)]
    fn writeback(&self, set: usize, evicted: u32) -> Option<u64> {
        (evicted & DIRTY != 0).then(|| self.address(set, evicted))
    }

    fn expel(&mut self, place: Place) -> Reply {
        let ways = &mut self.tags[place.set * self.ways..][..self.ways];
        let Some(way) = ways.iter().position(|tag| tag & !DIRTY == place.tag) else {
            return Reply { hit: false, writeback: None };
        };
        let gone = std::mem::take(&mut ways[way]);
        match &mut self.state {
            State::Ordered(orders) => orders[place.set].retire(way, self.ways),
            State::Sorted => ways[way..].rotate_left(1),
            State::TreePlru(_) | State::Random(_) => {}
        }
        Reply { hit: true, writeback: self.writeback(place.set, gone) }
    }
}

/// The slice of a line. Vendors keep theirs secret; any hash that spreads will do (Fibonacci
/// hashing, Knuth volume 3, section 6.4).
#[inline(always)]
fn slice_of(line: u64, slices: u32) -> u32 {
    let hash = line.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    ((hash * u64::from(slices)) >> 32) as u32
}

/// The way that holds `tag`, or the number of ways. Compares all: see `sets::find_way`.
#[inline(always)]
fn find_way(ways: &[u32], tag: u32) -> usize {
    match ways.len() {
        8 => find_among::<8>(ways, tag),
        11 => find_among::<11>(ways, tag),
        12 => find_among::<12>(ways, tag),
        15 => find_among::<15>(ways, tag),
        16 => find_among::<16>(ways, tag),
        count => ways.iter().position(|way| way & !DIRTY == tag).unwrap_or(count),
    }
}

#[inline(always)]
fn find_among<const WAYS: usize>(ways: &[u32], tag: u32) -> usize {
    let ways: &[u32; WAYS] = ways.try_into().expect("its length was matched");
    let mut found = 0;
    for (number, way) in (1..).zip(ways) {
        let same = u32::from(way & !DIRTY == tag).wrapping_neg();
        found |= same & number;
    }
    if found == 0 { WAYS } else { found as usize - 1 }
}

/// Uses a line under LRU. Returns whether it was there, and the tag that had to go.
#[inline(always)]
fn use_ordered(ways: &mut [u32], tag: u32, dirty: u32, order: &mut Order) -> (bool, u32) {
    let found = find_way(ways, tag);
    let hit = found < ways.len();
    let way = if hit { found } else { order.last(ways.len()) };
    order.touch(way);
    let old = ways[way];
    ways[way] = tag | dirty | if hit { old & DIRTY } else { 0 };
    (hit, if hit { 0 } else { old })
}

/// As [`use_ordered`], where the tags themselves lie in order.
fn use_sorted(ways: &mut [u32], tag: u32, dirty: u32) -> (bool, u32) {
    let found = ways.iter().position(|way| way & !DIRTY == tag);
    let end = found.unwrap_or(ways.len() - 1);
    let last = ways[end];
    ways.copy_within(..end, 1);
    ways[0] = tag | dirty | if found.is_some() { last & DIRTY } else { 0 };
    (found.is_some(), if found.is_some() { 0 } else { last })
}

/// Uses a line where it lies, or puts it into the first empty way, or where `victim` says.
/// Returns the way, whether it was there, and the tag that had to go.
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
    fn non_temporal_stores_pass_and_expel() {
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
