//! Counters of the telemetry device: per page or per region of physical memory, fed with cache
//! misses.
//!
//! This is the subset of telemetry rules that needs no translation table: a key and an offset
//! select a state from a dense array, and `+` with a constant updates it. The full engine uses the
//! same registers.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tierscope_core::{
    Compare, Filter, Key, Operand, Operator, ReadEffect, RequestKind, Rule, Trigger,
};
use tierscope_wire::device::Answer;

/// Maximum number of installed rules.
pub const RULES: usize = 8;

/// An installed rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Installed {
    rule: Rule,
    add: u64,
    first_key: u64,
    /// Number of states per key.
    offsets: u64,
    /// Index of its first state.
    pub base: u64,
    /// Number of its states.
    pub count: u64,
}

/// A state for which an update satisfied the rule's trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fired {
    /// Number of the rule in its table.
    pub rule: usize,
    /// Index of the state within the rule.
    pub state: u64,
    /// Value of the state after the update.
    pub value: u64,
}

impl Installed {
    fn new(rule: Rule) -> Result<Self, Answer> {
        let (Operator::Add, Operand::Constant(add)) = rule.update else {
            return Err(Answer::Unsupported);
        };
        if rule.filter.start >= rule.filter.end {
            return Err(Answer::BadArgument);
        }
        if !is_dense(rule.key) || !is_dense(rule.offset) {
            return Err(Answer::Unsupported);
        }
        let (first_key, last_key) =
            (rule.key.of(rule.filter.start), rule.key.of(rule.filter.end - 1));
        let offsets = rule.offset.of(u64::MAX).checked_add(1).ok_or(Answer::Full)?;
        let keys = last_key.checked_sub(first_key).ok_or(Answer::Unsupported)?;
        let count =
            (keys.checked_add(1).ok_or(Answer::Full)?).checked_mul(offsets).ok_or(Answer::Full)?;
        Ok(Self { rule, add, first_key, offsets, base: 0, count })
    }

    /// Index of the state for an address; `None` if the request does not match.
    #[inline(always)]
    fn state_of(&self, address: u64, write: bool) -> Option<u64> {
        if !matches(&self.rule.filter, address, write) {
            return None;
        }
        let key = self.rule.key.of(address) - self.first_key;
        Some(key * self.offsets + self.rule.offset.of(address))
    }
}

#[inline(always)]
fn matches(filter: &Filter, address: u64, write: bool) -> bool {
    let kind = match filter.kind {
        RequestKind::All => true,
        RequestKind::Read => !write,
        RequestKind::Write => write,
    };
    kind && address >= filter.start && address < filter.end
}

/// Whether the bits selected by a key are contiguous from its shift on, so that neighbouring
/// addresses have neighbouring keys.
fn is_dense(key: Key) -> bool {
    let taken = (key.mask >> key.shift) as u128 + 1;
    taken.is_power_of_two()
}

fn holds(trigger: Trigger, state: u64) -> bool {
    match trigger.compare {
        Compare::Equal => state == trigger.value,
        Compare::AtLeast => state >= trigger.value,
        Compare::Above => state > trigger.value,
        Compare::Below => state < trigger.value,
        Compare::AtMost => state <= trigger.value,
    }
}

/// Rules and the positions of their states. Every vCPU has a copy, and all are changed together.
#[derive(Clone, Debug, Default)]
pub struct Table {
    rules: [Option<Installed>; RULES],
}

impl Table {
    /// Installs a rule if enough contiguous states are free; returns its number.
    ///
    /// # Errors
    /// The rule is invalid or unsupported, or there is no space.
    pub fn install(&mut self, rule: Rule, states: u64) -> Result<usize, Answer> {
        let mut installed = Installed::new(rule)?;
        let free = self.rules.iter().position(Option::is_none).ok_or(Answer::Full)?;
        installed.base = self.room(installed.count, states).ok_or(Answer::Full)?;
        self.rules[free] = Some(installed);
        Ok(free)
    }

    /// First position of `count` contiguous free states.
    fn room(&self, count: u64, states: u64) -> Option<u64> {
        let mut taken: Vec<(u64, u64)> =
            self.rules.iter().flatten().map(|rule| (rule.base, rule.base + rule.count)).collect();
        taken.sort_unstable();
        let mut from = 0;
        for (base, end) in taken {
            if base - from >= count {
                return Some(from);
            }
            from = end;
        }
        (states.checked_sub(from)? >= count).then_some(from)
    }

