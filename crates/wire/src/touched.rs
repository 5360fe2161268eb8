//! A table in shared memory that counts the touches of each page of each address space: one vCPU
//! counts, another process reads and clears. A touch during a read is counted in this read or the
//! next: none is lost. With numbered intervals of time, the touches of a page in one interval count
//! as one, as they do for an ACCESSED bit that is sampled once an interval.
//!
//! Words of 64 bits, little-endian, all accessed atomically:
//!
//! ```text
//!   0  magic   1  slots (2^n)   2  slots in use   3  touches that found no slot   4..8 zero
//!   8  the slots, 514 words each:
//!        0  physical address of the top table | 1; 0 for a free slot
//!        1  linear address / 2 MiB
//!        2..514  each page of 4 KiB: bits 0..40 its touches, bits 40..64 the interval of the last
//!                one: 0 without intervals, else 1 + its number modulo 2^24 - 1
//! ```
//!
//! Once taken, a slot keeps its 2 MiB range for good.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use tierscope_core::{Error, ErrorKind, Result};

const MAGIC: u64 = u64::from_be_bytes(*b"tstouch\x04");
const SLOTS: usize = 1;
const USED: usize = 2;
const LOST: usize = 3;
const HEADER_WORDS: usize = 8;
const SLOT_WORDS: usize = 514;
const COUNTS: usize = 2;
const VALID: u64 = 1;
/// A page's touches in its word; the interval of the last one is above them.
const TOUCHES: u64 = (1 << STAMP_SHIFT) - 1;
const STAMP_SHIFT: u32 = 40;
const STAMPS: u64 = (1 << 24) - 1;
/// Slots that are probed before a touch counts as lost.
const PROBES: usize = 64;
/// Marks that a range has no slot.
const NOWHERE: usize = 0;

/// Bytes of a table of `slots` slots, a power of two.
#[must_use]
pub fn bytes_for(slots: u64) -> u64 {
    (HEADER_WORDS as u64 + slots * SLOT_WORDS as u64) * 8
}

fn broken(cause: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Data, "cannot use the table of touched pages").cause(cause)
}

/// The writer of a table: counts touches.
#[derive(Debug)]
pub struct Marker<'a> {
    region: &'a [AtomicU64],
    mask: u64,
    /// Top table, 2 MiB range and slot of the last touch: most accesses fall on the same range
    /// again.
    last: (u64, u64, usize),
}

impl<'a> Marker<'a> {
    /// Creates an empty table in the region.
    ///
    /// # Errors
    /// The region is too small for one slot.
    pub fn create(region: &'a [AtomicU64]) -> Result<Self> {
        let room = region.len().saturating_sub(HEADER_WORDS) / SLOT_WORDS;
        let slots = room.checked_ilog2().map(|log2| 1u64 << log2);
        let slots =
            slots.ok_or_else(|| broken(format!("{} bytes hold no slot", region.len() * 8)))?;
        region.iter().for_each(|word| word.store(0, Relaxed));
        region[SLOTS].store(slots, Relaxed);
        region[0].store(MAGIC, Release);
        Ok(Self { region, mask: slots - 1, last: (u64::MAX, 0, NOWHERE) })
    }

    /// Counts a touch of the page of a linear address, in the address space with the top table at
    /// `root`; with the number of an interval, only the first touch in it.
    #[inline(always)]
    pub fn mark(&mut self, root: u64, linear: u64, interval: Option<u64>) {
        let range = linear >> 21;
        if (root, range) != (self.last.0, self.last.1) {
            self.last = (root, range, self.slot_of(root, range));
        }
        let slot = self.last.2;
        if slot == NOWHERE {
            self.lose();
            return;
        }
        let page = (linear >> 12 & 511) as usize;
        let word = &self.region[slot + COUNTS + page];
        match interval {
            None => drop(word.fetch_add(1, Relaxed)),
            Some(number) => mark_once(word, number % STAMPS + 1),
        }
    }

    #[cold]
    fn lose(&self) {
        self.region[LOST].fetch_add(1, Relaxed);
    }

    /// Index of the first word of a range's slot; takes a free slot if the range has none yet.
    fn slot_of(&self, root: u64, range: u64) -> usize {
        let hash = (root ^ range).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        for probe in 0..PROBES {
            let number = (hash + probe as u64) & self.mask;
            let slot = HEADER_WORDS + number as usize * SLOT_WORDS;
            let key = self.region[slot].load(Relaxed);
            if key == root | VALID && self.region[slot + 1].load(Relaxed) == range {
                return slot;
            }
            if key == 0 {
                self.region[slot + 1].store(range, Relaxed);
                self.region[slot].store(root | VALID, Release);
                self.region[USED].fetch_add(1, Relaxed);
                return slot;
            }
        }
        NOWHERE
    }
}

/// Counts a touch unless the word's last one has the same stamp. The reader may clear the count at
/// the same time.
#[inline(always)]
fn mark_once(word: &AtomicU64, stamp: u64) {
    let once = |old: u64| {
        (old >> STAMP_SHIFT != stamp).then_some(stamp << STAMP_SHIFT | ((old & TOUCHES) + 1))
    };
    let _ = word.fetch_update(Relaxed, Relaxed, once);
}

/// Touches of the pages of a 2 MiB range in one address space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touched {
    /// Physical address of the address space's top table.
    pub root: u64,
    /// First address of the range, a multiple of 2 MiB, sign-extended.
    pub linear: u64,
    /// Touches of each 4 KiB page.
    pub counts: Vec<u64>,
}

impl Touched {
    /// Linear addresses of the touched pages, and their counts.
    pub fn pages(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let page = |(number, count): (u64, &u64)| (self.linear + number * 4096, *count);
        (0..).zip(&self.counts).map(page).filter(|(_, count)| *count > 0)
    }
}

