//! The kernel's page lists, with MULTI-CLOCK's promote list.
//!
//! Every tier has an inactive and an active list for anonymous pages and for pages of files each, a
//! promote list likewise where MULTI-CLOCK is at work (not in the fastest tier), and one list of pages
//! that are locked into memory (MULTI-CLOCK, HPCA'22, section IV). [`state`] is the page state diagram.
//!
//! The hand of a clock takes pages from a list's tail and puts them to its head, so that the next scan
//! meets others. ACCESSED bits are tested and cleared by probes that the machine answers; what a page
//! becomes is decided when the answer comes.

pub mod state;

use tierscope_core::{
    Access, Failure, Level, Orders, Outcome, PlacementView, Probe, Range, State as Answer, Tier,
};

use crate::pages::{Atlas, Census, Change, Ended, Keeper, ListId, Lists, Moves};
use state::{Event, PageState, next};

/// Lists of a tier: three kinds for anonymous pages and for pages of files, the locked ones, and one more
/// that keeps the arithmetic cheap.
const LISTS: u8 = 8;
/// Tiers at most.
const TIERS: u8 = 8;

/// What is kept of a page, as bits.
mod flag {
    /// Referenced since the last scan.
    pub(super) const REFERENCED: u8 = 1;
    /// Written to.
    pub(super) const DIRTY: u8 = 2;
    pub(super) const LOCKED: u8 = 4;
    /// A file stands behind it.
    pub(super) const FILE: u8 = 8;
    /// It was to be promoted, and could not.
    pub(super) const TRIED: u8 = 16;
    /// Its ACCESSED bit was asked for.
    pub(super) const ASKED: u8 = 32;
}

/// A list's kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Inactive,
    Active,
    Promote,
}

/// Which list.
fn list(tier: Tier, kind: Kind, file: bool) -> ListId {
    ListId(tier.0 * LISTS + 2 * kind as u8 + u8::from(file))
}

fn locked(tier: Tier) -> ListId {
    ListId(tier.0 * LISTS + 6)
}

fn tier_of(list: ListId) -> Tier {
    Tier(list.0 / LISTS)
}

/// The lists of all tiers.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    lists: Lists<u8>,
    /// There are promote lists.
    promotes: bool,
    /// An access to a page that was written to counts so many times.
    dirty_weight: u8,
    /// The square root's argument of each tier's ratio of active to inactive pages: 10 times its GB.
    ratio: [u64; TIERS as usize],
    /// By tier, pages of the inactive lists that were just found unreferenced, coldest first.
    cold: Vec<std::collections::VecDeque<u32>>,
    /// Somebody asks for them.
    keeps_cold: bool,
    scratch: Vec<u32>,
}

impl Clock {
    /// Bytes that a tracked page of 4 KiB takes.
    pub(crate) const PAGE_BYTES: usize = Lists::<u8>::TRAILED_BYTES;

    pub(crate) fn new(promotes: bool, dirty_weight: u8) -> Self {
        Self {
            lists: Lists::with_trails(usize::from(LISTS * TIERS)),
            promotes,
            dirty_weight: dirty_weight.max(1),
            ratio: [1; TIERS as usize],
            cold: vec![Default::default(); usize::from(TIERS)],
            keeps_cold: true,
            scratch: Vec::new(),
        }
    }

    /// The same for who never asks for [`Clock::next_cold`].
    pub(crate) fn without_cold(self) -> Self {
        Self { keeps_cold: false, ..self }
    }

    /// Active to inactive pages may be `int_sqrt(10 * GB):1` in a tier (Linux mm/vmscan.c,
    /// `inactive_is_low`; the paper's section IV-C).
    pub(crate) fn set_capacity(&mut self, tier: Tier, bytes: u64) {
        if let Some(ratio) = self.ratio.get_mut(usize::from(tier.0)) {
            *ratio = ratio_of(bytes);
        }
    }

    pub(crate) fn bytes(&self, page: u32) -> u64 {
        self.lists.bytes(page)
    }

    /// Pages on a list, of whatever size.
    pub(crate) fn count(&self, tier: Tier, kind: Kind, file: bool) -> u32 {
        self.lists.count(list(tier, kind, file))
    }

