//! The page-tier map: which tier each page is in, queried from the kernel (`move_pages` without
//! target nodes).
//!
//! Each 2 MiB block is queried when a caller needs it and the known state is old. After the first
//! such query, or from the start if a tier has a capacity, a background sweep, limited to a share
//! of a CPU, keeps all blocks fresh. Pages are not listed individually; a block whose pages are all
//! in one tier takes a few bytes. Blocks that our own mover changed are queried again; blocks that
//! do not change are queried ever less often, since a query of 512 pages takes 20 µs.

mod page_ids;
mod row;

use std::cell::RefCell;
use std::time::Duration;

use tierscope_core::{
    Addr, Backing, Mappings, PAGE_SHIFT, PAGE_SIZE, PageId, PlacementView, Range, Tier, TierUse,
    Time,
};

use crate::mover::Layout;
use crate::mover::kernel::Kernel;
use crate::mover::users::{self, Lead};
use page_ids::PageIds;
use row::{BLOCK, NO_TIER, PAGES, Row, TIERS};

/// In ranges up to this size the state of a block is at most [`FRESH`] old, or up to
/// [`MAX_DOUBLINGS`] doublings of that after repeated queries without a change.
const SMALL: u64 = 128 << 20;
/// Maximum age of the state of a block that changes, in hundredths of a second.
const FRESH: u32 = 100;
/// How often the maximum age is doubled at most for a block that does not change: up to 16 s.
const MAX_DOUBLINGS: u8 = 4;
/// Minimum number of refreshes per sweep: one second at their usual rate.
const REFRESHES: usize = 10;
/// Share of a CPU for the background sweep: 1/50.
const SHARE: u32 = 50;
/// Maximum number of queries between two refreshes: 64 GiB of blocks, 0.3 s at 20 µs per block.
const MAX_QUERIES: u32 = 32_768;
/// Mappings of more blocks than this, 16 TiB, are taken for reservations and ignored.
const MAX_BLOCKS: u64 = 1 << 23;

/// The page-tier map. Used by one thread.
pub(crate) struct PageTiers<K> {
    tiers: Vec<TierUse>,
    capacity: Vec<Option<u64>>,
    keep_free: u64,
    inner: RefCell<Inner<K>>,
}

struct Inner<K> {
    kernel: K,
    layout: Layout,
    /// Mappings, sorted by range.
    rows: Vec<Row>,
    /// Id of the first page, and index into `rows`; sorted by id.
    by_page: Vec<(u32, usize)>,
    ids: PageIds,
    begun: Time,
    /// Queries left before the next refresh.
    queries_left: u32,
    sweeps: bool,
    /// Whether a caller has asked for the tier of a page: starts the background sweep.
    asked: bool,
    /// Position of the background sweep: row and block.
    sweep_at: (usize, usize),
    /// Time until which the background sweep has used its share of a CPU.
    sweep_after: Time,
}

impl<K: Kernel> PageTiers<K> {
    pub(crate) fn new(kernel: K, layout: Layout, capacity: Vec<Option<u64>>) -> Self {
        let begun = kernel.now();
        let inner = Inner {
            kernel,
            layout,
            rows: Vec::new(),
            by_page: Vec::new(),
            ids: PageIds::default(),
            begun,
            queries_left: MAX_QUERIES,
            sweeps: true,
            asked: false,
            sweep_at: (0, 0),
            sweep_after: begun,
        };
        let mut page_tiers =
            Self { tiers: Vec::new(), capacity, keep_free: 0, inner: RefCell::new(inner) };
        page_tiers.count_tiers();
        page_tiers
    }

    /// Query on demand only; disables the background sweep.
    pub(crate) fn disable_sweep(&mut self) {
        self.inner.get_mut().sweeps = false;
    }

    /// Sets the bytes to be kept free on each node.
    pub(crate) fn set_keep_free(&mut self, bytes: u64) {
        self.keep_free = bytes;
    }

    /// Replaces the mappings.
    pub(crate) fn map(&mut self, mappings: &Mappings) {
        self.inner.get_mut().map(mappings);
    }

