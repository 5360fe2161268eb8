//! Kernel events of tables in the uncached region, so that a bus monitor can interpret the walks'
//! reads there (PTAT, section 4.1.4), and the kernel's own accesses to the region.
//!
//! Changes are noted as they are made, and reported before any core runs on: first the kernel's
//! reads cross the bus, then the tag, then its writes. Nothing of this is on the path of an
//! ordinary access.

use std::collections::{BTreeMap, HashMap};

use tierscope_core::{BusObserver, Level, Lost, SpaceId};
use tierscope_hw::entry::{FRAME_MASK, HUGE, WRITABLE};
use tierscope_hw::{PageSize, Root};
use tierscope_wire::ptat::{Change, KernelEvent, Stage, What};

use super::log::Log;
use super::machine::Machine;
use crate::exact::Detail;

/// Lines of a page: the kernel clears a table before it uses it.
const LINES: u64 = 64;
const LINE: u64 = 64;
/// Nanoseconds between a tag and the records before and after it: fewer than a memory read takes,
/// and more than a monitor's tick (DDR3-800, 2.5 ns).
const FENCE: u64 = 10;

/// An operation of the kernel in the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Note {
    /// The kernel read the control blocks up to this slot in search of a free table, and cleared
    /// that table.
    Taken(u32),
    /// The kernel freed a table.
    Given(u32),
    /// It changed an entry; `looks` if it read it first. A page that is replaced by a table makes
    /// two changes.
    Put { address: u64, changes: [Option<Change>; 2], looks: bool },
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
pub(super) struct Watch {
    /// Pids of processes, by address of the top-level table.
    pids: BTreeMap<u64, u32>,
    owners: Vec<Owner>,
    pub(super) notes: Vec<Note>,
    told: Log<KernelEvent>,
    /// Number of the next tag.
    tag: u64,
}

impl Watch {
    pub(super) fn new(tables: u32) -> Self {
        Self {
            pids: BTreeMap::new(),
            owners: vec![Owner::default(); tables as usize],
            notes: Vec::new(),
            told: Log::with_room(1 << 24),
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

    pub(super) fn told(&mut self, out: &mut Vec<KernelEvent>) -> Lost {
        self.told.drain(out)
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
            frame: super::tables::true_frame(base, (entry & FRAME_MASK) >> 12),
            entry: address,
            reads: 0,
        })
    }

    /// Notes that an entry changes.
    pub(super) fn put(&mut self, base: u64, address: u64, (old, new): (u64, u64), looks: bool) {
        let changes = self.changes(base, address, old, new);
        self.notes.push(Note::Put { address, changes, looks });
    }

