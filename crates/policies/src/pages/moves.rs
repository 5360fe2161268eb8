//! Pending actions on pages, and the free memory of tiers in view of them.

use tierscope_core::{
    Action, ActionId, ActionKind, Failure, Orders, Outcome, Pressure, Range, Tier, TierUse,
};

use super::ordered::Ordered;

/// A pending action on a page, with the policy's tag.
#[derive(Clone, Copy, Debug)]
struct PendingMove<T> {
    /// Page number; `None` if the page was freed meanwhile.
    page: Option<u32>,
    from: Tier,
    /// Target tier; `None` for reclaim and for changes in place.
    to: Option<Tier>,
    bytes: u64,
    /// Whether the action frees memory in the page's tier if it succeeds.
    leaves: bool,
    tag: T,
}

/// A finished action on a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FinishedMove<T> {
    pub(crate) page: u32,
    pub(crate) from: Tier,
    pub(crate) to: Option<Tier>,
    pub(crate) tag: T,
    /// Whether the action succeeded.
    pub(crate) done: bool,
    pub(crate) why: Option<Failure>,
}

/// Usage of a tier, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct TierRoom {
    capacity: u64,
    free: u64,
    /// Bytes of pending moves into the tier.
    coming: u64,
    /// Bytes of pending moves and reclaims out of the tier.
    leaving: u64,
    /// Part of `leaving` ordered since `free` was updated: `free` cannot include it yet.
    leaving_since: u64,
    /// Low and high watermark.
    low: u64,
    high: u64,
    /// The last pending action that frees memory in this tier.
    last_out: Option<ActionId>,
}

/// Divisor of a tier's capacity that gives the watermark distance if the machine reports no
/// watermarks: the default `vm.watermark_scale_factor`, 10 of 10,000 (Linux mm/page_alloc.c).
const MARKS: u64 = 1000;

/// Pending actions, and the usage of all tiers.
#[derive(Clone, Debug)]
pub(crate) struct Moves<T> {
    /// Pending actions by id.
    under_way: Ordered<PendingMove<T>>,
    rooms: Vec<TierRoom>,
    /// Whether the machine reports watermarks.
    told: bool,
}

impl<T: Copy> Moves<T> {
    pub(crate) fn new() -> Self {
        Self { under_way: Ordered::new(), rooms: Vec::new(), told: false }
    }

    /// Updates capacity and free memory of the tiers.
    pub(crate) fn refresh(&mut self, tiers: &[TierUse]) {
        self.rooms.resize(self.rooms.len().max(tiers.len()), TierRoom::default());
        for tier in tiers {
            let room = &mut self.rooms[usize::from(tier.tier.0)];
            room.capacity = tier.capacity;
            room.free = tier.capacity.saturating_sub(tier.used);
            room.leaving_since = 0;
            if !self.told {
                (room.low, room.high) = (tier.capacity / MARKS, 2 * tier.capacity / MARKS);
            }
        }
    }

    /// Updates watermarks and free memory of the tiers.
    pub(crate) fn pressure(&mut self, pressure: &Pressure) {
        self.told = true;
        for tier in &pressure.tiers {
            if let Some(room) = self.rooms.get_mut(usize::from(tier.tier.0)) {
                (room.free, room.low, room.high) = (tier.free, tier.low, tier.high);
                room.leaving_since = 0;
            }
        }
    }

    pub(crate) fn tiers(&self) -> usize {
        self.rooms.len()
    }

    fn room(&self, tier: Tier) -> TierRoom {
        self.rooms.get(usize::from(tier.0)).copied().unwrap_or_default()
    }

    pub(crate) fn capacity(&self, tier: Tier) -> u64 {
        self.room(tier).capacity
    }

    /// Bytes free now, minus pending moves into the tier.
    pub(crate) fn free(&self, tier: Tier) -> u64 {
        let room = self.room(tier);
        room.free.saturating_sub(room.coming)
    }

