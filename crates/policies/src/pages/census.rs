//! Who is there: pages that come, go, are locked, or are touched by system calls.
//!
//! Events of pages and changes of mappings wait until the next tick, when the machine can be asked
//! where each page is. What was in memory before the policy came is swept once. A machine that never
//! tells of pages is swept again and again, a little at each tick.

use tierscope_core::{
    Access, Addr, Backing, Evidence, Mappings, PAGE_SHIFT, PAGE_SIZE, PageEvent, PageEventKind,
    PageId, PlacementView, Range, RangeSet, Tier,
};

use super::{Atlas, MOST_PAGES};

/// What happened to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It is there, new or not.
    Seen {
        page: u32,
        /// log2 of its pages of 4 KiB.
        order: u8,
        tier: Tier,
        /// A file stands behind it.
        file: bool,
    },
    /// It is there no more.
    Gone { page: u32 },
    /// It may not be moved, or may be again.
    Locked { page: u32, on: bool },
    /// A system call touched it.
    Called { page: u32, access: Access },
}

/// Whoever keeps the pages.
pub(crate) trait Keeper {
    /// log2 of the page's pages of 4 KiB; `None` if it is not known.
    fn order_of(&self, page: u32) -> Option<u8>;

    /// Makes room for pages below that number.
    fn reserve(&mut self, pages: u32);

    /// Takes note. Pages that are not known may be told of too.
    fn change(&mut self, change: Change);
}

/// Ticks that a sweep of everything takes at least. What is new in a mapping that was swept before is found so much
/// later, and what a policy costs does not depend on how small its target is.
const TICKS: u64 = 16;

/// What waits for the next tick.
#[derive(Clone, Copy, Debug)]
enum Item {
    Event(PageEvent),
    /// To be looked at anew.
    Look(Range),
}

/// The census.
#[derive(Clone, Debug, Default)]
pub(crate) struct Census {
    pub(crate) atlas: Atlas,
    /// Mappings, and whether a file stands behind each; by address.
    mappings: Vec<(Range, bool)>,
    /// They changed since the last tick.
    changed: bool,
    /// Swept at least once.
    swept: RangeSet,
    queue: Vec<Item>,
    /// The machine tells of pages itself.
    told: bool,
    /// Where the sweep goes on.
    hand: Addr,
    /// Pages of 4 KiB swept at a tick on a machine that does not tell.
    pace: u64,
}

impl Census {
    pub(crate) fn new(pace: u64) -> Self {
        Self { pace, ..Self::default() }
    }

    /// Takes mappings and page events in.
    pub(crate) fn observe(&mut self, evidence: &Evidence<'_>) {
        match evidence {
            Evidence::Mappings(mappings) => self.map(mappings),
            Evidence::PageEvents(events) => {
                self.told = true;
                events.iter().for_each(|event| self.queue_event(*event));
            }
            _ => {}
        }
    }

    fn map(&mut self, mappings: &Mappings) {
        let of =
            |mapping: &tierscope_core::Mapping| (mapping.range, mapping.backing == Backing::File);
        self.mappings = mappings.mappings.iter().map(of).collect();
        self.mappings.sort_unstable_by_key(|(range, _)| *range);
        self.changed = true;
    }

    /// What is filled in order of address becomes one item.
    fn queue_event(&mut self, event: PageEvent) {
        let allocated = |kind| matches!(kind, PageEventKind::Allocated(_));
        if let Some(Item::Event(last)) = self.queue.last_mut()
            && allocated(last.kind)
            && allocated(event.kind)
            && last.range.touches(&event.range)
        {
            last.range.end = event.range.end;
            return;
        }
        self.queue.push(Item::Event(event));
    }

    /// Has a range looked at anew at the next tick.
    pub(crate) fn look(&mut self, range: Range) {
        self.queue.push(Item::Look(range));
    }

    /// Tells `keeper` all that happened; returns how many pages were looked at.
    pub(crate) fn settle(&mut self, view: &dyn PlacementView, keeper: &mut dyn Keeper) -> u64 {
        let mut looked = 0;
        for item in std::mem::take(&mut self.queue) {
            looked += match item {
                Item::Look(range) => self.relook(&range, view, keeper),
                Item::Event(event) => self.settle_event(&event, view, keeper),
            };
        }
        if std::mem::take(&mut self.changed) {
            looked += self.settle_mappings(view, keeper);
        }
        if !self.told {
            looked += self.sweep_on(view, keeper);
        }
        looked
    }

    fn settle_event(
        &mut self,
        event: &PageEvent,
        view: &dyn PlacementView,
        keeper: &mut dyn Keeper,
    ) -> u64 {
        match event.kind {
            PageEventKind::Allocated(_) => self.sweep(&event.range, view, keeper),
            PageEventKind::Freed => self.free(&event.range, view, keeper),
            PageEventKind::Locked | PageEventKind::Unlocked => {
                let on = event.kind == PageEventKind::Locked;
                self.each_known(&event.range, keeper, |page| Change::Locked { page, on })
            }
            PageEventKind::FileAccess(access) => {
                self.each_known(&event.range, keeper, |page| Change::Called { page, access })
            }
        }
    }

