//! Reads states, folded over all banks.

use tierscope_core::{ReadEffect, Result, RuleId};

use super::spec::refused;
use super::{Driver, Owner, Telemetry};
use crate::engine::{At, Control, Engine};
use crate::geometry::{LINE_WORDS, PAGE_WORDS};
use crate::region::Region;

/// Source of a pipeline's words.
#[derive(Clone, Copy, Debug)]
enum From {
    /// The state SRAM, without a read effect.
    States,
    /// The capture page, after a capture.
    Captured,
}

/// Requests of a telemetry that are not reflected in its states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overflow {
    /// Requests dropped because a queue was full, over all channels.
    pub dropped: u64,
    /// Whether a counter wrapped around.
    pub wrapped: bool,
}

impl<E: Engine> Driver<E> {
    /// Reads states from `first` on without the read effect.
    ///
    /// # Errors
    /// The telemetry does not exist, or has fewer states.
    pub fn peek(&mut self, id: RuleId, first: u64, out: &mut [u64]) -> Result<()> {
        self.with(Owner::Host, id, |driver, telemetry| {
            driver.fold_all(telemetry, first, out, From::States)
        })?
    }

    /// Losses of a telemetry: requests dropped because a queue was full, and whether a counter
    /// wrapped around.
    ///
    /// # Errors
    /// The telemetry does not exist.
    pub fn overflow(&mut self, id: RuleId) -> Result<Overflow> {
        let overflow = self.with(Owner::Host, id, |driver, telemetry| {
            let mut overflow = Overflow::default();
            for (at, _) in telemetry.cells.iter().flatten() {
                for channel in 0..driver.engine.geometry().channels {
                    let status = driver.engine.status(*at, channel);
                    overflow.dropped += status.dropped;
                    overflow.wrapped |= status.wrapped;
                }
            }
            overflow
        })?;
        self.engine.check().map(|()| overflow)
    }

    pub(super) fn read_for(&mut self, owner: Owner, id: RuleId, out: &mut [u64]) -> Result<()> {
        self.with(owner, id, |driver, telemetry| {
            // Without a read effect no capture is needed.
            let from = match telemetry.rule.on_read {
                ReadEffect::Keep => From::States,
                _ => From::Captured,
            };
            driver.fold_all(telemetry, 0, out, from)
        })?
    }

    pub(super) fn peek_one(&mut self, telemetry: &Telemetry, state: u64) -> Result<u64> {
        let mut one = [0];
        self.fold_all(telemetry, state, &mut one, From::States)?;
        Ok(one[0])
    }

    pub(super) fn peek_all(&mut self, telemetry: &Telemetry) -> Result<Vec<u64>> {
        let mut all = vec![0; telemetry.layout.states as usize];
        self.fold_all(telemetry, 0, &mut all, From::States)?;
        Ok(all)
    }

    fn fold_all(
        &mut self,
        telemetry: &Telemetry,
        first: u64,
        out: &mut [u64],
        from: From,
    ) -> Result<()> {
        let layout = &telemetry.layout;
        if first.checked_add(out.len() as u64).is_none_or(|end| end > layout.states) {
            let cause =
                format!("{} states from {first} on; there are {}", out.len(), layout.states);
            return Err(refused("states", cause));
        }
        let most = PAGE_WORDS as u64 * u64::from(layout.cell.per_word());
        let mut done = 0;
        while done < out.len() {
            let at = first + done as u64;
            let (window, inside) = (at / layout.window, at % layout.window);
            // At most a page of words; the first state may be in the middle of a word.
            let lead = inside % u64::from(layout.cell.per_word());
            let room = (layout.window - inside).min(most - lead) as usize;
            let part = room.min(out.len() - done);
            let states = &mut out[done..done + part];
            self.fold(telemetry, window, inside as u32, states, from);
            done += part;
        }
        self.engine.check()
    }

    /// Folds states of one state window over key windows, controllers and channels, home bank
    /// first.
    fn fold(
        &mut self,
        telemetry: &Telemetry,
        window: u64,
        first: u32,
        out: &mut [u64],
        from: From,
    ) {
        let cells = telemetry.cells.iter().skip(window as usize);
        let cells = cells.step_by(telemetry.layout.state_windows() as usize);
        let mut home = true;
        for (at, _) in cells.flatten() {
            if matches!(from, From::Captured) {
                let count = out.len() as u32;
                self.write(*at, Control::Capture { first, count });
            }
            for channel in 0..self.engine.geometry().channels {
                self.fold_bank(telemetry, *at, channel, first, out, from, home);
                home = false;
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the place of a bank has many coordinates")]
    fn fold_bank(
        &mut self,
        telemetry: &Telemetry,
        at: At,
        channel: usize,
        first: u32,
        out: &mut [u64],
        from: From,
        home: bool,
    ) {
        let (cell, operator) = (telemetry.layout.cell, telemetry.rule.update.0);
        let region = Region::of(self.engine.geometry());
        let per = cell.per_word();
        let begin = (first / per) as usize;
        let mut line = (u64::MAX, [0; LINE_WORDS]);
        for (state, out) in (first..).zip(out) {
            let word = (state / per) as usize;
            let (number, word) = match from {
                From::States => (region.states(at.pipeline, channel, word), word),
                From::Captured => (region.captured(channel, word - begin), word - begin),
            };
            if line.0 != number {
                line = (number, self.load_line(at.controller, number));
            }
            let bank = line.1[word % LINE_WORDS] >> (state % per * cell.bits()) & cell.max();
            *out = if home { bank } else { operator.combine(*out, bank, cell) };
        }
    }

    /// Cached copies of the line are stale: invalidates it first.
    fn load_line(&mut self, controller: usize, line: u64) -> [u64; LINE_WORDS] {
        self.work.lines += 1;
        self.engine.invalidate(controller, line);
        self.engine.load(controller, line)
    }
}
