//! Generations of pages, walks that renew them, and what is oldest given back: what MGLRU and its kin share.
//!
//! Source: Linux 6.12 mm/vmscan.c (`lru_gen_*`); [`crate::mglru`], [`crate::mglru_linear`] and
//! [`crate::mglru_telescope`] say how each of them walks.
//!
//! A walk asks the upper entries first ([`Walk::PRUNES`]) or every leaf; what is young gets into the youngest
//! generation, and a new one is opened (`try_to_inc_max_seq`). While more than two generations have pages,
//! those of the oldest are looked at once more, with their neighbours (`lru_gen_look_around`), and those that
//! are still old are given back, unless their tier comes back too often (`control.rs`).
//!
//! Where this differs from the kernel, and why:
//!
//! - No lists: the kernel takes from a generation's tail, here a hand goes round the addresses. Within a
//!   generation nothing says which page is older.
//! - Pages become known by what a walk finds present, and by page events where there are some, instead of by
//!   the fault that brings them.
//! - One type of pages: anonymous memory, and files where `files` says so. Swappiness has no meaning.
//! - The kernel opens generations on demand; here no sooner than `interval` after the last, since a tool that
//!   reclaims ahead of time has nobody who waits.
//! - What came back without a page event is met by a look at its table, in one walk of four: the kernel learns of
//!   it by the fault.
//! - A look at a page's neighbours takes the whole blocks of 64 pages that hold candidates, whether one of them
//!   was young or not: a word of a scan's answer costs less than a call.
//!
//! Nothing is given back that a look just before did not find old.

pub(crate) mod control;
pub(crate) mod filter;
pub(crate) mod generations;
pub mod goal;
pub(crate) mod leaving;
mod words;

use std::collections::VecDeque;
use std::time::Duration;

use tierscope_core::{
    AccessedSet, Backing, Evidence, Failure, Level, Mappings, Orders, Outcome, PageEvent,
    PageEventKind, PlacementView, Policy, Range, RangeSet, ScanMode, ScanOrder, ScanStats, Setting,
    Snapshot, SpaceId, Time,
};

use crate::cost::Costs;
use crate::settings::{Settings, Visit, recorded};
use control::Control;
use generations::{BLOCK, BLOCK_SHIFT, Generations, Key, PAGES, State, Table, pages_in, range_of};
use goal::{Goal, Way};
use leaving::Leaving;
use words::{Word, Words};

/// Settings that all of them have.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Time from one walk to the next, at least.
    pub interval: Duration,
    /// What is aimed at.
    pub goal: Goal,
    /// Files are given back too.
    pub files: bool,
    /// Walks for which a dense table's upper entry speaks for it; of `mglru-telescope` alone.
    pub rest: u8,
    /// What its work costs.
    pub costs: Costs,
}

/// `interval` is assumed: two walks without an access make a page cold, and what a request of the last seconds
/// touched is not. To be varied from 0.5 to 30 s.
impl Default for Config {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(2),
            goal: Goal::default(),
            files: false,
            rest: 0,
            costs: Costs::default(),
        }
    }
}

impl Settings for Config {
    fn visit(&mut self, each: &mut dyn Visit) {
        each.value("interval", "time from one walk to the next", &mut self.interval);
        self.goal.visit(each);
        each.value("files", "pages of files are given back too", &mut self.files);
        let about = "walks for which a table with many young pages is not looked into";
        each.value("rest", about, &mut self.rest);
        self.costs.visit(each);
    }

    fn check(&self) -> Result<(), String> {
        if self.interval.is_zero() {
            return Err("`interval` must be above zero".into());
        }
        self.goal.check()
    }
}

/// How an algorithm walks.
pub trait Walk {
    /// Its name.
    const NAME: &'static str;
    /// Upper entries are asked before leaves: all of those of 2 MiB, or only those under young ones of the
    /// levels above. `None`: every leaf is asked.
    const PRUNES: Option<bool>;
    /// Before pages are given back their upper entry is asked, and their leaves only if it is young.
    const ASKS_ABOVE: bool = false;