    fn has(&self, page: u32, flag: u8) -> bool {
        self.lists.payload(page) & flag != 0
    }

    fn set(&mut self, page: u32, flag: u8, on: bool) {
        let flags = self.lists.payload_mut(page);
        *flags = if on { *flags | flag } else { *flags & !flag };
    }

    pub(crate) fn is_file(&self, page: u32) -> bool {
        self.has(page, flag::FILE)
    }

    /// Tier and state of a page that is on a list of its tier and not locked.
    #[inline]
    pub(crate) fn state(&self, page: u32) -> Option<(Tier, PageState)> {
        let (on, flags) = self.lists.on(page)?;
        let referenced = flags & flag::REFERENCED != 0;
        let state = match (on.0 % LISTS / 2, referenced) {
            (0, false) => PageState::InactiveUnreferenced,
            (0, true) => PageState::InactiveReferenced,
            (1, false) => PageState::ActiveUnreferenced,
            (1, true) => PageState::ActiveReferenced,
            (2, _) => PageState::Promote,
            _ => return None,
        };
        Some((tier_of(on), state))
    }

    /// Puts a page on the list of its state, at the head.
    #[inline]
    pub(crate) fn put(&mut self, page: u32, tier: Tier, state: PageState) {
        if tier.0 >= TIERS {
            return;
        }
        let flags = self.lists.payload_mut(page);
        if *flags & flag::LOCKED != 0 {
            return self.lists.push_head(locked(tier), page);
        }
        let (kind, referenced) = match state {
            PageState::Absent => return,
            PageState::InactiveUnreferenced => (Kind::Inactive, false),
            PageState::InactiveReferenced => (Kind::Inactive, true),
            PageState::ActiveUnreferenced => (Kind::Active, false),
            PageState::ActiveReferenced => (Kind::Active, true),
            PageState::Promote => (Kind::Promote, false),
        };
        let kept = if kind == Kind::Promote {
            !flag::REFERENCED
        } else {
            !flag::REFERENCED & !flag::TRIED
        };
        *flags = *flags & kept | if referenced { flag::REFERENCED } else { 0 };
        let file = *flags & flag::FILE != 0;
        self.lists.push_head(list(tier, kind, file), page);
    }

    /// Likewise, at the tail.
    pub(crate) fn put_last(&mut self, page: u32, tier: Tier, state: PageState) {
        self.put(page, tier, state);
        if let Some(on) = self.lists.list_of(page) {
            self.lists.push_tail(on, page);
        }
    }

    /// What happened to a page on a list makes it another state of the diagram.
    #[inline]
    pub(crate) fn happen(&mut self, page: u32, event: Event) {
        if let Some(known) = self.state(page) {
            self.step(page, known, event);
        }
    }

    #[inline]
    fn step(&mut self, page: u32, (tier, state): (Tier, PageState), event: Event) {
        let promotes = self.promotes && tier.0 > 0;
        self.put(page, tier, next(state, event, promotes));
    }

    /// An access counts once, or as often as a page that was written to weighs.
    #[inline]
    fn accessed(&mut self, page: u32, event: Event) {
        if self.dirty_weight == 1 {
            return self.happen(page, event);
        }
        let weight = if self.has(page, flag::DIRTY) { self.dirty_weight } else { 1 };
        (0..weight).for_each(|_| self.happen(page, event));
    }

    /// Off its list, for as long as it is on its way.
    pub(crate) fn isolate(&mut self, page: u32) {
        self.lists.take(page);
    }

    pub(crate) fn knows(&self, page: u32) -> bool {
        self.lists.knows(page)
    }

    pub(crate) fn forget(&mut self, page: u32) {
        if self.lists.knows(page) {
            self.lists.forget(page);
        }
    }

    /// Whether the active list outgrew the inactive one.
    pub(crate) fn is_inactive_low(&self, tier: Tier, file: bool) -> bool {
        let bytes = |kind| self.lists.list_bytes(list(tier, kind, file));
        bytes(Kind::Active) > bytes(Kind::Inactive) * self.ratio[usize::from(tier.0)]
    }

