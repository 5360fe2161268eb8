//! The reverse page table: which page an entry of the region maps, and how reads of the entry are
//! counted.
//!
//! Requests between two tags are only counted, by block. The counts are attributed to pages
//! (*settled*) when the mappings of the block change, or at the end. So a request costs one
//! addition, however many pages are mapped.

use std::collections::BTreeMap;

use tierscope_core::Result;
use tierscope_wire::ptat::{Change, Stage, What, Window};

use super::Request;
use super::counts::{Accesses, Misses, Page, PageMisses, SHARE};
use super::dump::DumpHeader;
use super::dump_reader::Group;

/// Maximum entries of a block.
pub(super) const ENTRIES: usize = 8;
/// log2 of the distance between the addresses of consecutive tags.
const TAG: u32 = 6;

/// A page that an entry maps, and its misses since it was mapped.
pub(super) type Mapped = (Page, PageMisses);

/// Entries that one request of the monitor covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// The page that each entry maps.
    pub(super) pages: [Option<Mapped>; ENTRIES],
    /// Number of entries that map a page.
    pub(super) mapped: u8,
    /// Bitmap of the entries that point to a table.
    pub(super) tables: u8,
}

impl Block {
    /// The pages mapped by its entries.
    pub fn pages(&self) -> impl Iterator<Item = &Page> {
        self.pages.iter().flatten().map(|(page, _)| page)
    }

    /// Number of pages mapped by its entries.
    #[must_use]
    pub fn mapped(&self) -> u8 {
        self.mapped
    }

    /// Whether an entry points to a table, so that reads may be steps of walks through that table.
    #[must_use]
    pub fn holds_tables(&self) -> bool {
        self.tables != 0
    }
}

/// Receives misses one by one.
pub trait Sink {
    /// Whether it receives any; false skips the calls.
    const LISTENS: bool = true;

    /// A read of a block with mapped pages. The few reads that the kernel later announces as no
    /// misses are included.
    fn miss(&mut self, ticks: u64, block: &Block);

    /// Exactly `reads` reads of a block were misses: those since the block last changed or was
    /// settled, up to the given group.
    #[inline(always)]
    fn settled(&mut self, _group: u64, _block: &Block, _reads: u64) {}
}

impl Sink for () {
    const LISTENS: bool = false;

    #[inline(always)]
    fn miss(&mut self, _: u64, _: &Block) {}
}

/// State of a parser.
pub struct Parser {
    region: Window,
    tags: Window,
    grain: u8,
    /// Reads of each block of the region since it was settled.
    pub(super) reads: Vec<u64>,
    /// For each block of the region: 1 + its index in `blocks`; 0 for none.
    places: Vec<u32>,
    /// For each page of the region: writes since its current content was placed there.
    pub(super) writes: Vec<u64>,
    /// Pages of the region that hold data, and the process's page that each holds.
    pub(super) data: BTreeMap<u32, Page>,
    pub(super) blocks: Vec<(u32, Block)>,
    /// Misses of pages that are no longer mapped, and the counts that belong to no page.
    pub(super) misses: Misses,
    /// Number of the next group.
    pub(super) next: u64,
}

impl Parser {
    /// A parser for such a dump, and for boards whose requests have 2^`grain` bytes.
    #[must_use]
    pub fn new(header: &DumpHeader, grain: u8) -> Self {
        let blocks = (header.region.bytes >> grain) as usize;
        Self {
            region: header.region,
            tags: header.tags,
            grain,
            reads: vec![0; blocks],
            places: vec![0; blocks],
            writes: vec![0; (header.region.bytes >> 12) as usize],
            data: BTreeMap::new(),
            blocks: Vec::new(),
            misses: Misses { entries: (1 << grain) / 8, ..Misses::default() },
            next: 0,
        }
    }

    /// Counts requests up to the first tag; returns their number, and the tag's.
    #[inline]
    pub fn take<S: Sink>(&mut self, requests: &[Request], sink: &mut S) -> (usize, Option<u64>) {
        match self.data.is_empty() {
            true => self.take_as::<S, false>(requests, sink),
            false => self.take_as::<S, true>(requests, sink),
        }
    }

    /// As [`Parser::take`]; `DATA`: pages of the region hold data, so that writes are counted by
    /// page.
    #[inline(always)]
    fn take_as<S: Sink, const DATA: bool>(
        &mut self,
        requests: &[Request],
        sink: &mut S,
    ) -> (usize, Option<u64>) {
        let Window { start, bytes } = self.region;
        let grain = u32::from(self.grain);
        for (at, request) in requests.iter().enumerate() {
            let offset = request.address().wrapping_sub(start);
            if offset < bytes {
                let block = (offset >> grain) as usize;
                let write = u64::from(request.is_write());
                self.reads[block] += 1 - write;
                match DATA {
                    true => self.writes[(offset >> 12) as usize] += write,
                    false => self.misses.writes += write,
                }
                if S::LISTENS && write == 0 {
                    self.pass(request.ticks, block, sink);
                }
            } else if !request.is_write() && self.tags.holds(request.address()) {
                let tag = (request.address() - self.tags.start) >> TAG;
                return (at + 1, Some(tag));
            }
        }
        (requests.len(), None)
    }

