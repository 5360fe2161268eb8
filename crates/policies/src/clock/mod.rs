//! The kernel's page lists, with MULTI-CLOCK's promote list.
//!
//! Every tier has an inactive and an active list for anonymous pages and for file pages each, for
//! MULTI-CLOCK also a promote list each (not in the fastest tier), and one list of pages that are
//! locked into memory (MULTI-CLOCK, HPCA'22, section IV). [`state`] is the page state diagram.
//!
//! The hand of a clock takes pages from a list's tail and puts them at its head, so that the next
//! scan meets others. ACCESSED bits are tested and cleared by probes that the machine answers; a
//! page's next state is decided when the answer arrives.

pub mod state;

use tierscope_core::{
    Access, Failure, Level, Orders, Outcome, PlacementView, Probe, Range, State as Answer, Tier,
};

use crate::pages::{Census, Change, FinishedMove, ListId, Lists, Moves, PageNumbers, PageStates};
use state::{Event, PageState, next};

/// Lists per tier: three kinds for anonymous pages and for file pages, the locked pages, and an
/// unused one that makes the number a power of two.
const LISTS: u8 = 8;
/// Maximum number of tiers.
const TIERS: u8 = 8;

/// Per-page flags.
mod flag {
    /// Referenced since the last scan.
    pub(super) const REFERENCED: u8 = 1;
    /// Written since it was listed.
    pub(super) const DIRTY: u8 = 2;
    pub(super) const LOCKED: u8 = 4;
    /// File page, not an anonymous one.
    pub(super) const FILE: u8 = 8;
    /// A promotion was attempted and failed.
    pub(super) const TRIED: u8 = 16;
    /// A probe of its ACCESSED bit is pending.
    pub(super) const ASKED: u8 = 32;
}

/// Kind of a page list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Inactive,
    Active,
    Promote,
}

/// List number of a tier's anonymous or file pages of a kind.
fn list(tier: Tier, kind: Kind, file: bool) -> ListId {
    ListId(tier.0 * LISTS + 2 * kind as u8 + u8::from(file))
}

fn locked(tier: Tier) -> ListId {
    ListId(tier.0 * LISTS + 6)
}

fn tier_of(list: ListId) -> Tier {
    Tier(list.0 / LISTS)
}

/// The page lists of all tiers.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    lists: Lists<u8>,
    /// Whether there are promote lists.
    promotes: bool,
    /// Weight of an access to a page that was written.
    dirty_weight: u8,
    /// By tier, the maximum ratio of active to inactive pages, from the tier's size.
    ratio: [u64; TIERS as usize],
    /// The maximum ratio in all tiers instead.
    set_ratio: Option<u64>,
    /// By tier, pages of the inactive lists that were just found unreferenced, coldest first.
    cold: Vec<std::collections::VecDeque<u32>>,
    /// Whether `cold` is maintained.
    keeps_cold: bool,
    /// Whether a scan activates an anonymous page when it finds it accessed once.
    activates_at_once: bool,
    scratch: Vec<u32>,
}

impl Clock {
    /// Bytes of state per tracked page of 4 KiB.
    pub(crate) const PAGE_BYTES: usize = Lists::<u8>::TRAILED_BYTES;

    pub(crate) fn new(promotes: bool, dirty_weight: u8) -> Self {
        Self {
            lists: Lists::with_trails(usize::from(LISTS * TIERS)),
            promotes,
            dirty_weight: dirty_weight.max(1),
            ratio: [1; TIERS as usize],
            set_ratio: None,
            cold: vec![Default::default(); usize::from(TIERS)],
            keeps_cold: true,
            activates_at_once: false,
            scratch: Vec::new(),
        }
    }

    /// Without `cold`, for a policy that never calls [`Clock::next_cold`].
    pub(crate) fn without_cold(self) -> Self {
        Self { keeps_cold: false, ..self }
    }

