//! A naive kernel's memory management: one rule after another over plain maps.

use std::collections::BTreeSet;

use tierscope_core::{AccessedSet, Level, Range, ScanMode};
use tierscope_hw::config::PageSize;
use tierscope_hw::entry::{ACCESSED, DIRTY, FRAME_MASK, GLOBAL, HUGE, PRESENT, WRITABLE};
use tierscope_hw::{Asid, Root};
use tierscope_sim::exact::{Denied, Watermarks};

use crate::naive_mmu::{Memory, slot};

/// The frames of a tier, one by one.
struct Pool {
    first: u64,
    free: Vec<bool>,
    /// Number of free frames in each block of 512.
    blocks: Vec<u32>,
    count: u64,
    marks: Watermarks,
}

impl Pool {
    fn new(first: u64, frames: u64, all: u64) -> Self {
        let blocks = vec![512; (frames / 512) as usize];
        let free = vec![true; frames as usize];
        let marks = Watermarks::of(frames, all, 10, None);
        Self { first, free, blocks, count: frames, marks }
    }

    /// The lowest page that fits; a small one from a broken block, if there is one.
    fn take(&mut self, size: PageSize) -> Option<u64> {
        let frames = size.bytes() / 4096;
        let start = match size {
            PageSize::K4 => {
                let broken = self.blocks.iter().position(|free| (1..512).contains(free));
                let block = broken.or_else(|| self.blocks.iter().position(|free| *free == 512))?;
                let within = self.free[block * 512..][..512].iter().position(|free| *free)?;
                block * 512 + within
            }
            PageSize::M2 => self.blocks.iter().position(|free| *free == 512)? * 512,
            PageSize::G1 => {
                let groups = self.blocks.chunks_exact(512);
                let whole = |group: &[u32]| group.iter().all(|free| *free == 512);
                groups.enumerate().find(|(_, group)| whole(group))?.0 * 512 * 512
            }
        };
        self.set(start as u64, frames, false);
        Some(self.first + start as u64)
    }

    fn set(&mut self, start: u64, frames: u64, free: bool) {
        for frame in start..start + frames {
            assert_ne!(self.free[frame as usize], free, "taken or given twice");
            self.free[frame as usize] = free;
            let block = &mut self.blocks[frame as usize / 512];
            *block = if free { *block + 1 } else { *block - 1 };
        }
        self.count = if free { self.count + frames } else { self.count - frames };
    }
}

/// Allocator of table numbers.
#[derive(Default)]
struct Numbers(BTreeSet<u64>);

impl Numbers {
    fn take(&mut self) -> u64 {
        let number = (0..).find(|number| !self.0.contains(number)).expect("there are enough");
        self.0.insert(number);
        number
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Vma {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) pages: PageSize,
    pub(crate) writable: bool,
}

pub(crate) struct Space {
    pub(crate) root: Root,
    pub(crate) vmas: Vec<Vma>,
    pub(crate) cpus: BTreeSet<usize>,
    pub(crate) alive: bool,
}

/// A shootdown: the range, the number of its changed pages, and the smallest of them.
pub(crate) type Stale = (Range, u64, PageSize);

/// An entry that ended a walk.
#[derive(Clone, Copy)]
struct Leaf {
    level: u8,
    at: u64,
    entry: u64,
    linear: u64,
}

impl Leaf {
    fn bytes(&self) -> u64 {
        bytes_of(self.level)
    }

