//! Translation as a core does it: TLBs, paging-structure caches and walker together.

use tierscope_core::{Access, Level, Result as Checked};

use crate::config;
use crate::psc::Psc;
use crate::tlb::{Stage, Tlb};
use crate::translation::{Asid, Translation};
use crate::walker::{Fault, PageTable, Reads, Root, walk_into};

/// Who gave a translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The first-level TLB.
    L1,
    /// The second-level TLB.
    L2,
    /// A walk; [`Mmu::last_reads`] says what it read.
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
    /// An MMU that knows nothing yet.
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
    /// A store through a translation whose leaf is not known to be dirty walks, since the flag
    /// lies in memory (Intel SDM volume 3, section 4.8). A fault forgets what was known of the
    /// address (section 4.10.4.1).
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

    /// What [`Mmu::translate`] does unless the first level gave a page of 4 KiB that allows the
    /// access; `there` if it gave one that does not.
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

    /// A page that is known and allows the access walks to become dirty.
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

    /// Walks so far. A batch that walked a lot tells that prefetching for the next one pays
    /// ([`PageTable::expect`]).
    #[must_use]
    pub fn walks(&self) -> u64 {
        self.walks
    }

    /// What the last walk read.
    #[must_use]
    pub fn last_reads(&self) -> &Reads {
        &self.reads
    }

    /// INVLPG: the page leaves the TLBs, the whole address space the paging-structure caches
    /// (Intel SDM volume 3, section 4.10.4.1).
    pub fn invalidate_page(&mut self, linear: u64, asid: Asid) {
        self.tlb.invalidate_page(linear, asid);
        self.psc.flush_asid(asid);
    }

    /// MOV to CR3 with bit 63 clear: the address space leaves, global translations stay.
    pub fn flush_asid(&mut self, asid: Asid) {
        self.tlb.flush_asid(asid);
        self.psc.flush_asid(asid);
    }

    /// INVPCID type 3: everything leaves but global translations.
    pub fn flush_local(&mut self) {
        self.tlb.flush_local();
        self.psc.flush_all();
    }

    /// INVPCID type 2: everything leaves.
    pub fn flush_all(&mut self) {
        self.tlb.flush_all();
        self.psc.flush_all();
    }

    /// Somebody else's walk for the address leaves its entries down to `lowest` in the
    /// paging-structure caches ([`Psc::occupy`]). The TLBs stay.
    pub fn occupy(&mut self, linear: u64, asid: Asid, lowest: Level) {
        self.psc.occupy(linear, asid, lowest);
    }

    /// Its TLBs.
    #[must_use]
    pub fn tlb(&self) -> &Tlb {
        &self.tlb
    }

    /// Its paging-structure caches.
    #[must_use]
    pub fn psc(&self) -> &Psc {
        &self.psc
    }
}
