//! Refaults: pages we reclaimed that have been faulted back in.
//!
//! A background sweep searches the pagemap for them block by block, with a small share of a CPU. A
//! page is counted once for each time that it was reclaimed, with the delay of one sweep.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tierscope_core::{PAGE_SHIFT, PAGE_SIZE, Range, SpaceId, Time};

use super::kernel::Kernel;
use super::limits::BATCH;
use super::paging::Paged;

const PAGES: usize = (BATCH >> PAGE_SHIFT) as usize;
/// Maximum share of a CPU for the sweep: 1/100.
const SHARE: u32 = 100;
/// Minimum pause between two sweeps, in ns.
const ROUND: u64 = 1_000_000_000;
/// Period over which the refault brake counts, and for which it pauses reclaim, in ns.
const SPAN: u64 = 10_000_000_000;
/// Blocks checked per step.
const STEP: usize = 64;

/// Pages that we reclaimed and that have not been seen in memory since.
#[derive(Clone, Debug, Default)]
pub(crate) struct Refaults {
    blocks: BTreeMap<(SpaceId, u64), [u64; PAGES / 64]>,
    /// Position of the sweep; `None` at its start.
    sweep_at: Option<(SpaceId, u64)>,
    sweep_after: Time,
    /// Time, pages reclaimed and pages refaulted.
    recent: VecDeque<(Time, u64, u64)>,
    paused: Time,
}

impl Refaults {
    /// Records that a page was reclaimed.
    pub(crate) fn reclaimed(&mut self, space: SpaceId, at: u64, now: Time) {
        let index = ((at % BATCH) >> PAGE_SHIFT) as usize;
        let words = self.blocks.entry((space, at / BATCH)).or_default();
        words[index / 64] |= 1 << (index % 64);
        self.note(now, 1, 0);
    }

    fn note(&mut self, now: Time, out: u64, back: u64) {
        match self.recent.back_mut() {
            // A resolution of a tenth of a second is sufficient.
            Some(last) if now.0 < last.0.0 + SPAN / 100 => {
                (last.1, last.2) = (last.1 + out, last.2 + back);
            }
            _ => self.recent.push_back((now, out, back)),
        }
        while self.recent.front().is_some_and(|(at, ..)| at.0 + SPAN < now.0) {
            self.recent.pop_front();
        }
    }

    /// Time of the next step of the sweep; `None` if no reclaimed page is left to check.
    pub(crate) fn due(&self) -> Option<Time> {
        (!self.blocks.is_empty()).then_some(self.sweep_after)
    }

    /// Does the next step of the sweep if it is due; returns the bytes that were refaulted.
    pub(crate) fn check(&mut self, kernel: &mut dyn Kernel, limit: f64) -> u64 {
        let began = kernel.now();
        if self.due().is_none_or(|due| began < due) {
            return 0;
        }
        let from = self.sweep_at.unwrap_or((SpaceId(0), 0));
        let keys: Vec<(SpaceId, u64)> =
            self.blocks.range(from..).take(STEP).map(|(key, _)| *key).collect();
        let back: u64 = keys.iter().map(|key| self.check_block(*key, kernel)).sum();
        self.sweep_at = keys.last().map(|(space, block)| (*space, block + 1));
        let now = kernel.now();
        self.sweep_after = now + now.since(began).max(Duration::from_nanos(1)) * SHARE;
        if keys.len() < STEP {
            self.sweep_at = None;
            self.sweep_after = self.sweep_after.max(Time(now.0 + ROUND));
        }
        self.note(now, 0, back);
        let sum = |of: fn(&(Time, u64, u64)) -> u64| self.recent.iter().map(of).sum::<u64>();
        let (out, all) = (sum(|recent| recent.1), sum(|recent| recent.2));
        // The kernel's reclaim works in batches of 32 pages: fewer are not significant.
        if back > 0 && all >= 32 && all as f64 > limit * out as f64 {
            self.paused = Time(now.0 + SPAN);
        }
        back * PAGE_SIZE
    }