    /// What to do with a table whose upper entry was young. `fresh`: nothing was known of it before.
    fn enters(&mut self, table: Known<'_>, fresh: bool) -> Look;

    /// So many of a table's pages were young: in a walk, or in a look before pages are given back.
    fn saw(&mut self, table: Known<'_>, young: u64, present: u64, walking: bool);

    /// A walk is over.
    fn end(&mut self) {}

    /// What an instrument says.
    fn regions(&mut self, _snapshot: &Snapshot) {}

    /// Ranges to be given back before others, the first first.
    fn first(&self) -> &[Range] {
        &[]
    }

    /// Ranges to look into whatever their upper entries say.
    fn also(&self) -> &[Range] {
        &[]
    }

    /// An instrument clears the bits of upper entries as well: they tell less.
    fn shares_bits(&self) -> bool {
        false
    }
}

/// What to do with a table whose upper entry was young.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Look into it.
    Into,
    /// Pass it by: its pages age.
    Past,
    /// Take its word: what was young before is so again.
    Trust,
}

/// A table that an algorithm is asked about.
#[derive(Debug)]
pub struct Known<'a> {
    pub(crate) key: Key,
    pub(crate) table: &'a mut Table,
}

/// Why a scan was ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// A walk's upper entries.
    Above,
    /// A walk's leaves.
    Leaves,
    /// Upper entries of pages that are to be given back.
    CheckAbove,
    /// Leaves of such pages.
    Check,
    /// What became of an action that failed in part.
    Settle,
}

/// Bytes kept for each page of 4 KiB, at most: its own, and its part of what a table takes (32 bytes, and twice
/// as much of the map that holds it).
pub const PAGE_BYTES: usize = 2;

/// Pages whose leaves are ordered to be scanned at a time: 16 GiB of addresses, of the order of 50 ms.
const SLICE: u64 = 16 << 30;
/// Actions under way at a time.
const UNDER_WAY: usize = 4096;
/// Answers that have not come by then never will.
const LOST: Duration = Duration::from_secs(5);
/// A table with pages that went, and an upper entry that is young, is looked into in one walk of so many: one of
/// them may have come back. Assumed: until then it is not given back again, and not counted.
const MEET: u64 = 4;
/// Leaves between two ranges are looked at with them up to so many bytes: a call costs as much as some hundreds
/// of entries (`lab run reclaim`, where calls for single tables took twice an entry's time), an entry of an upper
/// level covers 512 leaves.
const NEAR: u64 = 2 << 20;
/// How long to wait for outcomes.
const SOON: Duration = Duration::from_millis(20);

/// A policy of generations.
#[derive(Clone, Debug)]
pub struct Reclaimer<W> {
    config: Config,
    walk: W,
    pages: Generations,
    control: Control,
    way: Way,
    leaving: Leaving,
    /// What may be given back.
    mapped: RangeSet,
    locked: RangeSet,
    listed: RangeSet,
    /// Tables whose upper entries were asked, all of them, once.
    seen: RangeSet,
    /// Scans that were not answered yet, in order.
    asked: VecDeque<(ScanOrder, Why)>,
    asked_at: Time,
    /// Leaves that the walk has yet to ask for.
    pending: VecDeque<Range>,
    walking: bool,
    /// Walks that began.
    walks: u64,
    /// Where the hand stands.
    hand: Key,
    /// Pages that may be given back in this turn.
    left: u64,
    next_walk: Time,
    now: Time,
}

impl<W: Walk> Reclaimer<W> {
    pub(crate) fn of(config: Config, walk: W) -> Self {
        Self {
            way: Way::new(config.goal.clone()),
            walk,
            pages: Generations::default(),
            control: Control::default(),
            leaving: Leaving::default(),
            mapped: RangeSet::default(),
            locked: RangeSet::default(),
            listed: RangeSet::default(),
            seen: RangeSet::default(),
            asked: VecDeque::new(),
            asked_at: Time(0),
            pending: VecDeque::new(),
            walking: false,
            walks: 0,
            hand: (SpaceId(0), 0),
            left: 0,
            next_walk: Time(0),
            now: Time(0),
            config,
        }
    }

    fn map(&mut self, mappings: &Mappings) {
        let fits = |backing: Backing| match backing {
            Backing::Anonymous | Backing::Heap => true,
            Backing::File => self.config.files,
            Backing::Stack | Backing::Kernel => false,
        };
        let found = mappings.mappings.iter().filter(|mapping| fits(mapping.backing));
        self.listed = found.map(|mapping| mapping.range).collect();
        self.narrow();
    }

