//! TLB misses of a vCPU: a model of its TLBs and paging-structure caches; on a miss it walks the
//! guest's page tables in RAM. The tables are only read: QEMU sets the ACCESSED and DIRTY bits
//! itself.
//!
//! Translations are tagged with their address space, as with PCIDs, so that a switch of address
//! spaces flushes nothing. INVLPG is not visible; instead the physical address of each access is
//! compared with the model's: a translation that the guest has changed is dropped at its next use
//! ([`Seen::stale`]).

use std::collections::HashMap;

use tierscope_core::{Access, Level};
use tierscope_hw::entry::{FRAME_MASK, HUGE, PRESENT};
use tierscope_hw::{Asid, Fault, Mmu, PageTable, Root, Source, Translation, config, entry_address};

use crate::log::say;
use crate::memory::Memory;

/// Result of a page-table walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The physical address of the accessed byte.
    pub physical: u64,
    /// The physical address of the leaf entry.
    pub entry: u64,
    /// The level of the leaf entry.
    pub level: Level,
}

/// Walks the tables without any cache, as the hardware would now. `None` if no page is mapped.
#[must_use]
pub fn resolve(memory: &Memory, root: u64, levels: u8, linear: u64) -> Option<Resolved> {
    let mut table = root;
    for level in (1..=levels).rev().filter_map(Level::new) {
        let place = entry_address(table, linear, level);
        let entry = memory.word(place);
        if entry & PRESENT == 0 {
            return None;
        }
        let shift = 12 + 9 * u32::from(level.number() - 1);
        if level == Level::PTE || entry & HUGE != 0 && level.number() <= 3 {
            let offset = (1u64 << shift) - 1;
            return Some(Resolved {
                physical: (entry & FRAME_MASK & !offset) | linear & offset,
                entry: place,
                level,
            });
        }
        table = entry & FRAME_MASK;
    }
    None
}

/// Whether a translation leads to the physical address of the access; true if that is unknown.
#[inline(always)]
fn leads(found: Translation, linear: u64, physical: Option<u64>) -> bool {
    physical.is_none_or(|physical| found.physical(linear) == physical)
}

struct Tables<'a>(&'a Memory);

impl PageTable for Tables<'_> {
    #[inline(always)]
    fn read(&mut self, address: u64) -> u64 {
        self.0.word(address)
    }

    fn set(&mut self, _: u64, _: u64) {}
}

/// Result of an access to the TLBs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// TLB miss: the physical address and the level of the leaf entry.
    pub missed: Option<(u64, Level)>,
    /// The model had a translation that the guest has changed meanwhile.
    pub stale: bool,
    /// The walk led to another page than the access: the tables changed in between.
    pub mismatch: bool,
    /// The walk found no page.
    pub fault: bool,
}

/// Model of the TLBs of one vCPU.
#[derive(Debug)]
pub struct Model {
    mmu: Mmu,
    tags: HashMap<u64, Asid>,
    last: (u64, Asid),
    faults: u32,
}

impl Model {
    /// An empty model, with `levels` levels of page tables.
    ///
    /// # Errors
    /// The geometry is invalid.
    pub fn new(geometry: &config::Translation, levels: u8) -> Result<Self, String> {
        let geometry = config::Translation { levels, ..geometry.clone() };
        let mmu = Mmu::new(&geometry).map_err(|e| e.to_string())?;
        Ok(Self { mmu, tags: HashMap::new(), last: (u64::MAX, Asid::ZERO), faults: 0 })
    }

    /// Drops all translations.
    pub fn forget(&mut self) {
        self.mmu.flush_all();
    }

    /// The tag of an address space. Tags are assigned in order; when none is left, all translations
    /// are dropped.
    #[inline(always)]
    pub fn tag(&mut self, root: u64) -> Asid {
        if self.last.0 != root {
            self.last = (root, self.find_tag(root));
        }
        self.last.1
    }

    fn find_tag(&mut self, root: u64) -> Asid {
        if let Some(tag) = self.tags.get(&root) {
            return *tag;
        }
        if self.tags.len() >= usize::from(Asid::COUNT) - 1 {
            self.mmu.flush_all();
            self.tags.clear();
        }
        let tag = Asid::new(self.tags.len() as u16 + 1).unwrap_or(Asid::ZERO);
        self.tags.insert(root, tag);
        tag
    }

    /// Handles an access to `physical`; None if not in RAM: then any result of the walk is
    /// accepted.
    #[inline(always)]
    pub fn access(
        &mut self,
        memory: &Memory,
        root: u64,
        linear: u64,
        access: Access,
        physical: Option<u64>,
    ) -> Seen {
        let at = Root { table: root, asid: self.tag(root) };
        match self.mmu.translate(&mut Tables(memory), at, linear, access) {
            Ok((found, source)) if leads(found, linear, physical) => self.seen(found, source),
            _ => self.again(memory, at, linear, access, physical),
        }
    }

    #[inline(always)]
    fn seen(&self, found: Translation, source: Source) -> Seen {
        if source != Source::Walk {
            return Seen::default();
        }
        let entry = self.mmu.last_reads().as_slice().last();
        Seen { missed: entry.map(|entry| (*entry, found.size().level())), ..Seen::default() }
    }

    /// Prints the first few faults, which are unexpected.
    fn report(&mut self, linear: u64, fault: Fault) {
        self.faults += 1;
        if self.faults <= 4 {
            say(format_args!(
                "a walk for {linear:#x} ended in {fault:?} although the access went well"
            ));
        }
    }

