//! Census of pages: finds which pages are resident, and reports allocations, frees, locks and
//! accesses by system calls to a policy's page lists.
//!
//! Page events and changes of mappings wait until the next tick, when the machine can be queried
//! for each page's tier. Memory that was resident before the policy started is swept once. On a
//! machine that never reports page events, all memory is swept in the background, a part per tick.

use tierscope_core::{
    Access, Addr, Backing, Evidence, Mappings, PAGE_SHIFT, PAGE_SIZE, PageEvent, PageEventKind,
    PageId, PlacementView, Range, RangeSet, Tier,
};

use super::{MOST_PAGES, PageNumbers};

/// Change of a page's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The page is resident, whether newly or not.
    Seen {
        page: u32,
        /// log2 of the number of 4 KiB pages in it.
        order: u8,
        tier: Tier,
        /// File page, not an anonymous one.
        file: bool,
    },
    /// The page is no longer resident.
    Gone { page: u32 },
    /// The page was locked into memory, or unlocked.
    Locked { page: u32, on: bool },
    /// A system call accessed the page.
    Called { page: u32, access: Access },
}

/// Receiver of page changes: a policy's page lists.
pub(crate) trait PageStates {
    /// log2 of the number of 4 KiB pages in a page; `None` if the page is not tracked.
    fn order_of(&self, page: u32) -> Option<u8>;

    /// Reserves memory for the state of pages below this number.
    fn reserve(&mut self, pages: u32);

    /// Applies a change; the page may be untracked.
    fn change(&mut self, change: Change);
}

/// Minimum number of ticks per background sweep. It bounds the delay until a new page in a mapping
/// already swept is found, and the share of a small target swept per tick.
const TICKS: u64 = 16;

/// An entry of the queue for the next tick.
#[derive(Clone, Copy, Debug)]
enum Item {
    Event(PageEvent),
    /// The pages of the range must be looked up again.
    Look(Range),
}

/// Queue of page events, and position of the background sweep.
#[derive(Clone, Debug, Default)]
pub(crate) struct Census {
    pub(crate) numbers: PageNumbers,
    /// Mappings, and whether each is backed by a file; sorted by address.
    mappings: Vec<(Range, bool)>,
    /// Whether mappings changed since the last tick.
    changed: bool,
    /// Ranges swept at least once.
    swept: RangeSet,
    queue: Vec<Item>,
    /// Whether the machine reports page events.
    told: bool,
    /// Position of the background sweep.
    hand: Addr,
    /// 4 KiB pages swept per tick on a machine that does not report page events.
    pace: u64,
}

impl Census {
    pub(crate) fn new(pace: u64) -> Self {
        Self { pace, ..Self::default() }
    }

    /// Queues mappings and page events.
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

    /// Merges allocations in order of address into one entry.
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

    /// Queues a range to be looked up again at the next tick.
    pub(crate) fn look(&mut self, range: Range) {
        self.queue.push(Item::Look(range));
    }

    /// Reports all queued changes to `keeper`. Returns the number of pages looked up.
    pub(crate) fn settle(&mut self, view: &dyn PlacementView, keeper: &mut dyn PageStates) -> u64 {
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
        keeper: &mut dyn PageStates,
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

    /// Reports the pages of a range as gone. The rest of a partly freed huge page is looked up
    /// again, as smaller pages.
    fn free(
        &mut self,
        range: &Range,
        view: &dyn PlacementView,
        keeper: &mut dyn PageStates,
    ) -> u64 {
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

    /// The tracked huge page that contains an address, unless it begins there.
    fn cut(&self, at: Addr, keeper: &dyn PageStates) -> Option<Range> {
        let head = |shift: u32| {
            let start = at.at >> shift << shift;
            let page = self.numbers.page_at(Addr { at: start, ..at })?;
            let end = start + (PAGE_SIZE << keeper.order_of(page)?);
            (start < at.at && at.at < end).then(|| Range::new(at.space, start, end))
        };
        [21, 30].into_iter().find_map(head)
    }

    /// Reports the tracked pages of a range as gone, and looks the range up again.
    fn relook(
        &mut self,
        range: &Range,
        view: &dyn PlacementView,
        keeper: &mut dyn PageStates,
    ) -> u64 {
        self.each_known(range, keeper, |page| Change::Gone { page })
            + self.sweep(range, view, keeper)
    }

    fn each_known(
        &self,
        range: &Range,
        keeper: &mut dyn PageStates,
        change: impl Fn(u32) -> Change,
    ) -> u64 {
        let mut met = 0;
        for page in self.numbers.rows(range).into_iter().flatten() {
            if keeper.order_of(page).is_some() {
                keeper.change(change(page));
                met += 1;
            }
        }
        met
    }

    fn settle_mappings(&mut self, view: &dyn PlacementView, keeper: &mut dyn PageStates) -> u64 {
        let mapped: RangeSet = self.mappings.iter().map(|(range, _)| *range).collect();
        for page in self.numbers.keep(&mapped).into_iter().flatten() {
            if keeper.order_of(page).is_some() {
                keeper.change(Change::Gone { page });
            }
        }
        let fresh = mapped.minus(&self.swept);
        // A machine that reports page events reports those of new mappings too.
        let sweep = !self.told || self.swept.is_empty();
        self.swept = mapped;
        let ranges = fresh.as_slice().iter().filter(|_| sweep);
        ranges.map(|range| self.sweep(range, view, keeper)).sum()
    }

    /// Background sweep: looks up the next pages, cyclically; of a small target, only a part per
    /// tick.
    fn sweep_on(&mut self, view: &dyn PlacementView, keeper: &mut dyn PageStates) -> u64 {
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

    /// Looks up and reports every page of the range.
    fn sweep(
        &mut self,
        range: &Range,
        view: &dyn PlacementView,
        keeper: &mut dyn PageStates,
    ) -> u64 {
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

    /// Looks up and reports the page at an address. Returns its end.
    fn see(
        &mut self,
        here: &Range,
        view: &dyn PlacementView,
        keeper: &mut dyn PageStates,
    ) -> Option<u64> {
        let PageId(page) = view.page_at(here)?;
        let whole = view.range_of(PageId(page))?;
        let tier = view.tier_of(PageId(page))?;
        let (mapping, file) = self.mapping_of(&whole).unwrap_or((whole, false));
        self.numbers.learn(page, &whole, &mapping);
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

    /// The mapping that contains a range.
    fn mapping_of(&self, range: &Range) -> Option<(Range, bool)> {
        let key = (range.space, range.start);
        let next =
            self.mappings.partition_point(|(mapping, _)| (mapping.space, mapping.end) <= key);
        self.mappings.get(next).copied().filter(|(mapping, _)| mapping.covers(range))
    }
}
