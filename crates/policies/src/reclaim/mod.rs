//! Proactive reclaim by page generations, shared by MGLRU and its variants: generations, the walks
//! that renew them, and the eviction of the oldest.
//!
//! Source: Linux 6.12 mm/vmscan.c (`lru_gen_*`); the variants [`crate::mglru`],
//! [`crate::mglru_linear`] and [`crate::mglru_telescope`] define how each walks.
//!
//! A walk scans the upper entries first ([`Walk::PRUNES`]) or every leaf; young pages are moved to
//! the youngest generation, and a new one is opened (`try_to_inc_max_seq`). While more than two
//! generations have pages, those of the oldest are scanned once more, with their neighbours
//! (`lru_gen_look_around`), and those still old are reclaimed, unless their tier has too many
//! refaults (`control.rs`).
//!
//! Differences from the kernel, and the reasons:
//!
//! - No lists: the kernel evicts from a generation's tail, here a hand cycles over the addresses.
//!   Within a generation, the order of pages is unknown.
//! - Pages are discovered by walks that find them present, and by page events if there are any,
//!   instead of by faults.
//! - One type of pages: anonymous memory, and files if `files` is set. There is no swappiness.
//! - The kernel opens generations on demand; here the interval between two is at least `interval`,
//!   because no allocation waits for proactive reclaim.
//! - Refaults without a page event are detected by a scan of the evicted page's table, in one of
//!   four walks: the kernel sees the fault.
//! - A scan of a page's neighbours covers the whole blocks of 64 pages that contain candidates,
//!   whether one of them was young or not: a word of a scan's result costs less than a call.
//!
//! Only pages that a scan just found old are reclaimed.

mod aging;
pub(crate) mod control;
mod eviction;
pub(crate) mod filter;
pub(crate) mod generations;
pub mod goal;
pub(crate) mod pending;
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
use pending::PendingReclaim;

/// Settings shared by all variants.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Minimum time between two walks.
    pub interval: Duration,
    /// Reclaim goal and limits.
    pub goal: Goal,
    /// Whether file pages are reclaimed too.
    pub files: bool,
    /// Walks for which a dense table is not scanned while its upper entry is young; used by
    /// `mglru-telescope` only.
    pub rest: u8,
    /// Whether the leaves of new tables are scanned in the first walk that meets them, as every
    /// other variant does; used by `mglru-telescope` only.
    pub fresh: bool,
    /// CPU time of writing the generation of a page that was found young into its folio, as the
    /// kernel's walk does.
    pub mark: Duration,
    /// CPU costs of the policy's own work.
    pub costs: Costs,
}

/// `interval` is assumed: two walks without an access make a page cold, so a page used by a request
/// in the last seconds is not. To be varied from 0.5 to 30 s. `mark`: a locked operation of 20
/// cycles (uops.info) at two GHz on a line of its own that was fetched ahead, whose eighth takes 3
/// ns in a scan (`crates/sim/costs/linux.toml`); folio_update_gen of mm/vmscan.c. Range: 10 to 81
/// ns, without the line and with a miss of DRAM.
impl Default for Config {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(2),
            goal: Goal::default(),
            files: false,
            rest: 0,
            fresh: false,
            mark: Duration::from_nanos(34),
            costs: Costs::default(),
        }
    }
}

impl Settings for Config {
    fn visit(&mut self, each: &mut dyn Visit) {
        each.value("interval", "time from one walk to the next", &mut self.interval);
        self.goal.visit(each);
        each.value("files", "file pages are reclaimed too", &mut self.files);
        let about = "walks that skip a table with many young pages";
        each.value("rest", about, &mut self.rest);
        each.value("fresh", "the first walk scans leaves of new tables", &mut self.fresh);
        each.value("mark-cost", "CPU time per page found young", &mut self.mark);
        self.costs.visit(each);
    }

    fn check(&self) -> Result<(), String> {
        if self.interval.is_zero() {
            return Err("`interval` must be above zero".into());
        }
        self.goal.check()
    }
}

/// Walk strategy of a variant.
pub trait Walk {
    /// Name of the policy.
    const NAME: &'static str;
    /// Whether upper entries are scanned before leaves: all those of 2 MiB (`false`), or only those
    /// under young entries of the levels above (`true`). `None`: every leaf is scanned.
    const PRUNES: Option<bool>;
    /// Whether eviction scans upper entries first, and leaves only under young ones.
    const CHECKS_ABOVE: bool = false;

    /// Decides about a table whose upper entry was young. `fresh`: the table was unknown before.
    fn enters(&mut self, table: Known<'_>, fresh: bool) -> Look;

    /// Reports how many of a table's present pages were young, in a walk or in a check before
    /// eviction.
    fn saw(&mut self, table: Known<'_>, young: u64, present: u64, walking: bool);

    /// Called at the end of a walk.
    fn end(&mut self) {}

    /// Passes on an instrument's regions.
    fn regions(&mut self, _snapshot: &Snapshot) {}

    /// Ranges to be evicted before others, in order of preference.
    fn first(&self) -> &[Range] {
        &[]
    }

    /// Ranges whose leaves are scanned whatever their upper entries show.
    fn also(&self) -> &[Range] {
        &[]
    }

    /// Whether an instrument clears the same bits, so that old upper entries prove less.
    fn shares_bits(&self) -> bool {
        false
    }
}

/// Treatment of a table whose upper entry was young.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Scan the table's leaves.
    Into,
    /// Skip the table: its pages age.
    Past,
    /// Skip the table, and take the pages that were young in the last walk for young again.
    Trust,
}

/// A table about which a walk strategy decides.
#[derive(Debug)]
pub struct Known<'a> {
    pub(crate) key: Key,
    pub(crate) table: &'a mut Table,
}