    /// Asks for the ACCESSED bits of up to `most` pages at a list's tail. Of a promote list, for those
    /// alone that could not be promoted before. Returns how many.
    pub(crate) fn scan(
        &mut self,
        atlas: &Atlas,
        (tier, kind, file): (Tier, Kind, bool),
        most: u32,
        orders: &mut Orders,
    ) -> u64 {
        let mut lost = std::mem::take(&mut self.scratch);
        let met = self.lists.meet_tail(list(tier, kind, file), most, |page, order, flags| {
            if kind == Kind::Promote && *flags & flag::TRIED == 0 {
                return;
            }
            match atlas.address_of(page) {
                Some(at) => {
                    orders.probes.push(Probe::test_and_clear(at, level_of(order)));
                    *flags |= flag::ASKED;
                }
                None => lost.push(page),
            }
        });
        lost.drain(..).for_each(|page| self.forget(page));
        self.scratch = lost;
        met.into()
    }

    /// The page that an answer is about, if it was asked for, and what was found.
    #[inline]
    fn answered(&mut self, atlas: &Atlas, probe: &Probe) -> Option<(u32, Answer)> {
        let page = atlas.page_at(probe.at)?;
        let flags = self.lists.known_mut(page).filter(|flags| **flags & flag::ASKED != 0)?;
        *flags &= !flag::ASKED;
        if probe.answer.dirty {
            *flags |= flag::DIRTY;
        }
        Some((page, probe.answer.state))
    }

    /// What a scan found makes of a page what the diagram says.
    #[inline]
    pub(crate) fn settle(&mut self, page: u32, young: bool) {
        if young { self.accessed(page, Event::Seen) } else { self.idle(page) }
    }

    /// A page was not referenced since the last scan.
    #[inline]
    fn idle(&mut self, page: u32) {
        let Some((tier, state)) = self.state(page) else { return };
        let event = match state {
            PageState::ActiveUnreferenced if self.is_inactive_low(tier, self.is_file(page)) => {
                Event::Shrunk
            }
            _ => Event::Idle,
        };
        if state == PageState::InactiveUnreferenced && self.keeps_cold {
            self.cold[usize::from(tier.0)].push_back(page);
        }
        self.step(page, (tier, state), event);
    }

    /// The next page of a tier that was just found cold, and still is.
    pub(crate) fn next_cold(&mut self, tier: Tier) -> Option<u32> {
        loop {
            let page = self.cold.get_mut(usize::from(tier.0))?.pop_front()?;
            let cold = Some((tier, PageState::InactiveUnreferenced));
            if self.lists.knows(page) && self.state(page) == cold {
                return Some(page);
            }
        }
    }

    /// Gives back a page that [`Clock::next_cold`] gave.
    pub(crate) fn keep_cold(&mut self, tier: Tier, page: u32) {
        self.cold[usize::from(tier.0)].push_front(page);
    }

    /// Forgets which pages were just found cold.
    pub(crate) fn clear_cold(&mut self) {
        self.cold.iter_mut().for_each(|pages| pages.clear());
    }

    /// Up to `most` pages of a list, the one that was there first at the front.
    pub(crate) fn first_come(&self, tier: Tier, kind: Kind, file: bool, most: u32) -> Vec<u32> {
        self.lists.tail_first(list(tier, kind, file)).take(most as usize).collect()
    }

    /// Up to `most` pages of a list, the one that came last at the front.
    pub(crate) fn last_come(&self, tier: Tier, kind: Kind, file: bool, most: u32) -> Vec<u32> {
        self.lists.head_first(list(tier, kind, file)).take(most as usize).collect()
    }

    /// It could not be promoted: unless it is accessed until the next scan, it is active again.
    pub(crate) fn mark_tried(&mut self, page: u32) {
        self.set(page, flag::TRIED, true);
    }

    fn see(&mut self, page: u32, order: u8, tier: Tier, file: bool) {
        if tier.0 >= TIERS {
            return;
        }
        if !self.lists.knows(page) {
            self.lists.add(page, order);
            self.set(page, flag::FILE, file);
            return self.put(page, tier, next(PageState::Absent, Event::Added, false));
        }
        // Somebody else moved it; of a locked page any state will do.
        if let Some(on) = self.lists.list_of(page)
            && tier_of(on) != tier
        {
            let state = match self.state(page) {
                Some((_, PageState::Promote)) if tier.0 == 0 => PageState::ActiveReferenced,
                Some((_, state)) => state,
                None => PageState::InactiveUnreferenced,
            };
            self.put(page, tier, state);
        }
    }