    /// Removes a rule.
    ///
    /// # Errors
    /// There is no rule of that number.
    pub fn remove(&mut self, number: u64) -> Result<(), Answer> {
        let slot = usize::try_from(number).ok().and_then(|number| self.rules.get_mut(number));
        slot.and_then(Option::take).map(|_| ()).ok_or(Answer::BadArgument)
    }

    /// Whether no rule is installed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.iter().all(Option::is_none)
    }

    /// The rule with that number.
    #[must_use]
    pub fn get(&self, number: u64) -> Option<&Installed> {
        self.rules.get(usize::try_from(number).ok()?)?.as_ref()
    }

    /// Counts a request. Returns the number of rules that it matched; calls `fired` for each
    /// trigger that it satisfied.
    #[inline(always)]
    pub fn count(
        &self,
        states: &[AtomicU64],
        address: u64,
        write: bool,
        mut fired: impl FnMut(Fired),
    ) -> u64 {
        let mut counted = 0;
        for (number, installed) in self.rules.iter().enumerate() {
            let Some(installed) = installed else { continue };
            let Some(state) = installed.state_of(address, write) else { continue };
            counted += 1;
            let before =
                states[(installed.base + state) as usize].fetch_add(installed.add, Relaxed);
            let value = before.wrapping_add(installed.add);
            // Only the update that first satisfies a trigger is reported, as a hint to read the
            // state.
            if let Some(trigger) = installed.rule.notify
                && holds(trigger, value)
                && !holds(trigger, before)
            {
                fired(Fired { rule: number, state, value });
            }
        }
        counted
    }
}

impl Installed {
    /// Reads a state and applies the rule's effect of reading. Concurrent updates are contained in
    /// this reading or in the next.
    #[must_use]
    pub fn read(&self, states: &[AtomicU64], state: u64) -> u64 {
        let state = &states[(self.base + state) as usize];
        match self.rule.on_read {
            ReadEffect::Keep => state.load(Relaxed),
            ReadEffect::Reset(value) => state.swap(value, Relaxed),
            ReadEffect::Apply(operator, by) => {
                let apply = |value| Some(apply(operator, value, by));
                state.fetch_update(Relaxed, Relaxed, apply).unwrap_or(0)
            }
        }
    }
}

