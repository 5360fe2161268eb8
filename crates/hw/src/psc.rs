//! Paging-structure caches, which let a walk begin below the top level.
//!
//! A cached entry of level n replaces all entries from the top down to it (Intel SDM volume 3,
//! section 4.10.3.2). A walk that begins there reads none of them and sets no ACCESSED flag in
//! them: a flag cleared by software stays clear until the cached entry is evicted or invalidated,
//! although the memory below is in use.

use tierscope_core::Level;

use crate::config::{self, PscArray};
use crate::sets::{INDEX_SHIFT, Sets};
use crate::translation::Asid;

/// The table at which a walk continues below an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Table {
    /// Physical address of the table.
    pub base: u64,
    /// Whether all entries so far permit stores.
    pub writable: bool,
}

/// The levels that have non-leaf entries.
const LEVELS: [Level; 4] = [Level::PMD, Level::PUD, Level::P4D, Level::PGD5];

/// The paging-structure caches of one core.
#[derive(Clone, Debug)]
pub struct Psc {
    /// Caches by level, in the order of [`LEVELS`].
    levels: [Option<Sets>; 4],
}

fn sets(config: &PscArray) -> Sets {
    Sets::new(config.entries as usize, config.ways as usize, config.replacement)
}

#[inline(always)]
fn tag_of(asid: Asid) -> u64 {
    u64::from(asid.number()) << 1 | 1
}

#[inline(always)]
fn key_of(linear: u64, level: Level, asid: Asid) -> u64 {
    let number = (linear & ((1 << 57) - 1)) >> level.shift();
    number << INDEX_SHIFT | tag_of(asid)
}

/// Flag in the table's address, whose low twelve bits are free: stores are permitted.
const WRITABLE: u64 = 1;

#[inline(always)]
fn table_of(value: u64) -> Table {
    Table { base: value & !WRITABLE, writable: value & WRITABLE != 0 }
}

impl Psc {
    /// Empty caches.
    ///
    /// # Errors
    /// The configuration is impossible: [`config::Translation::check`].
    pub fn new(config: &config::Translation) -> tierscope_core::Result<Self> {
        config.check()?;
        let of = |level: Level| config.psc.iter().find(|array| array.level == level.number());
        Ok(Self { levels: LEVELS.map(|level| of(level).map(sets)) })
    }

    /// The lowest cached entry for the address: its level, and the table that it points to.
    #[inline(always)]
    pub fn lookup(&mut self, linear: u64, asid: Asid) -> Option<(Level, Table)> {
        for (level, array) in LEVELS.into_iter().zip(&mut self.levels) {
            let Some(array) = array else { continue };
            if let Some(value) = array.use_key(key_of(linear, level, asid)) {
                return Some((level, table_of(value)));
            }
        }
        None
    }

    /// Caches that the entry of `level` for the address points to `table`; must follow a lookup
    /// without a hit at this level or below. The entry is non-leaf, and its ACCESSED flag is set,
    /// as a requirement for caching (section 4.10.3.1).
    #[inline(always)]
    pub(crate) fn add(&mut self, linear: u64, asid: Asid, level: Level, table: Table) {
        let Some(array) = &mut self.levels[usize::from(level.number()) - 2] else { return };
        let value = table.base | if table.writable { WRITABLE } else { 0 };
        array.insert(key_of(linear, level, asid), value);
    }

    /// A walk by code outside of the model, such as a timer interrupt's, occupies entries down to
    /// `lowest`: at each level, the entry for the address becomes the most recently used. These
    /// entries point to no table and must not be used for translation.
    pub fn occupy(&mut self, linear: u64, asid: Asid, lowest: Level) {
        for (level, array) in LEVELS.into_iter().zip(&mut self.levels) {
            let Some(array) = array.as_mut().filter(|_| level >= lowest) else { continue };
            let key = key_of(linear, level, asid);
            match array.find(key) {
                Some(slot) => array.touch(slot),
                None => {
                    array.insert(key, 0);
                }
            }
        }
    }

