//! Aging walk: scans upper entries or every leaf, and moves young pages to the youngest generation.
//!
//! Source: Linux 6.12 mm/vmscan.c (`walk_pgd_range`, `walk_pmd_range`, `walk_pte_range`,
//! `try_to_inc_max_seq`).

use tierscope_core::{AccessedSet, Level, Orders, Range, RangeSet, ScanMode, ScanStats};

use super::eviction::take;
use super::generations::{BLOCK, Key, PAGES, State, page_at, range_of};
use super::words::{Word, Words};
use super::{Known, Look, Reclaimer, SLICE, ScanPurpose, Walk, push};

/// A table with evicted pages and a young upper entry is scanned in one of this many walks, in case
/// a page refaulted. Assumed. Until then the refaulted page is neither evicted again nor counted.
const MEET: u64 = 4;

impl<W: Walk> Reclaimer<W> {
    pub(super) fn begin_walk(&mut self, orders: &mut Orders) {
        self.walking = true;
        self.walks += 1;
        self.next_walk = self.now + self.config.interval;
        let tables: RangeSet =
            self.mapped.as_slice().iter().map(|range| Level::PMD.align(range)).collect();
        match W::PRUNES {
            None => self.pending.extend(tables.as_slice()),
            Some(prune) => {
                // Tables not seen before are scanned without pruning: they may be resident under
                // old entries.
                let (known, new) = (tables.intersect(&self.seen), tables.minus(&self.seen));
                for (part, prune) in [(known, prune), (new, false)] {
                    let mode = ScanMode { clear: true, prune, present: true };
                    for range in part.as_slice() {
                        self.ask(*range, Level::PMD, mode, ScanPurpose::Above, orders);
                    }
                }
                self.seen = tables.clone();
            }
        }
        let also: RangeSet = self.walk.also().iter().map(|range| Level::PMD.align(range)).collect();
        self.pending.extend(also.intersect(&tables).as_slice());
        self.go_on(orders);
    }

    /// Orders scans of the next leaves of a walk, or ends it.
    pub(super) fn go_on(&mut self, orders: &mut Orders) {
        if !self.walking || !self.scans.is_empty() {
            return;
        }
        let mut left = SLICE;
        let mode = ScanMode { clear: true, prune: false, present: true };
        while let Some(range) = self.pending.front_mut()
            && left > 0
        {
            let end = range.end.min(range.start.saturating_add(left));
            let part = Range { end, ..*range };
            range.start = end;
            left -= part.bytes();
            if range.is_empty() {
                self.pending.pop_front();
            }
            self.ask(part, Level::PTE, mode, ScanPurpose::Leaves, orders);
        }
        if self.scans.is_empty() {
            self.end_walk();
        }
    }

    fn end_walk(&mut self) {
        self.walking = false;
        self.walk.end();
        if self.pages.age() {
            self.control.reset();
        }
    }

    /// Applies the result of a walk's scan of upper entries.
    pub(super) fn above(&mut self, set: &AccessedSet, stats: &ScanStats, orders: &mut Orders) {
        let huge = stats.leaves[1];
        for index in 0..set.entries() {
            let key = (set.range.space, (set.range.start >> Level::PMD.shift()) + index);
            if set.present[(index / 64) as usize] >> (index % 64) & 1 == 0 {
                continue;
            }
            let fresh = self.pages.table(key).is_none();
            if fresh {
                self.pages.learn(key, &self.mapped);
            }
            let Some(table) = self.pages.table_mut(key) else { continue };
            match huge {
                0 => table.huge = false,
                _ if huge >= stats.present => table.huge = true,
                // Some entries are huge leaves: assume those whose pages are all equal.
                _ => table.huge = table.is_alike(),
            }
            if !set.is_young(index) {
                continue;
            }
            let is_huge = table.huge;
            let out = table.count(State::Reclaimed) + table.count(State::Reclaiming) > 0;
            if is_huge && !out {
                let renewed = self.pages.touch_all(key);
                self.config.costs.charge(orders, renewed.min(1));
                continue;
            }
            match self.walk.enters(Known { key, table }, fresh) {
                // Refaulted pages must be found by a scan; unlike the kernel, this policy sees no
                // fault.
                _ if out && self.walks.is_multiple_of(MEET) => {
                    push(&mut self.pending, range_of(key))
                }
                Look::Into => push(&mut self.pending, range_of(key)),
                Look::Past => {}
                Look::Trust => {
                    let renewed = self.pages.renew(key);
                    self.config.costs.charge(orders, renewed.min(1));
                }
            }
        }
        self.config.costs.charge(orders, set.young_count());
    }