    /// What is mapped and not locked.
    fn narrow(&mut self) {
        self.mapped = self.listed.minus(&self.locked);
        self.pages.keep(&self.mapped);
    }

    fn happened(&mut self, events: &[PageEvent]) {
        for event in events {
            let one: RangeSet = [event.range].into_iter().collect();
            match event.kind {
                PageEventKind::Locked => {
                    self.locked =
                        self.locked.as_slice().iter().chain(one.as_slice()).copied().collect();
                    self.narrow();
                }
                PageEventKind::Unlocked => {
                    self.locked = self.locked.minus(&one);
                    self.narrow();
                }
                PageEventKind::Freed => self.each(&event.range, |pages, key, index| {
                    if pages.table(key).is_some() {
                        pages.set(key, index, State::Absent);
                    }
                }),
                PageEventKind::FileAccess(_) => {
                    self.each(&event.range, |pages, key, index| pages.refer(key, index));
                }
                PageEventKind::Allocated(_) => self.came(&event.range),
            }
        }
    }

    fn each(&mut self, range: &Range, act: impl Fn(&mut Generations, Key, usize)) {
        for part in [*range].into_iter().collect::<RangeSet>().intersect(&self.mapped).as_slice() {
            for number in part.start >> 21..((part.end - 1) >> 21) + 1 {
                let key = (part.space, number);
                pages_in(key, part).for_each(|index| act(&mut self.pages, key, index));
                self.pages.tidy(key);
            }
        }
    }

    /// Pages came into memory.
    fn came(&mut self, range: &Range) {
        let mut back = 0;
        for part in [*range].into_iter().collect::<RangeSet>().intersect(&self.mapped).as_slice() {
            for number in part.start >> 21..((part.end - 1) >> 21) + 1 {
                let key = (part.space, number);
                for index in pages_in(key, part) {
                    back += u64::from(self.found(key, index));
                }
                self.pages.tidy(key);
            }
        }
        self.way.note(self.now, 0, back);
    }

    /// A page is in memory and young; whether it had been given back.
    fn found(&mut self, key: Key, index: usize) -> bool {
        let page = self.pages.table(key).map(|table| table.page(index));
        let back = page.filter(|page| page.state() == State::Out);
        if let Some(page) = back {
            self.control.refaulted(page.tier());
        }
        let state = page.map_or(State::Absent, |page| page.state());
        if state != State::Leaving {
            self.pages.set(key, index, self.pages.youngest());
        }
        back.is_some()
    }

    // A walk.

    fn begin_walk(&mut self, orders: &mut Orders) {
        self.walking = true;
        self.walks += 1;
        self.next_walk = self.now + self.config.interval;
        let tables: RangeSet =
            self.mapped.as_slice().iter().map(|range| Level::PMD.align(range)).collect();
        match W::PRUNES {
            None => self.pending.extend(tables.as_slice()),
            Some(prune) => {
                // What was never looked at may be there under an entry that nobody accesses.
                let (known, new) = (tables.intersect(&self.seen), tables.minus(&self.seen));
                for (part, prune) in [(known, prune), (new, false)] {
                    let mode = ScanMode { clear: true, prune, present: true };
                    for range in part.as_slice() {
                        self.ask(*range, Level::PMD, mode, Why::Above, orders);
                    }
                }
                self.seen = tables.clone();
            }
        }
        let also: RangeSet = self.walk.also().iter().map(|range| Level::PMD.align(range)).collect();
        self.pending.extend(also.intersect(&tables).as_slice());
        self.go_on(orders);
    }

    fn ask(&mut self, range: Range, level: Level, mode: ScanMode, why: Why, orders: &mut Orders) {
        let order = ScanOrder { range, level, mode };
        self.asked.extend(order.parts().map(|part| (part, why)));
        self.asked_at = self.now;
        orders.scans.push(order);
    }