    /// Notes that an entry is read: now if `reads`, otherwise by an earlier walk.
    pub(super) fn look(&mut self, base: u64, address: u64, reads: bool) {
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

/// Walks of a core, page by page.
#[derive(Default)]
pub(super) struct Walks {
    pub(super) space: SpaceId,
    pub(super) counts: HashMap<(SpaceId, Level, u64), u64>,
}

impl Walks {
    #[inline(never)]
    pub(super) fn count(&mut self, linear: u64, size: PageSize) {
        let page = (linear & !(size.bytes() - 1)) >> 12;
        *self.counts.entry((self.space, size.level(), page)).or_default() += 1;
    }
}

impl<B: BusObserver> Machine<B> {
    /// Attributes the core's walks to a space from here on.
    pub(super) fn count_walks_of(&mut self, at: usize, space: SpaceId) {
        if let Some(walks) = &mut self.cpus[at].walks {
            walks.space = space;
        }
    }

    /// A walk of a core ended in a page fault: its reads in the region cross the bus.
    pub(super) fn faulting_walk(&mut self, at: usize) {
        if self.os.tables.watch.is_none() {
            return;
        }
        let reads = *self.cpus[at].mmu.last_reads();
        for address in reads.as_slice() {
            if self.os.tables.is_uncached(*address) {
                self.kernel_reads(at, *address);
            }
        }
        let last = reads.as_slice().last().filter(|read| self.os.tables.is_uncached(**read));
        let base = self.os.tables.region().start;
        if let (Some(watch), Some(last)) = (&mut self.os.tables.watch, last) {
            watch.look(base, *last, false);
        }
    }

    /// Reports the noted changes; a core pays for the kernel's accesses.
    #[inline]
    pub(super) fn tell_tables(&mut self, at: usize) {
        let Some(watch) = &self.os.tables.watch else { return };
        if !watch.notes.is_empty() {
            self.tell_notes(at);
        }
    }

    #[cold]
    fn tell_notes(&mut self, at: usize) {
        let Some(watch) = &mut self.os.tables.watch else { return };
        let mut notes = std::mem::take(&mut watch.notes);
        let mut writes = Vec::new();
        for note in &notes {
            self.tell_note(at, note, &mut writes);
        }
        notes.clear();
        let Some(watch) = &mut self.os.tables.watch else { return };
        watch.notes = notes;
        let tag = watch.tag;
        watch.tag += 1;
        watch.told.push(KernelEvent::Tag(tag));
        let tags = self.os.tables.tags();
        self.memory.bus.pause(FENCE);
        self.kernel_reads(at, tags.start + tag % (tags.bytes / LINE) * LINE);
        self.memory.bus.pause(FENCE);
        for address in writes {
            self.kernel_writes(at, address);
        }
    }

    fn tell_note(&mut self, at: usize, note: &Note, writes: &mut Vec<u64>) {
        let base = self.os.tables.region().start;
        let control = |slot: u32| base + (u64::from(slot) << 13);
        match *note {
            Note::Taken(slot) => {
                (0..=slot).for_each(|before| self.kernel_reads(at, control(before)));
                self.kernel_writes(at, control(slot));
                let table = control(slot) + 4096;
                (0..LINES).for_each(|line| self.kernel_writes(at, table + line * LINE));
            }
            Note::Given(slot) => self.kernel_writes(at, control(slot)),
            Note::Put { address, changes, looks } => {
                if looks {
                    self.kernel_reads(at, address);
                }
                let reads = u8::from(looks);
                for (reads, change) in [reads, 0].into_iter().zip(changes.into_iter().flatten()) {
                    self.tell(KernelEvent::Change(Change { reads, ..change }));
                    if let Some(placed) = self.placed(change) {
                        self.tell(KernelEvent::Change(placed));
                    }
                }
                writes.push(address);
            }
            Note::Look { change, reads } => {
                if reads {
                    self.kernel_reads(at, change.entry);
                }
                self.tell(KernelEvent::Change(change));
            }
            Note::Process { pid, stage } => {
                self.tell(KernelEvent::Process { pid, stage });
            }
        }
    }

    /// The placement or removal of a page's data in the region that a change implies, if any.
    fn placed(&self, change: Change) -> Option<Change> {
        let what = match change.what {
            What::Map => What::Place,
            What::Unmap => What::Leave,
            _ => return None,
        };
        let region = self.os.tables.region();
        let inside = region.holds(change.frame << 12);
        let frame = change.frame.wrapping_sub(region.start >> 12);
        inside.then_some(Change { what, frame, reads: 0, ..change })
    }

    fn tell(&mut self, told: KernelEvent) {
        if let Some(watch) = &mut self.os.tables.watch {
            watch.told.push(told);
        }
    }

    /// The kernel reads uncached memory; the core waits for it.
    fn kernel_reads(&mut self, at: usize, address: u64) {
        let cpu = &mut self.cpus[at];
        match self.detail {
            Detail::Whole => {
                cpu.time += self.memory.read::<true>(cpu.time, address, at).time();
            }
            _ => _ = self.memory.read::<false>(cpu.time, address, at),
        }
    }

    /// The kernel writes uncached memory, without waiting.
    fn kernel_writes(&mut self, at: usize, address: u64) {
        let now = self.cpus[at].time;
        match self.detail {
            Detail::Whole => _ = self.memory.write::<true>(now, address, at),
            _ => _ = self.memory.write::<false>(now, address, at),
        }
    }
}
