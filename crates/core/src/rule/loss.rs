//! Losses of folding a state from several banks.

use std::fmt;

use super::{Cell, Compare, Operator, ReadEffect, Rule};

/// A part of a rule that several banks cannot do exactly as one would. A single bank loses nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Loss {
    /// `on-read`: the operator of the effect does not commute with that of the update, so that its
    /// result on the home bank differs from its result on the folded state.
    Effect,
    /// The update takes its operand from another pipeline, which sees only its own bank's share.
    Chain,
    /// `notify`: from its own share, no bank can detect that the folded state may satisfy the
    /// trigger.
    Notice,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Loss::Effect => {
                "`on-read`: its operator does not commute with the update's; applied to one bank of \
                 several, the folded state differs from what one bank would hold"
            }
            Loss::Chain => {
                "the pipeline before knows only the share of its own channel, so that what this one \
                 makes of it is not what it would make of the whole"
            }
            Loss::Notice => {
                "`notify`: a bank sees only its share of the requests, and this predicate says \
                 nothing about the whole; notices may be missing"
            }
        })
    }
}

impl Rule {
    /// The losses when states of this rule are folded from several banks.
    #[must_use]
    pub fn losses(&self, cell: Cell) -> Vec<Loss> {
        let effect = (!self.effect_folds(cell)).then_some(Loss::Effect);
        let notice = (!self.notice_folds()).then_some(Loss::Notice);
        effect.into_iter().chain(notice).collect()
    }

    fn effect_folds(&self, cell: Cell) -> bool {
        use Operator::{Add, Subtract};
        match (self.update.0, self.on_read) {
            (_, ReadEffect::Keep | ReadEffect::Reset(_)) => true,
            (update, ReadEffect::Apply(effect, _)) if update == effect => true,
            // Adding and subtracting commute on a counter that wraps around, but not if it
            // saturates.
            (Add, ReadEffect::Apply(Subtract, _)) | (Subtract, ReadEffect::Apply(Add, _)) => {
                !cell.saturates()
            }
            _ => false,
        }
    }

    /// Whether the trigger can hold for the folded state only if some bank reached its share of the
    /// distance ([`Rule::share_of_trigger`]).
    fn notice_folds(&self) -> bool {
        use Compare::{Above, AtLeast, AtMost, Below};
        match self.notify.map(|trigger| trigger.compare) {
            None => true,
            Some(AtLeast | Above) => self.update.0 == Operator::Add,
            Some(AtMost | Below) => self.update.0 == Operator::Subtract,
            Some(_) => false,
        }
    }

    /// The trigger of one of `banks` banks, which began with `start`. It holds at the latest when
    /// the folded state's trigger does: of n shares that add up to a distance, at least one is an
    /// n-th of it or more. Rules that lose [`Loss::Notice`] keep the original trigger.
    #[must_use]
    pub fn share_of_trigger(&self, start: u64, banks: u64, cell: Cell) -> Option<super::Trigger> {
        let trigger = self.notify?;
        if banks <= 1 || !self.notice_folds() {
            return Some(trigger);
        }
        let beyond = u64::from(matches!(trigger.compare, Compare::Above | Compare::Below));
        let whole = self.start(cell);
        let (compare, value) = match self.update.0 {
            Operator::Add => {
                let share = trigger.value.saturating_sub(whole).saturating_add(beyond);
                (
                    Compare::AtLeast,
                    start.saturating_add(share.div_ceil(banks).max(1)).min(cell.max()),
                )
            }
            _ => {
                let share = whole.saturating_sub(trigger.value).saturating_add(beyond);
                (Compare::AtMost, start.wrapping_sub(share.div_ceil(banks).max(1)) & cell.max())
            }
        };
        Some(super::Trigger { compare, value })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Filter, Key, Operand, RequestKind, Trigger};
    use super::*;
    use proptest::prelude::*;

    fn rule(update: Operator, on_read: ReadEffect, notify: Option<(Compare, u64)>) -> Rule {
        Rule {
            filter: Filter { kind: RequestKind::All, start: 0, end: 1 << 20 },
            key: Key { mask: u64::MAX, shift: 12 },
            offset: Key::NONE,
            update: (update, Operand::Constant(1)),
            notify: notify.map(|(compare, value)| Trigger { compare, value }),
            on_read,
        }
    }

    #[test]
    fn lossy_cases_are_flagged() {
        use Operator::{Add, ShiftLeft, Subtract, Xor};
        let effect = |update, effect, cell| {
            rule(update, ReadEffect::Apply(effect, 1), None).losses(cell) == [Loss::Effect]
        };
        let ends = Cell::new(4, true).unwrap();
        assert!(!effect(Add, Add, Cell::WORD) && !effect(Add, Subtract, Cell::WORD));
        assert!(effect(Add, Subtract, ends) && effect(Add, Xor, Cell::WORD));
        assert!(effect(ShiftLeft, Add, Cell::WORD) && !effect(Xor, Xor, Cell::WORD));
        let notice =
            |update, compare| rule(update, ReadEffect::Keep, Some((compare, 8))).losses(ends);
        assert_eq!(notice(Add, Compare::AtLeast), []);
        assert_eq!(notice(Add, Compare::Equal), [Loss::Notice]);
        assert_eq!(notice(Add, Compare::Below), [Loss::Notice]);
        assert_eq!(notice(Subtract, Compare::Below), []);
        assert_eq!(notice(Xor, Compare::AtLeast), [Loss::Notice]);
    }

    // 10 requests over 4 banks: at least one bank has counted 3.
    #[test]
    fn a_bank_notifies_at_its_share() {
        let rule = rule(Operator::Add, ReadEffect::Reset(5), Some((Compare::AtLeast, 15)));
        let at = |start, banks| rule.share_of_trigger(start, banks, Cell::WORD).unwrap().value;
        assert_eq!((at(5, 4), at(0, 4), at(5, 1)), (8, 3, 15));
    }

    proptest! {
        /// Whenever the folded state's trigger holds, the trigger of some bank held at its last
        /// update.
        #[test]
        fn no_crossing_is_missed(
            add: bool, above: bool, value in 1..60u64, start in 0..60u64,
            deal in prop::collection::vec((0..4usize, 1..4u64), 1..60),
        ) {
            let (operator, compare) = match (add, above) {
                (true, false) => (Operator::Add, Compare::AtLeast),
                (true, true) => (Operator::Add, Compare::Above),
                (false, false) => (Operator::Subtract, Compare::AtMost),
                (false, true) => (Operator::Subtract, Compare::Below),
            };
            // Counting down starts high enough not to wrap.
            let start = if add { start } else { start + 200 };
            let rule = rule(operator, ReadEffect::Reset(start), Some((compare, value)));
            let starts = [start, 0, 0, 0];
            let mut banks = starts;
            let mut told = false;
            for (bank, by) in deal {
                banks[bank] = operator.apply(banks[bank], by, Cell::WORD);
                let trigger = rule.share_of_trigger(starts[bank], 4, Cell::WORD).unwrap();
                told |= trigger.holds(banks[bank]);
                let combine = |home, bank: &u64| operator.combine(home, *bank, Cell::WORD);
                let whole = banks[1..].iter().fold(banks[0], combine);
                prop_assert!(told || !rule.notify.unwrap().holds(whole), "{banks:?} -> {whole}");
            }
        }
    }
}