/// The reader of a table.
#[derive(Debug)]
pub struct Touches<'a> {
    region: &'a [AtomicU64],
    slots: usize,
}

impl<'a> Touches<'a> {
    /// Attaches to a table that a marker created.
    ///
    /// # Errors
    /// There is no table, or it is truncated.
    pub fn attach(region: &'a [AtomicU64]) -> Result<Self> {
        if region.len() < HEADER_WORDS || region[0].load(Acquire) != MAGIC {
            return Err(broken("there is none in it").remedy("start the machine first"));
        }
        let slots = region[SLOTS].load(Relaxed);
        let room = ((region.len() - HEADER_WORDS) / SLOT_WORDS) as u64;
        if !slots.is_power_of_two() || slots > room {
            return Err(broken(format!("it says that {slots} slots fit where {room} do")));
        }
        Ok(Self { region, slots: slots as usize })
    }

    /// Takes the touches since the last call, in no particular order, and resets the counts to 0.
    pub fn take(&self, mut each: impl FnMut(Touched)) {
        for number in 0..self.slots {
            let slot = &self.region[HEADER_WORDS + number * SLOT_WORDS..][..SLOT_WORDS];
            let key = slot[0].load(Acquire);
            if key == 0 {
                continue;
            }
            let take = |word: &AtomicU64| match word.load(Relaxed) & TOUCHES {
                0 => 0,
                _ => word.fetch_and(!TOUCHES, Relaxed) & TOUCHES,
            };
            let counts: Vec<u64> = slot[COUNTS..].iter().map(take).collect();
            if counts.iter().any(|count| *count > 0) {
                let linear = slot[1].load(Relaxed) << 21;
                each(Touched { root: key & !VALID, linear, counts });
            }
        }
    }

    /// Touches so far that found no slot.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.region[LOST].load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn region(slots: u64) -> Vec<AtomicU64> {
        (0..bytes_for(slots) / 8).map(|_| AtomicU64::new(9)).collect()
    }

    fn taken(touches: &Touches) -> BTreeMap<(u64, u64), u64> {
        let mut all = BTreeMap::new();
        touches.take(|each| all.extend(each.pages().map(|(at, count)| ((each.root, at), count))));
        all
    }

    #[test]
    fn touches_are_taken_once() {
        let region = region(4);
        let mut marker = Marker::create(&region).unwrap();
        let touches = Touches::attach(&region).unwrap();
        marker.mark(0x5000, 0x20_1234, None);
        marker.mark(0x5000, 0x20_1000, None);
        marker.mark(0x6000, 0x20_1000, None);
        marker.mark(0x5000, u64::MAX, None);
        let last_page = !0xfff;
        assert_eq!(
            taken(&touches),
            BTreeMap::from([
                ((0x5000, 0x20_1000), 2),
                ((0x6000, 0x20_1000), 1),
                ((0x5000, last_page), 1)
            ])
        );
        assert_eq!(taken(&touches), BTreeMap::new());
        marker.mark(0x6000, 0x20_1000, None);
        assert_eq!(taken(&touches), BTreeMap::from([((0x6000, 0x20_1000), 1)]));
        assert_eq!(touches.lost(), 0);
    }

    // Page 0 in intervals 3, 3, 4 and, after a read, 4 and 5; the interval of a read is not counted
    // twice.
    #[test]
    fn touches_in_one_interval_count_once() {
        let region = region(4);
        let mut marker = Marker::create(&region).unwrap();
        let touches = Touches::attach(&region).unwrap();
        [3, 3, 4].into_iter().for_each(|number| marker.mark(0x5000, 0, Some(number)));
        assert_eq!(taken(&touches), BTreeMap::from([((0x5000, 0), 2)]));
        marker.mark(0x5000, 8, Some(4));
        assert_eq!(taken(&touches), BTreeMap::new());
        [5, 5 + STAMPS, 0].into_iter().for_each(|number| marker.mark(0x5000, 8, Some(number)));
        assert_eq!(taken(&touches), BTreeMap::from([((0x5000, 0), 2)]));
    }

    #[test]
    fn touches_beyond_the_table_are_counted() {
        let region = region(2);
        let mut marker = Marker::create(&region).unwrap();
        (0..3).for_each(|range| marker.mark(0x1000, range << 21, None));
        marker.mark(0x1000, 2 << 21, None);
        let touches = Touches::attach(&region).unwrap();
        assert_eq!((taken(&touches).len(), touches.lost()), (2, 2));
    }

    #[test]
    fn other_memory_is_refused() {
        let other = region(2);
        assert!(Touches::attach(&other).unwrap_err().to_string().contains("there is none"));
        Marker::create(&other).unwrap();
        let cut = &other[..other.len() - 1];
        assert!(Touches::attach(cut).unwrap_err().to_string().contains("2 slots"));
        assert!(Marker::create(&other[..HEADER_WORDS + 1]).is_err());
    }

    proptest::proptest! {
        // The oracle is a naive map of counts; a quarter of the touches is followed by a read of
        // the table.
        #[test]
        fn equals_a_map(touches in proptest::collection::vec((0u64..3, 0u64..2000, 0u8..4), 1..200)) {
            let region = region(64);
            let mut marker = Marker::create(&region).unwrap();
            let reader = Touches::attach(&region).unwrap();
            let mut expected = BTreeMap::new();
            for (root, page, look) in touches {
                marker.mark(root << 12, page << 12, None);
                *expected.entry((root << 12, page << 12)).or_insert(0) += 1;
                if look == 0 {
                    proptest::prop_assert_eq!(taken(&reader), std::mem::take(&mut expected));
                }
            }
            proptest::prop_assert_eq!(taken(&reader), expected);
        }
    }
}