    /// With this maximum ratio of active to inactive pages whatever the tiers' sizes.
    pub(crate) fn with_ratio(self, ratio: Option<u64>) -> Self {
        Self { set_ratio: ratio, ..self }
    }

    /// As Linux up to 5.8: an anonymous page found accessed once is active (mm/vmscan.c,
    /// `page_check_references`: `PageSwapBacked`), a file page if found so twice.
    pub(crate) fn activating_at_once(self) -> Self {
        Self { activates_at_once: true, ..self }
    }

    /// Sets the maximum ratio of active to inactive pages of a tier to `int_sqrt(10 * GB):1` (Linux
    /// mm/vmscan.c, `inactive_is_low`; the paper's section IV-C).
    pub(crate) fn set_capacity(&mut self, tier: Tier, bytes: u64) {
        if let Some(ratio) = self.ratio.get_mut(usize::from(tier.0)) {
            *ratio = self.set_ratio.unwrap_or_else(|| ratio_of(bytes));
        }
    }

    pub(crate) fn bytes(&self, page: u32) -> u64 {
        self.lists.bytes(page)
    }

    /// Number of pages on a list, of any size.
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

    /// Puts a page at the head of the list of its state.
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

    /// Puts a page at the tail of the list of its state.
    pub(crate) fn put_last(&mut self, page: u32, tier: Tier, state: PageState) {
        self.put(page, tier, state);
        if let Some(on) = self.lists.list_of(page) {
            self.lists.push_tail(on, page);
        }
    }

    /// Applies an event to a page on a list: it moves to the diagram's next state.
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

    /// Applies an access: one event, or `dirty-weight` of them for a page that was written.
    #[inline]
    fn accessed(&mut self, page: u32, event: Event) {
        if self.dirty_weight == 1 {
            return self.happen(page, event);
        }
        let weight = if self.has(page, flag::DIRTY) { self.dirty_weight } else { 1 };
        (0..weight).for_each(|_| self.happen(page, event));
    }

    /// Takes a page off its list while it is being moved.
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

