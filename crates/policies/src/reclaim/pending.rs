//! Pending reclaim actions and their ranges.

use std::collections::BTreeMap;

use tierscope_core::{Action, ActionId, ActionKind, Orders, Outcome, Range};

/// Ranges of pending reclaim actions, by action id.
#[derive(Clone, Debug, Default)]
pub(crate) struct PendingReclaim {
    next: u64,
    under_way: BTreeMap<ActionId, Range>,
}

impl PendingReclaim {
    /// Orders the reclaim of a range.
    pub(crate) fn order(&mut self, range: Range, orders: &mut Orders) {
        let id = ActionId(self.next);
        self.next += 1;
        self.under_way.insert(id, range);
        orders.actions.push(Action { id, after: None, range, kind: ActionKind::Reclaim });
    }

    /// Removes a finished action. Returns its range; `None` for an unknown id.
    pub(crate) fn end(&mut self, outcome: &Outcome) -> Option<Range> {
        self.under_way.remove(&outcome.id)
    }

    pub(crate) fn len(&self) -> usize {
        self.under_way.len()
    }
}