    /// Asks for the next leaves of a walk, or ends it.
    fn go_on(&mut self, orders: &mut Orders) {
        if !self.walking || !self.asked.is_empty() {
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
            self.ask(part, Level::PTE, mode, Why::Leaves, orders);
        }
        if self.asked.is_empty() {
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

    /// Upper entries of a walk.
    fn above(&mut self, set: &AccessedSet, stats: &ScanStats, orders: &mut Orders) {
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
                // One of several: what is not alike is not huge.
                _ => table.huge = table.is_alike(),
            }
            if !set.is_young(index) {
                continue;
            }
            let is_huge = table.huge;
            let out = table.count(State::Out) + table.count(State::Leaving) > 0;
            if is_huge && !out {
                let young = self.pages.youngest();
                let renewed = self.pages.set_all(key, |state| matches!(state, State::In(_)), young);
                self.config.costs.charge(orders, renewed.min(1));
                continue;
            }
            match self.walk.enters(Known { key, table }, fresh) {
                // What came back has to be met: the kernel learns of it by the fault.
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

    /// Leaves, of a walk or of a check.
    fn leaves(&mut self, set: &AccessedSet, check: bool, orders: &mut Orders) {
        let words = Words::new(set, &self.mapped);
        let (mut back, mut changed) = (0, 0);
        let mut chosen: Vec<Range> = Vec::new();
        let last_tier = self.control.last_tier();
        for key in words.keys() {
            let (mut young, mut present) = (0, 0);
            for word in words.of(key) {
                young += u64::from(word.young.count_ones());
                present += u64::from(word.present.count_ones());
            }
            self.at_once(key, young, present);
            // A huge page goes whole.
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
                        let start = range_of(key).start + index as u64 * 4096;
                        take(&mut chosen, Range::new(key.0, start, start + 4096));
                    }
                }
            }
            self.pages.tidy(key);
            if let Some(table) = self.pages.table_mut(key) {
                self.walk.saw(Known { key, table }, young, present, self.walking);
            }
        }
        self.config.costs.charge(orders, changed / 8 + set.entries() / PAGES as u64);
        self.way.note(self.now, 0, back);
        self.give_back(chosen, orders);
    }

    /// What holds for all pages of a table alike.
    fn at_once(&mut self, key: Key, young: u64, present: u64) {
        let all = PAGES as u64;
        if present == all && self.pages.table(key).is_none() {
            self.pages.learn(key, &self.mapped);
        }
        let Some(table) = self.pages.table(key) else { return };
        if young == all && table.count(State::Out) + table.count(State::Leaving) == 0 {
            self.pages.set_all(key, |state| matches!(state, State::In(_)), self.pages.youngest());
        }
    }

    /// Whether a word tells something new.
    fn changes(&self, key: Key, word: &Word, check: bool) -> bool {
        let Some(table) = self.pages.table(key) else { return word.present != 0 };
        if table.count(self.pages.youngest()) == PAGES as u64 && word.present == u64::MAX {
            return false;
        }
        let all_there = word.present == word.mapped && word.mapped == u64::MAX;
        let none_there = word.present == 0;
        let nothing_out = table.count(State::Absent) + table.count(State::Out) == 0;
        let nothing_in = table.count(State::Absent) + table.count(State::Out) == PAGES as u64;
        let old = check && table.count(self.pages.oldest()) > 0;
        old || word.young != 0 || !((all_there && nothing_out) || (none_there && nothing_in))
    }

    /// A page is in memory and was not accessed; whether it had been given back.
    fn old(&mut self, key: Key, index: usize) -> bool {
        match self.pages.table(key).map_or(State::Absent, |table| table.page(index).state()) {
            State::In(_) | State::Leaving => false,
            State::Absent | State::Out => self.found(key, index),
        }
    }

    /// A page is not in memory.
    fn missing(&mut self, key: Key, index: usize) {
        if let Some(table) = self.pages.table(key)
            && matches!(table.page(index).state(), State::In(_))
        {
            self.pages.set(key, index, State::Absent);
        }
    }

    // Giving back.