    fn size(&self) -> PageSize {
        PageSize::ALL[usize::from(self.level) - 1]
    }
}

fn bytes_of(level: u8) -> u64 {
    4096 * 512u64.pow(u32::from(level) - 1)
}

fn is_leaf(level: u8, entry: u64) -> bool {
    entry != 0 && (level == 1 || entry & HUGE != 0)
}

fn is_table(level: u8, entry: u64) -> bool {
    entry & PRESENT != 0 && !is_leaf(level, entry)
}

pub(crate) struct NaiveOs {
    pub(crate) memory: Memory,
    pub(crate) spaces: Vec<Space>,
    pools: [Pool; 2],
    levels: u8,
    quarter: u64,
    leaves: Numbers,
    upper: Numbers,
    asids: Numbers,
    table_blocks: u64,
}

impl NaiveOs {
    pub(crate) fn new(levels: u8, bits: u32, mib: [u64; 2]) -> Self {
        let first = (mib[0] * 256).next_multiple_of(1 << 18);
        let [fast, slow] = mib.map(|mib| mib * 256);
        let all = fast + slow;
        let mut pools = [Pool::new(0, fast, all), Pool::new(first, slow, all)];
        pools[0].take(PageSize::K4);
        let mut asids = Numbers::default();
        asids.take();
        Self {
            memory: Memory::default(),
            spaces: Vec::new(),
            pools,
            levels,
            quarter: 1 << (bits - 2),
            leaves: Numbers::default(),
            upper: Numbers::default(),
            asids,
            table_blocks: 0,
        }
    }

    pub(crate) fn spawn(&mut self) {
        let table = self.new_table(2);
        let asid = Asid::new(self.asids.take() as u16).expect("few");
        let root = Root { table, asid };
        self.spaces.push(Space { root, vmas: vec![], cpus: BTreeSet::new(), alive: true });
        self.charge();
    }

    fn new_table(&mut self, level: u8) -> u64 {
        if level == 1 {
            2 * self.quarter + self.leaves.take() * 4096
        } else {
            3 * self.quarter + self.upper.take() * 4096
        }
    }

    fn free_table(&mut self, table: u64) {
        self.memory.entries.retain(|at, _| !(table..table + 4096).contains(at));
        if table >= 3 * self.quarter {
            self.upper.0.remove(&((table - 3 * self.quarter) / 4096));
        } else {
            self.leaves.0.remove(&((table - 2 * self.quarter) / 4096));
        }
    }

    /// Takes memory for page tables, 2 MiB at a time.
    fn charge(&mut self) {
        let tables = (self.leaves.0.len() + self.upper.0.len()) as u64;
        while self.table_blocks * 512 < tables {
            if self.pools[0].take(PageSize::M2).is_none() {
                self.pools[1].take(PageSize::M2);
            }
            self.table_blocks += 1;
        }
    }

    fn entry(&self, at: u64) -> u64 {
        self.memory.entries.get(&at).copied().unwrap_or(0)
    }

    fn put(&mut self, at: u64, entry: u64) {
        if entry == 0 {
            self.memory.entries.remove(&at);
        } else {
            self.memory.entries.insert(at, entry);
        }
    }

    /// Walks down to `level`, or to the entry that ends the walk.
    fn walk(&self, root: Root, linear: u64, level: u8) -> Leaf {
        let (mut table, mut here) = (root.table, self.levels);
        loop {
            let at = slot(table, linear, here);
            let entry = self.entry(at);
            if here == level || !is_table(here, entry) {
                return Leaf {
                    level: here,
                    at,
                    entry,
                    linear: linear / bytes_of(here) * bytes_of(here),
                };
            }
            table = entry & FRAME_MASK;
            here -= 1;
        }
    }

    /// The leaves that the range touches.
    fn leaves(&self, range: &Range) -> Vec<Leaf> {
        let root = self.spaces[range.space.0 as usize].root;
        let (mut at, mut out) = (range.start, Vec::new());
        while at < range.end {
            let found = self.walk(root, at, 1);
            if is_leaf(found.level, found.entry) {
                out.push(found);
            }
            at = found.linear + found.bytes();
        }
        out
    }

    fn vma(&self, space: usize, at: u64) -> Option<&Vma> {
        self.spaces[space].vmas.iter().find(|vma| vma.start <= at && at < vma.end)
    }

    pub(crate) fn is_free(&self, range: &Range) -> bool {
        let vmas = &self.spaces[range.space.0 as usize].vmas;
        vmas.iter().all(|vma| vma.end <= range.start || range.end <= vma.start)
    }

