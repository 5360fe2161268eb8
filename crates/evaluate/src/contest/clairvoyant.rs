//! The clairvoyant oracle (METRICS.md): knows the accesses that memory will serve, begins with the
//! best static placement, and moves pages where that pays, at the cost of moves.
//!
//! At the begin of each window it looks ahead for one window, two, four and so on. For each of
//! these it fills the fast tier with the bytes that save the most time, where bytes that are
//! elsewhere have to save the cost of a promotion and a demotion on top; it follows the one with
//! the highest saving per window. That is greedy, so it bounds policies in practice, not in theory.

use tierscope_core::{
    Action, ActionId, ActionKind, Evidence, Orders, PAGE_SIZE, PlacementView, Policy, Range,
    Setting, Tier, Time,
};
use tierscope_sim::experiment::Experiment;

use super::foresight::Foresight;

const FAST: Tier = Tier(0);
const SLOW: Tier = Tier(1);

pub(crate) struct Clairvoyant {
    seen: Foresight,
    /// Nanoseconds that an access saves in the fast tier.
    saved: f64,
    /// Nanoseconds that a promotion and a demotion of a byte take.
    cost: f64,
    next: ActionId,
}

/// A change of the fast tier's contents.
#[derive(Debug, Default)]
struct Plan {
    demotes: Vec<Range>,
    promotes: Vec<Range>,
    /// Nanoseconds saved per window.
    saves: f64,
}

impl Clairvoyant {
    pub(super) fn new(seen: Foresight, experiment: &Experiment) -> Self {
        let tiers = &experiment.setup.hardware.tiers;
        let saved = f64::from(tiers[1].read_ns) - f64::from(tiers[0].read_ns);
        let cost = 2.0 * experiment.setup.costs.moves.byte_ns();
        Self { seen, saved, cost, next: ActionId(0) }
    }

    /// For a machine without times of memory: all that saves an access is moved, as far as the
    /// mover has time.
    pub(crate) fn untimed(seen: Foresight) -> Self {
        Self { seen, saved: 1.0, cost: 0.0, next: ActionId(0) }
    }

    /// The window that begins at or before a time.
    fn window(&self, now: Time) -> usize {
        self.seen.times.partition_point(|time| *time <= now).saturating_sub(1)
    }

    /// The contents of the fast tier for the windows `from..to`.
    fn plan(&self, fast: &[f64], from: usize, to: usize) -> Plan {
        let value = |piece: usize| self.seen.served(piece, from, to) * self.saved;
        let mut order: Vec<(f64, usize)> =
            (0..fast.len()).map(|piece| (value(piece) + fast[piece] * self.cost, piece)).collect();
        order.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut room = self.seen.room[0];
        let mut plan = Plan::default();
        for (_, piece) in order {
            let range = self.seen.pieces[piece];
            let bytes = room.min(range.bytes()) & !(PAGE_SIZE - 1);
            room -= bytes;
            let (wanted, there) = (bytes as f64, fast[piece] * range.bytes() as f64);
            let middle = range.start + bytes;
            if wanted > there {
                plan.saves += (wanted - there) * (value(piece) - self.cost);
                plan.promotes.push(Range { end: middle, ..range });
            } else if wanted < there {
                plan.saves -= (there - wanted) * value(piece);
                plan.demotes.push(Range { start: middle, ..range });
            }
        }
        plan.saves /= (to - from) as f64;
        plan
    }

    fn best(&self, view: &dyn PlacementView, from: usize) -> Option<Plan> {
        let share = |range: &Range| view.resident(range, FAST) as f64 / range.bytes() as f64;
        let fast: Vec<f64> = self.seen.pieces.iter().map(share).collect();
        let left = self.seen.windows().checked_sub(from).filter(|left| *left > 0)?;
        let ahead = std::iter::successors(Some(1), |ahead| Some(ahead * 2));
        let ahead = ahead.take_while(|ahead| *ahead < left).chain([left]);
        let plans = ahead.map(|ahead| self.plan(&fast, from, from + ahead));
        plans.filter(|plan| plan.saves > 0.0).max_by(|a, b| a.saves.total_cmp(&b.saves))
    }

    fn order(&mut self, range: Range, tier: Tier, orders: &mut Orders) {
        let id = self.next;
        self.next = ActionId(id.0 + 1);
        orders.actions.push(Action { id, after: None, range, kind: ActionKind::Move(tier) });
    }
}

impl Policy for Clairvoyant {
    fn name(&self) -> &'static str {
        "clairvoyant"
    }

    fn settings(&self) -> Vec<Setting> {
        Vec::new()
    }

    fn observe(&mut self, _: Evidence<'_>, _: &mut Orders) {}

    fn tick(&mut self, now: Time, view: &dyn PlacementView, orders: &mut Orders) -> Time {
        let window = self.window(now);
        if let Some(plan) = self.best(view, window) {
            // In step, so that each promotion finds the room that a demotion has made.
            let (mut demotes, mut out) = (plan.demotes.into_iter().rev(), 0);
            let mut bytes_in = 0;
            for range in plan.promotes {
                bytes_in += range.bytes();
                while out < bytes_in
                    && let Some(gone) = demotes.next()
                {
                    out += gone.bytes();
                    self.order(gone, SLOW, orders);
                }
                self.order(range, FAST, orders);
            }
        }
        self.seen.times.get(window + 1).copied().unwrap_or(Time::NEVER)
    }
}
