//! The toy machine with tiered memory: pages are allocated at their first touch, move, fail to
//! move, and cause page events.
//!
//! Each page is a number in one flat array with one tier or none, so that no page can be lost or be
//! in two tiers. Its mover trusts the policy: an order that exceeds a tier's free memory counts as
//! a fault of the policy, unless failures were requested.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tierscope_core::{
    AccessBits, AccessedSet, Action, ActionKind, Addr, Budget, Clock, Counters, CpuTime, Failure,
    Flushed, HintFaults, Instrument, Level, Lost, Mappings, Missing, Mover, Outcome, PAGE_SIZE,
    PageEvent, PageEventKind, PageEvents, PageId, PlacementView, Ports, Pressure, Probe, Radix,
    Range, Region, Result, Samples, ScanMode, ScanStats, Setting, Snapshot, Step, Target, Tier,
    TierPressure, TierUse, Time, Wake,
};

use crate::toy::{Toy, Workload};

/// A tier of the machine, in pages of 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Capacity of the tier.
    pub pages: u64,
    /// Low watermark: below this many free pages, allocations go to another tier.
    pub low: u64,
    /// High watermark of the tier.
    pub high: u64,
}

impl Size {
    /// A tier of `pages` pages, with watermarks of 1/64 (low) and 1/32 (high) of them.
    #[must_use]
    pub fn of(pages: u64) -> Self {
        Self { pages, low: pages / 64, high: pages / 32 }
    }

    /// A tier of `pages` pages, with watermarks of 0.
    #[must_use]
    pub fn without_marks(pages: u64) -> Self {
        Self { pages, low: 0, high: 0 }
    }
}

/// Failures and delays that a mover injects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trouble {
    /// Every n-th action fails, for a different reason each time; 0 for none.
    pub every: u64,
    /// Outcomes arrive in reverse order, and this many polls late.
    pub late: usize,
    /// Other programs take or lock memory as well: an order may find no room without being a fault
    /// of the policy.
    pub others: bool,
}

/// A mapping, as a row of consecutive page numbers.
#[derive(Clone, Copy, Debug)]
struct Row {
    range: Range,
    first: u32,
    huge: bool,
}

/// State shared by the machine, its mover and its oracle.
#[derive(Debug)]
struct World {
    sizes: Vec<Size>,
    used: Vec<u64>,
    rows: Vec<Row>,
    /// Tier of each page, by page number; `None` if not resident.
    tiers: Vec<Option<Tier>>,
    /// Heads of huge pages that were split.
    split: Vec<bool>,
    locked: Vec<bool>,
    now: Time,
    events: Vec<PageEvent>,
    /// Number of touches, by tier.
    touches: Vec<u64>,
    /// Touches of each 2 MiB block in the window, by row and block number.
    heat: Vec<Vec<u32>>,
    /// Actions, in order of issue.
    actions: Vec<Action>,
    /// Detected faults, for the suite to report.
    faults: Vec<String>,
    /// Outcomes not yet polled, with the number of the poll that returns each.
    waiting: Vec<(usize, Outcome)>,
    polls: usize,
}

const BLOCK: u64 = 2 << 20;

impl World {
    fn row(&self, at: Addr) -> Option<(usize, &Row)> {
        self.rows.iter().enumerate().find(|(_, row)| row.range.contains(at))
    }

    /// The page at an address: its first number and its size in units of 4 KiB.
    fn page(&self, at: Addr) -> Option<(usize, u64)> {
        let (_, row) = self.row(at)?;
        let small = row.first as usize + ((at.at - row.range.start) / PAGE_SIZE) as usize;
        let head = row.first as usize + ((at.at - row.range.start) / BLOCK * 512) as usize;
        let is_huge = row.huge && !self.split[head];
        Some(if is_huge { (head, 512) } else { (small, 1) })
    }

    fn free(&self, tier: Tier) -> u64 {
        self.sizes[usize::from(tier.0)].pages - self.used[usize::from(tier.0)]
    }

