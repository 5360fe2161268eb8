//! Model of a machine's MMUs for a stream of accesses: page tables are built on first access to an
//! address.

use std::collections::BTreeMap;

use tierscope_core::{Access, Level, Result};
use tierscope_hw::cache::Request;
use tierscope_hw::entry::{FRAME_MASK, HUGE, PRESENT, WRITABLE};
use tierscope_hw::{
    Asid, Cache, Fault, Machine, Mmu, PageSize, PageTable, Root, Source, Translation, entry_address,
};

use super::nested::{Guest, Nested, Second, Side, Step};

/// Caching of page tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Cacheable like any other memory: walks read them through the last-level cache.
    Cached,
    /// Last-level tables are in uncached memory (PTAT).
    Uncached,
}

/// Counts of accesses by their translation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All accesses.
    pub accesses: u64,
    /// Hits in the second-level TLB.
    pub second: u64,
    /// Page walks: the access missed all TLBs, or was a store to a page whose cached entry is
    /// clean.
    pub walks: u64,
    /// Page-table entries read by walks.
    pub reads: u64,
    /// Reads of entries that went to memory.
    pub memory: u64,
    /// Accesses to addresses that the machine cannot translate.
    pub refused: u64,
}

/// Page tables of processes.
pub(crate) struct Tables {
    tables: Vec<[u64; 512]>,
    /// First physical address of the tables; data pages are below it.
    base: u64,
    levels: u8,
    /// End of the data pages allocated so far.
    end: u64,
}

impl Tables {
    /// An empty set of tables, in the upper half of a physical address space of `bits` bits.
    pub(crate) fn new(bits: u32, levels: u8) -> Self {
        Self { tables: Vec::new(), base: 1 << (bits - 1), levels, end: 0 }
    }

    pub(crate) fn new_table(&mut self) -> u64 {
        self.tables.push([0; 512]);
        self.base + ((self.tables.len() as u64 - 1) << 12)
    }

    fn entry(&mut self, address: u64) -> &mut u64 {
        let table = (address - self.base) >> 12;
        &mut self.tables[table as usize][(address >> 3) as usize & 511]
    }

    /// The leaf entry that maps an address: its own address, its value and its level.
    pub(crate) fn leaf(&self, root: Root, linear: u64) -> Option<(u64, u64, Level)> {
        let mut table = root.table;
        for level in (1..=self.levels).rev().filter_map(Level::new) {
            let address = entry_address(table, linear, level);
            let at = (address - self.base) >> 12;
            let entry = self.tables.get(at as usize)?[(address >> 3) as usize & 511];
            match entry {
                0 => return None,
                _ if level == Level::PTE || entry & HUGE != 0 => {
                    return Some((address, entry, level));
                }
                _ => table = entry & FRAME_MASK,
            }
        }
        None
    }

    /// Maps a new page at an address, unless one is mapped already.
    pub(crate) fn map(&mut self, root: Root, linear: u64, size: PageSize) {
        let mut table = root.table;
        for level in (1..=self.levels).rev().filter_map(Level::new) {
            let address = entry_address(table, linear, level);
            let entry = *self.entry(address);
            if level == size.level() && entry == 0 {
                let frame = self.end.next_multiple_of(size.bytes());
                self.end = frame + size.bytes();
                let huge = if size == PageSize::K4 { 0 } else { HUGE };
                *self.entry(address) = frame | PRESENT | WRITABLE | huge;
                return;
            }
            if entry == 0 {
                let new = self.new_table();
                *self.entry(address) = new | PRESENT | WRITABLE;
                table = new;
            } else if entry & HUGE != 0 || level == Level::PTE {
                return;
            } else {
                table = entry & FRAME_MASK;
            }
        }
    }
}

impl PageTable for Tables {
    fn read(&mut self, address: u64) -> u64 {
        *self.entry(address)
    }

    fn set(&mut self, address: u64, flags: u64) {
        *self.entry(address) |= flags;
    }
}