    /// Looks at the pages of the oldest generation, as many as may go.
    fn begin_check(&mut self, orders: &mut Orders) {
        let (leaving, out) = (self.pages.total(State::Leaving), self.pages.total(State::Out));
        let resident = self.pages.resident() - leaving;
        self.left = self.way.allows(self.now, resident, out + leaving);
        self.left = self.left.min(SLICE >> 12);
        if self.left == 0 || !self.pages.can_evict() || self.leaving.len() >= UNDER_WAY {
            return;
        }
        let keys = self.candidates();
        let Some(last) = keys.last() else { return };
        self.hand = (last.0, last.1 + 1);
        let asks_above = W::ASKS_ABOVE && !self.walk.shares_bits();
        let (mut above, mut below) = (VecDeque::new(), VecDeque::new());
        for key in keys {
            match asks_above && self.pages.table(key).is_some_and(speaks_above) {
                true => push_near(&mut above, range_of(key), NEAR << 9),
                false => push_near(&mut below, self.old_blocks(key), NEAR),
            }
        }
        let mode = ScanMode { clear: false, prune: false, present: true };
        for range in above {
            self.ask(range, Level::PMD, mode, Why::CheckAbove, orders);
        }
        self.ask_leaves(below, orders);
    }

    /// Looks at leaves of pages that are to be given back.
    fn ask_leaves(&mut self, ranges: VecDeque<Range>, orders: &mut Orders) {
        let mode = ScanMode { clear: true, prune: false, present: true };
        for range in ranges {
            self.ask(range, Level::PTE, mode, Why::Check, orders);
        }
    }

    /// Tables with enough old pages, those first that are to be first.
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

    /// The blocks of a table from the first to the last that has old pages.
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

    /// Upper entries before pages are given back: under an old one nothing was accessed since a walk
    /// cleared it, which was after the pages were last seen young.
    fn check_above(&mut self, set: &AccessedSet, orders: &mut Orders) {
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
                let young = self.pages.youngest();
                self.pages.set_all(key, |state| matches!(state, State::In(_)), young);
            } else if set.is_young(index) {
                push_near(&mut doubtful, self.old_blocks(key), NEAR);
            } else if !table.huge || self.left >= PAGES as u64 {
                for page in 0..PAGES {
                    if self.may_go(key, page, last_tier) {
                        let start = range_of(key).start + page as u64 * 4096;
                        take(&mut chosen, Range::new(key.0, start, start + 4096));
                    }
                }
                self.pages.tidy(key);
            }
        }
        self.config.costs.charge(orders, set.entries());
        self.give_back(chosen, orders);
        self.ask_leaves(doubtful, orders);
    }

    /// Whether a page that was found old just now goes; it is on its way then, or spared.
    fn may_go(&mut self, key: Key, index: usize, last_tier: usize) -> bool {
        let Some(page) = self.pages.table(key).map(|table| table.page(index)) else { return false };
        if page.state() != self.pages.oldest() || self.left == 0 {
            return false;
        }
        if page.tier() > last_tier {
            self.control.spared(page.tier());
            self.pages.spare(key, index);
            return false;
        }
        self.pages.set(key, index, State::Leaving);
        self.left -= 1;
        true
    }

    fn give_back(&mut self, chosen: Vec<Range>, orders: &mut Orders) {
        self.config.costs.charge(orders, chosen.len() as u64);
        for range in chosen {
            self.way.spend(range.bytes() >> 12);
            self.leaving.order(range, orders);
        }
    }

    fn ended(&mut self, outcome: &Outcome, orders: &mut Orders) {
        let Some(range) = self.leaving.end(outcome) else { return };
        if outcome.failed == 0 && outcome.why.is_none_or(|why| why == Failure::Unmapped) {
            self.went(&range);
        } else if outcome.done == 0 {
            self.stayed(&range);
        } else {
            let whole = Level::PMD.align(&range);
            let mode = ScanMode { clear: false, prune: false, present: true };
            self.ask(whole, Level::PTE, mode, Why::Settle, orders);
        }
    }

    fn went(&mut self, range: &Range) {
        let mut out = 0;
        for key in self.pages.keys_in(range) {
            for index in pages_in(key, range) {
                let Some(page) = self.pages.table(key).map(|table| table.page(index)) else {
                    break;
                };
                if page.state() == State::Leaving {
                    self.control.evicted(page.tier());
                    self.pages.set(key, index, State::Out);
                    out += 1;
                }
            }
            self.pages.tidy(key);
        }
        self.way.note(self.now, out, 0);
    }

    /// What could not be given back is taken for young: it is not tried again before it has aged.
    fn stayed(&mut self, range: &Range) {
        for key in self.pages.keys_in(range) {
            for index in pages_in(key, range) {
                let page = self.pages.table(key).map(|table| table.page(index));
                if page.is_some_and(|page| page.state() == State::Leaving) {
                    self.pages.set(key, index, self.pages.youngest());
                }
            }
            self.pages.tidy(key);
        }
    }

    /// An action failed in part: what is still there stayed.
    fn settle(&mut self, set: &AccessedSet) {
        let words = Words::new(set, &self.mapped);
        for key in words.keys() {
            for word in words.of(key) {
                for index in word.first..word.first + BLOCK {
                    let start = range_of(key).start + index as u64 * 4096;
                    let page = Range::new(key.0, start, start + 4096);
                    match word.present >> (index - word.first) & 1 {
                        1 => self.stayed(&page),
                        _ => self.went(&page),
                    }
                }
            }
        }
    }

    /// An answer, or a part of one.
    fn answered(&mut self, set: &AccessedSet, stats: &ScanStats, orders: &mut Orders) {
        let is_it = |(order, _): &(ScanOrder, Why)| {
            order.level == set.level && order.level.align(&order.range) == set.range
        };
        let Some(at) = self.asked.iter().position(is_it) else { return };
        let (_, why) = self.asked.drain(..=at).next_back().expect("it was found");
        let tells = set.present.len() == set.young.len();
        match why {
            _ if !tells => {}
            Why::Above => self.above(set, stats, orders),
            Why::Leaves => self.leaves(set, false, orders),
            Why::CheckAbove => self.check_above(set, orders),
            Why::Check => self.leaves(set, true, orders),
            Why::Settle => self.settle(set),
        }
        self.go_on(orders);
    }
}