    /// Drops a translation that led elsewhere, because the guest changed its tables, and walks
    /// again.
    #[cold]
    fn again(
        &mut self,
        memory: &Memory,
        at: Root,
        linear: u64,
        access: Access,
        physical: Option<u64>,
    ) -> Seen {
        self.mmu.invalidate_page(linear, at.asid);
        let seen = match self.mmu.translate(&mut Tables(memory), at, linear, access) {
            Ok((found, source)) => {
                Seen { mismatch: !leads(found, linear, physical), ..self.seen(found, source) }
            }
            Err(fault) => {
                self.report(linear, fault);
                Seen { fault: true, ..Seen::default() }
            }
        };
        Seen { stale: true, ..seen }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::NodeFile;
    use tierscope_hw::Machine;

    const RW: u64 = 0x67;

    /// RAM of 4 MiB with tables for two address spaces, at 0x1000 and 0x2000, that share all but
    /// the top table: page 5 of 4 KiB at 0x8000, and a 2 MiB page at 2 MiB, mapped to the same
    /// address.
    struct Guest {
        ram: Vec<u64>,
        memory: Memory,
    }

    impl Guest {
        fn new() -> Self {
            let mut ram = vec![0u64; 4 << 17];
            for (place, entry) in [
                (0x1000, 0x3000 | RW),
                (0x2000, 0x3000 | RW),
                (0x3000, 0x4000 | RW),
                (0x4000, 0x5000 | RW),
                (0x4008, 0x20_0000 | RW | HUGE),
                (0x5028, 0x8000 | RW),
            ] {
                ram[place / 8] = entry;
            }
            let files = [NodeFile { path: "/x".into(), bytes: ram.len() as u64 * 8 }];
            let memory = Memory::of_q35(&files, &[ram.as_ptr() as u64]);
            Self { ram, memory }
        }

        fn set(&mut self, place: usize, entry: u64) {
            // SAFETY: within `ram`; volatile, because `memory` reads it through another pointer.
            unsafe { self.ram.as_mut_ptr().add(place / 8).write_volatile(entry) }
        }
    }

    fn model() -> Model {
        let machine = Machine::ready_made("qemu-two-tiers").unwrap();
        Model::new(&machine.translation, 4).unwrap()
    }

    const LOAD: Access = Access::Load;

    #[test]
    fn a_plain_walk_finds_pages_of_both_sizes() {
        let guest = Guest::new();
        let at = |linear| resolve(&guest.memory, 0x1000, 4, linear);
        assert_eq!(
            at(0x5123),
            Some(Resolved { physical: 0x8123, entry: 0x5028, level: Level::PTE })
        );
        let huge = Resolved { physical: 0x21_2345, entry: 0x4008, level: Level::PMD };
        assert_eq!(at(0x21_2345), Some(huge));
        assert_eq!((at(0x6000), at(1 << 30)), (None, None));
    }

    #[test]
    fn the_first_access_misses_and_reports_the_entry() {
        let (guest, mut model) = (Guest::new(), model());
        let mut access = |root, linear, physical| {
            model.access(&guest.memory, root, linear, LOAD, Some(physical))
        };
        let missed = |entry, level| Seen { missed: Some((entry, level)), ..Seen::default() };
        assert_eq!(access(0x1000, 0x5000, 0x8000), missed(0x5028, Level::PTE));
        assert_eq!(access(0x1000, 0x5fff, 0x8fff), Seen::default());
        assert_eq!(access(0x1000, 0x20_0040, 0x20_0040), missed(0x4008, Level::PMD));
        assert_eq!(
            access(0x2000, 0x5000, 0x8000),
            missed(0x5028, Level::PTE),
            "another address space"
        );
        assert_eq!(access(0x1000, 0x5000, 0x8000), Seen::default(), "tags forget nothing");
    }

    #[test]
    fn changes_of_the_guest_are_found_by_the_address_of_the_access() {
        let (mut guest, mut model) = (Guest::new(), model());
        model.access(&guest.memory, 0x1000, 0x5000, LOAD, Some(0x8000));
        guest.set(0x5028, 0x9000 | RW);
        let seen = model.access(&guest.memory, 0x1000, 0x5008, LOAD, Some(0x9008));
        assert_eq!(
            seen,
            Seen { missed: Some((0x5028, Level::PTE)), stale: true, ..Seen::default() }
        );
        // A new page table below the paging-structure caches.
        guest.set(0x4000, 0x6000 | RW);
        guest.set(0x6030, 0xa000 | RW);
        let seen = model.access(&guest.memory, 0x1000, 0x6000, LOAD, Some(0xa000));
        assert_eq!((seen.missed, seen.fault), (Some((0x6030, Level::PTE)), false));
        let seen = model.access(&guest.memory, 0x1000, 0x7000, LOAD, Some(0xb000));
        assert!(seen.fault && seen.missed.is_none());
        let seen = model.access(&guest.memory, 0x1000, 0x6000, LOAD, Some(0xc000));
        assert!(seen.mismatch && seen.stale);
    }

    #[test]
    fn more_address_spaces_than_tags_flush_all() {
        let mut model = model();
        let tags: std::collections::BTreeSet<Asid> =
            (1..5000u64).map(|root| model.tag(root << 12)).collect();
        assert_eq!(tags.len(), usize::from(Asid::COUNT) - 1);
        assert_eq!(model.tag(4999 << 12), model.last.1);
    }
}
