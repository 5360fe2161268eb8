//! Addresses of objects in the shared space.
//!
//! A part of an object has the addresses of its offsets plus a constant. The constant is such that
//! an address and the first user's virtual address agree modulo 1 GiB: entries of levels 1 to 3
//! then cover the same memory in the shared space and in that process, and in all processes that
//! it forked. The lowest free addresses are taken, so that the libraries of a process are next to
//! each other, as they are there: few entries cover them.

use std::collections::BTreeMap;
use std::ops::Bound;

use tierscope_core::SpaceId;

/// Addresses agree with the first user's modulo this.
const SLOT: u64 = 1 << 30;
/// End of the addresses; the lowest slot stays empty. What does not fit is not shared.
const END: u64 = 1 << 47;
/// Ranges of an object that are at most this far apart share a part.
const GAP: u64 = 1 << 30;

/// Offsets of an object that a process maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Use {
    pub(super) space: SpaceId,
    pub(super) start: u64,
    pub(super) end: u64,
    /// Virtual address of `start`.
    pub(super) address: u64,
}

/// Offsets of an object that have consecutive addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Address of `start`.
    pub(super) address: u64,
}

/// The parts of all objects.
#[derive(Debug)]
pub(super) struct Slots<K> {
    /// Parts of each object, by their first offset, disjoint.
    objects: BTreeMap<K, BTreeMap<u64, Part>>,
    /// First and last address of all parts.
    taken: BTreeMap<u64, u64>,
}

impl<K> Default for Slots<K> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), taken: BTreeMap::new() }
    }
}

impl<K: Ord + Copy> Slots<K> {
    pub(super) fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    pub(super) fn has(&self, key: &K) -> bool {
        self.objects.contains_key(key)
    }

    /// The parts of an object that intersect the offsets `start..end`, in order.
    pub(super) fn parts(&self, key: &K, start: u64, end: u64) -> Vec<Part> {
        let Some(parts) = self.objects.get(key) else { return Vec::new() };
        let before = parts.range(..start).next_back().filter(|(_, part)| part.end > start);
        before.into_iter().chain(parts.range(start..end)).map(|(_, part)| *part).collect()
    }

    /// Replaces the uses of all objects. Addresses that are still used remain; addresses that no
    /// use intersects become free.
    pub(super) fn update(&mut self, uses: &BTreeMap<K, Vec<Use>>) {
        self.objects.retain(|key, parts| {
            let Some(uses) = uses.get(key) else { return false };
            parts.retain(|_, part| {
                uses.iter().any(|used| used.start < part.end && part.start < used.end)
            });
            true
        });
        let parts = self.objects.values().flat_map(BTreeMap::values);
        self.taken = parts.map(|part| (part.address, part.address + part.bytes())).collect();
        for (key, uses) in uses {
            self.objects.entry(*key).or_default();
            for (start, end) in clusters(uses) {
                self.place(*key, (start, end), uses);
            }
        }
        self.objects.retain(|_, parts| !parts.is_empty());
    }

    /// Gives an address to those of the offsets that have none.
    fn place(&mut self, key: K, (start, end): (u64, u64), uses: &[Use]) {
        let mut at = start;
        for part in self.parts(&key, start, end) {
            if at < part.start {
                self.add(key, (at, part.start), uses);
            }
            at = part.end;
        }
        if at < end {
            self.add(key, (at, end), uses);
        }
    }

    fn add(&mut self, key: K, (start, end): (u64, u64), uses: &[Use]) {
        if self.extend(key, start, end) {
            return;
        }
        let first = uses.iter().filter(|used| used.start < end && start < used.end);
        let Some(first) = first.min_by_key(|used| (used.space, used.start)) else { return };
        let virtual_start = first.address.wrapping_sub(first.start.wrapping_sub(start));
        if let Some(address) = self.free(virtual_start % SLOT, end - start) {
            self.insert(key, Part { start, end, address });
        }
    }

    /// Extends the part that ends shortly before `start`, if the addresses behind it are free.
    fn extend(&mut self, key: K, start: u64, end: u64) -> bool {
        let before = self.objects.get(&key).and_then(|parts| parts.range(..start).next_back());
        let Some((_, last)) = before else { return false };
        let part = Part { end, ..*last };
        if start - last.end > GAP || part.bytes() > END || part.address + part.bytes() > END {
            return false;
        }
        let behind = (Bound::Excluded(part.address), Bound::Excluded(part.address + part.bytes()));
        let free = self.taken.range(behind).next().is_none();
        if free {
            self.insert(key, part);
        }
        free
    }

    fn insert(&mut self, key: K, part: Part) {
        self.taken.insert(part.address, part.address + part.bytes());
        self.objects.entry(key).or_default().insert(part.start, part);
    }

    /// The lowest address that equals `bias` modulo a slot and is followed by free ones.
    fn free(&self, bias: u64, bytes: u64) -> Option<u64> {
        let mut at = SLOT + bias;
        loop {
            let end = at.checked_add(bytes).filter(|end| *end <= END)?;
            match self.taken.range(..end).next_back().filter(|(_, taken)| **taken > at) {
                None => return Some(at),
                Some((_, taken)) => at = taken + bias.wrapping_sub(*taken) % SLOT,
            }
        }
    }
}

impl Part {
    fn bytes(&self) -> u64 {
        self.end - self.start
    }
}

/// Ranges of offsets that are in use, with gaps of up to [`GAP`] in them.
fn clusters(uses: &[Use]) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = uses.iter().map(|used| (used.start, used.end)).collect();
    ranges.sort_unstable();
    let mut out: Vec<(u64, u64)> = Vec::new();
    for (start, end) in ranges {
        match out.last_mut() {
            Some(last) if start <= last.1.saturating_add(GAP) => last.1 = last.1.max(end),
            _ => out.push((start, end)),
        }
    }
    out
}