    /// Invalidates the ranges that our mover changed, and continues the background sweep. Called
    /// periodically.
    pub(crate) fn refresh(&mut self, moved: &[Range]) {
        let inner = self.inner.get_mut();
        inner.queries_left = MAX_QUERIES;
        moved.iter().for_each(|range| inner.invalidate(range));
        // The usage of a tier with a capacity is known only from the background sweep.
        if inner.sweeps && (inner.asked || !self.capacity.is_empty()) {
            inner.sweep();
        }
        self.count_tiers();
    }

    /// Bytes that the target may still use on a tier, given its capacity and the bytes to be kept
    /// free.
    pub(crate) fn free(&self, tier: Tier) -> u64 {
        let of = self.tiers.get(usize::from(tier.0));
        of.map_or(0, |of| of.capacity.saturating_sub(of.used))
    }

    fn count_tiers(&mut self) {
        let inner = self.inner.get_mut();
        let count = inner.layout.tiers.len();
        let of = |number: usize| {
            let nodes = inner.layout.tiers[number].clone();
            let memory = nodes.iter().filter_map(|(node, _)| inner.kernel.memory(*node));
            let (total, free) = memory.fold((0, 0), |(total, free), node| {
                (total + node.total, free + node.free.saturating_sub(self.keep_free))
            });
            let tier = Tier(number as u8);
            match self.capacity.get(number).copied().flatten() {
                None => TierUse { tier, capacity: total, used: total.saturating_sub(free) },
                Some(capacity) => {
                    let own: u64 = inner.rows.iter().map(|row| row.total(tier)).sum();
                    let left = capacity.saturating_sub(own).min(free);
                    TierUse { tier, capacity, used: capacity - left }
                }
            }
        };
        self.tiers = (0..count).map(of).collect();
    }
}

impl<K: Kernel> Inner<K> {
    fn map(&mut self, mappings: &Mappings) {
        let usable = |range: &Range| range.bytes() / BLOCK < MAX_BLOCKS;
        let wanted = mappings.mappings.iter().filter(|mapping| mapping.backing != Backing::Kernel);
        let wanted = wanted.map(|mapping| mapping.range).filter(usable);
        let mut old = std::mem::take(&mut self.rows).into_iter().peekable();
        let key = |range: &Range| (range.space, range.start);
        for range in wanted {
            while let Some(gone) = old.next_if(|row| key(&row.range) < key(&range)) {
                self.free_ids(&gone);
            }
            match old.next_if(|row| key(&row.range) == key(&range)) {
                Some(row) => {
                    let row = self.resized(row, range);
                    self.rows.push(row);
                }
                None => self.rows.push(Row::new(range)),
            }
        }
        old.for_each(|gone| self.free_ids(&gone));
        self.index();
    }

    /// Adapts a row to the new end of its mapping; page ids remain if enough were reserved.
    fn resized(&mut self, mut row: Row, range: Range) -> Row {
        if row.range == range {
            return row;
        }
        row.end_at(range.end);
        if row.ids.is_some_and(|(_, count)| u64::from(count) < row.pages()) {
            self.free_ids(&row);
            row.ids = None;
        }
        row
    }

    fn free_ids(&mut self, row: &Row) {
        if let Some((first, count)) = row.ids {
            self.ids.free(first, count);
        }
    }

    fn index(&mut self) {
        let rows = self.rows.iter().enumerate();
        self.by_page = rows.filter_map(|(index, row)| Some((row.ids?.0, index))).collect();
        self.by_page.sort_unstable();
    }

    /// Page ids of a row, assigned when its first page is found: twice as many as it has pages, so
    /// that it can grow.
    fn first_id(&mut self, row: usize) -> Option<u32> {
        if let Some((first, _)) = self.rows[row].ids {
            return Some(first);
        }
        let pages = self.rows[row].pages();
        let wanted = (2 * pages).max(1 << 14);
        let take = |count: u64| Some((u32::try_from(count).ok()?, count));
        let (count, first) = [wanted, pages].into_iter().find_map(|count| {
            let (count, _) = take(count)?;
            Some((count, self.ids.allocate(count)?))
        })?;
        self.rows[row].ids = Some((first, count));
        self.index();
        Some(first)
    }