/// The MMUs of a machine, one per core, and the page tables that they walk.
pub struct Model {
    tables: Tables,
    roots: BTreeMap<u64, Root>,
    last: Option<(u64, Root)>,
    mmus: Vec<Mmu>,
    cores: usize,
    config: tierscope_hw::config::Translation,
    /// The last-level cache, if reads of entries are followed into memory.
    caches: Option<(Cache, Placement)>,
    /// The hypervisor's tables, if the model is of a guest.
    nested: Option<Nested>,
    /// Counts so far.
    pub counts: Counts,
}

impl Model {
    /// Starts with empty tables and TLBs. With `placement`, reads of entries and of data go through
    /// the last-level cache.
    ///
    /// # Errors
    /// The machine's configuration is invalid.
    pub fn new(machine: &Machine, placement: Option<Placement>) -> Result<Self> {
        let caches = match (placement, &machine.llc) {
            (Some(placement), Some(llc)) => {
                Some((Cache::new(llc, machine.processor.physical_bits)?, placement))
            }
            _ => None,
        };
        let config = machine.translation.clone();
        let tables = Tables::new(machine.processor.physical_bits, config.levels);
        // Building one MMU up front reports an invalid configuration here instead of at the first
        // access.
        let mmus = vec![Mmu::new(&config)?];
        let cores = machine.processor.cpus() as usize;
        let (roots, counts) = (BTreeMap::new(), Counts::default());
        let nested = None;
        Ok(Self { tables, roots, last: None, mmus, cores, config, caches, nested, counts })
    }

    /// Turns the model into a guest that the hypervisor backs with pages of that size.
    ///
    /// # Errors
    /// The machine's configuration is invalid.
    pub fn nested(self, machine: &Machine, size: PageSize) -> Result<Self> {
        let nested = Nested::new(&self.config, machine.processor.physical_bits, size)?;
        Ok(Self { nested: Some(nested), ..self })
    }

    /// Records the steps of walks from now on, for [`Model::take_steps`].
    pub(crate) fn heard(mut self) -> Self {
        if let Some(nested) = &mut self.nested {
            nested.hear();
        }
        self
    }

    /// The steps of walks since the last call, and the tables of the guest and of the hypervisor.
    pub(crate) fn take_steps(&mut self) -> (Vec<Step>, &Tables, &Tables) {
        let Self { tables, nested, .. } = self;
        let tables = &*tables;
        let (steps, host) = match nested {
            Some(nested) => nested.take_steps(),
            None => (Vec::new(), tables),
        };
        (steps, tables, host)
    }

    /// Counts of the second dimension of walks (the hypervisor's tables), if there is one.
    #[must_use]
    pub fn second(&self) -> Option<Second> {
        self.nested.as_ref().map(|nested| nested.counts)
    }

    /// Translates an address on a core, through the hypervisor's tables too if there are any.
    #[inline]
    fn translate(
        &mut self,
        core: usize,
        root: Root,
        linear: u64,
        access: Access,
    ) -> std::result::Result<(Translation, Source), Fault> {
        let Self { tables, mmus, nested, .. } = self;
        let Some(nested) = nested else {
            return mmus[core].translate(tables, root, linear, access);
        };
        let found =
            mmus[core].translate(&mut Guest { tables, nested, core }, root, linear, access)?;
        if found.1 == Source::Walk {
            nested.look_up(core, found.0.physical(linear));
        }
        Ok(found)
    }

