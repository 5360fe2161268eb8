//! Eviction: pages of the oldest generation are scanned once more, and reclaimed if still old.
//!
//! Source: Linux 6.12 mm/vmscan.c (`evict_folios`, `sort_folio`, `lru_gen_look_around`).

use std::collections::VecDeque;

use tierscope_core::{AccessedSet, Failure, Level, Orders, Outcome, Range, ScanMode};

use super::generations::{
    BLOCK, BLOCK_SHIFT, Key, PAGES, State, Table, page_at, pages_in, range_of,
};
use super::words::Words;
use super::{Reclaimer, SLICE, ScanPurpose, Walk, push_near};

/// Maximum number of pending reclaim actions.
const UNDER_WAY: usize = 4096;
/// Ranges of leaves are scanned by one call if the gap between them is at most this long: a call
/// costs as much as some hundreds of entries (`lab run reclaim`, where calls for single tables took
/// twice an entry's time). For upper entries, each of which covers 512 leaves, the gap may be 512
/// times as long.
const NEAR: u64 = 2 << 20;
/// Maximum bytes of an action: after a partial failure, all of it is scanned again.
const ACTION: u64 = 2 << 20;

impl<W: Walk> Reclaimer<W> {
    /// Orders scans of pages of the oldest generation, as many as may be reclaimed.
    pub(super) fn begin_check(&mut self, orders: &mut Orders) {
        let (reclaiming, out) =
            (self.pages.total(State::Reclaiming), self.pages.total(State::Reclaimed));
        let resident = self.pages.resident() - reclaiming;
        self.left = self.way.allows(self.now, resident, out + reclaiming);
        self.left = self.left.min(SLICE >> 12);
        if self.left == 0 || !self.pages.can_evict() || self.reclaiming.len() >= UNDER_WAY {
            return;
        }
        let keys = self.candidates();
        let Some(last) = keys.last() else { return };
        self.hand = (last.0, last.1 + 1);
        let checks_above = W::CHECKS_ABOVE && !self.walk.shares_bits();
        let (mut above, mut below) = (VecDeque::new(), VecDeque::new());
        for key in keys {
            match checks_above && self.pages.table(key).is_some_and(speaks_above) {
                true => push_near(&mut above, range_of(key), NEAR << 9),
                false => push_near(&mut below, self.old_blocks(key), NEAR),
            }
        }
        let mode = ScanMode { clear: false, prune: false, present: true };
        for range in above {
            self.ask(range, Level::PMD, mode, ScanPurpose::CheckAbove, orders);
        }
        self.ask_leaves(below, orders);
    }

    /// Orders scans of the leaves of eviction candidates.
    fn ask_leaves(&mut self, ranges: VecDeque<Range>, orders: &mut Orders) {
        let mode = ScanMode { clear: true, prune: false, present: true };
        for range in ranges {
            self.ask(range, Level::PTE, mode, ScanPurpose::Check, orders);
        }
    }

