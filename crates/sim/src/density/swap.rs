//! Reclaimed pages: out of memory until they are accessed again.
//!
//! Their destination is of unlimited size: zswap keeps them compressed in the fastest tier; a
//! device keeps them elsewhere. An access to such a page is a refault: its thread waits for the
//! page. Refaults are searched periodically, each at its own time, like hint faults (`faults.rs`).

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use tierscope_core::mover::Job;
use tierscope_core::{Level, PAGE_SHIFT, PAGE_SIZE, Range, RangeSet, Time};

use super::faults::Armed;
use super::machine::Machine;
use super::space::SPACE;
use crate::account::TIERS;
use crate::mover::lock;

/// Destination of reclaimed pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Swap {
    /// Compressed, in the fastest tier ([`crate::config::ZswapCosts`]).
    Zswap,
    /// A device ([`crate::config::SwapCosts`]).
    Device,
}

/// Amounts of the target's memory that are resident and reclaimed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwapUse {
    /// Resident bytes.
    pub resident: u64,
    /// Reclaimed bytes.
    pub out: u64,
    /// Bytes of the zswap pool.
    pub pool: u64,
    /// Bytes refaulted so far.
    pub refaulted: u64,
}

/// Shortest time between two searches for refaults, in nanoseconds, …
const LOOK: u64 = 20_000_000;
/// … and the additional time for each table with pages that may refault.
const LOOK_EACH: u64 = 20_000;

/// The reclaimed pages.
#[derive(Clone, Debug, Default)]
pub(super) struct Swapped {
    /// First page and end of each run.
    out: BTreeMap<u64, u64>,
    pages: u64,
    /// Reclaimed pages that the workload ever accesses.
    waiting: Armed,
    looked: u64,
    refaulted: u64,
    /// Pages that zswap takes in the fastest tier.
    pool: u64,
}

impl Swapped {
    /// The run that holds a page.
    fn run_at(&self, page: u64) -> Option<(u64, u64)> {
        let (start, end) = self.out.range(..=page).next_back()?;
        (*end > page).then_some((*start, *end))
    }

    /// The first run that begins after a page.
    fn next(&self, page: u64) -> u64 {
        self.out.range(page + 1..).next().map_or(u64::MAX, |(start, _)| *start)
    }

    /// Reclaims resident pages.
    fn put(&mut self, mut from: u64, mut to: u64) {
        self.pages += to - from;
        if let Some((start, end)) = self.out.range(..=from).next_back().map(|(s, e)| (*s, *e))
            && end == from
        {
            from = start;
        }
        if let Some(end) = self.out.remove(&to) {
            to = end;
        }
        self.out.insert(from, to);
    }

    /// Refaults a page; returns whether it was reclaimed.
    fn take(&mut self, page: u64) -> bool {
        let Some((start, end)) = self.run_at(page) else { return false };
        self.out.remove(&start);
        for (from, to) in [(start, page), (page + 1, end)] {
            if from < to {
                self.out.insert(from, to);
            }
        }
        self.pages -= 1;
        true
    }

    /// Runs that overlap the pages, cut to them.
    fn within(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> {
        let first = self.run_at(from).map_or(from, |(start, _)| start);
        self.out.range(first..to).map(move |(start, end)| ((*start).max(from), (*end).min(to)))
    }
}

fn range(from: u64, to: u64) -> Range {
    Range::new(SPACE, from << PAGE_SHIFT, to << PAGE_SHIFT)
}

impl Machine {
    /// Whether memory can be reclaimed.
    #[must_use]
    pub fn can_swap(&self) -> bool {
        self.config.swap.is_some()
    }

    /// Amounts of resident and reclaimed memory.
    #[must_use]
    pub fn swap_use(&self) -> SwapUse {
        let swapped = &self.swapped;
        SwapUse {
            resident: self.world.mappings.bytes().saturating_sub(swapped.pages << PAGE_SHIFT),
            out: swapped.pages << PAGE_SHIFT,
            pool: swapped.pool << PAGE_SHIFT,
            refaulted: swapped.refaulted << PAGE_SHIFT,
        }
    }

