//! Naive counters of a memory controller: a list of rules, with a map of states for each.

use std::collections::{BTreeMap, HashMap};

use tierscope_core::{
    BusRecord, Cell, Counters, Error, ErrorKind, Notice, Result, Rule, RuleId, Time,
};

/// A registered rule and its states.
#[derive(Clone, Debug)]
struct Counting {
    id: RuleId,
    rule: Rule,
    entries: HashMap<u64, u32>,
    states: BTreeMap<u64, u64>,
}

/// The counters; any number of rules.
#[derive(Clone, Debug, Default)]
pub struct NaiveCounters {
    rules: Vec<Counting>,
    next: u32,
}

impl NaiveCounters {
    /// Counts a read of a physical address on the bus.
    pub fn see(&mut self, address: u64) {
        let request = BusRecord::new(Time(0), address, false);
        for counting in &mut self.rules {
            let rule = &counting.rule;
            if !(rule.filter.start..rule.filter.end).contains(&address) {
                continue;
            }
            if let Some(base) = counting.entries.get(&rule.key.of(address)) {
                let state = u64::from(*base) + rule.offset.of(address);
                let (operator, operand) = rule.update;
                let start = rule.start(Cell::WORD);
                let value = counting.states.entry(state).or_insert(start);
                *value = operator.apply(*value, operand.of(request), Cell::WORD);
            }
        }
    }

    /// Whether no rule is registered.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.rules.is_empty()
    }

    fn of(&mut self, id: RuleId) -> Result<&mut Counting> {
        let found = self.rules.iter_mut().find(|counting| counting.id == id);
        found.ok_or_else(|| Error::new(ErrorKind::Usage, format!("there is no rule {}", id.0)))
    }
}

impl Counters for NaiveCounters {
    fn register(&mut self, rule: &Rule) -> Result<RuleId> {
        let id = RuleId(self.next);
        self.next += 1;
        let (entries, states) = (HashMap::new(), BTreeMap::new());
        self.rules.push(Counting { id, rule: *rule, entries, states });
        Ok(id)
    }

    fn unregister(&mut self, rule: RuleId) -> Result<()> {
        self.of(rule)?;
        self.rules.retain(|counting| counting.id != rule);
        Ok(())
    }

    fn translate(&mut self, rule: RuleId, key: u64, index: Option<u32>) -> Result<()> {
        let entries = &mut self.of(rule)?.entries;
        match index {
            Some(index) => entries.insert(key, index),
            None => entries.remove(&key),
        };
        Ok(())
    }

    fn read(&mut self, rule: RuleId, out: &mut [u64]) -> Result<()> {
        let counting = self.of(rule)?;
        let (start, effect) = (counting.rule.start(Cell::WORD), counting.rule.on_read);
        for (state, out) in (0..).zip(out) {
            *out = counting.states.get(&state).copied().unwrap_or(start);
            counting.states.insert(state, effect.after(*out, Cell::WORD));
        }
        Ok(())
    }

    fn notifications(&mut self, _: &mut Vec<Notice>) {}
}
