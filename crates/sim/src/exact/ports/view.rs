//! Read-only view of the page tables, for tests and inspection.

use tierscope_core::{BusObserver, Level, SpaceId};
use tierscope_hw::entry::FRAME_MASK;
use tierscope_hw::{Root, entry_address};

use crate::exact::Machine;
use crate::exact::mm::{Located, Tables};
use crate::exact::units::FANOUT;

/// An entry of a page table that is not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The entry's level.
    pub level: Level,
    /// The first address that the entry translates.
    pub linear: u64,
    /// The entry's own physical address.
    pub address: u64,
    /// The entry's value as hardware reads it.
    pub entry: u64,
}

impl<B: BusObserver> Machine<B> {
    /// All non-empty entries of a space's page table, from the top down.
    #[must_use]
    pub fn page_table(&self, space: SpaceId) -> Vec<Entry> {
        let mut out = Vec::new();
        if let Some(space) = self.os.space(space) {
            let top = Level::new(self.os.tables.levels()).expect("4 or 5");
            table(&self.os.tables, space.root.table, top, 0, &mut out);
        }
        out
    }

    /// Root of a space's page table; `None` if the space is gone.
    #[must_use]
    pub fn root(&self, space: SpaceId) -> Option<Root> {
        self.os.space(space).map(|space| space.root)
    }
}

fn table(tables: &Tables, base: u64, level: Level, from: u64, out: &mut Vec<Entry>) {
    for at in 0..FANOUT as u64 {
        let linear = from + (at << level.shift());
        let address = entry_address(base, linear, level);
        let found = Located { level, address, entry: tables.entry(address) };
        if found.entry == 0 {
            continue;
        }
        out.push(Entry { level, linear, address, entry: found.entry });
        if let Some(below) = level.below().filter(|_| found.is_table()) {
            table(tables, found.entry & FRAME_MASK, below, linear, out);
        }
    }
}
