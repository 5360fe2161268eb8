//! Pages that we gave back and that are in memory again: somebody wanted them.
//!
//! Looked for block by block in the page map, round and round, for a small share of a CPU. A page is counted
//! once each time that it was given back, and as late as the round takes.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tierscope_core::{PAGE_SHIFT, PAGE_SIZE, SpaceId, Time};

use super::kernel::Kernel;
use super::limits::BATCH;
use super::paging::Paged;

const PAGES: usize = (BATCH >> PAGE_SHIFT) as usize;
/// Share of a CPU that looking may take: 1/100.
const SHARE: u32 = 100;
/// A round begins no sooner after the last one.
const ROUND: u64 = 1_000_000_000;
/// Time over which the brake counts, and for which it holds, in nanoseconds.
const SPAN: u64 = 10_000_000_000;
/// Blocks looked at in a step.
const STEP: usize = 64;

/// What is out by us.
#[derive(Clone, Debug, Default)]
pub(crate) struct Refaults {
    blocks: BTreeMap<(SpaceId, u64), [u64; PAGES / 64]>,
    /// Where the round goes on.
    hand: Option<(SpaceId, u64)>,
    rested: Time,
    /// Pages that went and came back, with the time.
    recent: VecDeque<(Time, u64, u64)>,
    paused: Time,
}

impl Refaults {
    /// A page went.
    pub(crate) fn went(&mut self, space: SpaceId, at: u64, now: Time) {
        let index = ((at % BATCH) >> PAGE_SHIFT) as usize;
        let words = self.blocks.entry((space, at / BATCH)).or_default();
        words[index / 64] |= 1 << (index % 64);
        self.note(now, 1, 0);
    }

    fn note(&mut self, now: Time, out: u64, back: u64) {
        match self.recent.back_mut() {
            // A tenth of a second is fine enough.
            Some(last) if now.0 < last.0.0 + SPAN / 100 => {
                (last.1, last.2) = (last.1 + out, last.2 + back);
            }
            _ => self.recent.push_back((now, out, back)),
        }
        while self.recent.front().is_some_and(|(at, ..)| at.0 + SPAN < now.0) {
            self.recent.pop_front();
        }
    }

    /// When there is something to look at; `None` if nothing is out.
    pub(crate) fn due(&self) -> Option<Time> {
        (!self.blocks.is_empty()).then_some(self.rested)
    }

    /// Looks at the next few blocks, if it is time; returns the bytes that came back.
    pub(crate) fn look(&mut self, kernel: &mut dyn Kernel, limit: f64) -> u64 {
        let began = kernel.now();
        if self.due().is_none_or(|due| began < due) {
            return 0;
        }
        let from = self.hand.map_or((SpaceId(0), 0), |hand| hand);
        let keys: Vec<(SpaceId, u64)> =
            self.blocks.range(from..).take(STEP).map(|(key, _)| *key).collect();
        let back: u64 = keys.iter().map(|key| self.look_at(*key, kernel)).sum();
        self.hand = keys.last().map(|(space, block)| (*space, block + 1));
        let now = kernel.now();
        self.rested = now + now.since(began).max(Duration::from_nanos(1)) * SHARE;
        if keys.len() < STEP {
            self.hand = None;
            self.rested = self.rested.max(Time(now.0 + ROUND));
        }
        self.note(now, 0, back);
        let sum = |of: fn(&(Time, u64, u64)) -> u64| self.recent.iter().map(of).sum::<u64>();
        let (out, all) = (sum(|recent| recent.1), sum(|recent| recent.2));
        // A batch of the kernel's reclaim is 32 pages: less says nothing.
        if back > 0 && all >= 32 && all as f64 > limit * out as f64 {
            self.paused = Time(now.0 + SPAN);
        }
        back * PAGE_SIZE
    }

    /// Looks at all blocks once, at the end; returns the bytes that came back since they were last looked at.
    pub(crate) fn look_at_all(&mut self, kernel: &mut dyn Kernel) -> u64 {
        let keys: Vec<(SpaceId, u64)> = self.blocks.keys().copied().collect();
        keys.into_iter().map(|key| self.look_at(key, kernel)).sum::<u64>() * PAGE_SIZE
    }

    fn look_at(&mut self, key: (SpaceId, u64), kernel: &mut dyn Kernel) -> u64 {
        let mut pages = [Paged::Absent; PAGES];
        let pid = kernel.pid_of(key.0);
        let told = pid.is_some_and(|pid| kernel.paged(pid, key.1 * BATCH, &mut pages).is_ok());
        let Some(words) = self.blocks.get_mut(&key) else { return 0 };
        if !told {
            self.blocks.remove(&key);
            return 0;
        }
        let mut back = 0;
        for (index, page) in pages.iter().enumerate() {
            let (word, bit) = (index / 64, 1 << (index % 64));
            // What is in neither was unmapped, and nobody's.
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

    /// Until when nothing is to be given back, because too much came back.
    pub(crate) fn until(&self, now: Time) -> Option<Time> {
        (now < self.paused).then_some(self.paused)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::{Fake, page};
    use super::*;

    // 1000 pages went; 40 come back, then 20 more: 5 % are allowed.
    #[test]
    fn what_comes_back_is_counted_once_and_stops_us() {
        let mut fake = Fake::with_pages(1000, 0);
        fake.swap(2000);
        let mut refaults = Refaults::default();
        for number in 0..1000 {
            fake.swap_out(number);
            refaults.went(SpaceId(0), page(number), Time(0));
        }
        (0..40).for_each(|number| fake.swap_in(number));
        assert_eq!(refaults.look(&mut fake, 0.05) >> 12, 40);
        assert_eq!(refaults.until(fake.now()), None);
        fake.now = 2 * ROUND;
        assert_eq!(refaults.look(&mut fake, 0.05), 0, "they were counted");
        (40..60).for_each(|number| fake.swap_in(number));
        fake.now = 4 * ROUND;
        assert_eq!(refaults.look(&mut fake, 0.05) >> 12, 20);
        assert!(refaults.until(fake.now()).is_some());
        fake.now += SPAN;
        assert_eq!(refaults.until(fake.now()), None);
    }

    #[test]
    fn a_target_that_ended_is_forgotten() {
        let mut fake = Fake::with_pages(4, 0);
        let mut refaults = Refaults::default();
        refaults.went(SpaceId(0), page(1), Time(0));
        fake.gone = true;
        assert_eq!((refaults.look(&mut fake, 0.05), refaults.due()), (0, None));
    }
}