    pub(crate) fn map(&mut self, range: Range, pages: PageSize) {
        let vma = Vma { start: range.start, end: range.end, pages, writable: true };
        self.spaces[range.space.0 as usize].vmas.push(vma);
    }

    /// Whether an end of the range lies within a page of 1 GiB.
    pub(crate) fn cuts_a_giant(&self, range: &Range) -> bool {
        [range.start, range.end].iter().any(|at| {
            let vma = self.vma(range.space.0 as usize, *at);
            vma.is_some_and(|vma| vma.pages == PageSize::G1 && at % (1 << 30) != 0)
        })
    }

    fn cut(&mut self, range: &Range) {
        for at in [range.start, range.end] {
            let vmas = &mut self.spaces[range.space.0 as usize].vmas;
            if let Some(vma) = vmas.iter_mut().find(|vma| vma.start < at && at < vma.end) {
                let upper = Vma { start: at, ..vma.clone() };
                vma.end = at;
                vmas.push(upper);
            }
            if at % (2 << 20) != 0 {
                self.split(range.space.0 as usize, at);
            }
        }
    }

    fn pool_of(&mut self, frame: u64) -> &mut Pool {
        let second = frame >= self.pools[1].first;
        &mut self.pools[usize::from(second)]
    }

    fn release(&mut self, entry: u64, size: PageSize) {
        let frame = (entry & FRAME_MASK) / 4096;
        let pool = self.pool_of(frame);
        let start = frame - pool.first;
        pool.set(start, size.bytes() / 4096, true);
    }

    pub(crate) fn unmap(&mut self, range: Range) -> Stale {
        self.cut(&range);
        let mut sizes = Vec::new();
        for leaf in self.leaves(&range) {
            self.put(leaf.at, 0);
            self.release(leaf.entry, leaf.size());
            sizes.push(leaf.size());
        }
        let space = range.space.0 as usize;
        let inside = |vma: &Vma| range.start <= vma.start && vma.end <= range.end;
        self.spaces[space].vmas.retain(|vma| !inside(vma));
        let mut freed = false;
        for level in 2..=self.levels {
            let bytes = bytes_of(level);
            let mut at = range.start / bytes * bytes;
            while at < range.end {
                let found = self.walk(self.spaces[space].root, at, level);
                let end = found.linear + found.bytes();
                let used = !self.is_free(&Range { start: found.linear, end, ..range });
                if found.level == level && is_table(level, found.entry) && !used {
                    self.put(found.at, 0);
                    self.free_table(found.entry & FRAME_MASK);
                    freed = true;
                }
                at = end;
            }
        }
        sizes.extend(freed.then_some(PageSize::K4));
        stale(range, &sizes)
    }

    pub(crate) fn exit(&mut self, space: usize) {
        let id = tierscope_core::SpaceId(space as u32);
        let end = self.spaces[space].vmas.iter().map(|vma| vma.end).max().unwrap_or(0);
        let _ = self.unmap(Range::new(id, 0, end));
        self.free_table(self.spaces[space].root.table);
        self.asids.0.remove(&self.spaces[space].root.asid.number().into());
        self.spaces[space].alive = false;
    }

    pub(crate) fn protect(&mut self, range: Range, writable: bool) -> Stale {
        self.cut(&range);
        for vma in &mut self.spaces[range.space.0 as usize].vmas {
            if range.start <= vma.start && vma.end <= range.end {
                vma.writable = writable;
            }
        }
        let flag = if writable { WRITABLE } else { 0 };
        self.rewrite(range, |entry| entry & !WRITABLE | flag)
    }

    pub(crate) fn arm(&mut self, range: Range) -> Stale {
        self.rewrite(range, |entry| entry & !PRESENT | GLOBAL)
    }