    /// Applies the result of a scan of leaves, in a walk or in a check before eviction.
    pub(super) fn leaves(&mut self, set: &AccessedSet, check: bool, orders: &mut Orders) {
        let words = Words::new(set, &self.mapped);
        let (mut back, mut changed, mut marked) = (0, 0, 0_u32);
        let mut chosen: Vec<Range> = Vec::new();
        let last_tier = self.control.last_tier();
        for key in words.keys() {
            let (mut young, mut present) = (0, 0);
            for word in words.of(key) {
                young += u64::from(word.young.count_ones());
                present += u64::from(word.present.count_ones());
            }
            marked = marked.saturating_add(young as u32);
            self.at_once(key, young, present);
            // A huge page is evicted as a whole or not at all.
            let whole = self.pages.table(key).is_some_and(|table| table.huge);
            let check = check && !(whole && self.left < PAGES as u64);
            for word in words.of(key) {
                if !self.changes(key, word, check) {
                    continue;
                }
                for index in word.first..word.first + BLOCK {
                    let bit = 1 << (index - word.first);
                    if word.mapped & bit == 0 {
                        continue;
                    }
                    changed += 1;
                    match (word.present & bit != 0, word.young & bit != 0) {
                        (true, true) => back += u64::from(self.found(key, index)),
                        (true, false) => back += u64::from(self.old(key, index)),
                        (false, _) => self.missing(key, index),
                    }
                    if check && self.may_go(key, index, last_tier) {
                        take(&mut chosen, page_at(key, index));
                    }
                }
            }
            self.pages.tidy(key);
            if let Some(table) = self.pages.table_mut(key) {
                self.walk.saw(Known { key, table }, young, present, self.walking);
            }
        }
        self.config.costs.charge(orders, changed / 8 + set.entries() / PAGES as u64);
        orders.work += self.config.mark * marked;
        self.way.note(self.now, 0, back);
        self.give_back(chosen, orders);
    }

    /// Updates a table as a whole, if all of its pages are present or young.
    fn at_once(&mut self, key: Key, young: u64, present: u64) {
        let all = PAGES as u64;
        if present == all && self.pages.table(key).is_none() {
            self.pages.learn(key, &self.mapped);
        }
        let Some(table) = self.pages.table(key) else { return };
        if young == all && table.count(State::Reclaimed) + table.count(State::Reclaiming) == 0 {
            self.pages.touch_all(key);
        }
    }

    /// Whether a word of the result can change the state of its pages.
    fn changes(&self, key: Key, word: &Word, check: bool) -> bool {
        let Some(table) = self.pages.table(key) else { return word.present != 0 };
        if table.count(self.pages.youngest()) == PAGES as u64 && word.present == u64::MAX {
            return false;
        }
        let all_there = word.present == word.mapped && word.mapped == u64::MAX;
        let none_there = word.present == 0;
        let nothing_out = table.count(State::Absent) + table.count(State::Reclaimed) == 0;
        let nothing_in = table.count(State::Absent) + table.count(State::Reclaimed) == PAGES as u64;
        let old = check && table.count(self.pages.oldest()) > 0;
        old || word.young != 0 || !((all_there && nothing_out) || (none_there && nothing_in))
    }

    /// Records that a page was found present and old. Returns whether it is a refault.
    fn old(&mut self, key: Key, index: usize) -> bool {
        match self.pages.table(key).map_or(State::Absent, |table| table.page(index).state()) {
            State::In(_) | State::Reclaiming => false,
            State::Absent | State::Reclaimed => self.found(key, index),
        }
    }

    /// Records that a page was found not present.
    fn missing(&mut self, key: Key, index: usize) {
        if let Some(table) = self.pages.table(key)
            && matches!(table.page(index).state(), State::In(_))
        {
            self.pages.set(key, index, State::Absent);
        }
    }
}
