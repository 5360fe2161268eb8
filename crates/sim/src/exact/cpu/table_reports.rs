//! Reports of the kernel's accesses to the uncached region, paid for by a core.

use tierscope_core::BusObserver;
use tierscope_wire::ptat::{Change, KernelEvent, What};

use crate::exact::mm::Note;
use crate::exact::units::LINE;
use crate::exact::{Detail, Machine};

/// Lines of a page: the kernel clears a table before it uses it.
const LINES: u64 = 64;

/// Nanoseconds between a tag and the records before and after it: fewer than a memory read takes,
/// and more than a monitor's tick (DDR3-800, 2.5 ns).
const FENCE: u64 = 10;

impl<B: BusObserver> Machine<B> {
    /// A walk of a core ended in a page fault: its reads in the region cross the bus.
    pub(super) fn faulting_walk(&mut self, at: usize) {
        if self.os.tables.events.is_none() {
            return;
        }
        let reads = *self.cpus[at].mmu.last_reads();
        for address in reads.as_slice() {
            if self.os.tables.layout.is_uncached(*address) {
                self.kernel_reads(at, *address);
            }
        }
        let last = reads.as_slice().last().filter(|read| self.os.tables.layout.is_uncached(**read));
        let base = self.os.tables.layout.region().start;
        if let (Some(events), Some(last)) = (&mut self.os.tables.events, last) {
            events.look(base, *last, false);
        }
    }

    /// Reports the noted changes; a core pays for the kernel's accesses.
    #[inline]
    pub(in crate::exact) fn report_table_events(&mut self, at: usize) {
        let Some(events) = &self.os.tables.events else { return };
        if !events.notes.is_empty() {
            self.report_notes(at);
        }
    }

    #[cold]
    fn report_notes(&mut self, at: usize) {
        let Some(events) = &mut self.os.tables.events else { return };
        let mut notes = std::mem::take(&mut events.notes);
        let mut writes = Vec::new();
        for note in &notes {
            self.report_note(at, note, &mut writes);
        }
        notes.clear();
        let Some(events) = &mut self.os.tables.events else { return };
        events.notes = notes;
        let tag = events.tag;
        events.tag += 1;
        events.reported.push(KernelEvent::Tag(tag));
        let tags = self.os.tables.layout.tags();
        self.memory.bus.pause(FENCE);
        self.kernel_reads(at, tags.start + tag % (tags.bytes / LINE) * LINE);
        self.memory.bus.pause(FENCE);
        for address in writes {
            self.kernel_writes(at, address);
        }
    }

    fn report_note(&mut self, at: usize, note: &Note, writes: &mut Vec<u64>) {
        let base = self.os.tables.layout.region().start;
        let control = |slot: u32| base + (u64::from(slot) << 13);
        match *note {
            Note::Taken(slot) => {
                (0..=slot).for_each(|before| self.kernel_reads(at, control(before)));
                self.kernel_writes(at, control(slot));
                let table = control(slot) + 4096;
                (0..LINES).for_each(|line| self.kernel_writes(at, table + line * LINE));
            }
            Note::Given(slot) => self.kernel_writes(at, control(slot)),
            Note::Put { address, changes, reads } => {
                if reads {
                    self.kernel_reads(at, address);
                }
                let reads = u8::from(reads);
                for (reads, change) in [reads, 0].into_iter().zip(changes.into_iter().flatten()) {
                    self.report(KernelEvent::Change(Change { reads, ..change }));
                    if let Some(placed) = self.placed(change) {
                        self.report(KernelEvent::Change(placed));
                    }
                }
                writes.push(address);
            }
            Note::Look { change, reads } => {
                if reads {
                    self.kernel_reads(at, change.entry);
                }
                self.report(KernelEvent::Change(change));
            }
            Note::Process { pid, stage } => {
                self.report(KernelEvent::Process { pid, stage });
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
        let region = self.os.tables.layout.region();
        let inside = region.holds(change.frame << 12);
        let frame = change.frame.wrapping_sub(region.start >> 12);
        inside.then_some(Change { what, frame, reads: 0, ..change })
    }

    fn report(&mut self, told: KernelEvent) {
        if let Some(events) = &mut self.os.tables.events {
            events.reported.push(told);
        }
    }

    /// The kernel reads uncached memory; the core waits for it.
    fn kernel_reads(&mut self, at: usize, address: u64) {
        let cpu = &mut self.cpus[at];
        match self.detail {
            Detail::Whole => {
                cpu.time += self.memory.read::<true>((cpu.time, cpu.time), address, at).time();
            }
            _ => _ = self.memory.read::<false>((cpu.time, cpu.time), address, at),
        }
    }

    /// The kernel writes uncached memory, without waiting.
    fn kernel_writes(&mut self, at: usize, address: u64) {
        let now = self.cpus[at].time;
        match self.detail {
            Detail::Whole => _ = self.memory.write::<true>((now, now), address, at),
            _ => _ = self.memory.write::<false>((now, now), address, at),
        }
    }
}