    fn rewrite(&mut self, range: Range, change: impl Fn(u64) -> u64) -> Stale {
        let mut sizes = Vec::new();
        for leaf in self.leaves(&range) {
            if change(leaf.entry) != leaf.entry {
                self.put(leaf.at, change(leaf.entry));
                sizes.push(leaf.size());
            }
        }
        stale(range, &sizes)
    }

    /// Splits the huge page at the address, if there is one.
    pub(crate) fn split(&mut self, space: usize, at: u64) -> Option<Stale> {
        let found = self.walk(self.spaces[space].root, at, 2);
        if found.level != 2 || !is_leaf(2, found.entry) {
            return None;
        }
        let table = self.new_table(1);
        for page in 0..512 {
            self.put(table + page * 8, (found.entry & !HUGE) + page * 4096);
        }
        self.put(found.at, table | PRESENT | WRITABLE | ACCESSED);
        self.charge();
        let id = tierscope_core::SpaceId(space as u32);
        let range = Range::new(id, found.linear, found.linear + (2 << 20));
        Some((range, 1, PageSize::M2))
    }

    pub(crate) fn collapse(&mut self, space: usize, at: u64) -> Option<Stale> {
        let start = at / (2 << 20) * (2 << 20);
        let id = tierscope_core::SpaceId(space as u32);
        let range = Range::new(id, start, start + (2 << 20));
        let vma = self.vma(space, at)?.clone();
        let found = self.walk(self.spaces[space].root, at, 2);
        let table = found.entry & FRAME_MASK;
        let within = vma.start <= range.start && range.end <= vma.end;
        if !within || found.level != 2 || !is_table(2, found.entry) {
            return None;
        }
        let entries: Vec<u64> =
            (0..512).map(|page| self.entry(table + page * 8)).filter(|e| *e != 0).collect();
        if entries.is_empty() || entries.iter().any(|entry| entry & PRESENT == 0) {
            return None;
        }
        let boundary = self.pools[1].first * 4096;
        let slow = entries.iter().filter(|entry| *entry & FRAME_MASK >= boundary).count();
        let tier = usize::from(slow * 2 > entries.len());
        let frame = self.pools[tier].take(PageSize::M2)?;
        entries.iter().for_each(|entry| self.release(*entry, PageSize::K4));
        self.free_table(table);
        let flags = if vma.writable { WRITABLE | DIRTY } else { 0 };
        self.put(found.at, (frame << 12) | PRESENT | ACCESSED | HUGE | flags);
        Some((range, entries.len() as u64, PageSize::K4))
    }

    pub(crate) fn migrate(&mut self, range: Range, tier: usize) -> (u64, Stale) {
        let mut sizes = Vec::new();
        let boundary = self.pools[1].first * 4096;
        for leaf in self.leaves(&range) {
            let there = usize::from(leaf.entry & FRAME_MASK >= boundary);
            if there == tier {
                continue;
            }
            let Some(frame) = self.pools[tier].take(leaf.size()) else { continue };
            let flags = leaf.entry & !FRAME_MASK & !GLOBAL | PRESENT;
            self.put(leaf.at, (frame << 12) | flags);
            self.release(leaf.entry, leaf.size());
            sizes.push(leaf.size());
        }
        (sizes.iter().map(|size| size.bytes()).sum(), stale(range, &sizes))
    }

