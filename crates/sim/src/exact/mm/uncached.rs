//! Tables and data pages of the uncached region, and the events of its tables.
//!
//! The kernel searches the control blocks for a free table from the beginning. Level-2 tables may
//! be in the region too, for processes with 2 MiB pages; their entries are then stored with those
//! of other upper tables.

use tierscope_core::{Level, Lost, Result, SpaceId};
use tierscope_hw::Root;
use tierscope_wire::ptat::KernelEvent;

use super::tables::Tables;
use crate::exact::layout::{DATA, DATA_PAGES};
use crate::exact::units::FANOUT;

impl Tables {
    /// A table in the region for entries of that level; `None` if the region is full.
    pub(super) fn new_uncached(&mut self, root: Root, linear: u64, level: Level) -> Option<u32> {
        let Some(slot) = self.uncached.take() else {
            self.overflowed += 1;
            return None;
        };
        if let Some(events) = &mut self.events {
            events.taken(slot, root.table, linear, level);
        }
        Some(slot)
    }

    /// Frame number, as in entries, of a new data page in the uncached region; `None` if the region
    /// is full.
    pub(super) fn new_data(&mut self, root: Root) -> Option<u64> {
        let Some(slot) = self.uncached.take() else {
            self.overflowed += 1;
            return None;
        };
        let page = u64::from(slot) * 2 + 1;
        if page >= DATA_PAGES {
            self.uncached.give(slot);
            self.overflowed += 1;
            return None;
        }
        if let Some(events) = &mut self.events {
            events.taken_for_data(slot, root);
        }
        Some(DATA + page)
    }

    /// Frees a data page of the uncached region.
    pub(super) fn free_data(&mut self, frame: u64) {
        let slot = ((frame - DATA) / 2) as u32;
        self.uncached.give(slot);
        if let Some(events) = &mut self.events {
            events.given(slot);
        }
    }

    /// A level-2 table in the uncached region, or an ordinary one if that is full.
    pub(super) fn new_middle(&mut self, root: Root, linear: u64) -> Result<Option<u64>> {
        let Some(table) = self.new_upper()? else { return Ok(None) };
        let Some(slot) = self.new_uncached(root, linear, Level::PMD) else {
            return Ok(Some(table));
        };
        self.uncached_upper[slot as usize] = ((table - self.layout.upper_base) >> 12) as u32 + 1;
        Ok(Some(self.layout.leaf_base + ((u64::from(slot) * 2 + 1) << 12)))
    }

    /// Index in `upper` of the entry of an upper table in the uncached region.
    #[inline(always)]
    pub(super) fn middle_at(&self, address: u64) -> Option<usize> {
        let slot = (address.checked_sub(self.layout.leaf_base)? >> 13) as usize;
        let kept = self.uncached_upper.get(slot)?.checked_sub(1)?;
        Some(kept as usize * FANOUT + (address >> 3) as usize % FANOUT)
    }

    pub(super) fn free_uncached(&mut self, table: u64, slot: u32) {
        if self.events.is_some() {
            (0..FANOUT as u64).for_each(|at| self.note_change(table + at * 8, 0, false));
        }
        match std::mem::take(&mut self.uncached_upper[slot as usize]).checked_sub(1) {
            None => self.leaves.clear(slot as usize * 2 + 1),
            Some(kept) => {
                self.upper[kept as usize * FANOUT..][..FANOUT].fill(0);
                self.above.give(kept);
            }
        }
        self.uncached.give(slot);
        if let Some(events) = &mut self.events {
            events.given(slot);
        }
    }

    /// Notes that an entry is about to become `new`; `reads` if the kernel reads it first.
    pub(super) fn note_change(&mut self, address: u64, new: u64, reads: bool) {
        if self.events.is_none() || !self.layout.is_uncached(address) {
            return;
        }
        let (base, old) = (self.layout.leaf_base, self.entry(address));
        if let Some(events) = self.events.as_mut().filter(|_| old != new) {
            events.put(base, address, (old, new), reads);
        }
    }

    /// The kernel reads an entry.
    pub(in crate::exact) fn note_read(&mut self, address: u64) {
        self.note_reads(address & !0xfff, (address >> 3) as usize % FANOUT, 1);
    }

    /// The kernel reads `count` entries of a table.
    pub(in crate::exact) fn note_reads(&mut self, table: u64, first: usize, count: usize) {
        let (base, uncached) = (self.layout.leaf_base, self.layout.is_uncached(table));
        if let Some(events) = self.events.as_mut().filter(|_| uncached) {
            let entries = first as u64..(first + count) as u64;
            entries.for_each(|at| events.look(base, table + at * 8, true));
        }
    }

    /// Announces a process whose tables will be in the region.
    pub(super) fn announce(&mut self, root: u64, space: SpaceId) {
        if let Some(events) = &mut self.events {
            events.announce(root, space);
        }
    }

    /// The process of that root executes its program.
    pub(in crate::exact) fn executes(&mut self, root: u64) {
        if let Some(events) = &mut self.events {
            events.executes(root);
        }
    }

    /// The process of that root has exited.
    pub(super) fn exits(&mut self, root: u64) {
        if let Some(events) = &mut self.events {
            events.exits(root);
        }
    }

    /// Drains the kernel events of the uncached region.
    pub(in crate::exact) fn drain_events(&mut self, out: &mut Vec<KernelEvent>) -> Lost {
        self.events.as_mut().map_or(Lost(0), |events| events.drain(out))
    }
}
