//! Page bookkeeping of MEMTIS: page lists with access counts, the histograms, and the thresholds
//! between hot, warm and cold.

use tierscope_core::Tier;

use super::TIERS;
use super::histogram::{Histogram, bin};
use super::skew::{WEIGHT, skewness};
use crate::pages::{Change, ListId, Lists, PageStates};

/// Per-page state: the access count in two halves, so that it packs into three two-byte fields, and
/// the number of the last cooling applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Heat {
    low: u16,
    high: u16,
    clock: u16,
}

impl Heat {
    pub(super) fn count(self) -> u32 {
        u32::from(self.high) << 16 | u32::from(self.low)
    }

    pub(super) fn set(&mut self, count: u32) {
        (self.high, self.low) = ((count >> 16) as u16, count as u16);
    }

    /// Applies the coolings missed since the last update.
    pub(super) fn cool(&mut self, clock: u16) {
        let missed = u32::from(clock.wrapping_sub(self.clock));
        self.set(self.count().checked_shr(missed).unwrap_or(0));
        self.clock = clock;
    }

    pub(super) fn add(&mut self, weight: u32) {
        self.set(self.count().saturating_add(weight));
    }
}

pub(super) fn list(tier: Tier, hot: bool) -> ListId {
    ListId(2 * tier.0 + u8::from(hot))
}

pub(super) fn locked(tier: Tier) -> ListId {
    ListId(2 * TIERS + tier.0)
}

/// Page lists with access counts, histograms, and the thresholds between hot, warm and cold.
#[derive(Clone, Debug)]
pub(super) struct Pages {
    pub(super) lists: Lists<Heat>,
    pub(super) all: Histogram,
    /// Histogram as if there were base pages only.
    pub(super) base: Histogram,
    pub(super) clock: u16,
    pub(super) hot: usize,
    pub(super) warm: usize,
    /// Hot threshold of the base-page histogram.
    pub(super) base_hot: usize,
    pub(super) gone: Vec<u32>,
}

impl Pages {
    pub(super) fn new() -> Self {
        Self {
            lists: Lists::new(usize::from(3 * TIERS)),
            all: Histogram::default(),
            base: Histogram::default(),
            clock: 0,
            hot: 1,
            warm: 1,
            base_hot: 1,
            gone: Vec::new(),
        }
    }

    pub(super) fn small(&self, page: u32) -> u64 {
        1 << self.lists.order(page)
    }

    pub(super) fn is_huge(&self, page: u32) -> bool {
        self.lists.order(page) == 9
    }

    /// Page numbers of a huge page's subpages, under which their counts are kept; empty for a base
    /// page.
    pub(super) fn subpages(&self, page: u32) -> std::ops::Range<u32> {
        if self.is_huge(page) { page..page + 512 } else { page..page }
    }

    pub(super) fn bin(&self, page: u32) -> usize {
        bin(self.lists.payload(page).count())
    }

    pub(super) fn is_hot(&self, page: u32) -> bool {
        self.bin(page) >= self.hot
    }

    pub(super) fn tier(&self, page: u32) -> Option<Tier> {
        let list = self.lists.list_of(page)?;
        (list.0 < 2 * TIERS).then_some(Tier(list.0 / 2))
    }

    pub(super) fn put(&mut self, page: u32, tier: Tier) {
        if tier.0 < TIERS {
            self.lists.push_head(list(tier, self.is_hot(page)), page);
        }
    }

    /// Adds the page to the histograms, or removes it.
    pub(super) fn tally(&mut self, page: u32, within: bool) {
        let (bin_of_page, small) = (self.bin(page), self.small(page));
        let change = |histogram: &mut Histogram, bin, pages| {
            if within { histogram.add(bin, pages) } else { histogram.take(bin, pages) }
        };
        change(&mut self.all, bin_of_page, small);
        if !self.is_huge(page) {
            return change(&mut self.base, bin_of_page, small);
        }
        for subpage in self.subpages(page) {
            let bin = bin(self.sub_count(page, subpage));
            change(&mut self.base, bin, 1);
        }
    }

    /// Access count of a subpage.
    pub(super) fn sub_count(&self, page: u32, subpage: u32) -> u32 {
        match subpage == page {
            // The first subpage's number holds the count of the whole huge page.
            true => self.lists.spare(page + 1),
            false => self.lists.extra(subpage).count(),
        }
    }

    pub(super) fn set_sub_count(&mut self, page: u32, subpage: u32, count: u32) {
        match subpage == page {
            true => self.lists.set_spare(page + 1, count),
            false => self.lists.extra_mut(subpage).set(count),
        }
    }

    /// Applies `missed` coolings to the subpages of a huge page.
    pub(super) fn cool_subpages(&mut self, page: u32, missed: u32) {
        for subpage in self.subpages(page) {
            let count = self.sub_count(page, subpage).checked_shr(missed).unwrap_or(0);
            self.set_sub_count(page, subpage, count);
        }
    }

    /// Applies missed coolings to a page, and adds it to the rebuilt histograms.
    pub(super) fn cool(&mut self, page: u32) {
        let clock = self.clock;
        let missed = clock.wrapping_sub(self.lists.payload(page).clock);
        if missed == 0 {
            return;
        }
        self.lists.payload_mut(page).cool(clock);
        self.cool_subpages(page, missed.into());
        self.tally(page, true);
        if let Some(tier) = self.tier(page) {
            let wanted = list(tier, self.is_hot(page));
            if self.lists.list_of(page) != Some(wanted) {
                self.lists.push_head(wanted, page);
            }
        }
    }