    fn lock(&mut self, page: u32, on: bool) {
        self.set(page, flag::LOCKED, on);
        if let Some(on_list) = self.lists.list_of(page) {
            let tier = tier_of(on_list);
            self.put(page, tier, next(PageState::Absent, Event::Added, false));
        }
    }

    fn call(&mut self, page: u32, access: Access) {
        if access == Access::Store {
            self.set(page, flag::DIRTY, true);
        }
        self.accessed(page, Event::Called);
    }

    /// Number of the tier, and state, of a page that is on a list and not locked.
    #[cfg(test)]
    pub(crate) fn state_of(&self, page: u32) -> Option<(u8, PageState)> {
        self.state(page).map(|(tier, state)| (tier.0, state))
    }
}

/// `int_sqrt(10 * GB)`, at least 1.
fn ratio_of(bytes: u64) -> u64 {
    (10 * (bytes >> 30)).isqrt().max(1)
}

/// The level whose entry maps a page of that order.
fn level_of(order: u8) -> Level {
    match order {
        0..9 => Level::PTE,
        9..18 => Level::PMD,
        _ => Level::PUD,
    }
}

/// Lists that hear from a [`Census`], and actions of pages that go.
pub(crate) struct Kept<'a, T> {
    pub(crate) clock: &'a mut Clock,
    pub(crate) moves: &'a mut Moves<T>,
}

impl<T: Copy> Keeper for Kept<'_, T> {
    fn order_of(&self, page: u32) -> Option<u8> {
        self.clock.knows(page).then(|| self.clock.lists.order(page))
    }

    fn reserve(&mut self, pages: u32) {
        self.clock.lists.reserve(pages);
    }

    fn change(&mut self, change: Change) {
        let clock = &mut self.clock;
        match change {
            Change::Seen { page, order, tier, file } => clock.see(page, order, tier, file),
            Change::Gone { page } => {
                self.moves.forget(page);
                clock.forget(page);
            }
            Change::Locked { page, on } if clock.knows(page) => clock.lock(page, on),
            Change::Called { page, access } if clock.knows(page) => clock.call(page, access),
            Change::Locked { .. } | Change::Called { .. } => {}
        }
    }
}

/// The range of a page.
pub(crate) fn range_of(atlas: &Atlas, bytes: u64, page: u32) -> Option<Range> {
    let at = atlas.address_of(page)?;
    Some(Range::new(at.space, at.at, at.at + bytes))
}

/// Why a page is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// To a faster tier.
    Up,
    /// To a slower one.
    Down,
    /// Out of memory.
    Out,
}

/// The pages that are in memory, on lists or on their way.
#[derive(Clone, Debug)]
pub(crate) struct Resident {
    pub(crate) census: Census,
    pub(crate) clock: Clock,
    pub(crate) moves: Moves<Way>,
}

impl Resident {
    /// Nothing yet. On a machine that does not tell of pages, so many are looked up at each tick.
    pub(crate) fn new(clock: Clock, census: u64) -> Self {
        Self { census: Census::new(census), clock, moves: Moves::new() }
    }

    pub(crate) fn tiers(&self) -> impl Iterator<Item = Tier> + use<> {
        (0..self.moves.tiers() as u8).map(Tier)
    }

    /// Hears of all that happened since the last tick; returns how many pages were looked at.
    pub(crate) fn settle(&mut self, view: &dyn PlacementView) -> u64 {
        self.moves.refresh(view.tiers());
        for tier in self.tiers() {
            self.clock.set_capacity(tier, self.moves.capacity(tier));
        }
        let mut kept = Kept { clock: &mut self.clock, moves: &mut self.moves };
        self.census.settle(view, &mut kept)
    }