    /// Orders probes of up to `most` pages at a list's tail; on a promote list, only of pages whose
    /// promotion failed before. Returns the number of pages met.
    pub(crate) fn scan(
        &mut self,
        numbers: &PageNumbers,
        (tier, kind, file): (Tier, Kind, bool),
        most: u32,
        orders: &mut Orders,
    ) -> u64 {
        let mut lost = std::mem::take(&mut self.scratch);
        let met = self.lists.meet_tail(list(tier, kind, file), most, |page, order, flags| {
            if kind == Kind::Promote && *flags & flag::TRIED == 0 {
                return;
            }
            match numbers.address_of(page) {
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

    /// The page of a probe that is pending, and the state found.
    #[inline]
    fn answered(&mut self, numbers: &PageNumbers, probe: &Probe) -> Option<(u32, Answer)> {
        let page = numbers.page_at(probe.at)?;
        let flags = self.lists.known_mut(page).filter(|flags| **flags & flag::ASKED != 0)?;
        *flags &= !flag::ASKED;
        if probe.answer.dirty {
            *flags |= flag::DIRTY;
        }
        Some((page, probe.answer.state))
    }

    /// Applies a scan's finding to a page, by the state diagram.
    #[inline]
    pub(crate) fn settle(&mut self, page: u32, young: bool) {
        if !young {
            return self.idle(page);
        }
        self.accessed(page, Event::Seen);
        if self.activates_at_once
            && !self.is_file(page)
            && let Some((tier, PageState::InactiveReferenced)) = self.state(page)
        {
            self.put(page, tier, PageState::ActiveUnreferenced);
        }
    }

    /// Records that a page was not referenced since the last scan.
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

    /// Takes the next page of a tier that was just found cold, and still is.
    pub(crate) fn next_cold(&mut self, tier: Tier) -> Option<u32> {
        loop {
            let page = self.cold.get_mut(usize::from(tier.0))?.pop_front()?;
            let cold = Some((tier, PageState::InactiveUnreferenced));
            if self.lists.knows(page) && self.state(page) == cold {
                return Some(page);
            }
        }
    }

    /// Returns a page taken by [`Clock::next_cold`] to the front.
    pub(crate) fn keep_cold(&mut self, tier: Tier, page: u32) {
        self.cold[usize::from(tier.0)].push_front(page);
    }

    /// Forgets which pages were just found cold.
    pub(crate) fn clear_cold(&mut self) {
        self.cold.iter_mut().for_each(|pages| pages.clear());
    }

    /// Up to `most` pages of a list, in the order in which they were put there.
    pub(crate) fn first_come(&self, tier: Tier, kind: Kind, file: bool, most: u32) -> Vec<u32> {
        self.lists.tail_first(list(tier, kind, file)).take(most as usize).collect()
    }

    /// Up to `most` pages of a list, the most recently put there first.
    pub(crate) fn last_come(&self, tier: Tier, kind: Kind, file: bool, most: u32) -> Vec<u32> {
        self.lists.head_first(list(tier, kind, file)).take(most as usize).collect()
    }

    /// Marks a failed promotion: unless accessed before the next scan, the page becomes active
    /// again.
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
        // The page was moved by another component; a locked page's state does not matter.
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

    /// Tier number and state of a page that is on a list and not locked.
    #[cfg(test)]
    pub(crate) fn state_of(&self, page: u32) -> Option<(u8, PageState)> {
        self.state(page).map(|(tier, state)| (tier.0, state))
    }
}

/// Maximum ratio of active to inactive pages in a tier of this size: `int_sqrt(10 * GB)`, at least
/// 1.
fn ratio_of(bytes: u64) -> u64 {
    (10 * (bytes >> 30)).isqrt().max(1)
}

/// Page-table level whose entry maps a page of this order.
fn level_of(order: u8) -> Level {
    match order {
        0..9 => Level::PTE,
        9..18 => Level::PMD,
        _ => Level::PUD,
    }
}

/// The lists that a [`Census`] updates, and the pending actions of pages to forget.
pub(crate) struct TrackedPages<'a, T> {
    pub(crate) clock: &'a mut Clock,
    pub(crate) moves: &'a mut Moves<T>,
}

impl<T: Copy> PageStates for TrackedPages<'_, T> {
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

/// Address range of a page of this size.
pub(crate) fn range_of(numbers: &PageNumbers, bytes: u64, page: u32) -> Option<Range> {
    let at = numbers.address_of(page)?;
    Some(Range::new(at.space, at.at, at.at + bytes))
}

/// Purpose of a pending move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MovePurpose {
    /// Promotion to a faster tier.
    Up,
    /// Demotion to a slower tier.
    Down,
    /// Reclaim.
    Out,
}

/// All resident pages, on lists or being moved.
#[derive(Clone, Debug)]
pub(crate) struct Resident {
    pub(crate) census: Census,
    pub(crate) clock: Clock,
    pub(crate) moves: Moves<MovePurpose>,
}

impl Resident {
    /// No pages yet. `census` is the number of pages looked up per tick on a machine that does not
    /// report allocations.
    pub(crate) fn new(clock: Clock, census: u64) -> Self {
        Self { census: Census::new(census), clock, moves: Moves::new() }
    }

    pub(crate) fn tiers(&self) -> impl Iterator<Item = Tier> + use<> {
        (0..self.moves.tiers() as u8).map(Tier)
    }

    /// Applies all page events since the last tick. Returns the number of pages looked up.
    pub(crate) fn settle(&mut self, view: &dyn PlacementView) -> u64 {
        self.moves.refresh(view.tiers());
        for tier in self.tiers() {
            self.clock.set_capacity(tier, self.moves.capacity(tier));
        }
        let mut kept = TrackedPages { clock: &mut self.clock, moves: &mut self.moves };
        self.census.settle(view, &mut kept)
    }

    /// Applies answered probes: `rule` sets the next state of a page found young or old; pages that
    /// are gone are forgotten.
    pub(crate) fn judge(&mut self, probes: &[Probe], mut rule: impl FnMut(&mut Clock, u32, bool)) {
        for probe in probes {
            match self.clock.answered(&self.census.numbers, probe) {
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

    /// Orders a move or reclaim of a page, which is on no list until that has ended.
    pub(crate) fn send(
        &mut self,
        page: u32,
        from: Tier,
        to: Option<Tier>,
        way: MovePurpose,
        orders: &mut Orders,
    ) -> bool {
        let Some(range) = range_of(&self.census.numbers, self.clock.bytes(page), page) else {
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

    /// The ended action of a page that is still tracked; the caller puts the page on a list.
    pub(crate) fn end(&mut self, outcome: &Outcome) -> Option<FinishedMove<MovePurpose>> {
        let ended = self.moves.end(outcome)?;
        if !self.clock.knows(ended.page) {
            return None;
        }
        // The page may have moved in part, or may be in another tier altogether: look it up.
        if !ended.done
            && matches!(ended.why, None | Some(Failure::Unmapped | Failure::Gone))
            && let Some(range) =
                range_of(&self.census.numbers, self.clock.bytes(ended.page), ended.page)
        {
            self.census.look(range);
        }
        Some(ended)
    }

    /// As [`Resident::end`], and puts the page on a list: active if the action was a promotion,
    /// inactive otherwise.
    pub(crate) fn land(&mut self, outcome: &Outcome) {
        let Some(ended) = self.end(outcome) else { return };
        let tier = ended.to.filter(|_| ended.done).unwrap_or(ended.from);
        let state = match ended.tag {
            MovePurpose::Up => PageState::ActiveUnreferenced,
            MovePurpose::Down | MovePurpose::Out => PageState::InactiveUnreferenced,
        };
        self.clock.put(ended.page, tier, state);
    }

    /// Demotes one page to the next tier, if that has room: the oldest of the first non-empty list.
    /// Lists are given by kind, and whether they are of file pages.
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
                return fits && self.send(page, tier, Some(to), MovePurpose::Down, orders);
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Section IV-C with n in GB: the kernel's comment in mm/vmscan.c lists 3 for 1 GB, 10 for 10
    // GB, 31 for 100 GB, 101 for 1 TB.
    #[test]
    fn the_ratio_grows_with_the_root_of_the_tier() {
        let ratios = [100 << 20, 1 << 30, 10 << 30, 100 << 30, 1 << 40].map(ratio_of);
        assert_eq!(ratios, [1, 3, 10, 31, 101]);
    }

    // A page moved by another component while locked belongs to its new tier when unlocked.
    #[test]
    fn a_locked_page_may_be_moved_by_another_program() {
        let mut clock = Clock::new(true, 1);
        clock.see(3, 0, Tier(1), false);
        clock.lock(3, true);
        assert_eq!(clock.state_of(3), None);
        clock.see(3, 0, Tier(0), false);
        clock.lock(3, false);
        assert_eq!(clock.state_of(3), Some((0, PageState::InactiveUnreferenced)));
    }

    // Page 3 is anonymous, page 4 of a file.
    #[test]
    fn old_kernels_activate_anonymous_pages_at_the_first_look() {
        let mut clock = Clock::new(false, 1).activating_at_once();
        clock.see(3, 0, Tier(0), false);
        clock.see(4, 0, Tier(0), true);
        [3, 4].into_iter().for_each(|page| clock.settle(page, true));
        assert_eq!(clock.state_of(3), Some((0, PageState::ActiveUnreferenced)));
        assert_eq!(clock.state_of(4), Some((0, PageState::InactiveReferenced)));
    }

    #[test]
    fn a_page_takes_sixteen_bytes() {
        assert_eq!(Clock::PAGE_BYTES, 16);
    }
}