    /// Bytes free once all pending actions have succeeded, as a lower bound: actions ordered before
    /// the last update of free memory may already be included in it, and are not counted again.
    pub(crate) fn free_soon(&self, tier: Tier) -> u64 {
        let room = self.room(tier);
        (room.free + room.leaving_since).saturating_sub(room.coming)
    }

    /// Bytes free once all pending actions have succeeded, as an upper bound: none of them is
    /// assumed to be included yet. Demotion stops by this value.
    pub(crate) fn free_at_last(&self, tier: Tier) -> u64 {
        let room = self.room(tier);
        (room.free + room.leaving).saturating_sub(room.coming)
    }

    pub(crate) fn low(&self, tier: Tier) -> u64 {
        self.room(tier).low
    }

    pub(crate) fn high(&self, tier: Tier) -> u64 {
        self.room(tier).high
    }

    /// Bytes that may still be moved into a tier before it falls below its low watermark, once all
    /// pending actions have succeeded.
    pub(crate) fn room_above_low(&self, tier: Tier) -> u64 {
        self.free_soon(tier).saturating_sub(self.low(tier))
    }

    /// Bytes missing to the high watermark of a tier that fell to its low one; otherwise 0.
    pub(crate) fn shortage(&self, tier: Tier) -> u64 {
        let (free, room) = (self.free_at_last(tier), self.room(tier));
        if room.capacity > 0 && free <= room.low { room.high.saturating_sub(free) } else { 0 }
    }

    /// Orders a move. If it needs memory that a pending action frees, it waits for that action.
    pub(crate) fn move_page(
        &mut self,
        orders: &mut Orders,
        (page, range): (u32, Range),
        (from, to): (Tier, Tier),
        tag: T,
    ) -> ActionId {
        let after = if self.free(to) < range.bytes() { self.room(to).last_out } else { None };
        let flight = PendingMove {
            page: Some(page),
            from,
            to: Some(to),
            bytes: range.bytes(),
            leaves: true,
            tag,
        };
        self.rooms[usize::from(to.0)].coming += range.bytes();
        self.order(orders, (range, ActionKind::Move(to)), after, flight)
    }

    /// Orders the reclaim of a page.
    pub(crate) fn reclaim(
        &mut self,
        orders: &mut Orders,
        (page, range): (u32, Range),
        from: Tier,
        tag: T,
    ) -> ActionId {
        let flight = PendingMove {
            page: Some(page),
            from,
            to: None,
            bytes: range.bytes(),
            leaves: true,
            tag,
        };
        self.order(orders, (range, ActionKind::Reclaim), None, flight)
    }

    /// Orders an action that changes a page in place.
    pub(crate) fn in_place(
        &mut self,
        orders: &mut Orders,
        (page, range): (u32, Range),
        (tier, kind): (Tier, ActionKind),
        tag: T,
    ) -> ActionId {
        let flight = PendingMove {
            page: Some(page),
            from: tier,
            to: None,
            bytes: range.bytes(),
            leaves: false,
            tag,
        };
        self.order(orders, (range, kind), None, flight)
    }

    fn order(
        &mut self,
        orders: &mut Orders,
        (range, kind): (Range, ActionKind),
        after: Option<ActionId>,
        flight: PendingMove<T>,
    ) -> ActionId {
        let PendingMove { from, bytes, leaves, .. } = flight;
        let id = ActionId(self.under_way.push(flight));
        if leaves {
            let room = &mut self.rooms[usize::from(from.0)];
            room.leaving += bytes;
            room.leaving_since += bytes;
            room.last_out = Some(id);
        }
        orders.actions.push(Action { id, after, range, kind });
        id
    }

