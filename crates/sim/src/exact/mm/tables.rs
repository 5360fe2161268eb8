//! Page tables: real radix tables of entries at physical addresses of their own.
//!
//! `layout.rs` has the addresses. The memory that tables take is charged to the fastest tier
//! ([`Tables::bytes`]).

use tierscope_core::{Level, Result};
use tierscope_hw::entry::{ACCESSED, DIRTY, FRAME_MASK, HUGE, PRESENT, WRITABLE};
use tierscope_hw::host::prefetch;
use tierscope_hw::{PageTable, Root, entry_address};
use tierscope_workloads::Touch;

use super::leaves::Leaves;
use super::slots::Slots;
use super::table_events::TableEvents;
use crate::exact::arena::Arena;
use crate::exact::layout::TableLayout;
use crate::exact::units::FANOUT;

/// Flags of a new non-leaf entry: the kernel's `_PAGE_TABLE` is young from the beginning
/// (arch/x86/include/asm/pgtable_types.h), and DIRTY has no meaning there.
const TABLE: u64 = PRESENT | WRITABLE | ACCESSED;

/// An entry, with its level and address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::exact) struct Located {
    pub(in crate::exact) level: Level,
    pub(in crate::exact) address: u64,
    pub(in crate::exact) entry: u64,
}

impl Located {
    /// Whether the entry maps a page, present or armed.
    pub(in crate::exact) fn is_leaf(&self) -> bool {
        self.entry != 0 && (self.level == Level::PTE || self.entry & HUGE != 0)
    }

    /// Whether the entry points to a table.
    pub(in crate::exact) fn is_table(&self) -> bool {
        self.entry & PRESENT != 0 && !self.is_leaf()
    }
}

/// Location of a GiB's level-2 table: only a hint for prefetching.
#[derive(Clone, Copy, Default)]
struct Hint {
    key: u64,
    first: usize,
}

const HINTS: usize = 1 << 13;
/// Number of accesses whose level-2 entries the host prefetches before the tables below them.
const AHEAD: usize = 64;

/// All tables of all spaces.
pub(in crate::exact) struct Tables {
    levels: u8,
    pub(super) leaves: Leaves,
    pub(super) upper: Arena<u64>,
    pub(in crate::exact) layout: TableLayout,
    pub(super) uncached: Slots,
    /// By number of the table in the region, for level-2 tables: the position of its entries among
    /// the upper tables, plus one; 0 for other tables.
    pub(super) uncached_upper: Vec<u32>,
    cached: Slots,
    pub(super) above: Slots,
    hints: Vec<Hint>,
    /// Tables that should have been uncached, but found the region full.
    pub(super) overflowed: u64,
    pub(in crate::exact) events: Option<Box<TableEvents>>,
}

impl Tables {
    /// No tables, of 4 or 5 levels, for physical addresses of `physical_bits` bits. At most
    /// `uncached` tables are in the uncached region; if `watched`, changes there are reported.
    pub(super) fn new(levels: u8, physical_bits: u32, uncached: u32, watched: bool) -> Self {
        let layout = TableLayout::new(physical_bits, uncached);
        let uncached = layout.uncached_pages / 2;
        Self {
            levels,
            leaves: Leaves::new(),
            upper: Arena::new(),
            layout,
            uncached: Slots::new(uncached),
            uncached_upper: vec![0; uncached as usize],
            cached: Slots::new(layout.cached_tables()),
            above: Slots::new(layout.upper_tables()),
            hints: vec![Hint::default(); HINTS],
            overflowed: 0,
            events: watched.then(|| Box::new(TableEvents::new(uncached))),
        }
    }

    pub(in crate::exact) fn levels(&self) -> u8 {
        self.levels
    }

    /// Bytes of simulated memory that the tables take.
    pub(in crate::exact) fn bytes(&self) -> u64 {
        (self.uncached.used() + self.cached.used() + self.above.used()) << 12
    }

    /// Number of tables that found the uncached region full.
    pub(in crate::exact) fn overflowed(&self) -> u64 {
        self.overflowed
    }

