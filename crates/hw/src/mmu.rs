//! The MMU of a core: TLBs, paging-structure caches and page walker combined.

use tierscope_core::{Access, Level, Result as Checked};

use crate::config;
use crate::psc::Psc;
use crate::tlb::{Stage, Tlb};
use crate::translation::{Asid, Translation};
use crate::walker::{Fault, PageTable, Reads, Root, walk_into};

/// Component that supplied a translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The first-level TLB.
    L1,
    /// The second-level TLB.
    L2,
    /// A page walk; [`Mmu::last_reads`] has the entries that it read.
    Walk,
}

/// The memory management unit of one core.
#[derive(Clone, Debug)]
pub struct Mmu {
    tlb: Tlb,
    psc: Psc,
    levels: u8,
    walks: u64,
    reads: Reads,
}

impl Mmu {
    /// An MMU with empty TLBs and caches.
    ///
    /// # Errors
    /// The configuration is impossible: [`config::Translation::check`].
    pub fn new(config: &config::Translation) -> Checked<Self> {
        Ok(Self {
            tlb: Tlb::new(config)?,
            psc: Psc::new(config)?,
            levels: config.levels,
            walks: 0,
            reads: Reads::default(),
        })
    }

    /// Translates an access.
    ///
    /// A store through a translation whose leaf is not known to be dirty requires a walk, because
    /// the flag is in memory (Intel SDM volume 3, section 4.8). A fault invalidates all cached
    /// entries for the address (section 4.10.4.1).
    ///
    /// # Errors
    /// The page fault, or the general protection fault, that the core would raise.
    #[inline(always)]
    pub fn translate<T: PageTable>(
        &mut self,
        memory: &mut T,
        root: Root,
        linear: u64,
        access: Access,
    ) -> Result<(Translation, Source), Fault> {
        let first = self.tlb.find_first(linear, root.asid);
        if let Some((slot, known)) = first
            && (access == Access::Load || known.takes_stores())
        {
            self.tlb.touch_first(slot);
            return Ok((known, Source::L1));
        }
        self.translate_rest(memory, root, linear, access, first.is_some())
    }

    /// The slow path of [`Mmu::translate`], unless the first level has a 4 KiB page that permits
    /// the access; `there`: it has one that does not.
    #[inline(never)]
    fn translate_rest<T: PageTable>(
        &mut self,
        memory: &mut T,
        root: Root,
        linear: u64,
        access: Access,
        there: bool,
    ) -> Result<(Translation, Source), Fault> {
        let known = if there {
            self.tlb.lookup(linear, root.asid)
        } else {
            self.tlb.lookup_rest(linear, root.asid)
        };
        let Some((known, stage)) = known else {
            let found = self.walk(memory, root, linear, access)?;
            self.tlb.insert_missed(linear, root.asid, found);
            return Ok((found, Source::Walk));
        };
        if access == Access::Load || known.takes_stores() {
            let source = if stage == Stage::L1 { Source::L1 } else { Source::L2 };
            return Ok((known, source));
        }
        if !known.is_writable() {
            return Err(self.fault(root.asid, linear, Fault::ReadOnly));
        }
        self.translate_again(memory, root, linear, access)
    }

    /// Walks for a store to a cached, writable page whose leaf is not known to be dirty.
    #[inline(never)]
    fn translate_again<T: PageTable>(
        &mut self,
        memory: &mut T,
        root: Root,
        linear: u64,
        access: Access,
    ) -> Result<(Translation, Source), Fault> {
        let found = self.walk(memory, root, linear, access)?;
        self.tlb.insert(linear, root.asid, found);
        Ok((found, Source::Walk))
    }

    #[inline(always)]
    fn walk<T: PageTable>(
        &mut self,
        memory: &mut T,
        root: Root,
        linear: u64,
        access: Access,
    ) -> Result<Translation, Fault> {
        self.walks += 1;
        let (psc, reads) = (&mut self.psc, &mut self.reads);
        let found = walk_into(memory, psc, self.levels, root, linear, access, reads);
        found.map_err(|fault| self.fault(root.asid, linear, fault))
    }

    #[cold]
    fn fault(&mut self, asid: Asid, linear: u64, fault: Fault) -> Fault {
        self.tlb.invalidate_page(linear, asid);
        self.psc.invalidate_page(linear, asid);
        fault
    }

    /// Number of walks so far. Many walks in one batch indicate that it pays off to prefetch on the
    /// host what the next batch walks.
    #[must_use]
    pub fn walks(&self) -> u64 {
        self.walks
    }

    /// Entries read by the last walk.
    #[must_use]
    pub fn last_reads(&self) -> &Reads {
        &self.reads
    }

    /// INVLPG: invalidates the page in the TLBs, and the whole address space in the
    /// paging-structure caches (Intel SDM volume 3, section 4.10.4.1).
    pub fn invalidate_page(&mut self, linear: u64, asid: Asid) {
        self.tlb.invalidate_page(linear, asid);
        self.psc.flush_asid(asid);
    }

    /// MOV to CR3 with bit 63 clear: invalidates the address space; global translations stay.
    pub fn flush_asid(&mut self, asid: Asid) {
        self.tlb.flush_asid(asid);
        self.psc.flush_asid(asid);
    }

    /// INVPCID type 3: invalidates everything except global translations.
    pub fn flush_local(&mut self) {
        self.tlb.flush_local();
        self.psc.flush_all();
    }

    /// INVPCID type 2: invalidates everything.
    pub fn flush_all(&mut self) {
        self.tlb.flush_all();
        self.psc.flush_all();
    }

    /// A walk by code outside of the model, such as a timer interrupt's, occupies entries for the
    /// address down to `lowest` in the paging-structure caches ([`Psc::occupy`]). The TLBs are
    /// unchanged.
    pub fn occupy(&mut self, linear: u64, asid: Asid, lowest: Level) {
        self.psc.occupy(linear, asid, lowest);
    }

    /// The TLBs of the core.
    #[must_use]
    pub fn tlb(&self) -> &Tlb {
        &self.tlb
    }

    /// The paging-structure caches of the core.
    #[must_use]
    pub fn psc(&self) -> &Psc {
        &self.psc
    }
}