/// Whether an upper entry that is old speaks for all below: it was so whenever it was asked.
fn speaks_above(table: &Table) -> bool {
    table.huge || !table.leaves.is_doubtful()
}

/// Appends a range, or lengthens the last one.
fn push(ranges: &mut VecDeque<Range>, next: Range) {
    push_near(ranges, next, 0);
}

/// Appends a range, or lengthens the last one by it and a gap of at most so many bytes.
fn push_near(ranges: &mut VecDeque<Range>, next: Range, gap: u64) {
    match ranges.back_mut() {
        Some(last)
            if last.space == next.space && (last.end..=last.end + gap).contains(&next.start) =>
        {
            last.end = next.end;
        }
        _ => ranges.push_back(next),
    }
}

/// Bytes of an action at most: what fails is looked at again as a whole.
const ACTION: u64 = 2 << 20;

fn take(chosen: &mut Vec<Range>, next: Range) {
    match chosen.last_mut() {
        Some(last) if last.touches(&next) && last.start / ACTION == next.start / ACTION => {
            last.end = next.end;
        }
        _ => chosen.push(next),
    }
}

impl<W: Walk> Policy for Reclaimer<W> {
    fn name(&self) -> &'static str {
        W::NAME
    }

    fn settings(&self) -> Vec<Setting> {
        recorded(&self.config)
    }

    fn observe(&mut self, evidence: Evidence<'_>, orders: &mut Orders) {
        match evidence {
            Evidence::Mappings(mappings) => self.map(mappings),
            Evidence::Pressure(pressure) => self.way.feel(pressure.stalled),
            Evidence::PageEvents(events) => self.happened(events),
            Evidence::Regions(snapshot) => self.walk.regions(snapshot),
            Evidence::Scanned(set, stats) => self.answered(set, stats, orders),
            Evidence::Outcomes(outcomes) => {
                outcomes.iter().for_each(|outcome| self.ended(outcome, orders));
            }
            _ => {}
        }
    }

    fn tick(&mut self, now: Time, _: &dyn PlacementView, orders: &mut Orders) -> Time {
        self.now = now;
        self.config.costs.charge_wake(orders);
        if !self.asked.is_empty() {
            if now.since(self.asked_at) < LOST {
                return now + SOON;
            }
            self.asked.clear();
        }
        self.left = 0;
        if self.walking {
            self.go_on(orders);
        } else if self.pages.can_evict() {
            self.begin_check(orders);
        }
        if self.asked.is_empty() && !self.walking && now >= self.next_walk {
            self.begin_walk(orders);
        }
        let busy = self.walking || !self.asked.is_empty() || self.left > 0;
        match busy || self.pages.can_evict() {
            true if busy => now + SOON,
            true => self.next_walk.min(now + SOON * 5),
            false => self.next_walk,
        }
    }
}
