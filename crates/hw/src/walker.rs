//! The page walk of x86-64 with 4 or 5 levels, and leaves of 4 KiB, 2 MiB and 1 GiB.
//!
//! Flags are set as in the Intel SDM (volume 3, section 4.8): ACCESSED in every entry that the walk
//! uses, whether it succeeds or not; DIRTY in the leaf, by a store. Entries skipped because of a
//! paging-structure cache hit are neither read nor marked.

use tierscope_core::{Access, Level};

use crate::config::PageSize;
use crate::entry::{ACCESSED, DIRTY, ENTRY_BYTES, FRAME_MASK, GLOBAL, HUGE, PRESENT, WRITABLE};
use crate::psc::{Psc, Table};
use crate::translation::{Asid, Translation};

/// Memory with page tables: entries of eight bytes at physical addresses.
///
/// An implementation sees every access of the walker in order, and may route reads through caches,
/// over the bus or into a trace.
pub trait PageTable {
    /// Reads the entry at the physical address.
    fn read(&mut self, address: u64) -> u64;

    /// Reads a level-1 entry at the physical address, as [`PageTable::read`].
    #[inline(always)]
    fn read_leaf(&mut self, address: u64) -> u64 {
        self.read(address)
    }

    /// Atomically sets `flags` in the entry at the physical address; other bits are unchanged.
    /// Called only if one of the flags was clear when the entry was read.
    fn set(&mut self, address: u64, flags: u64);
}

/// Start of a walk: the top table and address space tag in CR3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Root {
    /// Physical address of the top table.
    pub table: u64,
    /// Address space tag of the translations below this root.
    pub asid: Asid,
}

/// Cause of a failed translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The entry of this level is not present.
    NotPresent(Level),
    /// A store, and one of the entries does not permit stores.
    ReadOnly,
    /// The entry of this level has PS set, where no page is possible.
    Reserved(Level),
    /// The upper bits of the address are not all equal.
    NonCanonical,
}

/// Maximum number of entries that a walk reads.
pub const DEPTH: usize = 5;

/// Physical addresses of the entries that a walk read, in order, and a mark for each in which it
/// set a flag.
#[derive(Clone, Copy, Default)]
pub struct Reads {
    addresses: [u64; DEPTH],
    count: u8,
    marks: u8,
}

impl std::fmt::Debug for Reads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:x?} marks {:b}", self.as_slice(), self.marks)
    }
}

impl PartialEq for Reads {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice() && self.marks == other.marks
    }
}

impl Eq for Reads {}

impl Reads {
    #[inline(always)]
    fn push(&mut self, address: u64) {
        if let Some(place) = self.addresses.get_mut(usize::from(self.count)) {
            *place = address;
        }
        self.count += 1;
    }

    /// Records that the walk set a flag in the entry read last.
    #[inline(always)]
    fn mark(&mut self) {
        self.marks |= 1 << (self.count - 1);
    }

    /// Number of entries read.
    #[inline(always)]
    #[must_use]
    pub fn count(&self) -> u8 {
        self.count
    }

    /// Bit mask of the entries in which the walk set a flag.
    #[inline(always)]
    #[must_use]
    pub fn marks(&self) -> u8 {
        self.marks
    }

    /// Addresses of the entries read, the leaf's last.
    #[inline(always)]
    #[must_use]
    pub fn as_slice(&self) -> &[u64] {
        &self.addresses[..usize::from(self.count)]
    }
}

/// Record of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walk {
    /// Page-table entries that the walk read.
    pub reads: Reads,
    /// The translation found, or the fault raised.
    pub result: Result<Translation, Fault>,
}

/// Walks for `linear` in a page table of `levels` (4 or 5), starting below the lowest entry cached
/// by `psc`.
#[inline]
pub fn walk<T: PageTable>(
    memory: &mut T,
    psc: &mut Psc,
    levels: u8,
    root: Root,
    linear: u64,
    access: Access,
) -> Walk {
    let mut reads = Reads::default();
    let result = walk_into(memory, psc, levels, root, linear, access, &mut reads);
    Walk { reads, result }
}

/// As [`walk`]; the entries read are stored in `reads`.
#[inline(always)]
pub(crate) fn walk_into<T: PageTable>(
    memory: &mut T,
    psc: &mut Psc,
    levels: u8,
    root: Root,
    linear: u64,
    access: Access,
    reads: &mut Reads,
) -> Result<Translation, Fault> {
    (reads.count, reads.marks) = (0, 0);
    if is_canonical(linear, levels) {
        descend(memory, psc, levels, root, linear, access, reads)
    } else {
        Err(Fault::NonCanonical)
    }
}