    /// An access of a thread to a page of that size. Returns whether it walked.
    #[inline]
    pub fn access(
        &mut self,
        (thread, pid): (u32, u64),
        linear: u64,
        access: Access,
        size: PageSize,
    ) -> bool {
        let root = match self.last {
            Some((known, root)) if known == pid => root,
            _ => self.root(pid),
        };
        let core = thread as usize % self.cores;
        if core >= self.mmus.len() {
            self.reach(core);
        }
        self.counts.accesses += 1;
        let (page, source) = match self.translate(core, root, linear, access) {
            Ok(found) => found,
            Err(_) => {
                self.tables.map(root, linear, size);
                if let Some(nested) = &mut self.nested {
                    nested.note(Step::Map { side: Side::Guest, root, linear });
                }
                match self.translate(core, root, linear, access) {
                    Ok(found) => found,
                    Err(_) => {
                        self.counts.refused += 1;
                        return false;
                    }
                }
            }
        };
        match source {
            Source::L1 => {}
            Source::L2 => self.counts.second += 1,
            Source::Walk => self.walked(core),
        }
        if let Some((cache, _)) = &mut self.caches {
            cache.access(page.physical(linear), Request::Read);
        }
        source == Source::Walk
    }

    fn walked(&mut self, core: usize) {
        let reads = *self.mmus[core].last_reads();
        self.counts.walks += 1;
        self.counts.reads += u64::from(reads.count());
        let Some((cache, placement)) = &mut self.caches else { return };
        for (at, address) in reads.as_slice().iter().enumerate() {
            let last = at + 1 == reads.as_slice().len();
            let uncached = last && *placement == Placement::Uncached;
            let hit = !uncached && cache.access(*address, Request::Read).hit;
            self.counts.memory += u64::from(!hit);
        }
    }

    #[cold]
    fn root(&mut self, pid: u64) -> Root {
        let number = self.roots.len() as u16 % (Asid::COUNT - 1) + 1;
        if !self.roots.contains_key(&pid) {
            let asid = Asid::new(number).unwrap_or(Asid::ZERO);
            let root = Root { table: self.tables.new_table(), asid };
            self.roots.insert(pid, root);
        }
        let root = self.roots[&pid];
        self.last = Some((pid, root));
        root
    }

    #[cold]
    fn reach(&mut self, core: usize) {
        while self.mmus.len() <= core {
            self.mmus.push(Mmu::new(&self.config).expect("the first could be made"));
        }
        if let Some(nested) = &mut self.nested {
            nested.reach(core);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(placement: Option<Placement>) -> Model {
        Model::new(&Machine::ready_made("xeon-e5-2620v2").unwrap(), placement).unwrap()
    }

    // Two rounds over 4096 pages of 4 KiB: far more than the 512 entries of the second-level TLB,
    // so each access walks. With pages of 2 MiB it is eight pages.
    #[test]
    fn pages_are_walked_for_as_often_as_tlbs_forget() {
        for (size, walks) in [(PageSize::K4, 8192), (PageSize::M2, 8)] {
            let mut model = model(None);
            for page in (0..2).flat_map(|_| 0..4096) {
                model.access((0, 7), page << 12, Access::Load, size);
            }
            assert_eq!((model.counts.accesses, model.counts.walks), (8192, walks), "{size:?}");
        }
    }

    #[test]
    fn processes_and_cores_know_nothing_of_each_other() {
        let mut model = model(None);
        let walked = [(0, 1), (0, 1), (1, 1), (0, 2)]
            .map(|who| model.access(who, 0x5000, Access::Load, PageSize::K4));
        assert_eq!(walked, [true, false, true, true]);
    }

    // Walks of a second round read entries that the cache holds, except the uncached last-level
    // ones.
    #[test]
    fn uncached_entries_come_from_memory() {
        let memory = |placement| {
            let mut model = model(Some(placement));
            for page in (0..2).flat_map(|_| 0..4096) {
                model.access((0, 7), page << 12, Access::Load, PageSize::K4);
            }
            model.counts.memory
        };
        assert!(memory(Placement::Cached) < 600);
        assert!(memory(Placement::Uncached) >= 8192);
    }

    #[test]
    fn untranslated_addresses_are_counted() {
        let mut model = model(None);
        assert!(!model.access((0, 1), 1 << 60, Access::Load, PageSize::K4));
        assert_eq!(model.counts.refused, 1);
    }
}
