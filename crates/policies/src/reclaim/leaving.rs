//! Ranges on their way out.

use std::collections::BTreeMap;

use tierscope_core::{Action, ActionId, ActionKind, Orders, Outcome, Range};

/// Actions under way, by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leaving {
    next: u64,
    under_way: BTreeMap<ActionId, Range>,
}

impl Leaving {
    /// Orders a range to be given back.
    pub(crate) fn order(&mut self, range: Range, orders: &mut Orders) {
        let id = ActionId(self.next);
        self.next += 1;
        self.under_way.insert(id, range);
        orders.actions.push(Action { id, after: None, range, kind: ActionKind::Reclaim });
    }

    /// The range of an action that has ended, once.
    pub(crate) fn end(&mut self, outcome: &Outcome) -> Option<Range> {
        self.under_way.remove(&outcome.id)
    }

    pub(crate) fn len(&self) -> usize {
        self.under_way.len()
    }
}
