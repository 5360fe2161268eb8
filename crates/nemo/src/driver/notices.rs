//! Interrupts: hints that a telemetry's trigger may hold (NEMO, section 3.1).

use tierscope_core::{Notice, Result, RuleId, Time};

use super::{Driver, Owner};
use crate::engine::{At, Control, Engine};
use crate::program::Hint;

/// A state for which the rule's trigger holds, confirmed over all controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alert {
    /// Rule of the trigger.
    pub rule: RuleId,
    /// Number of the state.
    pub state: u64,
    /// Current folded value.
    pub value: u64,
    /// Time on the bus of the request that raised the hint.
    pub time: Time,
}

/// Hints of one telemetry.
struct TelemetryHints {
    number: usize,
    time: Time,
    /// The states that raised hints; `None` if more states did than the channels recorded.
    states: Option<Vec<u64>>,
}

impl<E: Engine> Driver<E> {
    /// Handles the interrupts: reads every state of the host's telemetries that may have raised a
    /// hint, over all controllers and without effect, and passes it to `each` if the trigger holds
    /// for the folded value.
    ///
    /// A hint is consumed once, by this or by [`tierscope_core::Counters::notifications`], which
    /// forwards hints unconfirmed. A hint is acknowledged before its states are read, so that an
    /// update in between raises another hint.
    ///
    /// # Errors
    /// The controllers do not respond.
    pub fn dispatch(&mut self, mut each: impl FnMut(Alert)) -> Result<()> {
        for TelemetryHints { number, time, states } in self.take_hints(Owner::Host) {
            let rule = self.id_of(number);
            let read = self.with(Owner::Host, rule, |driver, telemetry| -> Result<()> {
                let Some(trigger) = telemetry.rule.notify else { return Ok(()) };
                let values: Vec<(u64, u64)> = match states {
                    Some(states) => {
                        let value = |state| Ok((state, driver.peek_one(telemetry, state)?));
                        states.into_iter().map(value).collect::<Result<_>>()?
                    }
                    None => (0..).zip(driver.peek_all(telemetry)?).collect(),
                };
                for (state, value) in values.into_iter().filter(|(_, v)| trigger.holds(*v)) {
                    each(Alert { rule, state, value, time });
                }
                Ok(())
            });
            read??;
        }
        self.engine.check()
    }

    pub(super) fn notices_for(&mut self, owner: Owner, out: &mut Vec<Notice>) {
        for hinted in self.take_hints(owner) {
            out.push(Notice { rule: self.id_of(hinted.number), time: hinted.time });
        }
    }

    fn id_of(&self, number: usize) -> RuleId {
        RuleId(u32::from(self.slots[number].0) << 16 | number as u32)
    }

    /// Takes and acknowledges the hints of an owner's telemetries; hints of other owners stay
    /// pending.
    fn take_hints(&mut self, owner: Owner) -> Vec<TelemetryHints> {
        let controllers = 0..self.engine.memory().controllers();
        let pending: Vec<u64> = controllers.map(|n| self.engine.pending(n)).collect();
        if pending.iter().all(|bits| *bits == 0) {
            return Vec::new();
        }
        let mut found = Vec::new();
        for number in 0..self.slots.len() {
            let Some(telemetry) = self.slots[number].1.as_ref().filter(|t| t.owner == owner) else {
                continue;
            };
            let (window, windows) = (telemetry.layout.window, telemetry.layout.state_windows());
            let cells = telemetry.cells.iter().enumerate();
            let triggered: Vec<(At, u64)> = cells
                .flat_map(|(cell, ats)| ats.iter().map(move |(at, _)| (*at, cell as u64 % windows)))
                .filter(|(at, _)| pending[at.controller] >> at.pipeline & 1 == 1)
                .collect();
            let hints: Vec<(Hint, u64)> = (triggered.into_iter())
                .flat_map(|(at, states)| self.acknowledge(at, states * window))
                .collect();
            if let Some(time) = hints.iter().map(|(hint, _)| hint.time).min() {
                found.push(TelemetryHints { number, time, states: named(&hints) });
            }
        }
        found
    }

    /// Takes and acknowledges the hints of a pipeline's channels, each with the first state of the
    /// pipeline's window.
    fn acknowledge(&mut self, at: At, first: u64) -> Vec<(Hint, u64)> {
        let channels = 0..self.engine.geometry().channels;
        let hints = channels.filter_map(|channel| self.engine.status(at, channel).hint);
        let hints = hints.map(|hint| (hint, first)).collect();
        self.write(at, Control::Acknowledge);
        hints
    }
}

/// The states named by hints, unless a hint represents several.
fn named(hints: &[(Hint, u64)]) -> Option<Vec<u64>> {
    let alone = hints.iter().all(|(hint, _)| hint.more == 0);
    alone.then(|| {
        let mut states: Vec<u64> =
            hints.iter().map(|(hint, first)| first + u64::from(hint.state)).collect();
        states.sort_unstable();
        states.dedup();
        states
    })
}