    /// Pages of the range are gone. A huge page of which a part went is several from now on.
    fn free(&mut self, range: &Range, view: &dyn PlacementView, keeper: &mut dyn Keeper) -> u64 {
        let cut: Vec<Range> = [range.start, range.end]
            .into_iter()
            .filter_map(|at| self.cut(Addr { space: range.space, at }, keeper))
            .collect();
        let mut looked = self.each_known(range, keeper, |page| Change::Gone { page });
        for huge in cut {
            looked += self.relook(&huge, view, keeper);
        }
        looked
    }

    /// The known huge page that an address cuts.
    fn cut(&self, at: Addr, keeper: &dyn Keeper) -> Option<Range> {
        let head = |shift: u32| {
            let start = at.at >> shift << shift;
            let page = self.atlas.page_at(Addr { at: start, ..at })?;
            let end = start + (PAGE_SIZE << keeper.order_of(page)?);
            (start < at.at && at.at < end).then(|| Range::new(at.space, start, end))
        };
        [21, 30].into_iter().find_map(head)
    }

    /// Forgets what was known of a range and looks at it.
    fn relook(&mut self, range: &Range, view: &dyn PlacementView, keeper: &mut dyn Keeper) -> u64 {
        self.each_known(range, keeper, |page| Change::Gone { page })
            + self.sweep(range, view, keeper)
    }

    fn each_known(
        &self,
        range: &Range,
        keeper: &mut dyn Keeper,
        change: impl Fn(u32) -> Change,
    ) -> u64 {
        let mut met = 0;
        for page in self.atlas.rows(range).into_iter().flatten() {
            if keeper.order_of(page).is_some() {
                keeper.change(change(page));
                met += 1;
            }
        }
        met
    }

    fn settle_mappings(&mut self, view: &dyn PlacementView, keeper: &mut dyn Keeper) -> u64 {
        let mapped: RangeSet = self.mappings.iter().map(|(range, _)| *range).collect();
        for page in self.atlas.keep(&mapped).into_iter().flatten() {
            if keeper.order_of(page).is_some() {
                keeper.change(Change::Gone { page });
            }
        }
        let fresh = mapped.minus(&self.swept);
        // Whoever told of pages tells of those of new mappings too.
        let sweep = !self.told || self.swept.is_empty();
        self.swept = mapped;
        let ranges = fresh.as_slice().iter().filter(|_| sweep);
        ranges.map(|range| self.sweep(range, view, keeper)).sum()
    }

    /// The next few pages, round and round: of a small target too not all at every tick.
    fn sweep_on(&mut self, view: &dyn PlacementView, keeper: &mut dyn Keeper) -> u64 {
        let mut left = self.pace.min((self.swept.bytes() >> PAGE_SHIFT).div_ceil(TICKS));
        let mut looked = 0;
        while left > 0 {
            let ranges = self.swept.as_slice();
            let hand = (self.hand.space, self.hand.at);
            let next = ranges.partition_point(|range| (range.space, range.end) <= hand);
            let range = ranges.get(next).unwrap_or(&ranges[0]);
            let start = if range.contains(self.hand) { self.hand.at } else { range.start };
            let end = range.end.min(start + (left << PAGE_SHIFT));
            let part = Range::new(range.space, start, end);
            self.hand = Addr { space: part.space, at: part.end };
            left -= part.bytes().div_ceil(PAGE_SIZE).min(left);
            looked += self.sweep(&part, view, keeper);
        }
        looked
    }

    /// Tells of every page of the range.
    fn sweep(&mut self, range: &Range, view: &dyn PlacementView, keeper: &mut dyn Keeper) -> u64 {
        let (mut at, mut looked) = (range.start & !(PAGE_SIZE - 1), 0);
        while at < range.end {
            let here = Range::new(range.space, at, at + PAGE_SIZE);
            looked += 1;
            at = match self.see(&here, view, keeper) {
                Some(end) => end.max(here.end),
                None => here.end,
            };
        }
        looked
    }

    /// Tells of the page at an address; returns where it ends.
    fn see(
        &mut self,
        here: &Range,
        view: &dyn PlacementView,
        keeper: &mut dyn Keeper,
    ) -> Option<u64> {
        let PageId(page) = view.page_at(here)?;
        let whole = view.range_of(PageId(page))?;
        let tier = view.tier_of(PageId(page))?;
        let (mapping, file) = self.mapping_of(&whole).unwrap_or((whole, false));
        self.atlas.learn(page, &whole, &mapping);
        if page >= MOST_PAGES {
            return Some(whole.end);
        }
        let order = (whole.bytes() >> PAGE_SHIFT).ilog2() as u8;
        if let Some(known) = keeper.order_of(page)
            && known != order
        {
            keeper.change(Change::Gone { page });
        } else if keeper.order_of(page).is_none() {
            let last = (mapping.end - whole.start) >> PAGE_SHIFT;
            keeper.reserve(page.saturating_add(last as u32).min(MOST_PAGES));
        }
        keeper.change(Change::Seen { page, order, tier, file });
        Some(whole.end)
    }

    /// The mapping that holds a range.
    fn mapping_of(&self, range: &Range) -> Option<(Range, bool)> {
        let key = (range.space, range.start);
        let next =
            self.mappings.partition_point(|(mapping, _)| (mapping.space, mapping.end) <= key);
        self.mappings.get(next).copied().filter(|(mapping, _)| mapping.covers(range))
    }
}