    /// A top table for a new space; `None` if all table addresses are used.
    ///
    /// # Errors
    /// The host has no memory.
    pub(super) fn new_root(&mut self) -> Result<Option<u64>> {
        self.new_upper()
    }

    /// Index in `upper` of the entry of an upper table.
    #[inline(always)]
    fn upper_at(&self, address: u64) -> Option<usize> {
        if address >= self.layout.upper_base {
            return Some(((address - self.layout.upper_base) >> 3) as usize);
        }
        if self.uncached_upper.is_empty() { None } else { self.middle_at(address) }
    }

    pub(super) fn new_upper(&mut self) -> Result<Option<u64>> {
        let Some(slot) = self.above.take() else { return Ok(None) };
        self.upper.reach((slot as usize + 1) * FANOUT)?;
        Ok(Some(self.layout.upper_base + (u64::from(slot) << 12)))
    }

    /// A table of level-1 entries for an address.
    pub(super) fn new_leaf(
        &mut self,
        root: Root,
        linear: u64,
        uncached: u8,
    ) -> Result<Option<u64>> {
        let reserved = match uncached {
            0 => None,
            _ => self.new_uncached(root, linear, Level::PTE).map(|slot| slot * 2 + 1),
        };
        let cached = |slots: &mut Slots| Some(slots.take()? + self.layout.uncached_pages);
        let Some(slot) = reserved.or_else(|| cached(&mut self.cached)) else { return Ok(None) };
        self.leaves.reach(slot as usize + 1)?;
        Ok(Some(self.layout.leaf_base + (u64::from(slot) << 12)))
    }

    /// Frees a table; no entry may point to it any more.
    pub(super) fn free(&mut self, table: u64) {
        if table >= self.layout.upper_base {
            let slot = ((table - self.layout.upper_base) >> 12) as u32;
            self.upper[slot as usize * FANOUT..][..FANOUT].fill(0);
            return self.above.give(slot);
        }
        let slot = ((table - self.layout.leaf_base) >> 12) as u32;
        if let Some(slot) = slot.checked_sub(self.layout.uncached_pages) {
            self.leaves.clear((slot + self.layout.uncached_pages) as usize);
            return self.cached.give(slot);
        }
        self.free_uncached(table, slot / 2);
    }

    /// The level-1 tables, and the number of the one at that address.
    pub(in crate::exact) fn leaves_mut(&mut self, table: u64) -> (&mut Leaves, usize) {
        let (number, _) = self.leaf_at(table);
        (&mut self.leaves, number)
    }

    /// The number of a level-1 table, and of an entry in it.
    #[inline(always)]
    fn leaf_at(&self, address: u64) -> (usize, usize) {
        let offset = address - self.layout.leaf_base;
        ((offset >> 12) as usize, (offset >> 3) as usize % FANOUT)
    }

    /// The entry at a physical address.
    #[inline(always)]
    pub(in crate::exact) fn entry(&self, address: u64) -> u64 {
        if let Some(at) = self.upper_at(address) {
            return self.upper[at];
        }
        let (table, at) = self.leaf_at(address);
        self.leaves.entry(table, at)
    }

    /// Writes an entry, 0 for none.
    pub(in crate::exact) fn put(&mut self, address: u64, entry: u64) {
        self.note_change(address, entry, true);
        if let Some(at) = self.upper_at(address) {
            self.upper[at] = entry;
        } else {
            let (table, at) = self.leaf_at(address);
            self.leaves.put(table, at, entry);
        }
    }

    /// Fills an empty level-1 table: `first`, and the pages after it with the same flags.
    pub(super) fn fill(&mut self, table: u64, first: u64) {
        if self.events.is_some() {
            (0..FANOUT as u64)
                .for_each(|at| self.note_change(table + at * 8, first + (at << 12), false));
        }
        let (leaves, table) = self.leaves_mut(table);
        leaves.fill(table, first);
    }