fn apply(operator: Operator, value: u64, by: u64) -> u64 {
    let shift = u32::try_from(by).unwrap_or(u32::MAX);
    match operator {
        Operator::Add => value.wrapping_add(by),
        Operator::Subtract => value.wrapping_sub(by),
        Operator::ShiftLeft => value.checked_shl(shift).unwrap_or(0),
        Operator::ShiftRight => value.checked_shr(shift).unwrap_or(0),
        Operator::Xor => value ^ by,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn per_page(kind: RequestKind, start: u64, end: u64) -> Rule {
        Rule {
            filter: Filter { kind, start, end },
            key: Key { mask: u64::MAX, shift: 12 },
            offset: Key::NONE,
            update: (Operator::Add, Operand::Constant(1)),
            notify: None,
            on_read: ReadEffect::Reset(0),
        }
    }

    fn states(count: usize) -> Vec<AtomicU64> {
        (0..count).map(|_| AtomicU64::new(0)).collect()
    }

    fn values(states: &[AtomicU64]) -> Vec<u64> {
        states.iter().map(|state| state.load(Relaxed)).collect()
    }

    #[test]
    fn each_page_has_its_state() {
        let (mut table, states) = (Table::default(), states(4));
        let number = table.install(per_page(RequestKind::All, 0x2000, 0x5000), 4).unwrap();
        for (address, write) in
            [(0x2000, false), (0x2fff, true), (0x4008, false), (0x5000, false), (0x1fff, false)]
        {
            table.count(&states, address, write, |_| ());
        }
        assert_eq!(values(&states), [2, 0, 1, 0]);
        let rule = *table.get(number as u64).unwrap();
        assert_eq!((rule.base, rule.count), (0, 3));
        assert_eq!((rule.read(&states, 0), rule.read(&states, 0)), (2, 0), "a read resets");
    }

    #[test]
    fn reads_and_writes_are_counted_separately() {
        let (mut table, states) = (Table::default(), states(2));
        table.install(per_page(RequestKind::Read, 0, 0x1000), 2).unwrap();
        table.install(per_page(RequestKind::Write, 0, 0x1000), 2).unwrap();
        assert_eq!(table.count(&states, 5, true, |_| ()), 1);
        table.count(&states, 5, false, |_| ());
        table.count(&states, 5, false, |_| ());
        assert_eq!(values(&states), [2, 1]);
    }

    // NEMO, listing 1: 2 MiB key, 4 KiB page within it as offset.
    #[test]
    fn an_offset_divides_a_key() {
        let (mut table, states) = (Table::default(), states(1024));
        let mut rule = per_page(RequestKind::All, 4 << 21, 6 << 21);
        rule.key = Key { mask: u64::MAX, shift: 21 };
        rule.offset = Key { mask: (1 << 21) - 1, shift: 12 };
        table.install(rule, 1024).unwrap();
        table.count(&states, (5 << 21) + 3 * 4096 + 8, false, |_| ());
        assert_eq!(values(&states).iter().position(|value| *value == 1), Some(512 + 3));
    }

    #[test]
    fn room_is_found_again() {
        let mut table = Table::default();
        let page = |n: u64| per_page(RequestKind::All, n << 12, (n + 2) << 12);
        let numbers: Vec<usize> = (0..2).map(|n| table.install(page(n), 5).unwrap()).collect();
        assert_eq!(table.install(page(9), 5), Err(Answer::Full));
        table.remove(numbers[0] as u64).unwrap();
        assert_eq!(table.remove(numbers[0] as u64), Err(Answer::BadArgument));
        let again = table.install(page(9), 5).unwrap();
        assert_eq!(table.get(again as u64).unwrap().base, 0);
    }

    #[test]
    fn unsupported_requests_are_refused() {
        let mut table = Table::default();
        let good = per_page(RequestKind::All, 0, 4096);
        let refused = |rule: Rule| Table::default().install(rule, 64).unwrap_err();
        assert_eq!(
            refused(Rule { update: (Operator::Xor, Operand::Constant(1)), ..good }),
            Answer::Unsupported
        );
        assert_eq!(refused(per_page(RequestKind::All, 8, 8)), Answer::BadArgument);
        assert_eq!(
            refused(Rule { key: Key { mask: 0x5000, shift: 12 }, ..good }),
            Answer::Unsupported
        );
        assert_eq!(
            refused(Rule { offset: Key { mask: u64::MAX, shift: 0 }, ..good }),
            Answer::Full
        );
        assert_eq!(refused(per_page(RequestKind::All, 0, u64::MAX)), Answer::Full);
        (0..RULES).for_each(|_| assert!(table.install(good, 64).is_ok()));
        assert_eq!(table.install(good, 64), Err(Answer::Full));
    }

    #[test]
    fn a_trigger_notifies_when_it_begins_to_hold() {
        let (mut table, states) = (Table::default(), states(1));
        let mut rule = per_page(RequestKind::All, 0, 4096);
        rule.notify = Some(Trigger { compare: Compare::AtLeast, value: 3 });
        let number = table.install(rule, 1).unwrap();
        let mut fired_rules = Vec::new();
        for _ in 0..5 {
            table.count(&states, 0, false, |fired| fired_rules.push(fired));
        }
        assert_eq!(fired_rules, [Fired { rule: number, state: 0, value: 3 }]);
    }

    proptest::proptest! {
        // The oracle divides addresses by the page size and counts in a map.
        #[test]
        fn equals_a_map(requests in proptest::collection::vec((0u64..0x1_0000, proptest::bool::ANY), 0..300)) {
            let (mut table, states) = (Table::default(), states(32));
            let number = table.install(per_page(RequestKind::Write, 0x3000, 0xb000), 32).unwrap() as u64;
            let mut map = std::collections::BTreeMap::new();
            for (address, write) in requests {
                table.count(&states, address, write, |_| ());
                if write && (0x3000..0xb000).contains(&address) {
                    *map.entry(address / 4096 - 3).or_insert(0u64) += 1;
                }
            }
            let rule = *table.get(number).unwrap();
            for state in 0..rule.count {
                let expected = map.get(&state).copied().unwrap_or(0);
                proptest::prop_assert_eq!(rule.read(&states, state), expected);
            }
        }
    }
}