    /// The reclaimed ranges within `of`.
    pub(super) fn swapped_within(&self, of: &Range) -> Vec<Range> {
        if of.space != SPACE || of.is_empty() {
            return Vec::new();
        }
        let (from, to) = (of.start >> PAGE_SHIFT, of.end.div_ceil(PAGE_SIZE));
        self.swapped.within(from, to).map(|(from, to)| range(from, to)).collect()
    }

    /// Nanoseconds to reclaim a page.
    fn page_out_ns(&self, swap: Swap) -> f64 {
        let costs = &self.config.costs;
        let others = u64::from(self.config.cores) - 1;
        let shoot = costs.shootdown.initiator_ns + costs.shootdown.each_core_ns * others;
        let write = match swap {
            Swap::Zswap => costs.zswap.page_ns as f64 + costs.zswap.compress_ns as f64,
            // Writes are clustered, by the size of a batch.
            Swap::Device => {
                let cluster = costs.swap.write_ns as f64 / costs.moves.batch as f64;
                cluster + PAGE_SIZE as f64 * 1e9 / (costs.swap.write_mib_s << 20) as f64
            }
        };
        write + shoot as f64 / costs.moves.batch as f64
    }

    /// Nanoseconds that a thread waits for a refault.
    fn page_in_ns(&self, swap: Swap) -> u64 {
        let costs = &self.config.costs;
        match swap {
            Swap::Zswap => costs.zswap.fault_ns + costs.zswap.decompress_ns,
            Swap::Device => {
                let read = PAGE_SIZE as f64 * 1e9 / (costs.swap.read_mib_s << 20) as f64;
                costs.swap.read_ns + read as u64
            }
        }
    }

    /// Reclaims as many pages as the time allows all reclaimers; returns the end time.
    pub(super) fn reclaim_some(&mut self, job: &mut Job, swap: Swap, time: u64, until: u64) -> u64 {
        let each = self.page_out_ns(swap) / f64::from(self.config.reclaimers);
        let batch = self.config.costs.moves.batch;
        let batches = ((until - time) as f64 / each / batch as f64).ceil().max(1.0) as u64;
        let budget = lock(&self.moves.queue).budget().div_ceil(PAGE_SIZE).div_ceil(batch);
        let (most, mut gone) = (batches.min(budget) * batch, 0);
        let end = job.action.range.end >> PAGE_SHIFT;
        let mut page = job.from >> PAGE_SHIFT;
        let mapped: RangeSet = self.world.mappings.mappings.iter().map(|m| m.range).collect();
        while page < end && gone < most {
            if let Some((_, after)) = self.swapped.run_at(page) {
                (page, job.met) = (after, true);
                continue;
            }
            let stop = end.min(self.swapped.next(page)).min(page + most - gone);
            let part: RangeSet = [range(page, stop)].into_iter().collect();
            for part in part.intersect(&mapped).as_slice() {
                gone += self.goes_out(part);
            }
            page = stop;
        }
        job.from = (page << PAGE_SHIFT).min(job.action.range.end);
        job.done += gone << PAGE_SHIFT;
        job.met |= gone > 0;
        self.promotion_reuse.moved.reclaimed += gone << PAGE_SHIFT;
        self.shoot(gone.div_ceil(batch));
        self.fit_pool(swap);
        lock(&self.moves.queue).spend(gone << PAGE_SHIFT);
        time + (gone as f64 * each) as u64
    }

    fn goes_out(&mut self, part: &Range) -> u64 {
        for (tier, pages) in self.world.places.pages(part).into_iter().enumerate() {
            self.world.places.release(tier, pages);
        }
        let (from, to) = (part.start >> PAGE_SHIFT, part.end >> PAGE_SHIFT);
        self.swapped.put(from, to);
        let wanted: RangeSet = [*part].into_iter().collect();
        let ever: RangeSet =
            self.world.ever.as_slice().iter().map(|range| Level::PTE.align(range)).collect();
        for range in wanted.intersect(&ever).as_slice() {
            self.swapped.waiting.arm(range, self.now.0);
        }
        to - from
    }