    /// Invalidates the entries that a translation of this address would use, as a page fault does
    /// (section 4.10.4.1).
    pub fn invalidate_page(&mut self, linear: u64, asid: Asid) {
        for (level, array) in LEVELS.into_iter().zip(&mut self.levels) {
            let Some(array) = array else { continue };
            if let Some(slot) = array.find(key_of(linear, level, asid)) {
                array.remove(slot);
            }
        }
    }

    /// Invalidates the entries of the address space. INVLPG has this effect too, whatever its
    /// address (section 4.10.4.1).
    pub fn flush_asid(&mut self, asid: Asid) {
        let tag = tag_of(asid);
        self.remove_if(|key| key & ((1 << INDEX_SHIFT) - 1) == tag);
    }

    /// Invalidates everything.
    pub fn flush_all(&mut self) {
        self.remove_if(|_| true);
    }

    fn remove_if(&mut self, gone: impl Fn(u64) -> bool) {
        self.levels.iter_mut().flatten().for_each(|array| array.remove_if(&gone));
    }

    /// Contents of the cache of `level`: first byte of the entry's range, address space, table; in
    /// unspecified order.
    pub fn contents(&self, level: Level) -> impl Iterator<Item = (u64, Asid, Table)> + '_ {
        let place = usize::from(level.number()).checked_sub(2);
        let array = place.and_then(|place| self.levels[place].as_ref());
        array.into_iter().flat_map(move |array| {
            array.entries().map(move |(key, value)| {
                let asid = Asid::new((key >> 1 & 0xfff) as u16).expect("12 bits");
                (key >> INDEX_SHIFT << level.shift(), asid, table_of(value))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Machine;

    fn psc() -> Psc {
        let machine = Machine::ready_made("xeon-gold-6238m").expect("it is there");
        Psc::new(&machine.translation).expect("it is possible")
    }

    fn table(number: u64) -> Table {
        Table { base: number << 12, writable: true }
    }

    #[test]
    fn the_lowest_level_wins() {
        let (mut psc, asid) = (psc(), Asid::default());
        psc.add(0, asid, Level::P4D, table(4));
        assert_eq!(psc.lookup(5, asid), Some((Level::P4D, table(4))));
        psc.add(0, asid, Level::PMD, table(2));
        assert_eq!(psc.lookup(5, asid), Some((Level::PMD, table(2))));
        assert_eq!(psc.lookup(2 << 20, asid), Some((Level::P4D, table(4))), "the next 2 MiB");
    }

    // Of four entries of level 4, three belong to another address space, whose fourth replaces
    // ours. At level 2 it has none.
    #[test]
    fn other_address_spaces_evict_entries() {
        let (mut psc, asid, other) = (psc(), Asid::default(), Asid::new(7).expect("small"));
        psc.add(0, asid, Level::P4D, table(4));
        psc.add(0, asid, Level::PMD, table(2));
        let foreign = |number: u64| (256 + number) << 39;
        (0..3).for_each(|number| psc.occupy(foreign(number), other, Level::P4D));
        assert_eq!(psc.lookup(1 << 30, asid), Some((Level::P4D, table(4))));
        // That look-up made our entry the most recently used: a foreign one is replaced.
        psc.occupy(foreign(3), other, Level::P4D);
        assert_eq!(psc.lookup(1 << 30, asid), Some((Level::P4D, table(4))));
        (0..4).for_each(|number| psc.occupy(foreign(number), other, Level::P4D));
        assert_eq!(psc.lookup(1 << 30, asid), None);
        assert_eq!(psc.lookup(0, asid), Some((Level::PMD, table(2))));
    }

    #[test]
    fn address_spaces_are_flushed_separately() {
        let (mut psc, other) = (psc(), Asid::new(7).expect("small"));
        psc.add(0, Asid::default(), Level::PMD, table(1));
        psc.add(0, other, Level::PMD, table(2));
        psc.flush_asid(Asid::default());
        assert_eq!(psc.lookup(0, Asid::default()), None);
        assert_eq!(psc.lookup(0, other), Some((Level::PMD, table(2))));
        psc.invalidate_page(0, other);
        assert_eq!(psc.lookup(0, other), None);
    }
}