    /// Checks all blocks once, at the end; returns the bytes refaulted since their last check.
    pub(crate) fn check_all(&mut self, kernel: &mut dyn Kernel) -> u64 {
        let keys: Vec<(SpaceId, u64)> = self.blocks.keys().copied().collect();
        keys.into_iter().map(|key| self.check_block(key, kernel)).sum::<u64>() * PAGE_SIZE
    }

    fn check_block(&mut self, key: (SpaceId, u64), kernel: &mut dyn Kernel) -> u64 {
        let mut pages = [Paged::Absent; PAGES];
        let read = read_block(key, kernel, &mut pages);
        let Some(words) = self.blocks.get_mut(&key) else { return 0 };
        if !read {
            self.blocks.remove(&key);
            return 0;
        }
        let mut back = 0;
        for (index, page) in pages.iter().enumerate() {
            let (word, bit) = (index / 64, 1 << (index % 64));
            // A page that is neither in memory nor in swap was unmapped.
            if words[word] & bit != 0 && *page != Paged::Swapped {
                words[word] &= !bit;
                back += u64::from(page.is_present());
            }
        }
        if words.iter().all(|word| *word == 0) {
            self.blocks.remove(&key);
        }
        back
    }

    /// Time until which reclaim is paused because of too many refaults; `None` if it is not.
    pub(crate) fn until(&self, now: Time) -> Option<Time> {
        (now < self.paused).then_some(self.paused)
    }
}

/// Reads the states of a block's pages; of shared memory, through all processes that map it.
/// Returns whether any of them could be read.
fn read_block((space, block): (SpaceId, u64), kernel: &mut dyn Kernel, out: &mut [Paged]) -> bool {
    let start = block * BATCH;
    let mut read = false;
    for user in kernel.users(&Range::new(space, start, start + BATCH)) {
        let first = ((user.range.start - start) >> PAGE_SHIFT) as usize;
        let mut pages = vec![Paged::Absent; (user.range.bytes() >> PAGE_SHIFT) as usize];
        if kernel.paged(user.owner.pid, user.at, &mut pages).is_err() {
            continue;
        }
        read = true;
        for (to, from) in out[first..].iter_mut().zip(pages) {
            *to = if from == Paged::Absent { *to } else { from };
        }
    }
    read
}

#[cfg(test)]
mod tests {
    use super::super::fake::{Fake, page};
    use super::*;

    // 1000 pages are reclaimed; 40 are refaulted, then 20 more: 5 % are allowed.
    #[test]
    fn refaults_are_counted_once_and_pause_reclaim() {
        let mut fake = Fake::with_pages(1000, 0);
        fake.swap(2000);
        let mut refaults = Refaults::default();
        for number in 0..1000 {
            fake.swap_out(number);
            refaults.reclaimed(SpaceId(0), page(number), Time(0));
        }
        (0..40).for_each(|number| fake.swap_in(number));
        assert_eq!(refaults.check(&mut fake, 0.05) >> 12, 40);
        assert_eq!(refaults.until(fake.now()), None);
        fake.now = 2 * ROUND;
        assert_eq!(refaults.check(&mut fake, 0.05), 0, "they were counted");
        (40..60).for_each(|number| fake.swap_in(number));
        fake.now = 4 * ROUND;
        assert_eq!(refaults.check(&mut fake, 0.05) >> 12, 20);
        assert!(refaults.until(fake.now()).is_some());
        fake.now += SPAN;
        assert_eq!(refaults.until(fake.now()), None);
    }

    #[test]
    fn a_target_that_ended_is_forgotten() {
        let mut fake = Fake::with_pages(4, 0);
        let mut refaults = Refaults::default();
        refaults.reclaimed(SpaceId(0), page(1), Time(0));
        fake.gone = true;
        assert_eq!((refaults.check(&mut fake, 0.05), refaults.due()), (0, None));
    }
}