    /// Applies an outcome; `None` if the action is unknown, or its page is gone.
    pub(crate) fn end(&mut self, outcome: &Outcome) -> Option<FinishedMove<T>> {
        let flight = self.under_way.remove(outcome.id.0)?;
        let done = outcome.failed == 0 && outcome.why.is_none();
        let from = &mut self.rooms[usize::from(flight.from.0)];
        if flight.leaves {
            // The memory that it freed appears in the machine's next update.
            from.leaving -= flight.bytes;
            from.leaving_since = from.leaving_since.min(from.leaving);
            if from.last_out == Some(outcome.id) {
                from.last_out = None;
            }
        }
        if let Some(to) = flight.to {
            let to = &mut self.rooms[usize::from(to.0)];
            to.coming -= flight.bytes;
            to.free = to.free.saturating_sub(if done { flight.bytes } else { 0 });
        }
        let PendingMove { from, to, tag, .. } = flight;
        Some(FinishedMove { page: flight.page?, from, to, tag, done, why: outcome.why })
    }

    /// Detaches a freed page from its pending action, whose outcome is then ignored.
    pub(crate) fn forget(&mut self, page: u32) {
        let of_page = |flight: &&mut PendingMove<T>| flight.page == Some(page);
        self.under_way.values_mut().filter(of_page).for_each(|flight| flight.page = None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::{SpaceId, Time};

    const FAST: Tier = Tier(0);
    const SLOW: Tier = Tier(1);

    fn page(number: u32) -> (u32, Range) {
        let start = u64::from(number) << 12;
        (number, Range::new(SpaceId(0), start, start + 4096))
    }

    fn ended(id: ActionId, done: u64, why: Option<Failure>) -> Outcome {
        Outcome { id, time: Time(0), done, failed: 4096 - done, why }
    }

    // The fast tier has four pages, of which one is free: the first promotion is ordered
    // unconditionally, the second one waits for a demotion.
    #[test]
    fn a_promotion_into_a_full_tier_waits_for_a_demotion() {
        let mut moves = Moves::<()>::new();
        let tier = |tier, used: u64| TierUse { tier, capacity: 4 * 4096, used: used * 4096 };
        moves.refresh(&[tier(FAST, 3), tier(SLOW, 2)]);
        let mut orders = Orders::default();
        moves.move_page(&mut orders, page(7), (SLOW, FAST), ());
        assert_eq!((moves.free(FAST), orders.actions[0].after), (0, None));
        let out = moves.move_page(&mut orders, page(1), (FAST, SLOW), ());
        assert_eq!((moves.free(FAST), moves.free_soon(FAST)), (0, 4096));
        moves.move_page(&mut orders, page(8), (SLOW, FAST), ());
        assert_eq!(orders.actions[2].after, Some(out));
        assert_eq!(moves.free_soon(FAST), 0);
        let first = moves.end(&ended(ActionId(0), 4096, None)).expect("ours");
        assert!(first.done && first.page == 7);
        let second = moves.end(&ended(out, 0, Some(Failure::Busy))).expect("ours");
        assert!(!second.done);
        assert_eq!(moves.end(&ended(out, 4096, None)), None, "an action ends once");
        assert_eq!((moves.free(FAST), moves.under_way.len()), (0, 1));
    }

    #[test]
    fn watermarks_are_the_machines_or_a_thousandth() {
        let mut moves = Moves::<()>::new();
        let tier = TierUse { tier: FAST, capacity: 1000 * 4096, used: 999 * 4096 };
        moves.refresh(&[tier]);
        assert_eq!((moves.low(FAST), moves.high(FAST)), (4096, 2 * 4096));
        assert_eq!((moves.shortage(FAST), moves.room_above_low(FAST)), (4096, 0));
        let free = 20 * 4096;
        let given = tierscope_core::TierPressure {
            tier: FAST,
            free,
            low: 4096,
            high: 3 * 4096,
            reads: None,
        };
        moves.pressure(&Pressure { tiers: vec![given], ..Pressure::default() });
        assert_eq!((moves.shortage(FAST), moves.room_above_low(FAST)), (0, 19 * 4096));
    }
}