    fn row_at(&self, at: Addr) -> Option<usize> {
        let key = |row: &Row| (row.range.space, row.range.end);
        let index = self.rows.partition_point(|row| key(row) <= (at.space, at.at));
        self.rows.get(index).filter(|row| row.range.contains(at)).map(|_| index)
    }

    /// Row and address of a page id.
    fn page(&self, PageId(page): PageId) -> Option<(usize, u64)> {
        let next = self.by_page.partition_point(|(first, _)| *first <= page);
        let (first, index) = *self.by_page.get(next.checked_sub(1)?)?;
        let row = &self.rows[index];
        let at = row.range.start + (u64::from(page - first) << PAGE_SHIFT);
        (at < row.range.end).then_some((index, at))
    }

    fn ticks(&self) -> u32 {
        let ticks = self.kernel.now().since(self.begun).as_millis() / 10 + 1;
        u32::try_from(ticks).unwrap_or(u32::MAX)
    }

    /// Whether the state of a block is younger than `age`, doubled for each query without a change.
    fn is_fresh(&self, row: usize, block: usize, age: u32, ticks: u32) -> bool {
        let queried = self.rows[row].queried(block);
        let age = age.saturating_mul(1 << self.rows[row].unchanged(block).min(MAX_DOUBLINGS));
        queried > 0 && queried.saturating_add(age) > ticks
    }

    /// Queries a block unless its state is fresh.
    fn freshen(&mut self, row: usize, block: usize, age: u32) {
        self.asked = true;
        if !self.is_fresh(row, block, age, self.ticks()) && self.queries_left > 0 {
            self.queries_left -= 1;
            self.query(row, block);
        }
    }

    fn query(&mut self, row: usize, block: usize) {
        let of = &self.rows[row];
        let (space, start) = (of.range.space, of.start_of(block));
        let pages = of.pages_of(block);
        let whole = pages.len() == PAGES;
        let addresses: Vec<u64> = pages.map(|page| start + ((page as u64) << PAGE_SHIFT)).collect();
        let range = Range::new(space, addresses[0], addresses[addresses.len() - 1] + PAGE_SIZE);
        let users = self.kernel.users(&range);
        // Each process that shares the block is one more query.
        let more = u32::try_from(users.len().saturating_sub(1)).unwrap_or(u32::MAX);
        self.queries_left = self.queries_left.saturating_sub(more);
        let found = users::locate(&mut self.kernel, &users, &addresses);
        let tier = |node: &i32| match found.failed {
            None => self.layout.tier_of(*node).unwrap_or(NO_TIER),
            Some(_) => NO_TIER,
        };
        let tiers: Vec<u8> = found.nodes.iter().map(tier).collect();
        let alike = tiers[0] != NO_TIER && tiers.iter().all(|tier| *tier == tiers[0]);
        // All pages are there, so that the first one is the lead's.
        let huge = whole
            && alike
            && found.lead(&users, &addresses).is_some_and(|Lead { user, .. }| {
                let head = user.address(addresses[0]);
                head.is_multiple_of(BLOCK) && self.kernel.is_huge(user.owner.pid, head)
            });
        let when = self.ticks();
        self.rows[row].store(block, &tiers, huge, when);
    }

    /// Invalidates the blocks of a range that our mover changed.
    fn invalidate(&mut self, range: &Range) {
        for row in &mut self.rows {
            if let Some(part) = row.range.intersect(range) {
                let blocks = row.block_of(part.start)..=row.block_of(part.end - 1);
                blocks.for_each(|block| row.invalidate(block));
            }
        }
    }

