//! The reverse page table: which page an entry of the region maps, and what reads of it mean.
//!
//! Requests between two tags are only counted, block by block; what they were is known when the mappings of their block
//! change, or at the end. So a request costs one addition, whatever is mapped.

use std::collections::BTreeMap;

use tierscope_core::Result;
use tierscope_wire::ptat::{Change, Stage, What, Window};

use super::Request;
use super::counts::{Accesses, Misses, Page, PageMisses, SHARE};
use super::dump::DumpHeader;
use super::dump_reader::Group;

/// Entries of a block, at most.
pub(super) const ENTRIES: usize = 8;
/// log2 of the bytes from one tag to the next.
const TAG: u32 = 6;

/// A page that an entry maps, and its misses since.
pub(super) type Mapped = (Page, PageMisses);

/// Entries that one request of the monitor covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// What they map.
    pub(super) pages: [Option<Mapped>; ENTRIES],
    /// How many of them map a page.
    pub(super) mapped: u8,
    /// A bit for each that points to a table.
    pub(super) tables: u8,
}

impl Block {
    /// The pages that its entries map.
    pub fn pages(&self) -> impl Iterator<Item = &Page> {
        self.pages.iter().flatten().map(|(page, _)| page)
    }

    /// How many pages its entries map.
    #[must_use]
    pub fn mapped(&self) -> u8 {
        self.mapped
    }

    /// Whether an entry points to a table, so that reads may be steps of walks to others.
    #[must_use]
    pub fn holds_tables(&self) -> bool {
        self.tables != 0
    }
}

/// Hears of misses one by one.
pub trait Sink {
    /// Whether it wants to.
    const LISTENS: bool = true;

    /// A read of a block in which pages are mapped. The few that the kernel announces afterwards are among them.
    fn miss(&mut self, ticks: u64, block: &Block);

    /// So many reads of a block were misses, no more and no fewer: those since something in it changed, or since this was told
    /// of it last, up to the group of that number.
    #[inline(always)]
    fn settled(&mut self, _group: u64, _block: &Block, _reads: u64) {}
}

impl Sink for () {
    const LISTENS: bool = false;

    #[inline(always)]
    fn miss(&mut self, _: u64, _: &Block) {}
}

/// The state of parsing.
pub struct Parser {
    region: Window,
    tags: Window,
    grain: u8,
    /// By block of the region: reads since it was settled.
    pub(super) reads: Vec<u64>,
    /// By block: where it is in `blocks`, and one; 0 for nowhere.
    places: Vec<u32>,
    /// By page of the region: writes since what lies there came.
    pub(super) writes: Vec<u64>,
    /// Pages of the region that hold data of a process's page.
    pub(super) data: BTreeMap<u32, Page>,
    pub(super) blocks: Vec<(u32, Block)>,
    /// Of pages that are mapped no longer, and what is not of a page.
    pub(super) misses: Misses,
    /// The number of the group that is to come.
    pub(super) next: u64,
}

impl Parser {
    /// For a dump of that kind, and boards whose requests have 2^`grain` bytes.
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

    /// Takes requests up to the first tag; how many there were, and what the tag says.
    #[inline]
    pub fn take<S: Sink>(&mut self, requests: &[Request], sink: &mut S) -> (usize, Option<u64>) {
        match self.data.is_empty() {
            true => self.take_as::<S, false>(requests, sink),
            false => self.take_as::<S, true>(requests, sink),
        }
    }

    /// As [`Parser::take`]; whether pages of the region hold data, whose writes are told apart.
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
                    self.tell(request.ticks, block, sink);
                }
            } else if !request.is_write() && self.tags.holds(request.address()) {
                let tag = (request.address() - self.tags.start) >> TAG;
                return (at + 1, Some(tag));
            }
        }
        (requests.len(), None)
    }

    #[inline]
    fn tell<S: Sink>(&self, ticks: u64, block: usize, sink: &mut S) {
        let Some(place) = self.places[block].checked_sub(1) else { return };
        let block = &self.blocks[place as usize].1;
        if block.mapped > 0 {
            sink.miss(ticks, block);
        }
    }

    /// How many groups a tag brings into force: none if it came already. Numbers of tags come round.
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

    /// What a group says is in force from here on.
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

    /// Reads that were no misses: all of them came before the group's tag.
    fn announce(&mut self, change: &Change) {
        let Some(block) = self.block_of(change.entry) else { return };
        let told = u64::from(change.reads);
        let seen = told.min(self.reads[block]);
        self.reads[block] -= seen;
        self.misses.announced += seen;
        self.misses.unseen += told - seen;
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

    /// A page may be written to from now on, or not any more.
    fn permission(&mut self, change: &Change) {
        let page = Page { pid: change.pid, level: change.level, number: change.page };
        let [given, taken] = self.misses.permissions.entry(page).or_default();
        *(if change.writable { given } else { taken }) += 1;
    }

    /// A page of the region holds a process's data from here on.
    fn place_data<S: Sink>(&mut self, change: &Change, sink: &mut S) {
        let Some(frame) =
            u32::try_from(change.frame).ok().filter(|frame| (*frame as usize) < self.writes.len())
        else {
            self.misses.conflicts += 1;
            return;
        };
        self.leave(change.frame, sink);
        // What was there before, and what the kernel did to it, is none of the page's.
        self.blocks_of(frame).for_each(|block| self.settle(block, sink));
        self.misses.writes += std::mem::take(&mut self.writes[frame as usize]);
        self.data.insert(frame, Page { pid: change.pid, level: change.level, number: change.page });
    }

    /// It holds them no longer.
    fn leave<S: Sink>(&mut self, frame: u64, sink: &mut S) {
        let Ok(frame) = u32::try_from(frame) else { return };
        let Some(page) = self.data.remove(&frame) else { return };
        let mut accesses =
            Accesses { reads: 0, writes: std::mem::take(&mut self.writes[frame as usize]) };
        for block in self.blocks_of(frame) {
            // Tables do not lie in pages of data; a damaged dump may say so.
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

    /// Blocks of a page of the region.
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

    /// Gives the reads of a block to whom they belong.
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

    /// Ends parsing: what every page had.
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

    /// Puts back what was saved of data in the region.
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

    /// Puts back what was saved: blocks with their reads.
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
