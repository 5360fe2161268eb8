//! A toy machine: writes its events to boards and a dump, and counts them naively.

use std::collections::BTreeMap;

use tierscope_core::{Level, Rng};
use tierscope_tlb::ptat::{
    BoardReader, BoardWriter, BusHeader, Capture, Change, Damage, DumpHeader, DumpReader,
    DumpWriter, KernelEvent, Misses, Stage, What, Window,
};

pub(crate) const REGION: Window = Window { start: 1 << 40, bytes: 1 << 20 };
pub(crate) const TAGS: Window = Window { start: 1 << 39, bytes: 4096 };

/// The files of a capture, in memory.
#[derive(Clone)]
pub(crate) struct Bytes {
    pub(crate) boards: Vec<Vec<u8>>,
    pub(crate) dump: Vec<u8>,
}

/// Writes the boards' streams and the dump.
pub(crate) struct Monitor {
    boards: Vec<BoardWriter<Vec<u8>>>,
    dump: DumpWriter<Vec<u8>>,
    pub(crate) ticks: u64,
    tag: u64,
}

impl Monitor {
    pub(crate) fn new(boards: u8, grain: u8, record: u8) -> Self {
        let header = |board| BusHeader { board, boards, grain, tick_ps: 1250, start: 1 << 39 };
        let writer = |board| BoardWriter::new("board", Vec::new(), header(board)).unwrap();
        let dump = DumpHeader { record, region: REGION, tags: TAGS };
        Self {
            boards: (0..boards).map(writer).collect(),
            dump: DumpWriter::new("dump", Vec::new(), dump).unwrap(),
            ticks: 1 << 39,
            tag: 0,
        }
    }

    /// A request, on the board of its cache line.
    pub(crate) fn request(&mut self, address: u64, write: bool) {
        let board = (address >> 6) as usize % self.boards.len();
        self.boards[board].request(self.ticks, address, write).unwrap();
    }

    /// Dumps changes, which take effect now.
    pub(crate) fn tell(&mut self, changes: &[Change]) {
        changes.iter().for_each(|change| self.dump.record(&KernelEvent::Change(*change)).unwrap());
        self.dump.record(&KernelEvent::Tag(self.tag)).unwrap();
        let address = TAGS.start + self.tag * 64 % TAGS.bytes;
        // A read takes longer than a tick: no other request has a tag's tick.
        self.ticks += 1;
        self.request(address, false);
        self.ticks += 1;
        self.tag += 1;
    }

    pub(crate) fn process(&mut self, pid: u32, stage: Stage) {
        self.dump.record(&KernelEvent::Process { pid, stage }).unwrap();
    }

    pub(crate) fn lose(&mut self, board: usize) {
        self.boards[board].lose();
    }

    pub(crate) fn finish(self) -> Bytes {
        Bytes {
            boards: self.boards.into_iter().map(|board| board.finish().unwrap()).collect(),
            dump: self.dump.finish().unwrap(),
        }
    }
}

/// Opens an in-memory capture.
pub(crate) fn open(bytes: &Bytes) -> tierscope_core::Result<Capture<&[u8]>> {
    let boards: Result<Vec<_>, _> =
        bytes.boards.iter().map(|board| BoardReader::new("board", &board[..])).collect();
    Capture::of(boards?, DumpReader::new("dump", &bytes.dump[..])?)
}

pub(crate) fn parse(bytes: &Bytes) -> (Misses, Damage) {
    let mut capture = open(bytes).unwrap();
    while capture.step(&mut ()) {}
    capture.finish()
}

/// A change of an entry, given by its number in the region.
pub(crate) fn change(what: What, pid: u32, entry: u64, page: u64, reads: u8) -> Change {
    let entry = REGION.start + entry * 8;
    let (level, frame) = (Level::PTE, page & 0xff);
    Change { what, pid, level, writable: true, page, frame, entry, reads }
}

/// Expected counts, by a naive observer.
#[derive(Default)]
pub(crate) struct Naive {
    /// Process and page that each entry maps.
    mapped: BTreeMap<u64, (u32, u64)>,
    /// Reads of blocks with mapped pages, by process and number of the block of pages.
    pub(crate) blocks: BTreeMap<(u32, Level, u64), u64>,
    pub(crate) writes: u64,
    pub(crate) announced: u64,
    pub(crate) idle: u64,
}

/// Random mappings, walks, faults and unrelated traffic. Tables of 512 entries alternate between
/// processes.
pub(crate) fn random(monitor: &mut Monitor, seed: u64, steps: u64, entries: u64) -> Naive {
    let mut rng = Rng::seeded(seed);
    let mut naive = Naive::default();
    for _ in 0..steps {
        monitor.ticks += [0, 1, 7, 5000][rng.below(4) as usize];
        match rng.below(20) {
            0..4 => remap(monitor, &mut naive, &mut rng),
            4 => monitor.request(rng.below(1 << 30), rng.below(2) == 0),
            5 => {
                naive.writes += 1;
                monitor.request(REGION.start + rng.below(2048) * 8, true);
            }
            6 => {
                naive.idle += 1;
                monitor.request(REGION.start + (64 << 10) + rng.below(512) * 8, false);
            }
            _ => walk(monitor, &mut naive, &mut rng, entries),
        }
    }
    naive
}

fn walk(monitor: &mut Monitor, naive: &mut Naive, rng: &mut Rng, entries: u64) {
    if naive.mapped.is_empty() {
        return;
    }
    let (entry, (pid, page)) =
        naive.mapped.iter().nth(rng.below(naive.mapped.len() as u64) as usize).unwrap();
    monitor.request(REGION.start + entry * 8, false);
    *naive.blocks.entry((*pid, Level::PTE, page / entries)).or_default() += 1;
}

/// Toggles the mappings of random entries, and dumps that with reads that are no misses.
fn remap(monitor: &mut Monitor, naive: &mut Naive, rng: &mut Rng) {
    let mut changes = Vec::new();
    for _ in 0..=rng.below(3) {
        let entry = rng.below(2048);
        if changes.iter().any(|change: &Change| change.entry == REGION.start + entry * 8) {
            continue;
        }
        let reads = rng.below(3) as u8;
        (0..reads).for_each(|_| monitor.request(REGION.start + entry * 8, false));
        naive.announced += u64::from(reads);
        let table = entry / 512;
        changes.push(match naive.mapped.remove(&entry) {
            Some((pid, page)) => change(What::Unmap, pid, entry, page, reads),
            None => {
                // Each table belongs to one process, and maps 2 MiB of it.
                let pid = 1 + (table % 2) as u32;
                let page = (table + 7) * 512 + entry % 512;
                naive.mapped.insert(entry, (pid, page));
                change(What::Map, pid, entry, page, reads)
            }
        });
    }
    if rng.below(4) == 0 {
        changes.push(change(What::Look, 1, rng.below(2048), 0, 0));
    }
    monitor.tell(&changes);
}

/// An access to data in a page of the region; every third is a write.
pub(crate) fn touch_data(monitor: &mut Monitor, frame: u64, at: u64) {
    monitor.ticks += 3;
    monitor.request(REGION.start + (frame << 12) + at * 8 % 4096, at.is_multiple_of(3));
}