    /// Walks like software, without setting flags, to the entry of `level` for the address, or to
    /// the entry that ends the walk above it.
    pub(in crate::exact) fn locate(&self, root: Root, linear: u64, level: Level) -> Located {
        let mut table = root.table;
        for here in (1..=self.levels).rev().filter_map(Level::new) {
            let address = entry_address(table, linear, here);
            let found = Located { level: here, address, entry: self.entry(address) };
            if here == level || !found.is_table() {
                return found;
            }
            table = found.entry & FRAME_MASK;
        }
        unreachable!("a requested level is one of the table's")
    }

    /// The address of the entry of `level` for a linear address; allocates the tables above it.
    /// `None` if all table addresses are used, or a leaf is in the way.
    ///
    /// # Errors
    /// The host has no memory.
    /// The host has no memory.
    pub(super) fn reach(
        &mut self,
        root: Root,
        linear: u64,
        level: Level,
        uncached: u8,
    ) -> Result<Option<u64>> {
        loop {
            let found = self.locate(root, linear, level);
            if found.level == level {
                return Ok(Some(found.address));
            }
            if found.is_leaf() {
                return Ok(None);
            }
            let below = match found.level {
                Level::PMD => self.new_leaf(root, linear, uncached),
                Level::PUD if uncached > 1 => self.new_middle(root, linear),
                _ => self.new_upper(),
            };
            let Some(table) = below? else { return Ok(None) };
            self.attach(root, linear, found, table);
        }
    }

    /// Makes an entry above level 1 point to a table.
    pub(super) fn attach(&mut self, root: Root, linear: u64, above: Located, table: u64) {
        self.put(above.address, table | TABLE);
        if above.level == Level::PUD {
            let key = hint_key(root, linear);
            let first = self.upper_at(table).expect("a table of level 2 is one of the upper");
            self.hints[hint_slot(key)] = Hint { key, first };
        }
    }
}

#[inline(always)]
fn hint_key(root: Root, linear: u64) -> u64 {
    root.table << 16 | linear >> 30 | 1 << 63
}

#[inline(always)]
fn hint_slot(key: u64) -> usize {
    (key ^ key >> 28) as usize % HINTS
}

impl Tables {
    /// Prefetches on the host the entries that walks of these accesses are likely to read.
    ///
    /// In two loops that do nothing else: a prefetch whose own translation the host has to walk for
    /// finishes only after that walk, and delays the code after it; many in a row walk
    /// concurrently.
    pub(in crate::exact) fn prefetch_tables(&self, root: Root, ops: &[Touch]) {
        for ops in ops.chunks(AHEAD) {
            let mut above = [None; AHEAD];
            for (above, op) in above.iter_mut().zip(ops) {
                *above = self.above_leaf(root, op.address());
                prefetch(&self.upper, above.unwrap_or(0));
            }
            for (above, op) in above.into_iter().zip(ops) {
                self.prefetch_leaf(above, op.address());
            }
        }
    }

    /// Prefetches the level-1 entry for the address, below a level-2 entry.
    #[inline(always)]
    fn prefetch_leaf(&self, above: Option<usize>, linear: u64) {
        let Some(entry) = above.and_then(|above| self.upper.get(above)) else { return };
        if entry & (PRESENT | HUGE) == PRESENT {
            let (table, at) = self.leaf_at(entry_address(entry & FRAME_MASK, linear, Level::PTE));
            self.leaves.prefetch_host(table, at);
        }
    }

    /// Index of the level-2 entry for an address, if the hints know it.
    #[inline(always)]
    fn above_leaf(&self, root: Root, linear: u64) -> Option<usize> {
        let key = hint_key(root, linear);
        let hint = self.hints[hint_slot(key)];
        (hint.key == key).then_some(hint.first + (linear >> 21) as usize % FANOUT)
    }
}

impl PageTable for Tables {
    #[inline(always)]
    fn read(&mut self, address: u64) -> u64 {
        self.entry(address)
    }

    #[inline(always)]
    fn read_leaf(&mut self, address: u64) -> u64 {
        let (table, at) = self.leaf_at(address);
        self.leaves.entry(table, at)
    }