    #[inline]
    fn pass<S: Sink>(&self, ticks: u64, block: usize, sink: &mut S) {
        let Some(place) = self.places[block].checked_sub(1) else { return };
        let block = &self.blocks[place as usize].1;
        if block.mapped > 0 {
            sink.miss(ticks, block);
        }
    }

    /// How many groups a tag puts into effect: none if it was seen before. Tag numbers wrap around.
    pub fn due(&mut self, tag: u64) -> u64 {
        let numbers = self.tags.bytes >> TAG;
        let ahead = tag.wrapping_sub(self.next) & (numbers - 1);
        if ahead >= numbers / 2 {
            self.misses.tags[2] += 1;
            return 0;
        }
        self.misses.tags[0] += 1;
        self.misses.tags[1] += ahead;
        ahead + 1
    }

    /// Puts a group into effect.
    pub fn apply<S: Sink>(&mut self, group: &Group, sink: &mut S) {
        self.next = group.number + 1;
        self.misses.untold += group.lost;
        for (pid, stage) in &group.processes {
            match stage {
                Stage::Machine => _ = self.misses.machines.insert(*pid),
                Stage::Within(machine) => _ = self.misses.within.insert(*pid, *machine),
                Stage::Announced | Stage::Executes | Stage::Exited => {}
            }
        }
        for change in &group.changes {
            self.announce(change);
        }
        for change in &group.changes {
            self.change(change, sink);
        }
    }

    /// Subtracts the reads that the kernel announces as no misses; all of them precede the group's
    /// tag.
    fn announce(&mut self, change: &Change) {
        let Some(block) = self.block_of(change.entry) else { return };
        let counted = u64::from(change.reads);
        let seen = counted.min(self.reads[block]);
        self.reads[block] -= seen;
        self.misses.announced += seen;
        self.misses.unseen += counted - seen;
    }

    fn block_of(&self, entry: u64) -> Option<usize> {
        self.region.holds(entry).then(|| ((entry - self.region.start) >> self.grain) as usize)
    }

    fn change<S: Sink>(&mut self, change: &Change, sink: &mut S) {
        let maps = match change.what {
            What::Flags => return self.permission(change),
            What::Look => return,
            What::Place => return self.place_data(change, sink),
            What::Leave => return self.leave(change.frame, sink),
            What::Map | What::Table => true,
            What::Unmap | What::NoTable => false,
        };
        let Some(block) = self.block_of(change.entry) else {
            self.misses.outside += u64::from(change.what == What::Map);
            return;
        };
        self.settle(block, sink);
        let place = self.place(block);
        let state = &mut self.blocks[place].1;
        let at = (change.entry >> 3) as usize & ((1 << (self.grain - 3)) - 1);
        if matches!(change.what, What::Table | What::NoTable) {
            let bit = 1 << at;
            self.misses.conflicts += u64::from((state.tables & bit != 0) == maps);
            state.tables = if maps { state.tables | bit } else { state.tables & !bit };
            return;
        }
        let page = Page { pid: change.pid, level: change.level, number: change.page };
        let old = state.pages[at].take();
        let expected = if maps { None } else { Some(page) };
        self.misses.conflicts += u64::from(old.map(|(page, _)| page) != expected);
        if maps {
            state.pages[at] = Some((page, PageMisses::default()));
        }
        state.mapped += u8::from(maps);
        state.mapped -= u8::from(old.is_some());
        if let Some(old) = old {
            self.misses.keep(&old);
        }
    }

    /// The write permission of a page changed.
    fn permission(&mut self, change: &Change) {
        let page = Page { pid: change.pid, level: change.level, number: change.page };
        let [given, taken] = self.misses.permissions.entry(page).or_default();
        *(if change.writable { given } else { taken }) += 1;
    }

    /// A page of the region holds a process's data from now on.
    fn place_data<S: Sink>(&mut self, change: &Change, sink: &mut S) {
        let Some(frame) =
            u32::try_from(change.frame).ok().filter(|frame| (*frame as usize) < self.writes.len())
        else {
            self.misses.conflicts += 1;
            return;
        };
        self.leave(change.frame, sink);
        // Earlier requests, and those of the kernel, do not belong to the page.
        self.blocks_of(frame).for_each(|block| self.settle(block, sink));
        self.misses.writes += std::mem::take(&mut self.writes[frame as usize]);
        self.data.insert(frame, Page { pid: change.pid, level: change.level, number: change.page });
    }