    fn touch(&mut self, at: Addr) {
        let Some((page, pages)) = self.page(at) else { return };
        let tier = match self.tiers[page] {
            Some(tier) => tier,
            None => self.allocate(at, page, pages),
        };
        self.touches[usize::from(tier.0)] += 1;
        let (row, of) = self.row(at).expect("a page has a row");
        let block = ((at.at - of.range.start) / BLOCK) as usize;
        self.heat[row][block] += 1;
    }

    fn allocate(&mut self, at: Addr, page: usize, pages: u64) -> Tier {
        let tiers = || (0..self.sizes.len() as u8).map(Tier);
        let low = |tier: Tier| self.sizes[usize::from(tier.0)].low;
        let above = |tier: &Tier| self.free(*tier) >= pages + low(*tier);
        let fits = |tier: &Tier| self.free(*tier) >= pages;
        let found = tiers().find(above).or_else(|| tiers().find(fits));
        let tier = found.expect("the machine has memory left");
        self.tiers[page] = Some(tier);
        self.used[usize::from(tier.0)] += pages;
        let bytes = pages * PAGE_SIZE;
        let start = at.at & !(bytes - 1);
        let range = Range::new(at.space, start, start + bytes);
        self.events.push(PageEvent { time: self.now, range, kind: PageEventKind::Allocated(tier) });
        tier
    }

    /// Replaces the mappings; pages of mappings that exist before and after keep their tiers.
    fn map(&mut self, layout: &[Range], huge: bool) {
        let (old, old_heat) = (std::mem::take(&mut self.rows), std::mem::take(&mut self.heat));
        for (row, heat) in old.into_iter().zip(old_heat) {
            if layout.contains(&row.range) {
                self.rows.push(row);
                self.heat.push(heat);
            } else {
                self.unmap(&row);
            }
        }
        for range in layout {
            if self.rows.iter().any(|row| row.range == *range) {
                continue;
            }
            let pages = (range.bytes() / PAGE_SIZE) as usize;
            let first = self.tiers.len() as u32;
            self.tiers.resize(self.tiers.len() + pages, None);
            self.split.resize(self.tiers.len(), false);
            self.locked.resize(self.tiers.len(), false);
            self.rows.push(Row { range: *range, first, huge });
            self.heat.push(vec![0; range.bytes().div_ceil(BLOCK) as usize]);
        }
    }

    fn unmap(&mut self, row: &Row) {
        let pages = (row.range.bytes() / PAGE_SIZE) as usize;
        for page in row.first as usize..row.first as usize + pages {
            if let Some(tier) = self.tiers[page].take() {
                let is_huge = row.huge && !self.split[page & !511];
                self.used[usize::from(tier.0)] -= if is_huge { 512 } else { 1 };
            }
        }
        let (time, range) = (self.now, row.range);
        self.events.push(PageEvent { time, range, kind: PageEventKind::Freed });
    }

    /// Checks that the pages found in each tier equal its `used` count.
    fn check(&mut self) {
        let mut found = vec![0; self.sizes.len()];
        for row in &self.rows {
            let mut at = row.range.start;
            while at < row.range.end {
                let (page, pages) = self.page(Addr { space: row.range.space, at }).expect("mapped");
                if let Some(tier) = self.tiers[page] {
                    found[usize::from(tier.0)] += pages;
                }
                at += pages * PAGE_SIZE;
            }
        }
        assert_eq!(found, self.used, "a page is lost or in two tiers");
    }

    /// Carries out an action; returns pages done, pages failed, and the cause.
    fn carry_out(&mut self, action: &Action, trusting: bool) -> (u64, u64, Option<Failure>) {
        let (mut done, mut failed, mut why) = (0, 0, None);
        let mut met = false;
        let mut at = action.range.start & !(PAGE_SIZE - 1);
        while at < action.range.end {
            let here = Addr { space: action.range.space, at };
            let Some((page, pages)) = self.page(here) else {
                at += PAGE_SIZE;
                continue;
            };
            at = (at & !(pages * PAGE_SIZE - 1)) + pages * PAGE_SIZE;
            let Some(from) = self.tiers[page] else { continue };
            met = true;
            match self.change(action, page, (pages, from), trusting) {
                Ok(moved) => done += moved,
                Err(failure) => {
                    failed += pages;
                    why = why.or(Some(failure));
                }
            }
        }
        if !met {
            why = Some(Failure::Unmapped);
        }
        (done, failed, why)
    }

