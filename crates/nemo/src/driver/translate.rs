//! Writes translation table entries, after validation.

use tierscope_core::{Result, RuleId, RuleLimits};

use super::spec::{refused, takes_upper_bits};
use super::{Driver, Owner, Telemetry};
use crate::engine::{Control, Engine};
use crate::program::Select;

/// Mapping of a range of primary regions to states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StateMapping {
    /// All regions to this state: many to one.
    One(u32),
    /// The first region to this state, the next region to the next region's first state, and so on:
    /// one to one; with an offset, one to many.
    Each(u32),
}

impl<E: Engine> Driver<E> {
    /// Maps every primary region of `start..end` to states.
    ///
    /// # Errors
    /// The range does not consist of whole primary regions, exceeds the memory that the rule sees,
    /// or contains a region that is mapped to other states already; or the states are not the
    /// telemetry's. Nothing is changed then.
    pub fn translate_range(
        &mut self,
        id: RuleId,
        start: u64,
        end: u64,
        onto: StateMapping,
    ) -> Result<()> {
        let limits = self.limits();
        let telemetry = self.of(Owner::Host, id)?;
        let region = telemetry.region(&limits)?;
        let aligned = start.is_multiple_of(region) && end.is_multiple_of(region);
        if !aligned || start >= end {
            let cause =
                format!("{start:#x}..{end:#x} is unaligned: regions have {region:#x} bytes");
            return Err(refused("range", cause));
        }
        if end - 1 > limits.end - 1 {
            return Err(refused("range", format!("the memory ends at {:#x}", limits.end)));
        }
        let shift = telemetry.rule.key.shift;
        let entry = |key: u64| {
            let step = (key - (start >> shift)) * telemetry.layout.span;
            let index = match onto {
                StateMapping::One(index) => Some(index),
                StateMapping::Each(first) => u32::try_from(u64::from(first) + step).ok(),
            };
            index
                .ok_or_else(|| refused("index", "the range has more regions than there are states"))
        };
        let keys = start >> shift..end >> shift;
        for key in keys.clone() {
            let index = entry(key)?;
            self.check_entry(telemetry, key, Some(index))?;
            let other = telemetry.entries.get(&key).filter(|present| **present != index);
            if let Some(other) = other {
                let cause = format!("key {key:#x} overlaps: it selects state {other} already");
                return Err(refused("range", cause).remedy("remove that entry first"));
            }
        }
        let entries = keys.map(|key| Ok((key, entry(key)?))).collect::<Result<Vec<_>>>()?;
        entries
            .into_iter()
            .try_for_each(|(key, index)| self.translate_for(Owner::Host, id, key, Some(index)))
    }

    pub(super) fn limits(&self) -> RuleLimits {
        RuleLimits::of_memory(self.engine.memory().end())
    }

    pub(super) fn translate_for(
        &mut self,
        owner: Owner,
        id: RuleId,
        key: u64,
        index: Option<u32>,
    ) -> Result<()> {
        let telemetry = self.of(owner, id)?;
        self.check_entry(telemetry, key, index)?;
        let telemetry = self.of_mut(owner, id)?;
        let old = match index {
            Some(index) => telemetry.entries.insert(key, index),
            None => telemetry.entries.remove(&key),
        };
        let (window, entry) = telemetry.layout.key_window(key).expect("just checked");
        let windows = telemetry.layout.state_windows();
        let size = telemetry.layout.window;
        let cell = |index: u32| (window as u64 * windows + u64::from(index) / size) as usize;
        // The pipeline of another state window must drop its entry first.
        let mut writes = Vec::new();
        if let Some(old) = old.filter(|old| index.is_none_or(|index| cell(index) != cell(*old))) {
            writes.extend(telemetry.cells[cell(old)].iter().map(|(at, _)| (*at, None)));
        }
        if let Some(index) = index {
            let base = Some((u64::from(index) % size) as u32);
            writes.extend(telemetry.cells[cell(index)].iter().map(|(at, _)| (*at, base)));
        }
        for (at, base) in writes {
            self.write(at, Control::Translate(entry, base));
        }
        self.engine.check()
    }

    /// Checks that an entry belongs to the telemetry.
    fn check_entry(&self, telemetry: &Telemetry, key: u64, index: Option<u32>) -> Result<()> {
        let Telemetry { layout, keys, .. } = telemetry;
        if telemetry.select != Select::Table {
            return Err(refused("key", "keys find their states by hashing: there is no table"));
        }
        if !keys.iter().any(|(first, last)| (*first..=*last).contains(&key)) {
            let what = format!("{key:#x} is out of range: no such region is the telemetry's");
            let runs: Vec<String> = keys
                .iter()
                .take(4)
                .map(|(first, last)| format!("{first:#x}..={last:#x}"))
                .collect();
            return Err(refused("key", what).remedy(format!("its keys are {}", runs.join(", "))));
        }
        self.check_served(telemetry, key)?;
        let Some(index) = index.map(u64::from) else { return Ok(()) };
        if index >= layout.states {
            let cause =
                format!("{index} is out of range: the telemetry has {} states", layout.states);
            return Err(refused("index", cause));
        }
        if index % layout.span != 0 {
            let cause = format!(
                "{index} is unaligned: a region has {} states, which would overlap those of others",
                layout.span
            );
            return Err(
                refused("index", cause).remedy(format!("use {}", index - index % layout.span))
            );
        }
        self.check_registers(&Control::Translate(0, Some((index % layout.window) as u32)))
    }

    /// Checks that controllers serve the whole region. A key that identifies no single region
    /// selects address bits, not memory, and is never foreign.
    fn check_served(&self, telemetry: &Telemetry, key: u64) -> Result<()> {
        let Ok(region) = telemetry.region(&self.limits()) else { return Ok(()) };
        let filter = telemetry.rule.filter;
        // Memory outside of the filter matches nothing.
        let start = (key * region).max(filter.start);
        let end = (key + 1).saturating_mul(region).min(filter.end).min(self.limits().end);
        if self.engine.memory().covers(start, end) {
            return Ok(());
        }
        let cause = format!("{start:#x}..{end:#x} is foreign: no controller serves all of it");
        Err(refused("key", cause))
    }
}

impl Telemetry {
    /// Bytes of a primary region.
    fn region(&self, limits: &RuleLimits) -> Result<u64> {
        if takes_upper_bits(self.rule.key, limits) {
            return Ok(1 << self.rule.key.shift);
        }
        let cause = "it leaves out upper bits of the address, so that no range is a region";
        Err(refused("key.mask", cause))
    }
}