/// Whether the bits above those translated by `levels` equal the highest translated one (Intel SDM
/// volume 1, section 3.3.7.1).
#[inline(always)]
#[must_use]
pub fn is_canonical(linear: u64, levels: u8) -> bool {
    let unused = 64 - 12 - 9 * u32::from(levels);
    ((linear << unused) as i64 >> unused) as u64 == linear
}

#[inline(always)]
fn descend<T: PageTable>(
    memory: &mut T,
    psc: &mut Psc,
    levels: u8,
    root: Root,
    linear: u64,
    access: Access,
    reads: &mut Reads,
) -> Result<Translation, Fault> {
    let top = Table { base: root.table, writable: true };
    let (mut number, mut table) = match psc.lookup(linear, root.asid) {
        Some((cached, table)) => (cached.number(), table),
        None => (levels + 1, top),
    };
    // A counter instead of an iterator over levels, which would take as long as the rest of the
    // loop.
    while number > Level::PMD.number() {
        number -= 1;
        let level = Level::new(number).unwrap_or(Level::PMD);
        let address = entry_address(table.base, linear, level);
        let entry = memory.read(address);
        reads.push(address);
        if entry & PRESENT == 0 {
            return Err(Fault::NotPresent(level));
        }
        let writable = table.writable && entry & WRITABLE != 0;
        if entry & HUGE != 0 {
            let size = PageSize::of_level(level).ok_or(Fault::Reserved(level))?;
            return leaf(memory, (address, entry), size, writable, access, reads);
        }
        if entry & ACCESSED == 0 {
            memory.set(address, ACCESSED);
            reads.mark();
        }
        table = Table { base: entry & FRAME_MASK, writable };
        psc.add(linear, root.asid, level, table);
    }
    let address = entry_address(table.base, linear, Level::PTE);
    let entry = memory.read_leaf(address);
    reads.push(address);
    if entry & PRESENT == 0 {
        return Err(Fault::NotPresent(Level::PTE));
    }
    let writable = table.writable && entry & WRITABLE != 0;
    leaf(memory, (address, entry), PageSize::K4, writable, access, reads)
}

/// The physical address of the entry for `linear` in the table of `level` at `base`.
#[inline(always)]
#[must_use]
pub fn entry_address(base: u64, linear: u64, level: Level) -> u64 {
    base + (linear >> level.shift() & (Level::FANOUT - 1)) * ENTRY_BYTES
}