    fn change(
        &mut self,
        action: &Action,
        page: usize,
        (pages, from): (u64, Tier),
        trusting: bool,
    ) -> Result<u64, Failure> {
        let last = self.sizes.len() - 1;
        match action.kind {
            ActionKind::Move(to) if usize::from(to.0) > last => Err(Failure::NoRoom),
            ActionKind::Move(to) if to == from => Ok(0),
            _ if self.locked[page] => Err(Failure::Busy),
            ActionKind::Move(to) if self.free(to) < pages => {
                if trusting {
                    self.faults.push(format!("{action:?} overfills its tier"));
                }
                Err(Failure::NoRoom)
            }
            ActionKind::Move(to) => {
                self.used[usize::from(from.0)] -= pages;
                self.used[usize::from(to.0)] += pages;
                self.tiers[page] = Some(to);
                Ok(pages)
            }
            ActionKind::Reclaim => {
                self.used[usize::from(from.0)] -= pages;
                self.tiers[page] = None;
                Ok(pages)
            }
            ActionKind::Split if pages == 512 => {
                self.split[page] = true;
                (page..page + 512).for_each(|small| self.tiers[small] = Some(from));
                Ok(pages)
            }
            ActionKind::Split | ActionKind::Collapse => Ok(0),
        }
    }
}

/// The toy machine with tiered memory.
pub struct Tiered {
    toy: Toy,
    world: Rc<RefCell<World>>,
    uses: Vec<TierUse>,
    work: Duration,
    /// Changes of the mapped ranges that are still to come, each with its time.
    events: Vec<(Time, Vec<Range>)>,
    huge: bool,
}

impl std::fmt::Debug for Tiered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.world.borrow().fmt(f)
    }
}

impl Tiered {
    /// A machine with these tiers, fastest first, that maps `layout` with huge or small pages;
    /// `workload` touches its memory.
    ///
    /// # Panics
    /// If `huge` is set and a range is not made of whole 2 MiB blocks.
    #[must_use]
    pub fn new(sizes: &[Size], layout: &[Range], huge: bool, mut workload: Workload) -> Self {
        let whole =
            |range: &Range| range.start.is_multiple_of(BLOCK) && range.end.is_multiple_of(BLOCK);
        assert!(!huge || layout.iter().all(whole), "huge pages need whole blocks");
        let world = World {
            sizes: sizes.to_vec(),
            used: vec![0; sizes.len()],
            rows: Vec::new(),
            tiers: Vec::new(),
            split: Vec::new(),
            locked: Vec::new(),
            now: Time(0),
            events: Vec::new(),
            touches: vec![0; sizes.len()],
            heat: Vec::new(),
            actions: Vec::new(),
            faults: Vec::new(),
            waiting: Vec::new(),
            polls: 0,
        };
        let world = Rc::new(RefCell::new(world));
        world.borrow_mut().map(layout, huge);
        let seen = Rc::clone(&world);
        let observed: Workload = Box::new(move |from, to, touch| {
            workload(from, to, &mut |at| {
                seen.borrow_mut().touch(at);
                touch(at);
            });
        });
        let mut toy = Toy::new(layout, observed);
        if huge {
            toy = toy.with_huge_pages(layout);
        }
        Self { toy, world, uses: Vec::new(), work: Duration::ZERO, events: Vec::new(), huge }
    }

    /// Replaces the mappings by `layout` at time `at`.
    #[must_use]
    pub fn with_layout(mut self, at: Time, layout: Vec<Range>) -> Self {
        self.toy = self.toy.with_event(at, crate::toy::Event::Layout(layout.clone()));
        self.events.push((at, layout));
        self.events.sort_by_key(|(at, _)| *at);
        self
    }

    /// Touches every page of a range once, in order of address, like a program that initialises its
    /// memory.
    pub fn fill(&mut self, range: &Range) {
        for at in (range.start..range.end).step_by(PAGE_SIZE as usize) {
            self.world.borrow_mut().touch(Addr { space: range.space, at });
        }
        self.world.borrow_mut().heat.iter_mut().for_each(|blocks| blocks.fill(0));
        self.world.borrow_mut().touches.fill(0);
    }

