//! Converts page walks with known page and entry into a capture: TLB misses recorded by the
//! instrumented virtual machine then take the same parser as a bus monitor's streams.
//!
//! Each walk becomes a read of its entry. If the entry's mapping is new or changed, a dump record
//! and a tag precede the read, in place of the kernel's announcement.

use std::collections::{BTreeMap, HashMap};
use std::io::Write;

use tierscope_core::{Error, ErrorKind, Result};
use tierscope_wire::TlbMiss;
use tierscope_wire::ptat::{Change, KernelEvent, Stage, What, Window};

use super::bus::BusHeader;
use super::dump::DumpHeader;
use super::write::{BoardWriter, DumpWriter};

/// Bits of an entry: the frame, and the write permission (Intel SDM volume 3, section 4.5).
const FRAME: u64 = 0x000f_ffff_ffff_f000;
const WRITABLE: u64 = 2;
/// A tick is 1 ns, the unit of recorded walks.
const TICK_PS: u32 = 1000;
/// A tag window beyond all memory.
pub(super) const TAGS: Window = Window { start: 1 << 46, bytes: 1 << 20 };
/// Distance between the addresses of consecutive tags.
const TAG: u64 = 64;
/// Limit on the physical range that the entries of a capture span.
const MOST_REGION: u64 = 1 << 30;

/// Writes a capture of one board from walks in order of time.
pub struct WalkWriter<W: Write> {
    board: BoardWriter<W>,
    dump: DumpWriter<W>,
    region: Window,
    /// Last mapping of each entry.
    known: HashMap<u64, Change>,
    /// Number of each address space by its top table, in order of appearance.
    pids: BTreeMap<u64, u32>,
    tag: u64,
    /// Number of walks whose entries lie outside of the region.
    outside: u64,
}

impl<W: Write> WalkWriter<W> {
    /// Begins a capture of entries from `first` to `last`; requests have 2^`grain` bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Data`] if they lie too far apart; I/O errors.
    pub fn new(
        (first, last): (u64, u64),
        grain: u8,
        mut open: impl FnMut(Option<u8>) -> Result<(String, W)>,
    ) -> Result<Self> {
        let start = first & !4095;
        let bytes = (last + 1).saturating_sub(start).next_multiple_of(4096);
        if last < first || bytes > MOST_REGION {
            let cause = format!("entries from {first:#x} to {last:#x}: a region has 1 GiB at most");
            return Err(Error::new(ErrorKind::Data, "cannot make a capture of these walks")
                .cause(cause)
                .remedy("record on a machine with less memory"));
        }
        let region = Window { start, bytes };
        let (name, out) = open(Some(0))?;
        let header = BusHeader { board: 0, boards: 1, grain, tick_ps: TICK_PS, start: 0 };
        let board = BoardWriter::new(&name, out, header)?;
        let (name, out) = open(None)?;
        // Pages may lie beyond 64 GiB even if their entries do not.
        let header = DumpHeader { record: 14, region, tags: TAGS };
        let dump = DumpWriter::new(&name, out, header)?;
        let (known, pids) = (HashMap::new(), BTreeMap::new());
        Ok(Self { board, dump, region, known, pids, tag: 0, outside: 0 })
    }

    /// The number of an address space in the capture.
    #[must_use]
    pub fn pid(&self, root: u64) -> Option<u32> {
        self.pids.get(&root).copied()
    }

    /// Appends a walk, and the entry that it ended at.
    ///
    /// # Errors
    /// I/O errors.
    pub fn walk(&mut self, miss: &TlbMiss, entry: u64) -> Result<()> {
        if !self.region.holds(miss.entry) {
            self.outside += 1;
            return Ok(());
        }
        let next = self.pids.len() as u32 + 1;
        let fresh = !self.pids.contains_key(&miss.root);
        let pid = *self.pids.entry(miss.root).or_insert(next);
        let change = change(miss, entry, pid);
        let old = self.known.get(&miss.entry).copied();
        if old.is_none_or(|old| !same(&old, &change)) {
            if fresh {
                self.dump.record(&KernelEvent::Process { pid, stage: Stage::Announced })?;
            }
            if let Some(old) = old {
                self.dump.record(&KernelEvent::Change(Change { what: What::Unmap, ..old }))?;
            }
            self.dump.record(&KernelEvent::Change(change))?;
            self.dump.record(&KernelEvent::Tag(self.tag))?;
            let address = TAGS.start + self.tag % (TAGS.bytes / TAG) * TAG;
            self.board.request(miss.time.0, address, false)?;
            self.tag += 1;
            self.known.insert(miss.entry, change);
        }
        self.board.request(miss.time.0, miss.entry, false)
    }