    /// Tables with enough old pages for the allowance, those in preferred ranges first.
    fn candidates(&self) -> Vec<Key> {
        let oldest = self.pages.oldest();
        let count = |key: &Key| self.pages.table(*key).map_or(0, |table| table.count(oldest));
        let mut wanted = self.left;
        let mut keys: Vec<Key> = Vec::new();
        let first = self.walk.first().iter().flat_map(|range| self.pages.keys_in(range));
        let first = first.filter(|key| count(key) > 0);
        for key in first.chain(self.pages.old_tables(self.hand)) {
            if wanted == 0 || keys.len() >= UNDER_WAY {
                break;
            }
            keys.push(key);
            wanted = wanted.saturating_sub(count(&key));
        }
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// The blocks of a table from the first to the last with pages of the oldest generation.
    fn old_blocks(&self, key: Key) -> Range {
        let (oldest, range) = (self.pages.oldest(), range_of(key));
        let Some(table) = self.pages.table(key).filter(|table| !table.is_alike() && !table.huge)
        else {
            return range;
        };
        let is_old = |index: &usize| table.page(*index).state() == oldest;
        let first = (0..PAGES).find(is_old).unwrap_or(0) / BLOCK;
        let last = (0..PAGES).rfind(is_old).unwrap_or(PAGES - 1) / BLOCK;
        let at = |block: usize| range.start + ((block as u64) << BLOCK_SHIFT);
        Range { start: at(first), end: at(last + 1), ..range }
    }

    /// Applies scans of the upper entries of eviction candidates. Under an old entry that is
    /// conclusive, no page was accessed since a walk cleared the entry, which was after the pages
    /// were last seen young.
    pub(super) fn check_above(&mut self, set: &AccessedSet, orders: &mut Orders) {
        let mut doubtful: VecDeque<Range> = VecDeque::new();
        let mut chosen: Vec<Range> = Vec::new();
        let last_tier = self.control.last_tier();
        for index in 0..set.entries() {
            let key = (set.range.space, (set.range.start >> Level::PMD.shift()) + index);
            let Some(table) = self.pages.table(key) else { continue };
            if table.count(self.pages.oldest()) == 0 || !speaks_above(table) {
                continue;
            }
            if set.is_young(index) && table.huge {
                self.pages.touch_all(key);
            } else if set.is_young(index) {
                push_near(&mut doubtful, self.old_blocks(key), NEAR);
            } else if !table.huge || self.left >= PAGES as u64 {
                for page in 0..PAGES {
                    if self.may_go(key, page, last_tier) {
                        take(&mut chosen, page_at(key, page));
                    }
                }
                self.pages.tidy(key);
            }
        }
        self.config.costs.charge(orders, set.entries());
        self.give_back(chosen, orders);
        self.ask_leaves(doubtful, orders);
    }

    /// Whether a page just found old is reclaimed; marks it so, or protects it because of its tier.
    pub(super) fn may_go(&mut self, key: Key, index: usize, last_tier: usize) -> bool {
        let Some(page) = self.pages.table(key).map(|table| table.page(index)) else { return false };
        if page.state() != self.pages.oldest() || self.left == 0 {
            return false;
        }
        if page.tier() > last_tier {
            self.control.spared(page.tier());
            self.pages.spare(key, index);
            return false;
        }
        self.pages.set(key, index, State::Reclaiming);
        self.left -= 1;
        true
    }

    pub(super) fn give_back(&mut self, chosen: Vec<Range>, orders: &mut Orders) {
        self.config.costs.charge(orders, chosen.len() as u64);
        for range in chosen {
            self.way.spend(range.bytes() >> 12);
            self.reclaiming.order(range, orders);
        }
    }

    pub(super) fn ended(&mut self, outcome: &Outcome, orders: &mut Orders) {
        let Some(range) = self.reclaiming.end(outcome) else { return };
        if outcome.failed == 0 && outcome.why.is_none_or(|why| why == Failure::Unmapped) {
            self.went(&range);
        } else if outcome.done == 0 {
            self.stayed(&range);
        } else {
            let whole = Level::PMD.align(&range);
            let mode = ScanMode { clear: false, prune: false, present: true };
            self.ask(whole, Level::PTE, mode, ScanPurpose::Settle, orders);
        }
    }

    fn went(&mut self, range: &Range) {
        let mut out = 0;
        for key in self.pages.keys_in(range) {
            for index in pages_in(key, range) {
                let Some(page) = self.pages.table(key).map(|table| table.page(index)) else {
                    break;
                };
                if page.state() == State::Reclaiming {
                    self.control.evicted(page.tier());
                    self.pages.set(key, index, State::Reclaimed);
                    out += 1;
                }
            }
            self.pages.tidy(key);
        }
        self.way.note(self.now, out, 0);
    }

    /// Moves pages whose reclaim failed to the youngest generation, so that it is not retried
    /// before they have aged.
    fn stayed(&mut self, range: &Range) {
        for key in self.pages.keys_in(range) {
            for index in pages_in(key, range) {
                let page = self.pages.table(key).map(|table| table.page(index));
                if page.is_some_and(|page| page.state() == State::Reclaiming) {
                    self.pages.set(key, index, self.pages.youngest());
                }
            }
            self.pages.tidy(key);
        }
    }

    /// Applies the scan after a partly failed action: pages still present were not reclaimed.
    pub(super) fn settle(&mut self, set: &AccessedSet) {
        let words = Words::new(set, &self.mapped);
        for key in words.keys() {
            for word in words.of(key) {
                for index in word.first..word.first + BLOCK {
                    let page = page_at(key, index);
                    match word.present >> (index - word.first) & 1 {
                        1 => self.stayed(&page),
                        _ => self.went(&page),
                    }
                }
            }
        }
    }
}

/// Whether an old upper entry proves that no page below was accessed: not if the entry was young in
/// a walk that skipped the leaves.
fn speaks_above(table: &Table) -> bool {
    table.huge || !table.leaves.is_doubtful()
}

/// Adds a range to reclaim, to the last action if it still fits.
pub(super) fn take(chosen: &mut Vec<Range>, next: Range) {
    match chosen.last_mut() {
        Some(last) if last.touches(&next) && last.start / ACTION == next.start / ACTION => {
            last.end = next.end;
        }
        _ => chosen.push(next),
    }
}