    /// Puts the resident pages of a range into a tier, regardless of its capacity.
    pub fn place(&mut self, range: &Range, tier: Tier) {
        let mut world = self.world.borrow_mut();
        let mut at = range.start;
        while at < range.end {
            let (page, pages) = world.page(Addr { space: range.space, at }).expect("it is mapped");
            if let Some(from) = world.tiers[page].replace(tier) {
                world.used[usize::from(from.0)] -= pages;
                world.used[usize::from(tier.0)] += pages;
            }
            at += pages * PAGE_SIZE;
        }
    }

    /// Emits a page event, as the kernel would, at the current time.
    pub fn page_event(&mut self, range: Range, kind: PageEventKind) {
        let mut world = self.world.borrow_mut();
        if let PageEventKind::Locked | PageEventKind::Unlocked = kind {
            for at in (range.start..range.end).step_by(PAGE_SIZE as usize) {
                if let Some((page, _)) = world.page(Addr { space: range.space, at }) {
                    world.locked[page] = kind == PageEventKind::Locked;
                }
            }
        }
        let time = world.now;
        world.events.push(PageEvent { time, range, kind });
    }

    /// A mover for this machine.
    #[must_use]
    pub fn mover(&self, trouble: Trouble) -> TieredMover {
        TieredMover { world: Rc::clone(&self.world), trouble, seen: 0 }
    }

    /// An instrument that reports the truth: touches of each 2 MiB block in windows of 200 ms.
    #[must_use]
    pub fn oracle(&self) -> Oracle {
        Oracle { world: Rc::clone(&self.world), start: None }
    }

    /// Actions submitted so far, in order.
    #[must_use]
    pub fn actions(&self) -> Vec<Action> {
        self.world.borrow().actions.clone()
    }

    /// CPU time that the policy charged.
    #[must_use]
    pub fn work(&self) -> Duration {
        self.work
    }

    /// Touches by tier since the last [`Tiered::fill`].
    #[must_use]
    pub fn touches(&self) -> Vec<u64> {
        self.world.borrow().touches.clone()
    }

    /// Pages in use, by tier.
    #[must_use]
    pub fn used(&self) -> Vec<u64> {
        self.world.borrow().used.clone()
    }

    /// Checks the machine's invariants, and returns all faults found in orders.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        self.world.borrow_mut().check();
        self.world.borrow().faults.clone()
    }
}

impl Clock for Tiered {
    fn now(&self) -> Time {
        self.toy.now()
    }

    fn wait(&mut self, until: Time) -> Wake {
        let due = self.events.first().filter(|(at, _)| *at <= until).cloned();
        let wake = self.toy.wait(until);
        let now = self.toy.now();
        self.world.borrow_mut().now = now;
        if let Some((at, layout)) = due
            && at <= now
        {
            self.events.remove(0);
            self.world.borrow_mut().map(&layout, self.huge);
        }
        wake
    }
}

impl Target for Tiered {
    fn mappings(&mut self, max_age: Duration) -> Result<Arc<Mappings>> {
        self.toy.mappings(max_age)
    }

    fn cpu_time(&self) -> CpuTime {
        self.toy.cpu_time()
    }
}

impl PageEvents for Tiered {
    fn drain(&mut self, out: &mut Vec<PageEvent>) -> Lost {
        out.append(&mut self.world.borrow_mut().events);
        Lost(0)
    }
}

impl PlacementView for Tiered {
    fn tiers(&self) -> &[TierUse] {
        &self.uses
    }

    fn tier_of(&self, page: PageId) -> Option<Tier> {
        self.world.borrow().tiers.get(page.0 as usize).copied().flatten()
    }

    fn page_at(&self, range: &Range) -> Option<PageId> {
        let world = self.world.borrow();
        let (page, _) = world.page(Addr { space: range.space, at: range.start })?;
        world.tiers[page].map(|_| PageId(page as u32))
    }

    fn range_of(&self, page: PageId) -> Option<Range> {
        let world = self.world.borrow();
        let holds = |row: &&Row| {
            let pages = (row.range.bytes() / PAGE_SIZE) as u32;
            (row.first..row.first + pages).contains(&page.0)
        };
        let row = world.rows.iter().find(holds)?;
        let at = row.range.start + u64::from(page.0 - row.first) * PAGE_SIZE;
        let (_, pages) = world.page(Addr { space: row.range.space, at })?;
        let start = at & !(pages * PAGE_SIZE - 1);
        Some(Range::new(row.range.space, start, start + pages * PAGE_SIZE))
    }