    /// Continues the background sweep by some blocks, limited to its share of the elapsed time.
    fn sweep(&mut self) {
        let blocks: usize = self.rows.iter().map(Row::blocks).sum();
        let ticks = self.ticks();
        for _ in 0..blocks.div_ceil(REFRESHES).min(MAX_QUERIES as usize) {
            let Some((row, block)) = self.next_of_sweep() else { break };
            if !self.is_fresh(row, block, FRESH, ticks) {
                let began = self.kernel.now();
                if self.queries_left == 0 || began < self.sweep_after {
                    break;
                }
                self.queries_left -= 1;
                self.query(row, block);
                let cost = self.kernel.now().since(began).max(Duration::from_nanos(1));
                // Unused time is not saved up beyond one second.
                let from = self.sweep_after.max(Time(began.0.saturating_sub(1_000_000_000)));
                self.sweep_after = from + cost * SHARE;
            }
            self.sweep_at.1 += 1;
        }
    }

    /// The next block of the background sweep, which wraps around at the end.
    fn next_of_sweep(&mut self) -> Option<(usize, usize)> {
        let (mut row, mut block) = self.sweep_at;
        while self.rows.get(row).is_some_and(|of| block >= of.blocks()) {
            (row, block) = (row + 1, 0);
        }
        if row >= self.rows.len() {
            row = self.rows.iter().position(|of| of.blocks() > 0)?;
            block = 0;
        }
        self.sweep_at = (row, block);
        Some(self.sweep_at)
    }

    fn resident(&mut self, range: &Range, tier: Tier) -> u64 {
        let first = self
            .rows
            .partition_point(|row| (row.range.space, row.range.end) <= (range.space, range.start));
        let (mut bytes, mut index) = (0, first);
        while let Some(part) = self.rows.get(index).and_then(|row| row.range.intersect(range)) {
            bytes += self.resident_of(index, &part, range.bytes() <= SMALL, tier);
            index += 1;
        }
        bytes
    }

    fn resident_of(&mut self, row: usize, part: &Range, small: bool, tier: Tier) -> u64 {
        let blocks = self.rows[row].block_of(part.start)..=self.rows[row].block_of(part.end - 1);
        for block in blocks.clone() {
            self.freshen(row, block, if small { FRESH } else { u32::MAX });
        }
        let row = &self.rows[row];
        if row.range == *part {
            return row.total(tier);
        }
        blocks.map(|block| row.resident(block, part, tier)).sum()
    }
}

impl<K: Kernel> PlacementView for PageTiers<K> {
    fn tiers(&self) -> &[TierUse] {
        &self.tiers
    }

    fn tier_of(&self, page: PageId) -> Option<Tier> {
        let mut inner = self.inner.borrow_mut();
        let (row, at) = inner.page(page)?;
        let block = inner.rows[row].block_of(at);
        inner.freshen(row, block, FRESH);
        inner.rows[row].tier_at(at)
    }

    fn page_at(&self, range: &Range) -> Option<PageId> {
        let mut inner = self.inner.borrow_mut();
        let row = inner.row_at(Addr { space: range.space, at: range.start })?;
        let block = inner.rows[row].block_of(range.start);
        inner.freshen(row, block, FRESH);
        inner.rows[row].tier_at(range.start)?;
        let first = inner.first_id(row)?;
        let row = &inner.rows[row];
        let head = if row.is_huge(range.start) { row.start_of(block) } else { range.start };
        Some(PageId(first + ((head - row.range.start) >> PAGE_SHIFT) as u32))
    }

    fn range_of(&self, page: PageId) -> Option<Range> {
        let inner = self.inner.borrow();
        let (row, at) = inner.page(page)?;
        let row = &inner.rows[row];
        let (start, bytes) = match row.is_huge(at) {
            true => (row.start_of(row.block_of(at)), BLOCK),
            false => (at, PAGE_SIZE),
        };
        Some(Range::new(row.range.space, start, start + bytes))
    }

    fn resident(&self, range: &Range, tier: Tier) -> u64 {
        if usize::from(tier.0) >= TIERS {
            return 0;
        }
        self.inner.borrow_mut().resident(range, tier)
    }
}

#[cfg(test)]
mod tests;
