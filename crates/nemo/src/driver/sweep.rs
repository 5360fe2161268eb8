//! Watches more regions than there are states, a subset at a time (NEMO, section 6.1).

use tierscope_core::{Counters, Result, RuleId};

/// Sweeps over regions, watching as many at a time as a telemetry has states for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sweep {
    rule: RuleId,
    /// States of a region.
    span: u32,
    /// Regions watched at a time.
    at_once: usize,
    keys: Vec<u64>,
    next: usize,
    tracked: Vec<u64>,
}

impl Sweep {
    /// A sweep over the regions of `keys` by a telemetry of `states` states, `span` per region. The
    /// rule should reset on read.
    #[must_use]
    pub fn new(rule: RuleId, keys: Vec<u64>, states: u32, span: u32) -> Self {
        let at_once = ((states / span.max(1)) as usize).max(1);
        Self { rule, span, at_once, keys, next: 0, tracked: Vec::new() }
    }

    /// Periods of a full sweep.
    #[must_use]
    pub fn periods(&self) -> usize {
        self.keys.len().div_ceil(self.at_once)
    }

    /// Ends a period and begins the next: passes the states of each region watched so far to
    /// `each`, and watches the next regions. The first call passes none.
    ///
    /// # Errors
    /// Errors of the counters.
    pub fn advance(
        &mut self,
        counters: &mut dyn Counters,
        mut each: impl FnMut(u64, &[u64]),
    ) -> Result<()> {
        // Removes the entries before the states are read: requests in between must not count for
        // any region.
        for key in &self.tracked {
            counters.translate(self.rule, *key, None)?;
        }
        let mut states = vec![0; self.tracked.len() * self.span as usize];
        counters.read(self.rule, &mut states)?;
        for (key, states) in self.tracked.iter().zip(states.chunks(self.span as usize)) {
            each(*key, states);
        }
        self.tracked.clear();
        if self.keys.is_empty() {
            return Ok(());
        }
        let end = (self.next + self.at_once).min(self.keys.len());
        for (slot, key) in (0..).zip(&self.keys[self.next..end]) {
            counters.translate(self.rule, *key, Some(slot * self.span))?;
            self.tracked.push(*key);
        }
        self.next = if end == self.keys.len() { 0 } else { end };
        Ok(())
    }
}