    #[inline(always)]
    fn set(&mut self, address: u64, flags: u64) {
        debug_assert!(flags & !(ACCESSED | DIRTY) == 0);
        if let Some(at) = self.upper_at(address) {
            self.upper[at] |= flags;
        } else {
            let (table, at) = self.leaf_at(address);
            self.leaves.mark(table, at, flags);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_hw::Asid;

    fn tables(uncached: u32) -> (Tables, Root) {
        let mut tables = Tables::new(4, 40, uncached, false);
        let table = tables.new_root().expect("the host has memory").expect("the first");
        (tables, Root { table, asid: Asid::ZERO })
    }

    const AT: u64 = (3 << 39) + (2 << 30) + (5 << 21) + (7 << 12);

    fn reach(tables: &mut Tables, root: Root, level: Level, uncached: u8) -> Option<u64> {
        tables.reach(root, AT, level, uncached).expect("the host has memory")
    }

    #[test]
    fn addresses_of_tables_follow_their_level() {
        let (mut tables, root) = tables(0);
        let address = reach(&mut tables, root, Level::PTE, 0).expect("there is room");
        assert_eq!(address, (2 << 38) + 7 * 8, "the first table of level 1");
        let above = tables.locate(root, AT, Level::PMD);
        assert_eq!(
            (above.address, above.entry),
            ((3 << 38) + (2 << 12) + 5 * 8, (2 << 38) | TABLE)
        );
        assert_eq!(tables.bytes(), 4 << 12);
    }

    #[test]
    fn the_uncached_region_fills_up() {
        let (mut tables, root) = tables(1);
        let address = reach(&mut tables, root, Level::PTE, 1).expect("there is room");
        assert!(tables.layout.is_uncached(address) && !tables.layout.is_uncached(root.table));
        assert_eq!(address, (2 << 38) + (1 << 12) + 7 * 8, "behind its control block");
        let second =
            tables.new_leaf(root, AT, 1).expect("the host has memory").expect("there is room");
        assert!(!tables.layout.is_uncached(second));
        assert_eq!(tables.overflowed(), 1);
    }

    #[test]
    fn a_leaf_is_in_the_way_of_a_table() {
        let (mut tables, root) = tables(0);
        let address = reach(&mut tables, root, Level::PMD, 0).expect("there is room");
        tables.put(address, 512 << 12 | PRESENT | HUGE);
        assert_eq!(reach(&mut tables, root, Level::PTE, 0), None);
        assert_eq!(tables.locate(root, AT, Level::PTE).level, Level::PMD);
        tables.put(address, 0);
        assert!(reach(&mut tables, root, Level::PTE, 0).is_some());
    }

    #[test]
    fn a_freed_table_is_empty_when_reused() {
        let (mut tables, root) = tables(0);
        let address = reach(&mut tables, root, Level::PTE, 0).expect("there is room");
        tables.put(address, 9 << 12 | PRESENT | WRITABLE);
        tables.free(address & !0xfff);
        let again = tables.new_leaf(root, AT, 0).expect("the host has memory");
        assert_eq!(again, Some(address & !0xfff));
        assert_eq!(tables.entry(address), 0);
    }

    // Two tables fit: the first is of level 2, the other of level 1.
    #[test]
    fn tables_of_level_2_may_be_uncached_too() {
        let (mut tables, root) = tables(2);
        let address = reach(&mut tables, root, Level::PTE, 2).expect("there is room");
        let above = tables.locate(root, AT, Level::PMD);
        assert_eq!(above.address, (2 << 38) + (1 << 12) + 5 * 8);
        assert_eq!(above.entry, ((2 << 38) + (3 << 12)) | TABLE);
        assert!(tables.layout.is_uncached(address) && tables.layout.is_uncached(above.address));
        tables.set(above.address, ACCESSED);
        tables.put(above.address, 0);
        tables.free(address & !0xfff);
        tables.free(above.address & !0xfff);
        assert_eq!((tables.entry(above.address), tables.uncached.used()), (0, 0));
        tables.put(tables.locate(root, AT, Level::PUD).address, 0);
        let again = reach(&mut tables, root, Level::PMD, 2);
        assert_eq!(again, Some(above.address));
    }
}