/// Purpose of a pending scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScanPurpose {
    /// A walk's scan of upper entries.
    Above,
    /// A walk's scan of leaves.
    Leaves,
    /// Check of the upper entries of eviction candidates.
    CheckAbove,
    /// Check of the leaves of eviction candidates.
    Check,
    /// Scan of the pages of a reclaim action that failed in part.
    Settle,
}

/// Maximum bytes of state per 4 KiB page: its own byte, and its part of a table's fixed size (32
/// bytes, and twice as much in the map that holds it).
pub const PAGE_BYTES: usize = 2;

/// Maximum bytes of addresses whose leaves are scanned per order: takes of the order of 50 ms.
const SLICE: u64 = 16 << 30;
/// Time after which an unanswered scan is given up.
const LOST: Duration = Duration::from_secs(5);
/// Time between two ticks while scans or reclaim actions are pending.
const SOON: Duration = Duration::from_millis(20);

/// A reclaim policy by generations, with the walk strategy `W`.
#[derive(Clone, Debug)]
pub struct Reclaimer<W> {
    config: Config,
    walk: W,
    pages: Generations,
    control: Control,
    way: Way,
    reclaiming: PendingReclaim,
    /// Ranges that may be reclaimed: mapped, of a suitable type, and not locked.
    mapped: RangeSet,
    locked: RangeSet,
    listed: RangeSet,
    /// Tables whose upper entries were scanned without pruning at least once.
    seen: RangeSet,
    /// Pending scans with their purpose, in order.
    scans: VecDeque<(ScanOrder, ScanPurpose)>,
    scans_since: Time,
    /// Leaf ranges that the walk has yet to scan.
    pending: VecDeque<Range>,
    walking: bool,
    /// Number of walks begun.
    walks: u64,
    /// Next table of the cyclic eviction scan.
    hand: Key,
    /// Pages that may still be reclaimed in this tick.
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
            reclaiming: PendingReclaim::default(),
            mapped: RangeSet::default(),
            locked: RangeSet::default(),
            listed: RangeSet::default(),
            seen: RangeSet::default(),
            scans: VecDeque::new(),
            scans_since: Time(0),
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

    /// Recomputes the reclaimable ranges: suitable mappings without locked ranges.
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

    /// Applies the allocation of pages, and counts refaults.
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

    /// Marks a page as resident and young. Returns whether it is a refault.
    fn found(&mut self, key: Key, index: usize) -> bool {
        let page = self.pages.table(key).map(|table| table.page(index));
        let back = page.filter(|page| page.state() == State::Reclaimed);
        if let Some(page) = back {
            self.control.refaulted(page.tier());
        }
        let state = page.map_or(State::Absent, |page| page.state());
        if state != State::Reclaiming {
            self.pages.set(key, index, self.pages.youngest());
        }
        back.is_some()
    }

    fn ask(
        &mut self,
        range: Range,
        level: Level,
        mode: ScanMode,
        why: ScanPurpose,
        orders: &mut Orders,
    ) {
        let order = ScanOrder { range, level, mode };
        self.scans.extend(order.parts().map(|part| (part, why)));
        self.scans_since = self.now;
        orders.scans.push(order);
    }

    /// Applies the result of a scan, or a part of it.
    fn answered(&mut self, set: &AccessedSet, stats: &ScanStats, orders: &mut Orders) {
        let is_it = |(order, _): &(ScanOrder, ScanPurpose)| {
            order.level == set.level && order.level.align(&order.range) == set.range
        };
        let Some(at) = self.scans.iter().position(is_it) else { return };
        let (_, why) = self.scans.drain(..=at).next_back().expect("it was found");
        let tells = set.present.len() == set.young.len();
        match why {
            _ if !tells => {}
            ScanPurpose::Above => self.above(set, stats, orders),
            ScanPurpose::Leaves => self.leaves(set, false, orders),
            ScanPurpose::CheckAbove => self.check_above(set, orders),
            ScanPurpose::Check => self.leaves(set, true, orders),
            ScanPurpose::Settle => self.settle(set),
        }
        self.go_on(orders);
    }
}

/// Appends a range, merged with the last one if they touch.
fn push(ranges: &mut VecDeque<Range>, next: Range) {
    push_near(ranges, next, 0);
}

/// Appends a range, merged with the last one if the gap is at most `gap` bytes.
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
        if !self.scans.is_empty() {
            if now.since(self.scans_since) < LOST {
                return now + SOON;
            }
            self.scans.clear();
        }
        self.left = 0;
        if self.walking {
            self.go_on(orders);
        } else if self.pages.can_evict() {
            self.begin_check(orders);
        }
        if self.scans.is_empty() && !self.walking && now >= self.next_walk {
            self.begin_walk(orders);
        }
        let busy = self.walking || !self.scans.is_empty() || self.left > 0;
        match busy || self.pages.can_evict() {
            true if busy => now + SOON,
            true => self.next_walk.min(now + SOON * 5),
            false => self.next_walk,
        }
    }
}
