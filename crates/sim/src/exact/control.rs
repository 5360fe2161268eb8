//! Control of a machine from outside: its spaces and mappings, and single accesses.

use tierscope_core::{Addr, BusObserver, Error, ErrorKind, Range, Result, SpaceId, Tier};
use tierscope_hw::PageSize;

use super::Machine;
use super::mm::{Denied, Map, Stale};

impl<B: BusObserver> Machine<B> {
    /// Maps memory (mmap(2)).
    ///
    /// # Errors
    /// The space is gone, or has no room of that size.
    pub fn map(&mut self, space: SpaceId, map: &Map) -> Result<Range> {
        self.os.map(space, map)
    }

    /// Unmaps memory (munmap(2)).
    ///
    /// # Errors
    /// The space is gone, or the range cuts a 1 GiB page.
    pub fn unmap(&mut self, range: Range) -> Result<()> {
        let stale = self.os.unmap(range, self.time())?;
        self.armed.forget(&range);
        self.shoot_for_kernel(stale);
        Ok(())
    }

    /// Ends a process: its threads stop, its memory is freed.
    ///
    /// # Errors
    /// The space is gone.
    pub fn exit(&mut self, space: SpaceId) -> Result<()> {
        let stale = self.os.destroy(space, self.time())?;
        self.armed.forget(&stale.range);
        self.forget_process(space);
        let (threads, asid) = (&self.threads, self.os.spaces[space.0 as usize].root.asid);
        for cpu in &mut self.cpus {
            cpu.threads.retain(|thread| threads[*thread].space != space);
            cpu.mmu.flush_asid(asid);
        }
        Ok(())
    }

    /// Allows or forbids stores (mprotect(2)).
    ///
    /// # Errors
    /// The space is gone, or the range cuts a 1 GiB page.
    pub fn protect(&mut self, range: Range, writable: bool) -> Result<()> {
        let stale = self.os.protect(range, writable)?;
        self.shoot_for_kernel(stale);
        Ok(())
    }

    /// Splits the huge pages that begin in the range; returns their number.
    ///
    /// # Errors
    /// The host has no memory.
    pub fn split(&mut self, range: Range) -> Result<u64> {
        let mut count = 0;
        for at in (range.start..range.end).step_by(PageSize::M2.bytes() as usize) {
            if let Some(stale) = self.os.split_at(range.space, at)? {
                self.shoot_for_kernel(stale);
                count += 1;
            }
        }
        Ok(count)
    }

    /// Collapses every 2 MiB of the range that can be collapsed; returns their number.
    pub fn collapse(&mut self, range: Range) -> u64 {
        let mut count = 0;
        for at in (range.start..range.end).step_by(PageSize::M2.bytes() as usize) {
            if let Ok(Some(stale)) = self.os.collapse_at(range.space, at) {
                self.shoot_for_kernel(stale);
                count += 1;
            }
        }
        count
    }

    /// Moves the pages of a range to a tier at once; returns the bytes moved. [`Machine::mover`]
    /// moves pages over time.
    pub fn migrate(&mut self, range: Range, tier: Tier) -> u64 {
        let mut stale = Stale::nothing(range);
        let (mut from, mut moved) = (range.start, 0);
        while let Some((linear, leaf)) = self.os.next_leaf(range, from) {
            let size = PageSize::of_level(leaf.level).expect("levels of leaves have page sizes");
            let there =
                self.os.frames.tier_of((leaf.entry & tierscope_hw::entry::FRAME_MASK) >> 12);
            if there != tier && self.os.move_leaf(range.space, leaf, tier).is_some() {
                stale.add(size);
                moved += size.bytes();
            }
            from = linear + size.bytes();
        }
        self.shoot_for_kernel(stale);
        moved
    }

    /// Allocates every missing page of a range, old and clean.
    ///
    /// # Errors
    /// There is no memory left, or a part of the range is not mapped.
    pub fn populate(&mut self, range: Range) -> Result<()> {
        self.os.populate(range)?.map_err(|denied| unpopulated(&range, denied))
    }

    /// Executes one access of a core immediately, like the next access of a thread of that space.
    ///
    /// # Errors
    /// The access is denied.
    pub fn access(&mut self, cpu: usize, at: Addr, store: bool) -> Result<u64, Denied> {
        self.access_at_once(cpu, at, store)
    }

    /// The MMU of a core that [`Machine::access`] uses.
    #[must_use]
    pub fn mmu(&self, cpu: usize) -> &tierscope_hw::Mmu {
        &self.cpus[cpu].mmu
    }

    /// Flushes a core's cached translations of a space, as a context switch without ASIDs would.
    pub fn flush(&mut self, cpu: usize, space: SpaceId) {
        if let Some(space) = self.os.space(space) {
            self.cpus[cpu].mmu.flush_asid(space.root.asid);
        }
    }
}

pub(super) fn unpopulated(range: &Range, denied: Denied) -> Error {
    Error::new(ErrorKind::Usage, format!("cannot populate {range}"))
        .cause(match denied {
            Denied::OutOfMemory => "the memory that its placement allows is full",
            Denied::Unmapped | Denied::ReadOnly => "it is not mapped",
        })
        .remedy("make the workload smaller, or place it elsewhere")
}