    /// The page of the region no longer holds data.
    fn leave<S: Sink>(&mut self, frame: u64, sink: &mut S) {
        let Ok(frame) = u32::try_from(frame) else { return };
        let Some(page) = self.data.remove(&frame) else { return };
        let mut accesses =
            Accesses { reads: 0, writes: std::mem::take(&mut self.writes[frame as usize]) };
        for block in self.blocks_of(frame) {
            // Tables do not lie in pages of data, except in a damaged dump.
            let place = self.places[block].checked_sub(1);
            let state = place.map(|place| &self.blocks[place as usize].1);
            match state.is_some_and(|state| state.mapped > 0 || state.tables != 0) {
                false => accesses.reads += std::mem::take(&mut self.reads[block]),
                true => self.settle(block, sink),
            }
        }
        let kept = self.misses.watched.entry(page).or_default();
        (kept.reads, kept.writes) = (kept.reads + accesses.reads, kept.writes + accesses.writes);
    }

    /// The blocks of a page of the region.
    fn blocks_of(&self, frame: u32) -> std::ops::Range<usize> {
        let each = 1usize << (12 - self.grain);
        frame as usize * each..(frame as usize + 1) * each
    }

    fn place(&mut self, block: usize) -> usize {
        if self.places[block] == 0 {
            self.blocks.push((block as u32, Block::default()));
            self.places[block] = self.blocks.len() as u32;
        }
        self.places[block] as usize - 1
    }

    /// Attributes the reads of a block to its mapped pages.
    fn settle<S: Sink>(&mut self, block: usize, sink: &mut S) {
        let reads = std::mem::take(&mut self.reads[block]);
        if reads == 0 {
            return;
        }
        let Some(place) = self.places[block].checked_sub(1) else {
            self.misses.idle += reads;
            return;
        };
        let state = &mut self.blocks[place as usize].1;
        match (state.mapped, state.tables) {
            (0, 0) => self.misses.idle += reads,
            (0, _) => self.misses.upper += reads,
            (mapped, tables) => {
                sink.settled(self.next, state, reads);
                let share = reads * (SHARE / u64::from(mapped));
                for (_, misses) in state.pages.iter_mut().flatten() {
                    give(misses, mapped, tables, reads, share);
                }
            }
        }
    }

    /// Ends parsing; returns the misses of every page.
    #[must_use]
    pub fn finish<S: Sink>(mut self, sink: &mut S) -> Misses {
        let data: Vec<u32> = self.data.keys().copied().collect();
        data.into_iter().for_each(|frame| self.leave(frame.into(), sink));
        (0..self.reads.len()).for_each(|block| self.settle(block, sink));
        let mut misses = self.misses;
        misses.writes += self.writes.iter().sum::<u64>();
        let mut mapped: Vec<Mapped> = self
            .blocks
            .iter()
            .flat_map(|(_, block)| block.pages.iter().flatten())
            .copied()
            .collect();
        mapped.sort_unstable_by_key(|(page, _)| *page);
        if misses.pages.is_empty() && mapped.is_sorted_by(|a, b| a.0 < b.0) {
            misses.pages = mapped.into_iter().collect();
        } else {
            mapped.iter().for_each(|page| misses.keep(page));
        }
        misses
    }

    /// Restores the saved state of data in the region.
    pub(super) fn restore_data(
        &mut self,
        writes: &[(u32, u64)],
        data: BTreeMap<u32, Page>,
    ) -> Result<(), &'static str> {
        for (frame, count) in writes {
            *self.writes.get_mut(*frame as usize).ok_or("a page beyond the region")? = *count;
        }
        if data.keys().any(|frame| *frame as usize >= self.writes.len()) {
            return Err("a page beyond the region");
        }
        self.data = data;
        Ok(())
    }

    /// Restores the saved blocks and their reads.
    pub(super) fn restore(
        &mut self,
        next: u64,
        misses: Misses,
        blocks: Vec<(u32, Block)>,
        reads: &[(u32, u64)],
    ) -> Result<(), &'static str> {
        let entries = self.misses.entries;
        (self.next, self.misses) = (next, Misses { entries, ..misses });
        for (block, count) in reads {
            *self.reads.get_mut(*block as usize).ok_or("a block beyond the region")? = *count;
        }
        for (at, (block, _)) in blocks.iter().enumerate() {
            let place = self.places.get_mut(*block as usize).ok_or("a block beyond the region")?;
            *place = at as u32 + 1;
        }
        self.blocks = blocks;
        Ok(())
    }
}

fn give(misses: &mut PageMisses, mapped: u8, tables: u8, reads: u64, share: u64) {
    match (mapped, tables) {
        (1, 0) => misses.exact += reads,
        (_, 0) => misses.shared += share,
        _ => misses.mixed += share,
    }
}
