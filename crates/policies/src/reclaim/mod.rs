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
mod giving;
pub mod goal;
pub(crate) mod leaving;
mod walking;
mod words;

use std::collections::VecDeque;
use std::time::Duration;

use tierscope_core::{
    AccessedSet, Backing, Evidence, Level, Mappings, Orders, PageEvent, PageEventKind,
    PlacementView, Policy, Range, RangeSet, ScanMode, ScanOrder, ScanStats, Setting, Snapshot,
    SpaceId, Time,
};

use crate::cost::Costs;
use crate::settings::{Settings, Visit, recorded};
use control::Control;
use generations::{Generations, Key, State, Table, pages_in};
use goal::{Goal, Way};
use leaving::Leaving;

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
/// Answers that have not come by then never will.
const LOST: Duration = Duration::from_secs(5);
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

    fn ask(&mut self, range: Range, level: Level, mode: ScanMode, why: Why, orders: &mut Orders) {
        let order = ScanOrder { range, level, mode };
        self.asked.extend(order.parts().map(|part| (part, why)));
        self.asked_at = self.now;
        orders.scans.push(order);
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
