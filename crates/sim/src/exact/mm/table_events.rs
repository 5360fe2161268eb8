//! Kernel events of tables in the uncached region, so that a bus monitor can interpret the walks'
//! reads there (PTAT, section 4.1.4), and the kernel's own accesses to the region.
//!
//! Changes are noted as they are made, and reported before any core runs on: first the kernel's
//! reads cross the bus, then the tag, then its writes. Nothing of this is on the path of an
//! ordinary access.

use std::collections::BTreeMap;

use tierscope_core::{Level, Lost, SpaceId};
use tierscope_hw::Root;
use tierscope_hw::entry::{FRAME_MASK, HUGE, WRITABLE};
use tierscope_wire::ptat::{Change, KernelEvent, Stage, What};

use crate::exact::layout::true_frame;
use crate::exact::log::Log;

/// An operation of the kernel in the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::exact) enum Note {
    /// The kernel read the control blocks up to this slot in search of a free table, and cleared
    /// that table.
    Taken(u32),
    /// The kernel freed a table.
    Given(u32),
    /// It changed an entry; `reads` if it read it first. A page that is replaced by a table makes
    /// two changes.
    Put { address: u64, changes: [Option<Change>; 2], reads: bool },
    /// The kernel read an entry; or, without `reads`, a walk that faulted has read it already.
    Look { change: Change, reads: bool },
    /// A process reached a stage of its life.
    Process { pid: u32, stage: Stage },
}

/// Use of a table in the region.
#[derive(Clone, Copy, Debug, Default)]
struct Owner {
    pid: u32,
    /// Level of the table, 1 or 2; 0 if it is free or holds data.
    level: u8,
    /// Number of the first 4 KiB page that the table translates.
    first: u64,
}

/// Events to report.
pub(in crate::exact) struct TableEvents {
    /// Pids of processes, by address of the top-level table.
    pids: BTreeMap<u64, u32>,
    owners: Vec<Owner>,
    pub(in crate::exact) notes: Vec<Note>,
    pub(in crate::exact) reported: Log<KernelEvent>,
    /// Number of the next tag.
    pub(in crate::exact) tag: u64,
}

impl TableEvents {
    pub(super) fn new(tables: u32) -> Self {
        Self {
            pids: BTreeMap::new(),
            owners: vec![Owner::default(); tables as usize],
            notes: Vec::new(),
            reported: Log::with_room(1 << 24),
            tag: 0,
        }
    }

    pub(super) fn announce(&mut self, root: u64, space: SpaceId) {
        let pid = space.0 + 1;
        self.pids.insert(root, pid);
        self.notes.push(Note::Process { pid, stage: Stage::Announced });
    }

    pub(super) fn executes(&mut self, root: u64) {
        if let Some(pid) = self.pids.get(&root).copied() {
            self.notes.push(Note::Process { pid, stage: Stage::Executes });
        }
    }

    pub(super) fn exits(&mut self, root: u64) {
        if let Some(pid) = self.pids.remove(&root) {
            self.notes.push(Note::Process { pid, stage: Stage::Exited });
        }
    }

    /// A table is allocated, for entries of that level that translate an address.
    pub(super) fn taken(&mut self, slot: u32, root: u64, linear: u64, level: Level) {
        let pid = self.pids.get(&root).copied().unwrap_or(0);
        let above = Level::new(level.number() + 1).map_or(u64::MAX, Level::entry_bytes);
        let first = (linear & !(above - 1)) >> 12;
        self.owners[slot as usize] = Owner { pid, level: level.number(), first };
        self.notes.push(Note::Taken(slot));
    }

    /// A page of the region is allocated for a process's data.
    pub(super) fn taken_for_data(&mut self, slot: u32, root: Root) {
        let pid = self.pids.get(&root.table).copied().unwrap_or(0);
        self.owners[slot as usize] = Owner { pid, level: 0, first: 0 };
        self.notes.push(Note::Taken(slot));
    }

    pub(super) fn given(&mut self, slot: u32) {
        self.notes.push(Note::Given(slot));
    }

    pub(super) fn drain(&mut self, out: &mut Vec<KernelEvent>) -> Lost {
        self.reported.drain(out)
    }

    /// A change of the entry at that address; the region begins at `base`.
    fn change(&self, base: u64, address: u64, what: What, entry: u64) -> Option<Change> {
        let offset = address - base;
        let owner = self.owners.get((offset >> 13) as usize).filter(|owner| owner.level > 0)?;
        let index = offset >> 3 & (Level::FANOUT - 1);
        Some(Change {
            what,
            pid: owner.pid,
            level: Level::new(owner.level)?,
            writable: entry & WRITABLE != 0,
            page: owner.first + (index << (9 * (owner.level - 1))),
            frame: true_frame(base, (entry & FRAME_MASK) >> 12),
            entry: address,
            reads: 0,
        })
    }

    /// Notes that an entry changes.
    pub(super) fn put(&mut self, base: u64, address: u64, (old, new): (u64, u64), reads: bool) {
        let changes = self.changes(base, address, old, new);
        self.notes.push(Note::Put { address, changes, reads });
    }

    /// Notes that an entry is read: now if `reads`, otherwise by an earlier walk.
    pub(in crate::exact) fn look(&mut self, base: u64, address: u64, reads: bool) {
        if let Some(change) = self.change(base, address, What::Look, 0) {
            self.notes.push(Note::Look { change: Change { reads: 1, ..change }, reads });
        }
    }

    /// The changes that turn entry `old` into `new`.
    fn changes(&self, base: u64, address: u64, old: u64, new: u64) -> [Option<Change>; 2] {
        let level = self.owners.get(((address - base) >> 13) as usize).map_or(0, |o| o.level);
        let maps = |entry: u64| entry != 0 && (level == 1 || entry & HUGE != 0);
        let change = |what, entry| self.change(base, address, what, entry);
        let same = maps(old) == maps(new) && (old ^ new) & FRAME_MASK == 0 && old != 0 && new != 0;
        if same {
            let what = if (old ^ new) & WRITABLE == 0 { What::Look } else { What::Flags };
            return [change(what, new), None];
        }
        let gone = (old != 0).then(|| if maps(old) { What::Unmap } else { What::NoTable });
        let come = (new != 0).then(|| if maps(new) { What::Map } else { What::Table });
        [gone.and_then(|what| change(what, old)), come.and_then(|what| change(what, new))]
    }
}