    /// Ends the capture; returns its files, the board's first, and the number of skipped walks,
    /// whose entries lie outside of the region.
    ///
    /// # Errors
    /// I/O errors.
    pub fn finish(self) -> Result<(W, W, u64)> {
        Ok((self.board.finish()?, self.dump.finish()?, self.outside))
    }
}

fn change(miss: &TlbMiss, entry: u64, pid: u32) -> Change {
    let pages = miss.level.entry_bytes() >> 12;
    Change {
        what: What::Map,
        pid,
        level: miss.level,
        writable: entry & WRITABLE != 0,
        page: (miss.address >> 12) & ((1 << 40) - 1) & !(pages - 1),
        frame: (entry & FRAME) >> 12 & !(pages - 1),
        entry: miss.entry,
        reads: 0,
    }
}

fn same(old: &Change, new: &Change) -> bool {
    (old.pid, old.level, old.page, old.frame) == (new.pid, new.level, new.page, new.frame)
}

#[cfg(test)]
mod tests {
    use super::super::{BoardReader, Capture, DumpReader};
    use super::*;
    use tierscope_core::{Level, Time};

    fn miss(time: u64, page: u64, entry: u64, root: u64) -> TlbMiss {
        let (address, level) = (page << 12 | 0x123, Level::PTE);
        TlbMiss { time: Time(time), address, entry, level, root, cpu: 0 }
    }

    // Page 5 twice, then remapped to another frame by the same entry; page 6 of another address
    // space; a 2 MiB page.
    #[test]
    fn walks_come_back_page_by_page() {
        let mut writer = WalkWriter::new((0x1000, 0x5008), 6, |_| Ok((String::new(), Vec::new())))
            .expect("memory");
        for (miss, entry) in [
            (miss(10, 5, 0x1028, 0x9000), 0x7000 | 7),
            (miss(10, 5, 0x1028, 0x9000), 0x7000 | 7),
            (miss(20, 5, 0x1028, 0x9000), 0x8000 | 7),
            (miss(20, 6, 0x3030, 0xa000), 0x7000 | 5),
            (TlbMiss { level: Level::PMD, ..miss(30, 513, 0x5008, 0xa000) }, 0x20_0000 | 0x87),
            (miss(40, 9, 0xf_0000, 0xa000), 7),
        ] {
            writer.walk(&miss, entry).expect("memory");
        }
        assert_eq!(
            (writer.pid(0x9000), writer.pid(0xa000), writer.pid(1)),
            (Some(1), Some(2), None)
        );
        let (board, dump, outside) = writer.finish().expect("memory");
        assert_eq!(outside, 1);
        let board = BoardReader::new("board", &board[..]).expect("ours");
        let mut capture =
            Capture::of(vec![board], DumpReader::new("dump", &dump[..]).expect("ours"))
                .expect("one");
        while capture.step(&mut ()) {}
        let (misses, damage) = capture.finish();
        assert_eq!((damage.count, misses.is_exact()), (0, true));
        let found: Vec<(u32, u64, u64, u64)> = misses
            .pages
            .iter()
            .map(|(page, counts)| (page.pid, page.start(), page.bytes(), counts.exact))
            .collect();
        let huge = 2 << 20;
        assert_eq!(found, [(1, 0x5000, 4096, 3), (2, 0x6000, 4096, 1), (2, huge, huge, 1)]);
    }

    #[test]
    fn entries_far_apart_are_refused() {
        let open = |_| Ok((String::new(), Vec::new()));
        let error = WalkWriter::new((0x1000, 1 << 31), 6, open).err().expect("2 GiB").to_string();
        assert!(error.contains("a region has 1 GiB at most"), "{error}");
    }
}
