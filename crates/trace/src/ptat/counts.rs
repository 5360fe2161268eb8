//! Misses by page, and what else crossed the bus.

use std::collections::{BTreeMap, BTreeSet};

use tierscope_core::Level;

use super::Traffic;

/// The least common multiple of 1 to 8: misses of a block are shared among its pages without a rest.
pub const SHARE: u64 = 840;

/// A page of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Page {
    /// The process.
    pub pid: u32,
    /// The level of its entry: 1 for 4 KiB, 2 for 2 MiB, 3 for 1 GiB.
    pub level: Level,
    /// Number of its first 4 KiB.
    pub number: u64,
}

impl Page {
    /// Number of the block of the table that its entry lies in, of blocks of so many entries.
    #[must_use]
    pub fn block(&self, entries: u64) -> u64 {
        (self.number >> (9 * (self.level.number() - 1))) / entries
    }

    /// Its first byte.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.number << 12
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.level.entry_bytes()
    }
}

/// Misses of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageMisses {
    /// While it was the only page of its block: its own.
    pub exact: u64,
    /// Its share of those of its block, in 1/840: what others of the block may have had instead.
    pub shared: u64,
    /// As [`PageMisses::shared`], where reads of entries that point to tables may be among them.
    pub mixed: u64,
}

impl PageMisses {
    /// All of them, in 1/840.
    #[must_use]
    pub fn shares(&self) -> u64 {
        self.exact * SHARE + self.shared + self.mixed
    }

    /// All of them; of shares the mean.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.shares() as f64 / SHARE as f64
    }
}

/// Accesses to a page of a chosen structure, which lies where the bus shows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accesses {
    /// Requests that read.
    pub reads: u64,
    /// Requests that wrote.
    pub writes: u64,
}

/// What a capture came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Misses {
    /// Pages that were mapped.
    pub pages: BTreeMap<Page, PageMisses>,
    /// Entries that a request of the monitor covers: 8, or 4.
    pub entries: u64,
    /// Reads in the region that the kernel announced: its own, and walks that ended in a page fault.
    pub announced: u64,
    /// Announced reads that the bus did not show: records are missing.
    pub unseen: u64,
    /// Reads of blocks in which nothing was mapped: control blocks, faults that nobody announced.
    pub idle: u64,
    /// Reads of blocks of upper entries that map no page: steps of a walk, no misses of their own.
    pub upper: u64,
    /// Writes in the region: ACCESSED and DIRTY flags, and the kernel.
    pub writes: u64,
    /// Pages whose permission to be written to changed, the misses of which are unaffected: how often it was given, and taken away.
    pub permissions: BTreeMap<Page, [u64; 2]>,
    /// Processes that are machines: their pages are guest-physical, their misses those of the second dimension of walks.
    pub machines: BTreeSet<u32>,
    /// Processes, and the machines that they run in.
    pub within: BTreeMap<u32, u32>,
    /// Accesses to pages whose data lie in the region.
    pub watched: BTreeMap<Page, Accesses>,
    /// Pages that were mapped by entries outside of the region, where nobody sees misses.
    pub outside: u64,
    /// Changes that contradict what was told before.
    pub conflicts: u64,
    /// Records of the dump that the kernel had no room for.
    pub untold: u64,
    /// Tags that came, that are missing, and that came out of order.
    pub tags: [u64; 3],
    /// Groups of the dump whose tags never came.
    pub late: u64,
    /// Everything that crossed the bus, board by board.
    pub boards: Vec<Traffic>,
}

impl Misses {
    /// Adds what a page had while it was mapped.
    pub(super) fn keep(&mut self, (page, more): &(Page, PageMisses)) {
        let misses = self.pages.entry(*page).or_default();
        misses.exact += more.exact;
        misses.shared += more.shared;
        misses.mixed += more.mixed;
    }

    /// All misses, in 1/840.
    #[must_use]
    pub fn shares(&self) -> u64 {
        self.pages.values().map(PageMisses::shares).sum()
    }

    /// All misses.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.shares() / SHARE
    }

    /// Misses by process, level and number of the block that the entries lie in.
    #[must_use]
    pub fn blocks(&self) -> BTreeMap<(u32, Level, u64), u64> {
        let mut blocks = BTreeMap::new();
        for (page, misses) in &self.pages {
            let block = (page.pid, page.level, page.block(self.entries));
            *blocks.entry(block).or_insert(0) += misses.shares();
        }
        blocks.values_mut().for_each(|shares| *shares /= SHARE);
        blocks.retain(|_, misses| *misses > 0);
        blocks
    }

    /// Whether nothing was lost, so that misses of blocks are exact.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        let lost: u64 = self.boards.iter().map(Traffic::lost).sum();
        let [_, missing, disordered] = self.tags;
        let mixed = self.pages.values().any(|misses| misses.mixed > 0);
        let doubts =
            [lost, missing, disordered, self.unseen, self.conflicts, self.untold, self.late];
        doubts.iter().all(|count| *count == 0) && !mixed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Pages 16 and 17 share a block with three misses; page 5 << 9 of 2 MiB is alone with two.
    #[test]
    fn blocks_are_whole_again() {
        let page = |level, number| Page { pid: 1, level, number };
        let shared = PageMisses { shared: 3 * SHARE / 2, ..PageMisses::default() };
        let mut misses = Misses { entries: 8, ..Misses::default() };
        misses.pages.insert(page(Level::PTE, 16), shared);
        misses.pages.insert(page(Level::PTE, 17), shared);
        let exact = PageMisses { exact: 2, ..PageMisses::default() };
        misses.pages.insert(page(Level::PMD, 5 << 9), exact);
        let blocks = misses.blocks().into_iter().collect::<Vec<_>>();
        assert_eq!(blocks, [((1, Level::PTE, 2), 3), ((1, Level::PMD, 0), 2)]);
        assert_eq!((misses.total(), shared.total()), (5, 1.5));
        assert!(misses.is_exact());
    }
}