#[inline(always)]
fn leaf<T: PageTable>(
    memory: &mut T,
    (address, entry): (u64, u64),
    size: PageSize,
    writable: bool,
    access: Access,
    reads: &mut Reads,
) -> Result<Translation, Fault> {
    let stores = access == Access::Store;
    if stores && !writable {
        return Err(Fault::ReadOnly);
    }
    let flags = if stores { ACCESSED | DIRTY } else { ACCESSED };
    if entry & flags != flags {
        memory.set(address, flags & !entry);
        reads.mark();
    }
    let frame = entry & FRAME_MASK & !(size.bytes() - 1);
    Ok(Translation::new(frame, size)
        .writable(writable)
        .dirty((entry | flags) & DIRTY != 0)
        .global(entry & GLOBAL != 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Machine, Translation as Config};
    use std::collections::HashMap;

    /// Page tables as a map of entries.
    #[derive(Default)]
    struct Memory(HashMap<u64, u64>);

    impl PageTable for Memory {
        fn read(&mut self, address: u64) -> u64 {
            self.0.get(&address).copied().unwrap_or(0)
        }

        fn set(&mut self, address: u64, flags: u64) {
            *self.0.get_mut(&address).expect("only present entries are marked") |= flags;
        }
    }

    const ROOT: Root = Root { table: 0x1000, asid: Asid::ZERO };

    fn config() -> Config {
        Machine::ready_made("xeon-gold-6238m").expect("it is there").translation
    }

    /// One page of 4 KiB at 0x5000 -> 0x9000, one of 2 MiB at 2 MiB -> 4 MiB, tables at 0x1000,
    /// 0x2000, 0x3000, 0x4000 from the top down.
    fn memory() -> Memory {
        let to = |frame: u64| frame | PRESENT | WRITABLE;
        Memory(HashMap::from([
            (0x1000, to(0x2000)),
            (0x2000, to(0x3000)),
            (0x3000, to(0x4000)),
            (0x3008, to(4 << 20) | HUGE),
            (0x4000 + 5 * 8, to(0x9000)),
            (0x4000 + 6 * 8, 0xa000 | PRESENT),
        ]))
    }

    fn go(memory: &mut Memory, psc: &mut Psc, linear: u64, access: Access) -> Walk {
        walk(memory, psc, 4, ROOT, linear, access)
    }

    fn fresh_psc() -> Psc {
        Psc::new(&config()).expect("it is possible")
    }

    #[test]
    fn a_load_marks_every_level_accessed_and_nothing_dirty() {
        let (mut memory, mut psc) = (memory(), fresh_psc());
        let walk = go(&mut memory, &mut psc, 0x5123, Access::Load);
        assert_eq!(walk.reads.as_slice(), [0x1000, 0x2000, 0x3000, 0x4028]);
        let page = Translation::new(0x9000, PageSize::K4).writable(true);
        assert_eq!(walk.result, Ok(page));
        for address in walk.reads.as_slice() {
            assert_eq!(memory.0[address] & (ACCESSED | DIRTY), ACCESSED, "{address:#x}");
        }
        assert_eq!(walk.reads.marks(), 0b1111);
    }

    #[test]
    fn a_store_marks_the_leaf_dirty_and_only_the_leaf() {
        let (mut memory, mut psc) = (memory(), fresh_psc());
        let walk = go(&mut memory, &mut psc, (2 << 20) + 7, Access::Store);
        assert_eq!(walk.reads.as_slice(), [0x1000, 0x2000, 0x3008]);
        assert!(walk.result.is_ok_and(|page| page.is_dirty() && page.size() == PageSize::M2));
        assert_eq!(memory.0[&0x3008] & DIRTY, DIRTY);
        assert_eq!(memory.0[&0x2000] & DIRTY, 0);
    }

    #[test]
    fn a_cached_upper_entry_goes_stale() {
        let (mut memory, mut psc) = (memory(), fresh_psc());
        go(&mut memory, &mut psc, 0x5000, Access::Load);
        for address in [0x1000, 0x2000, 0x3000, 0x4028] {
            *memory.0.get_mut(&address).expect("present") &= !ACCESSED;
        }
        let walk = go(&mut memory, &mut psc, 0x5000, Access::Load);
        assert_eq!(walk.reads.as_slice(), [0x4028], "the PDE cache knows the table");
        assert_eq!(walk.reads.marks(), 1);
        assert_eq!(memory.0[&0x4028] & ACCESSED, ACCESSED);
        assert_eq!(memory.0[&0x3000] & ACCESSED, 0, "in use, and looks old");
        psc.flush_all();
        go(&mut memory, &mut psc, 0x5000, Access::Load);
        assert_eq!(memory.0[&0x3000] & ACCESSED, ACCESSED);
    }

    #[test]
    fn a_walk_that_faults_marks_the_upper_entries_it_used() {
        let (mut memory, mut psc) = (memory(), fresh_psc());
        let walk = go(&mut memory, &mut psc, 0x7000, Access::Load);
        assert_eq!(walk.result, Err(Fault::NotPresent(Level::PTE)));
        assert_eq!(memory.0[&0x3000] & ACCESSED, ACCESSED);
    }

    #[test]
    fn stores_need_every_entry_writable() {
        let (mut memory, mut psc) = (memory(), fresh_psc());
        let walk = go(&mut memory, &mut psc, 0x6000, Access::Store);
        assert_eq!(walk.result, Err(Fault::ReadOnly));
        assert_eq!(memory.0[&0x4030] & (ACCESSED | DIRTY), 0);
        *memory.0.get_mut(&0x2000).expect("present") &= !WRITABLE;
        psc.flush_all();
        let walk = go(&mut memory, &mut psc, 0x5000, Access::Store);
        assert_eq!(walk.result, Err(Fault::ReadOnly), "an upper entry forbids it");
        let walk = go(&mut memory, &mut psc, 0x5000, Access::Store);
        assert_eq!(walk.result, Err(Fault::ReadOnly), "so does its cached copy");
    }

    #[test]
    fn impossible_addresses_and_leaves_fault() {
        let (mut memory, mut psc) = (memory(), fresh_psc());
        let walk = go(&mut memory, &mut psc, 1 << 47, Access::Load);
        assert_eq!(walk.result, Err(Fault::NonCanonical));
        assert!(is_canonical(1 << 47, 5) && is_canonical(!0 << 47, 4));
        memory.0.insert(0x1008, 0x2000 | PRESENT | HUGE);
        let walk = go(&mut memory, &mut psc, 1 << 39, Access::Load);
        assert_eq!(walk.result, Err(Fault::Reserved(Level::P4D)));
    }
}