    /// Counts a sample of a page, at one of its subpages.
    pub(super) fn sample(&mut self, page: u32, subpage: u32) {
        self.cool(page);
        self.tally(page, false);
        if self.is_huge(page) {
            self.lists.payload_mut(page).add(1);
            let count = self.sub_count(page, subpage).saturating_add(WEIGHT);
            self.set_sub_count(page, subpage, count);
        } else {
            self.lists.payload_mut(page).add(WEIGHT);
        }
        self.tally(page, true);
        if let Some(tier) = self.tier(page)
            && self.lists.list_of(page) != Some(list(tier, true))
            && self.is_hot(page)
        {
            self.lists.push_head(list(tier, true), page);
        }
    }

    /// Adds samples to a huge page without attribution to subpages.
    pub(super) fn add(&mut self, page: u32, samples: u32) {
        self.cool(page);
        self.tally(page, false);
        self.lists.payload_mut(page).add(samples);
        self.tally(page, true);
        if let Some(tier) = self.tier(page)
            && self.lists.list_of(page) != Some(list(tier, true))
            && self.is_hot(page)
        {
            self.lists.push_head(list(tier, true), page);
        }
    }

    /// Attributes a huge page's samples to its subpages in proportion to their requests.
    pub(super) fn divide(&mut self, page: u32, requests: &[u64], all: u64) {
        self.cool(page);
        self.tally(page, false);
        let samples = f64::from(self.lists.payload(page).count());
        for (subpage, requests) in self.subpages(page).zip(requests) {
            let count = samples * f64::from(WEIGHT) * *requests as f64 / all as f64;
            self.set_sub_count(page, subpage, count.round() as u32);
        }
        self.tally(page, true);
    }

    /// Sets the thresholds. The hot one may fall by one after cooling, and otherwise only rises.
    pub(super) fn adapt(&mut self, room: u64, after_cooling: bool) {
        let (line, filled) = self.all.threshold(room);
        let least = if after_cooling { self.hot.saturating_sub(1) } else { self.hot };
        self.hot = line.max(least).max(1);
        let short = (filled as f64) < 0.75 * room as f64;
        self.warm = if short { self.hot - 1 } else { self.hot };
        self.base_hot = self.base.threshold(room).0;
    }

    /// Replaces a huge page by 512 base pages with the counts of its subpages.
    pub(super) fn split(&mut self, page: u32, tier: Tier) {
        self.tally(page, false);
        let counts: Vec<u32> =
            self.subpages(page).map(|subpage| self.sub_count(page, subpage)).collect();
        self.lists.forget(page);
        for (subpage, count) in (page..).zip(counts) {
            if self.lists.knows(subpage) {
                continue;
            }
            self.lists.add(subpage, 0);
            let heat = self.lists.payload_mut(subpage);
            heat.set(count);
            heat.clock = self.clock;
            self.tally(subpage, true);
            self.put(subpage, tier);
        }
    }

    pub(super) fn skewness(&self, page: u32) -> u64 {
        let count = self.lists.payload(page).count();
        let subpages = self.subpages(page).map(|subpage| self.sub_count(page, subpage));
        skewness(count, subpages, self.hot.min(self.base_hot))
    }
}

impl PageStates for Pages {
    fn order_of(&self, page: u32) -> Option<u8> {
        self.lists.knows(page).then(|| self.lists.order(page))
    }

    fn reserve(&mut self, pages: u32) {
        self.lists.reserve(pages);
    }

    fn change(&mut self, change: Change) {
        match change {
            Change::Seen { page, order, tier, .. } => {
                if !self.lists.knows(page) {
                    let order = if order > 9 { 9 } else { order };
                    self.lists.cover(page, 1 << order);
                    self.lists.add(page, order);
                    self.lists.payload_mut(page).clock = self.clock;
                    for subpage in self.subpages(page) {
                        self.set_sub_count(page, subpage, 0);
                    }
                    self.tally(page, true);
                    self.put(page, tier);
                } else if self.tier(page).is_some_and(|known| known != tier) {
                    self.put(page, tier);
                }
            }
            Change::Gone { page } if self.lists.knows(page) => {
                if self.lists.payload(page).clock == self.clock {
                    self.tally(page, false);
                }
                self.gone.push(page);
                self.lists.forget(page);
            }
            Change::Locked { page, on } if self.lists.knows(page) => {
                let tier = self.lists.list_of(page).map(|list| match list.0 {
                    list if list < 2 * TIERS => Tier(list / 2),
                    list => Tier(list - 2 * TIERS),
                });
                match tier {
                    Some(tier) if on => self.lists.push_head(locked(tier), page),
                    Some(tier) => self.put(page, tier),
                    None => {}
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_coolings_are_applied_later() {
        let mut heat = Heat::default();
        heat.add(70_000);
        heat.cool(2);
        assert_eq!((heat.count(), heat.clock), (17_500, 2));
        heat.cool(1000);
        assert_eq!(heat.count(), 0);
    }
}
