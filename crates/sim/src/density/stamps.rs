//! Times at which entries were last cleared.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use tierscope_core::{Level, SpaceId};

use super::hash::mix;

/// Hasher for keys that are one number.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = mix(self.0 ^ value);
    }
}

pub(super) type FastMap<V> = HashMap<u64, V, BuildHasherDefault<Mix>>;

/// An entry's own history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stamp {
    /// Young in any case: never cleared, or set explicitly.
    Young,
    /// Cleared at this time, in nanoseconds.
    Cleared(u64),
}

/// Bits of an index into a table, in a packed stamp.
const INDEX: u32 = 9;
const YOUNG: u64 = u64::MAX >> INDEX;

impl Stamp {
    fn packed(self) -> u64 {
        match self {
            Stamp::Young => YOUNG,
            Stamp::Cleared(time) => time.min(YOUNG - 1),
        }
    }

    fn of(packed: u64) -> Self {
        if packed == YOUNG { Stamp::Young } else { Stamp::Cleared(packed) }
    }
}

/// The stamps of a table's 512 entries.
#[derive(Clone, Debug)]
pub(super) struct Table {
    /// Stamp of all entries of the table that are not listed in `some`.
    all: u64,
    /// Index and stamp of single entries, ascending by index, packed.
    some: Vec<u64>,
}

impl Table {
    fn find(&self, index: u64) -> Result<usize, usize> {
        self.some.binary_search_by_key(&index, |packed| packed >> (64 - INDEX))
    }

    /// The stamp of an entry.
    pub(super) fn get(&self, index: u64) -> Stamp {
        Stamp::of(self.find(index).map_or(self.all, |at| self.some[at] & YOUNG))
    }

    fn set(&mut self, index: u64, stamp: Stamp) {
        let packed = index << (64 - INDEX) | stamp.packed();
        match self.find(index) {
            Ok(at) => self.some[at] = packed,
            Err(at) => self.some.insert(at, packed),
        }
    }

    /// The stamp of all entries, if they have the same.
    pub(super) fn common(&self) -> Option<Stamp> {
        self.some.is_empty().then(|| Stamp::of(self.all))
    }
}

/// The stamps of all entries of all levels.
#[derive(Clone, Debug)]
pub(super) struct Stamps {
    /// Stamp of entries that were never cleared.
    first: Stamp,
    tables: FastMap<Table>,
    /// Number of entries set explicitly.
    by_hand: u64,
}

/// Key of the table that holds an entry: at most 2^45 tables of a level, plus level and space.
fn key(space: SpaceId, level: Level, table: u64) -> u64 {
    table | u64::from(level.number()) << 49 | u64::from(space.0) << 52
}

impl Stamps {
    pub(super) fn new(first: Stamp) -> Self {
        Self { first, tables: FastMap::default(), by_hand: 0 }
    }

    /// Whether entries that were never cleared nor accessed are all old.
    pub(super) fn blank_is_old(&self) -> bool {
        self.first != Stamp::Young && self.by_hand == 0
    }

    /// The stamps of a table; `None` if none of its entries was cleared or set yet.
    pub(super) fn table(&self, space: SpaceId, level: Level, table: u64) -> Option<&Table> {
        self.tables.get(&key(space, level, table))
    }

    /// The stamp of entries in tables without stamps.
    pub(super) fn first(&self) -> Stamp {
        self.first
    }

    /// Times at which entries were cleared, in no order, some more than once.
    pub(super) fn times(&self) -> impl Iterator<Item = u64> + '_ {
        let of_table = |table: &Table| -> Vec<u64> {
            let some = table.some.iter().map(|packed| packed & YOUNG);
            some.chain([table.all]).filter(|packed| *packed != YOUNG).collect()
        };
        let tables = self.tables.values().flat_map(of_table);
        tables.chain(Some(self.first.packed()).filter(|packed| *packed != YOUNG))
    }

    /// The stamp of an entry, by its number in its level.
    pub(super) fn get(&self, space: SpaceId, level: Level, entry: u64) -> Stamp {
        let table = self.table(space, level, entry / Level::FANOUT);
        table.map_or(self.first, |table| table.get(entry % Level::FANOUT))
    }

    /// Stamps an entry.
    pub(super) fn set(&mut self, space: SpaceId, level: Level, entry: u64, stamp: Stamp) {
        self.by_hand += u64::from(stamp == Stamp::Young);
        let all = self.first.packed();
        let table = self.tables.entry(key(space, level, entry / Level::FANOUT));
        let table = table.or_insert_with(|| Table { all, some: Vec::new() });
        table.set(entry % Level::FANOUT, stamp);
    }

    /// Stamps all entries of a table.
    pub(super) fn set_all(&mut self, space: SpaceId, level: Level, table: u64, stamp: Stamp) {
        let all = stamp.packed();
        self.tables.insert(key(space, level, table), Table { all, some: Vec::new() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const S: SpaceId = SpaceId(0);

    proptest! {
        // Against a plain map, over three tables.
        #[test]
        fn a_stamp_is_the_one_set_last(steps in prop::collection::vec((0u64..1536, 0u64..100, any::<bool>()), 0..200)) {
            let mut stamps = Stamps::new(Stamp::Young);
            let mut plain = BTreeMap::new();
            for (entry, time, whole) in steps {
                let stamp = if time == 0 { Stamp::Young } else { Stamp::Cleared(time) };
                if whole {
                    let table = entry / 512;
                    stamps.set_all(S, Level::PMD, table, stamp);
                    (table * 512..(table + 1) * 512).for_each(|entry| { plain.insert(entry, stamp); });
                } else {
                    stamps.set(S, Level::PMD, entry, stamp);
                    plain.insert(entry, stamp);
                }
            }
            for entry in 0..1536 {
                let wanted = plain.get(&entry).copied().unwrap_or(Stamp::Young);
                prop_assert_eq!(stamps.get(S, Level::PMD, entry), wanted);
                prop_assert_eq!(stamps.get(S, Level::PTE, entry), Stamp::Young);
            }
        }
    }
}