    fn frame_of(&self, range: &Range) -> Option<u64> {
        self.page_at(range).map(|_| crate::toy::frame(range.at(0)))
    }

    fn physical(&self) -> Vec<(u64, u64)> {
        vec![(0, 1 << 47)]
    }

    fn resident(&self, range: &Range, tier: Tier) -> u64 {
        let world = self.world.borrow();
        let here = |at: &u64| {
            let page = world.page(Addr { space: range.space, at: *at });
            page.is_some_and(|(page, _)| world.tiers[page] == Some(tier))
        };
        let pages = (range.start..range.end).step_by(PAGE_SIZE as usize).filter(here);
        pages.count() as u64 * PAGE_SIZE
    }
}

/// Same as on the toy machine, except that pages that are not resident are not present.
impl AccessBits for Tiered {
    fn radix(&self) -> Radix {
        self.toy.radix()
    }

    fn probe(&mut self, probes: &mut [Probe]) -> Result<()> {
        self.toy.probe(probes)
    }

    fn scan(
        &mut self,
        range: &Range,
        level: Level,
        mode: ScanMode,
        set: &mut AccessedSet,
    ) -> Result<ScanStats> {
        let mut stats = self.toy.scan(range, level, mode, set)?;
        if level > Level::PTE {
            return Ok(stats);
        }
        let world = self.world.borrow();
        for index in 0..set.entries() {
            let at = set.range.at(index << level.shift());
            let there = world.page(at).is_some_and(|(page, _)| world.tiers[page].is_some());
            let (word, bit) = ((index / 64) as usize, 1 << (index % 64));
            if !there {
                let words = set.young.get_mut(word).into_iter().chain(set.present.get_mut(word));
                words.for_each(|word| *word &= !bit);
            }
        }
        stats.young = set.young_count();
        stats.present = set.present.iter().map(|word| u64::from(word.count_ones())).sum();
        Ok(stats)
    }

    fn flush(&mut self) -> Result<Flushed> {
        self.toy.flush()
    }
}

impl Ports for Tiered {
    fn access_bits(&mut self) -> Result<&mut dyn AccessBits, Missing> {
        Ok(self)
    }

    fn counters(&mut self) -> Result<&mut dyn Counters, Missing> {
        self.toy.counters()
    }

    fn samples(&mut self) -> Result<&mut dyn Samples, Missing> {
        self.toy.samples()
    }

    fn hint_faults(&mut self) -> Result<&mut dyn HintFaults, Missing> {
        self.toy.hint_faults()
    }

    fn page_events(&mut self) -> Result<&mut dyn PageEvents, Missing> {
        Ok(self)
    }

    fn pressure(&mut self) -> Result<Pressure, Missing> {
        let world = self.world.borrow();
        let of = |(number, size): (u8, &Size)| TierPressure {
            tier: Tier(number),
            free: world.free(Tier(number)) * PAGE_SIZE,
            low: size.low * PAGE_SIZE,
            high: size.high * PAGE_SIZE,
            reads: None,
        };
        Ok(Pressure { tiers: (0..).zip(&world.sizes).map(of).collect(), ..Pressure::default() })
    }

    fn placement(&mut self) -> Result<&dyn PlacementView, Missing> {
        let world = self.world.borrow();
        let of = |(number, size): (u8, &Size)| TierUse {
            tier: Tier(number),
            capacity: size.pages * PAGE_SIZE,
            used: world.used[usize::from(number)] * PAGE_SIZE,
        };
        self.uses = (0..).zip(&world.sizes).map(of).collect();
        drop(world);
        Ok(self)
    }

    fn charge(&mut self, work: Duration) {
        self.work += work;
    }
}

/// Carries out actions at once, in order; a later poll returns the outcomes.
pub struct TieredMover {
    world: Rc<RefCell<World>>,
    trouble: Trouble,
    seen: u64,
}

