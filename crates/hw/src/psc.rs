//! Paging-structure caches: where a walk may begin below the top.
//!
//! A cached entry of level n stands for all entries from the top down to it (Intel SDM volume 3,
//! section 4.10.3.2). A walk that begins there reads none of them and sets no ACCESSED flag in
//! them: after software cleared one it stays clear until the cache forgets, although the memory
//! beneath is in use.

use tierscope_core::Level;

use crate::config::{self, PscArray};
use crate::sets::{INDEX_SHIFT, Sets};
use crate::translation::Asid;

/// Where a walk goes on, as an entry above says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Table {
    /// Physical address of the table.
    pub base: u64,
    /// Whether every entry so far allows stores.
    pub writable: bool,
}

/// The levels that have non-leaf entries.
const LEVELS: [Level; 4] = [Level::PMD, Level::PUD, Level::P4D, Level::PGD5];

/// The caches of one core.
#[derive(Clone, Debug)]
pub struct Psc {
    /// By level, as [`LEVELS`].
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

/// The table's address has twelve free bits; the lowest says whether stores are allowed.
const WRITABLE: u64 = 1;

#[inline(always)]
fn table_of(said: u64) -> Table {
    Table { base: said & !WRITABLE, writable: said & WRITABLE != 0 }
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
            if let Some(said) = array.use_key(key_of(linear, level, asid)) {
                return Some((level, table_of(said)));
            }
        }
        None
    }

    /// Keeps that the entry of `level` for the address points to `table`, right after a lookup that
    /// found nothing as low. The entry is non-leaf, and its ACCESSED flag is set, or it must not be
    /// cached (section 4.10.3.1).
    #[inline(always)]
    pub(crate) fn add(&mut self, linear: u64, asid: Asid, level: Level, table: Table) {
        let Some(array) = &mut self.levels[usize::from(level.number()) - 2] else { return };
        let said = table.base | if table.writable { WRITABLE } else { 0 };
        array.insert(key_of(linear, level, asid), said);
    }

    /// Somebody else's walk for the address leaves its entries down to `lowest` here: at each level the
    /// one for the address is the last that was used. They are not for translating by.
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

    /// Forgets what a translation of this address would use: what a page fault does (section
    /// 4.10.4.1).
    pub fn invalidate_page(&mut self, linear: u64, asid: Asid) {
        for (level, array) in LEVELS.into_iter().zip(&mut self.levels) {
            let Some(array) = array else { continue };
            if let Some(slot) = array.find(key_of(linear, level, asid)) {
                array.remove(slot);
            }
        }
    }

    /// Forgets what belongs to the address space. INVLPG does so too, whatever its address
    /// (section 4.10.4.1).
    pub fn flush_asid(&mut self, asid: Asid) {
        let tag = tag_of(asid);
        self.remove_if(|key| key & ((1 << INDEX_SHIFT) - 1) == tag);
    }

    /// Forgets everything.
    pub fn flush_all(&mut self) {
        self.remove_if(|_| true);
    }

    fn remove_if(&mut self, gone: impl Fn(u64) -> bool) {
        self.levels.iter_mut().flatten().for_each(|array| array.remove_if(&gone));
    }

    /// What the cache of `level` holds: first byte of the entry's range, address space, table. In
    /// no order that means anything.
    pub fn contents(&self, level: Level) -> impl Iterator<Item = (u64, Asid, Table)> + '_ {
        let place = usize::from(level.number()).checked_sub(2);
        let array = place.and_then(|place| self.levels[place].as_ref());
        array.into_iter().flat_map(move |array| {
            array.entries().map(move |(key, said)| {
                let asid = Asid::new((key >> 1 & 0xfff) as u16).expect("12 bits");
                (key >> INDEX_SHIFT << level.shift(), asid, table_of(said))
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

    // Of four entries of level 4, three are somebody else's; the fourth of theirs takes ours away. Of
    // level 2 they have none.
    #[test]
    fn others_push_entries_out() {
        let (mut psc, asid, other) = (psc(), Asid::default(), Asid::new(7).expect("small"));
        psc.add(0, asid, Level::P4D, table(4));
        psc.add(0, asid, Level::PMD, table(2));
        let foreign = |number: u64| (256 + number) << 39;
        (0..3).for_each(|number| psc.occupy(foreign(number), other, Level::P4D));
        assert_eq!(psc.lookup(1 << 30, asid), Some((Level::P4D, table(4))));
        // That look-up made ours the last used: theirs goes.
        psc.occupy(foreign(3), other, Level::P4D);
        assert_eq!(psc.lookup(1 << 30, asid), Some((Level::P4D, table(4))));
        (0..4).for_each(|number| psc.occupy(foreign(number), other, Level::P4D));
        assert_eq!(psc.lookup(1 << 30, asid), None);
        assert_eq!(psc.lookup(0, asid), Some((Level::PMD, table(2))));
    }

    #[test]
    fn address_spaces_are_flushed_apart() {
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
