//! Nested page tables: a guest's entries are at guest-physical addresses, which a second set of
//! tables, the hypervisor's, translates.
//!
//! TLBs cache the combined translation, so the second dimension costs nothing until a TLB miss.
//! Then every entry that the guest's walk reads, and the page at its end, is looked up in a TLB of
//! guest-physical addresses, or walked to (Intel SDM volume 3, section 30.3.2): up to 24 reads
//! instead of four. That TLB and its paging-structure caches are assumed to be as large as those of
//! the machine without a guest.

use tierscope_core::{Access, Result};
use tierscope_hw::config::Translation;
use tierscope_hw::{Asid, Mmu, PageSize, PageTable, Root, Source};

use super::model::Tables;

/// Counts of the second dimension of walks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Second {
    /// Lookups of guest-physical addresses.
    pub lookups: u64,
    /// Lookups that needed a walk of the hypervisor's tables.
    pub walks: u64,
    /// Entries of the hypervisor's tables that these walks read.
    pub reads: u64,
}

/// The two sets of tables in a nested walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Side {
    /// The guest's tables: they translate to guest-physical addresses.
    Guest,
    /// The hypervisor's tables: they translate guest-physical addresses.
    Host,
}

/// A step of a nested walk, recorded in order.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// The entry at that address was read.
    Read(Side, u64),
    /// A page was mapped at an address.
    Map { side: Side, root: Root, linear: u64 },
}

/// A hypervisor's tables, and per core the TLBs that cache their translations.
pub(crate) struct Nested {
    tables: Tables,
    root: Root,
    size: PageSize,
    mmus: Vec<Mmu>,
    config: Translation,
    pub(crate) counts: Second,
    /// Steps since the last [`Nested::take_steps`], if they are recorded.
    steps: Option<Vec<Step>>,
}

impl Nested {
    /// A hypervisor that backs a guest with pages of `size`, on a machine with `bits` bits of
    /// physical address.
    pub(crate) fn new(config: &Translation, bits: u32, size: PageSize) -> Result<Self> {
        let mut tables = Tables::new(bits, config.levels);
        let root = Root { table: tables.new_table(), asid: Asid::ZERO };
        let mmus = vec![Mmu::new(config)?];
        let counts = Second::default();
        Ok(Self { tables, root, size, mmus, config: config.clone(), counts, steps: None })
    }

    /// Records steps from now on.
    pub(crate) fn hear(&mut self) {
        self.steps = Some(Vec::new());
    }

    /// The steps recorded since the last call, and the current tables.
    pub(crate) fn take_steps(&mut self) -> (Vec<Step>, &Tables) {
        (self.steps.as_mut().map(std::mem::take).unwrap_or_default(), &self.tables)
    }

    pub(crate) fn note(&mut self, step: Step) {
        if let Some(steps) = &mut self.steps {
            steps.push(step);
        }
    }

    /// Records the reads of a core's last walk of the hypervisor's tables.
    fn note_reads(&mut self, core: usize) {
        if let Some(steps) = &mut self.steps {
            let reads = self.mmus[core].last_reads().as_slice();
            steps.extend(reads.iter().map(|entry| Step::Read(Side::Host, *entry)));
        }
    }

    /// Creates the MMUs of all cores up to this one.
    pub(crate) fn reach(&mut self, core: usize) {
        while self.mmus.len() <= core {
            self.mmus.push(Mmu::new(&self.config).expect("the first could be made"));
        }
    }

    /// Translates a guest-physical address that a core reads, mapping a page on first use.
    pub(crate) fn look_up(&mut self, core: usize, guest_physical: u64) {
        self.counts.lookups += 1;
        let mut found = self.translate(core, guest_physical);
        if found.is_none() {
            self.note_reads(core);
            self.tables.map(self.root, guest_physical, self.size);
            let (side, root) = (Side::Host, self.root);
            self.note(Step::Map { side, root, linear: guest_physical });
            found = self.translate(core, guest_physical);
        }
        if found == Some(Source::Walk) {
            self.counts.walks += 1;
            self.counts.reads += u64::from(self.mmus[core].last_reads().count());
            self.note_reads(core);
        }
    }
}

impl Nested {
    #[inline]
    fn translate(&mut self, core: usize, guest_physical: u64) -> Option<Source> {
        let Self { tables, root, mmus, .. } = self;
        let found = mmus[core].translate(tables, *root, guest_physical, Access::Load);
        found.ok().map(|(_, source)| source)
    }
}

/// The guest's tables as seen by one core's walker: each read is translated by the hypervisor's
/// tables.
pub(crate) struct Guest<'a> {
    pub(crate) tables: &'a mut Tables,
    pub(crate) nested: &'a mut Nested,
    pub(crate) core: usize,
}

impl PageTable for Guest<'_> {
    fn read(&mut self, address: u64) -> u64 {
        self.nested.look_up(self.core, address);
        self.nested.note(Step::Read(Side::Guest, address));
        self.tables.read(address)
    }

    fn set(&mut self, address: u64, flags: u64) {
        self.tables.set(address, flags);
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::Model;
    use super::*;
    use tierscope_hw::Machine;

    // The first walk hits nothing: four guest entries and the page, each translated by a walk
    // through the hypervisor's four levels, shortened by the paging-structure cache entries that
    // the previous one left.
    #[test]
    fn a_first_walk_has_two_dimensions() {
        let machine = Machine::ready_made("xeon-e5-2620v2").unwrap();
        let mut model = Model::new(&machine, None).unwrap().nested(&machine, PageSize::K4).unwrap();
        assert!(model.access((0, 1), 0x4000_0000, Access::Load, PageSize::K4));
        assert_eq!((model.counts.walks, model.counts.reads), (1, 4));
        let first = model.second().unwrap();
        assert!(first.lookups >= 5 && first.walks >= 2, "{first:?}");
        assert!(
            first.reads >= 4 + (first.walks - 1) && first.reads <= 4 * first.walks,
            "{first:?}"
        );
        // A TLB hit needs no lookup of guest-physical addresses.
        assert!(!model.access((0, 1), 0x4000_0008, Access::Load, PageSize::K4));
        assert_eq!(model.second(), Some(first));
    }

    // 4096 pages, twice: guest and host walk for each; host pages of 2 MiB leave few walks in the
    // second dimension.
    #[test]
    fn larger_pages_beneath_spare_the_second_dimension() {
        let machine = Machine::ready_made("xeon-e5-2620v2").unwrap();
        let walks = |size| {
            let mut model = Model::new(&machine, None).unwrap().nested(&machine, size).unwrap();
            for page in (0..2).flat_map(|_| 0..4096u64) {
                model.access((0, 1), 1 << 30 | page << 12, Access::Load, PageSize::K4);
            }
            assert_eq!(model.counts.walks, 8192);
            model.second().unwrap().walks
        };
        let (small, large) = (walks(PageSize::K4), walks(PageSize::M2));
        assert!(small >= 8192 && large < small / 50, "{small}, {large}");
    }
}