    /// Resolves a page fault; returns its kind.
    pub(crate) fn fault(
        &mut self,
        space: usize,
        at: u64,
        store: bool,
    ) -> Result<&'static str, Denied> {
        let vma = self.vma(space, at).cloned().ok_or(Denied::Unmapped)?;
        if store && !vma.writable {
            return Err(Denied::ReadOnly);
        }
        let root = self.spaces[space].root;
        let found = self.walk(root, at, 1);
        if is_leaf(found.level, found.entry) {
            if found.entry & PRESENT == 0 {
                self.put(found.at, found.entry & !GLOBAL | PRESENT | ACCESSED);
                return Ok("hint");
            }
            return Ok("spurious");
        }
        for (size, name) in
            [(PageSize::G1, "page G1"), (PageSize::M2, "page M2"), (PageSize::K4, "page K4")]
        {
            let level = size as u8 + 1;
            let page = at / size.bytes() * size.bytes();
            let wanted = match vma.pages {
                PageSize::G1 => size == PageSize::G1,
                pages => size <= pages,
            };
            let fits = vma.start <= page && page + size.bytes() <= vma.end && level <= found.level;
            if !wanted || !fits {
                continue;
            }
            let Some(frame) = self.first_touch(size) else { continue };
            let slot = self.reach(root, page, level);
            self.charge();
            let huge = if level > 1 { HUGE } else { 0 };
            let writable = if vma.writable { WRITABLE } else { 0 };
            self.put(slot, (frame << 12) | PRESENT | ACCESSED | huge | writable);
            return Ok(name);
        }
        Err(Denied::OutOfMemory)
    }

    fn first_touch(&mut self, size: PageSize) -> Option<u64> {
        let frames = size.bytes() / 4096;
        for low in [true, false] {
            for pool in &mut self.pools {
                let mark = if low { pool.marks.low } else { pool.marks.min };
                if pool.count >= mark + frames
                    && let Some(frame) = pool.take(size)
                {
                    return Some(frame);
                }
            }
        }
        None
    }

    fn reach(&mut self, root: Root, linear: u64, level: u8) -> u64 {
        let mut table = root.table;
        for here in (level + 1..=self.levels).rev() {
            let at = slot(table, linear, here);
            if self.entry(at) == 0 {
                let below = self.new_table(here - 1);
                self.put(at, below | PRESENT | WRITABLE | ACCESSED);
            }
            table = self.entry(at) & FRAME_MASK;
        }
        slot(table, linear, level)
    }

    /// Tests an entry: whether it is young; `None` if it is absent or not mapped.
    pub(crate) fn probe(&mut self, space: usize, at: u64, level: u8, clear: bool) -> Option<bool> {
        self.vma(space, at)?;
        let found = self.walk(self.spaces[space].root, at, level);
        if found.entry == 0 {
            return None;
        }
        if clear {
            self.put(found.at, found.entry & !ACCESSED);
        }
        Some(found.entry & ACCESSED != 0)
    }

    /// The bits of a scan, entry by entry; every entry above is tested once.
    pub(crate) fn scan(&mut self, range: Range, level: u8, mode: ScanMode) -> (AccessedSet, bool) {
        let mut set = AccessedSet::default();
        set.reset(&range, Level::new(level).expect("1..=5"), mode.present);
        let root = self.spaces[range.space.0 as usize].root;
        let mut judged: std::collections::HashMap<u64, bool> = Default::default();
        let mut pruned = false;
        for index in 0..set.entries() {
            let linear = set.range.start + index * bytes_of(level);
            let (mut table, mut here) = (root.table, self.levels);
            loop {
                let at = slot(table, linear, here);
                let entry = self.entry(at);
                if entry == 0 {
                    break;
                }
                let ends = here == level || is_leaf(here, entry);
                let young = *judged.entry(at).or_insert(entry & ACCESSED != 0);
                if mode.clear && (ends || mode.prune) {
                    self.put(at, entry & !ACCESSED);
                }
                if ends {
                    let bit = 1 << (index % 64);
                    set.young[(index / 64) as usize] |= if young { bit } else { 0 };
                    if mode.present {
                        set.present[(index / 64) as usize] |= bit;
                    }
                    break;
                }
                if mode.prune && !young {
                    pruned = true;
                    break;
                }
                table = entry & FRAME_MASK;
                here -= 1;
            }
        }
        (set, pruned)
    }

    /// Entries of all tables.
    pub(crate) fn entries(&self) -> &std::collections::BTreeMap<u64, u64> {
        &self.memory.entries
    }
}

fn stale(range: Range, sizes: &[PageSize]) -> Stale {
    (range, sizes.len() as u64, sizes.iter().min().copied().unwrap_or(PageSize::G1))
}