    /// Takes answers in: `rule` says what becomes of a page that was found young, or not. What turned
    /// out to be gone is forgotten.
    pub(crate) fn judge(&mut self, probes: &[Probe], mut rule: impl FnMut(&mut Clock, u32, bool)) {
        for probe in probes {
            match self.clock.answered(&self.census.atlas, probe) {
                Some((page, Answer::Young)) => rule(&mut self.clock, page, true),
                Some((page, Answer::Old | Answer::Refused)) => rule(&mut self.clock, page, false),
                Some((page, Answer::Gone | Answer::Unmapped | Answer::Absent)) => {
                    self.moves.forget(page);
                    self.clock.forget(page);
                }
                None => {}
            }
        }
    }

    /// Orders that a page move, or go; it is on no list until that has ended.
    pub(crate) fn send(
        &mut self,
        page: u32,
        from: Tier,
        to: Option<Tier>,
        way: Way,
        orders: &mut Orders,
    ) -> bool {
        let Some(range) = range_of(&self.census.atlas, self.clock.bytes(page), page) else {
            self.clock.forget(page);
            return false;
        };
        self.clock.isolate(page);
        match to {
            Some(to) => self.moves.move_page(orders, (page, range), (from, to), way),
            None => self.moves.reclaim(orders, (page, range), from, way),
        };
        true
    }

    /// What became of a page, if it is still there: it is on no list yet.
    pub(crate) fn end(&mut self, outcome: &Outcome) -> Option<Ended<Way>> {
        let ended = self.moves.end(outcome)?;
        if !self.clock.knows(ended.page) {
            return None;
        }
        // Part of it may have moved, or all of it may be elsewhere.
        if !ended.done
            && matches!(ended.why, None | Some(Failure::Unmapped | Failure::Gone))
            && let Some(range) =
                range_of(&self.census.atlas, self.clock.bytes(ended.page), ended.page)
        {
            self.census.look(range);
        }
        Some(ended)
    }

    /// As [`Resident::end`]: the page is put where it is now, active if it was promoted, inactive otherwise.
    pub(crate) fn land(&mut self, outcome: &Outcome) {
        let Some(ended) = self.end(outcome) else { return };
        let tier = ended.to.filter(|_| ended.done).unwrap_or(ended.from);
        let state = match ended.tag {
            Way::Up => PageState::ActiveUnreferenced,
            Way::Down | Way::Out => PageState::InactiveUnreferenced,
        };
        self.clock.put(ended.page, tier, state);
    }

    /// The page of a tier that came first to the first of these lists that holds any goes to the next tier, if that
    /// has room. Lists: their kind, and whether they are of files.
    pub(crate) fn demote_first(
        &mut self,
        tier: Tier,
        lists: &[(Kind, bool)],
        orders: &mut Orders,
    ) -> bool {
        let to = Tier(tier.0 + 1);
        for (kind, file) in lists {
            let first = self.clock.first_come(tier, *kind, *file, 1);
            if let Some(page) = first.first().copied() {
                let fits = self.moves.free(to) >= self.clock.bytes(page);
                return fits && self.send(page, tier, Some(to), Way::Down, orders);
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Section IV-C with n in GB: the kernel's comment in mm/vmscan.c gives 1 GB 3, 10 GB 10, 100 GB 31,
    // 1 TB 101.
    #[test]
    fn the_ratio_grows_with_the_root_of_the_tier() {
        let ratios = [100 << 20, 1 << 30, 10 << 30, 100 << 30, 1 << 40].map(ratio_of);
        assert_eq!(ratios, [1, 3, 10, 31, 101]);
    }

    // Moved while it was locked, by whoever may: it is of the other tier when it is unlocked.
    #[test]
    fn a_locked_page_may_be_moved_by_somebody_else() {
        let mut clock = Clock::new(true, 1);
        clock.see(3, 0, Tier(1), false);
        clock.lock(3, true);
        assert_eq!(clock.state_of(3), None);
        clock.see(3, 0, Tier(0), false);
        clock.lock(3, false);
        assert_eq!(clock.state_of(3), Some((0, PageState::InactiveUnreferenced)));
    }

    #[test]
    fn a_page_takes_sixteen_bytes() {
        assert_eq!(Clock::PAGE_BYTES, 16);
    }
}