    /// Adjusts the size of the zswap pool to the reclaimed pages.
    fn fit_pool(&mut self, swap: Swap) {
        let wanted = match swap {
            Swap::Zswap => (self.swapped.pages as f64 * 100.0
                / self.config.costs.zswap.ratio_percent as f64)
                .ceil() as u64,
            Swap::Device => 0,
        };
        let pool = std::mem::replace(&mut self.swapped.pool, wanted);
        self.world.places.release(0, pool);
        self.world.places.claim(0, wanted);
    }

    /// Refaults the pages that were accessed, if the next search is due.
    pub(super) fn look_for_refaults(&mut self) {
        let Some(swap) = self.config.swap else { return };
        let tables = self.swapped.waiting.tables.len() as u64;
        let pause = LOOK.max(tables * LOOK_EACH);
        if tables == 0 || self.now.0 < self.swapped.looked + pause {
            return;
        }
        let seen = self.swapped.looked;
        self.swapped.looked = self.now.0;
        let mut tables = std::mem::take(&mut self.swapped.waiting.tables);
        let mut back = Vec::new();
        for (number, table) in &mut tables {
            back.extend(self.faults_of(*number, table, seen));
        }
        tables.retain(|_, table| !table.is_empty());
        self.swapped.waiting.tables = tables;
        let mut pages = 0;
        for fault in &back {
            let page = fault.at.at >> PAGE_SHIFT;
            if self.swapped.take(page) {
                let tier =
                    self.world.places.tier_of(fault.at.at).map_or(0, |tier| usize::from(tier.0));
                self.world.places.claim(tier, 1);
                pages += 1;
            }
        }
        if pages > 0 {
            self.swapped.refaulted += pages;
            self.ledger.counts.swap_ins += pages;
            self.ledger.steal(pages * self.page_in_ns(swap));
            self.fit_pool(swap);
        }
    }

    /// Share of the last ten seconds in which threads waited for refaults, at most 1, like PSI's
    /// share of stalled tasks.
    pub(super) fn stalled(&mut self) -> f64 {
        let Some(swap) = self.config.swap else { return 0.0 };
        let waited = self.swapped.refaulted * self.page_in_ns(swap);
        let recent = &mut self.recent_waits;
        recent.push_back((self.now, waited));
        while recent.front().is_some_and(|(at, _)| *at + Duration::from_secs(10) < self.now) {
            recent.pop_front();
        }
        let (since, before) = recent.front().copied().unwrap_or((Time(0), 0));
        let time = (self.now - since).as_nanos() as f64;
        if time > 0.0 { ((waited - before) as f64 / time).min(1.0) } else { 0.0 }
    }

    /// Reclaimed bytes of a range, by the tier that they would be in.
    pub(super) fn out_by_tier(&self, of: &Range) -> [u64; TIERS] {
        let mut out = [0; TIERS];
        for part in self.swapped_within(of) {
            let pages = self.world.places.pages(&part);
            out.iter_mut().zip(pages).for_each(|(sum, pages)| *sum += pages << PAGE_SHIFT);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_join_and_are_cut() {
        let mut swapped = Swapped::default();
        swapped.put(10, 20);
        swapped.put(30, 40);
        swapped.put(20, 30);
        assert_eq!((swapped.out.len(), swapped.pages), (1, 30));
        assert!(swapped.take(25) && !swapped.take(25));
        assert_eq!(swapped.within(0, 100).collect::<Vec<_>>(), [(10, 25), (26, 40)]);
        assert_eq!(swapped.within(24, 27).collect::<Vec<_>>(), [(24, 25), (26, 27)]);
        assert_eq!((swapped.run_at(25), swapped.next(25)), (None, 26));
    }
}