impl TieredMover {
    /// Reports an invalid action as a fault of the policy.
    fn examine(world: &mut World, action: &Action) {
        let issued = world.actions.len() as u64;
        let mut faults = Vec::new();
        if action.id.0 != issued {
            faults.push("numbers of actions are not dense");
        }
        if action.after.is_some_and(|after| after.0 >= issued) {
            faults.push("it waits for what comes later");
        }
        if action.range.is_empty() {
            faults.push("its range is empty");
        }
        if let ActionKind::Move(tier) = action.kind
            && usize::from(tier.0) >= world.sizes.len()
        {
            faults.push("there is no such tier");
        }
        let faults = faults.into_iter().map(|fault| format!("{action:?}: {fault}"));
        world.faults.extend(faults);
    }

    fn failure(&self) -> Option<Failure> {
        use Failure::{Busy, Gone, NoRoom, Permission, Shared, Unmapped, Unsupported};
        let causes = [Busy, NoRoom, Shared, Unmapped, Gone, Permission, Unsupported];
        let fails = self.trouble.every > 0 && self.seen.is_multiple_of(self.trouble.every);
        fails.then(|| causes[(self.seen / self.trouble.every) as usize % causes.len()])
    }
}

impl Mover for TieredMover {
    fn submit(&mut self, actions: &[Action], _: Budget) -> Result<()> {
        for action in actions {
            self.seen += 1;
            let mut world = self.world.borrow_mut();
            Self::examine(&mut world, action);
            world.actions.push(*action);
            let pages = action.range.bytes() / PAGE_SIZE;
            let trusting = self.trouble == Trouble::default();
            let (done, failed, why) = match self.failure() {
                Some(why) => (0, pages, Some(why)),
                None => world.carry_out(action, trusting),
            };
            let [done, failed] = [done, failed].map(|pages| pages * PAGE_SIZE);
            let outcome = Outcome { id: action.id, time: world.now, done, failed, why };
            let due = world.polls + self.trouble.late;
            world.waiting.push((due, outcome));
        }
        Ok(())
    }

    fn poll(&mut self, out: &mut Vec<Outcome>) -> Result<()> {
        let first = out.len();
        let mut world = self.world.borrow_mut();
        let polls = world.polls;
        out.extend(world.waiting.extract_if(.., |(due, _)| *due <= polls).map(|(_, o)| o));
        if self.trouble.late > 0 {
            out[first..].reverse();
        }
        world.polls += 1;
        Ok(())
    }
}

/// An instrument that reports the true access counts.
pub struct Oracle {
    world: Rc<RefCell<World>>,
    start: Option<Time>,
}

/// Sampling intervals per window.
const SAMPLES: u32 = 40;
/// Length of a window.
const WINDOW: Duration = Duration::from_millis(200);

impl Oracle {
    fn snapshot(&self, start: Time, end: Time) -> Snapshot {
        let mut world = self.world.borrow_mut();
        let World { rows, heat, .. } = &mut *world;
        let mut regions = Vec::new();
        for (row, blocks) in rows.iter().zip(heat) {
            for (number, touches) in (0..).zip(blocks) {
                let from = row.range.start + number * BLOCK;
                let range =
                    Range { start: from, end: (from + BLOCK).min(row.range.end), ..row.range };
                let hits = std::mem::take(touches).min(SAMPLES) as f32;
                let (samples, age, level) = (SAMPLES, 0, None);
                regions.push(Region { age, level, ..Region::sampled(range, hits, samples) });
            }
        }
        regions.sort_by_key(|region: &Region| region.range);
        Snapshot { start, end, samples: SAMPLES, regions }
    }
}

impl Instrument for Oracle {
    fn name(&self) -> &'static str {
        "oracle"
    }

    fn settings(&self) -> Vec<Setting> {
        Vec::new()
    }

    fn step(&mut self, ports: &mut dyn Ports) -> Result<Step> {
        let now = ports.now();
        let start = *self.start.get_or_insert(now);
        let mut step = Step { wake: start + WINDOW, snapshot: None };
        if now >= start + WINDOW {
            step = Step { wake: now + WINDOW, snapshot: Some(self.snapshot(start, now)) };
            self.start = Some(now);
        }
        Ok(step)
    }
}
