//! TLB misses by page, and counts of the other traffic on the bus.

use std::collections::{BTreeMap, BTreeSet};

use tierscope_core::Level;

use super::Traffic;

/// The least common multiple of 1 to 8: divides the misses of a block among its pages without a
/// remainder.
pub const SHARE: u64 = 840;

/// A page of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Page {
    /// Pid of the process.
    pub pid: u32,
    /// Level of its entry: 1 for 4 KiB, 2 for 2 MiB, 3 for 1 GiB.
    pub level: Level,
    /// Number of its first 4 KiB page.
    pub number: u64,
}

impl Page {
    /// Number of the block that its entry lies in; a block is `entries` consecutive entries of a
    /// page table.
    #[must_use]
    pub fn block(&self, entries: u64) -> u64 {
        (self.number >> (9 * (self.level.number() - 1))) / entries
    }

    /// Address of its first byte.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.number << 12
    }

    /// Its size in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.level.entry_bytes()
    }
}

/// TLB misses of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageMisses {
    /// Exact count: from times when it was the only mapped page of its block.
    pub exact: u64,
    /// Its share of the block's misses while other pages of the block were mapped, in 1/840.
    pub shared: u64,
    /// As [`PageMisses::shared`], while the block also held entries that point to tables, whose
    /// reads may be among the misses.
    pub mixed: u64,
}

impl PageMisses {
    /// Total in 1/840.
    #[must_use]
    pub fn shares(&self) -> u64 {
        self.exact * SHARE + self.shared + self.mixed
    }

    /// Total; a mean where misses are shared.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.shares() as f64 / SHARE as f64
    }
}

/// Accesses to a page of a watched data structure, which lies in the monitored region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accesses {
    /// Read requests.
    pub reads: u64,
    /// Write requests.
    pub writes: u64,
}

/// Results of parsing a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Misses {
    /// Misses of the pages that were mapped.
    pub pages: BTreeMap<Page, PageMisses>,
    /// Entries per block, the unit that a request of the monitor covers: 8, or 4.
    pub entries: u64,
    /// Reads in the region that are no misses, as announced by the kernel: its own reads, and walks
    /// that ended in a page fault.
    pub announced: u64,
    /// Announced reads that are missing from the streams: records were lost.
    pub unseen: u64,
    /// Reads of blocks without mapped pages: control blocks, unannounced faults.
    pub idle: u64,
    /// Reads of blocks that only point to tables: steps of a walk, not misses of their own.
    pub upper: u64,
    /// Writes in the region: hardware that sets ACCESSED and DIRTY, and the kernel.
    pub writes: u64,
    /// Pages whose write permission changed, and how often it was given and taken away. Their
    /// misses are unaffected.
    pub permissions: BTreeMap<Page, [u64; 2]>,
    /// Processes that are virtual machines: their pages are guest-physical, their misses those of
    /// the second dimension of walks.
    pub machines: BTreeSet<u32>,
    /// Virtual machine of each process that runs in one.
    pub within: BTreeMap<u32, u32>,
    /// Accesses to watched pages: those whose data lie in the region.
    pub watched: BTreeMap<Page, Accesses>,
    /// Number of mappings by entries outside of the region, whose misses are invisible.
    pub outside: u64,
    /// Changes that contradict earlier records of the dump.
    pub conflicts: u64,
    /// Dump records that the kernel dropped because its buffer was full.
    pub untold: u64,
    /// Tags seen, missing, and out of order.
    pub tags: [u64; 3],
    /// Groups of the dump whose tags are missing.
    pub late: u64,
    /// All traffic of each board.
    pub boards: Vec<Traffic>,
}

impl Misses {
    /// Adds the misses of a page that is no longer mapped.
    pub(super) fn keep(&mut self, (page, more): &(Page, PageMisses)) {
        let misses = self.pages.entry(*page).or_default();
        misses.exact += more.exact;
        misses.shared += more.shared;
        misses.mixed += more.mixed;
    }

    /// Total misses in 1/840.
    #[must_use]
    pub fn shares(&self) -> u64 {
        self.pages.values().map(PageMisses::shares).sum()
    }

    /// Total misses.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.shares() / SHARE
    }

    /// Misses by process, level and number of the block of the page table.
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

    /// Whether nothing was lost, so that the misses of each block are exact.
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
