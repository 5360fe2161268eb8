//! Runs a chunk of requests through one pipeline: first matches all of it, without branches, into a
//! list of updates; then performs the updates, with a specialised loop for each kind. A pipeline
//! that few requests match costs little more than the match.

use tierscope_core::{BusRecord, Cell, Compare, Operand, Operator, RequestKind, Trigger};

use super::part::{CHUNK_REQUESTS, Chunk, Match};
use super::pipeline::{NONE, Pipeline};
use crate::geometry::{KEYS, WORDS};
use crate::program::{Chain, Hint, Program, Select};

/// Complexity of the match; the common cases have specialised loops. This one: the key alone, no
/// filter, one counter per word.
const KEY: u8 = 0;
/// Match on key and offset; no filter, one counter per word.
const OFFSET: u8 = 1;
/// Match on everything: filter, key, offset, packed counters.
const ALL: u8 = 2;

/// Matches of a chunk, with capacity for a whole chunk.
#[derive(Clone, Debug, Default)]
pub(super) struct Matched(Vec<Match>);

impl Pipeline {
    /// Processes requests in order; `channel_shift` selects the address bits of the channel. Not
    /// for chained pipelines.
    pub fn observe(&mut self, batch: &[BusRecord], channel_shift: u32) {
        let mut part = Chunk::default();
        for batch in batch.chunks(CHUNK_REQUESTS) {
            part.extend(batch, channel_shift, self.channels);
            self.see(&part);
            part.clear();
        }
    }

    /// Processes a chunk.
    pub(super) fn see(&mut self, part: &Chunk) {
        let Some(program) = self.program else { return };
        debug_assert_eq!(program.chain, Chain::None);
        let mut matched = std::mem::take(&mut self.matched);
        matched.0.resize(CHUNK_REQUESTS, Match::default());
        let filter = program.filter;
        let every = filter.kind == RequestKind::All && filter.start == 0 && filter.end >= 1 << 48;
        let words = every && program.cell.per_word() == 1;
        let count = match (words, program.offset.mask == 0) {
            (true, true) => self.select::<KEY>(&program, part, &mut matched.0),
            (true, false) => self.select::<OFFSET>(&program, part, &mut matched.0),
            (false, _) => self.select::<ALL>(&program, part, &mut matched.0),
        };
        self.update_all(&program, &part.records, &matched.0[..count]);
        self.matched = matched;
    }

    /// Finds the states of a chunk's requests; returns the number of matches.
    fn select<const WHAT: u8>(
        &self,
        program: &Program,
        part: &Chunk,
        found: &mut [Match],
    ) -> usize {
        match program.select {
            Select::Table => {
                let table: &[u16; KEYS + 1] = &self.table;
                let first = program.first_key;
                find::<WHAT>(program, part, found, |key, wanted| {
                    let key = (key.wrapping_sub(first)).min(KEYS as u64) as usize;
                    table[if wanted { key } else { KEYS }].into()
                })
            }
            Select::Hash { multiplier, bits } => {
                find::<WHAT>(program, part, found, |key, wanted| match wanted {
                    true => Select::hash(key, multiplier, bits),
                    false => NONE.into(),
                })
            }
        }
    }

    fn update_all(&mut self, program: &Program, part: &[BusRecord], found: &[Match]) {
        let triggered = [program.home, program.away].map(|side| side.trigger.is_some());
        let ends = [program.home, program.away].map(|side| Interval::of(side.trigger));
        match (program.operator, program.operand, program.cell, ends) {
            (Operator::Add, Operand::Constant(by), Cell::WORD, _) if triggered == [false; 2] => {
                self.add(found, by);
            }
            (Operator::Add, Operand::Constant(by), Cell::WORD, [Some(home), Some(away)]) => {
                self.add_and_notify(part, found, by, home, away);
            }
            (_, _, Cell::WORD, _) if triggered == [false; 2] => self.words(program, part, found),
            _ => self.any(program, part, found),
        }
    }

    /// Adds a constant to word-sized counters, without triggers.
    fn add(&mut self, found: &[Match], by: u64) {
        for found in found {
            let word = &mut self.words[found.place()];
            let (new, wrapped) = word.overflowing_add(by);
            *word = new;
            if wrapped {
                self.status[found.channel()].wrapped = true;
            }
        }
    }

    /// Adds a constant to word-sized counters, with triggers.
    fn add_and_notify(
        &mut self,
        part: &[BusRecord],
        found: &[Match],
        by: u64,
        home: Interval,
        away: Interval,
    ) {
        for found in found {
            let word = &mut self.words[found.place()];
            let (new, wrapped) = word.overflowing_add(by);
            *word = new;
            let channel = found.channel();
            let interval = if channel == 0 { home } else { away };
            if wrapped {
                self.status[channel].wrapped = true;
            }
            if interval.holds(new) {
                let time = part[found.at()].time();
                Hint::latch(&mut self.status[channel].hint, found.state(0), new, time);
            }
        }
    }

    /// Applies any operator to word-sized counters, without triggers.
    fn words(&mut self, program: &Program, part: &[BusRecord], found: &[Match]) {
        let Program { operator, operand, cell, .. } = *program;
        for found in found {
            let word = &mut self.words[found.place()];
            let operand = operand.of(part[found.at()]);
            self.status[found.channel()].wrapped |=
                operator == Operator::Add && word.checked_add(operand).is_none();
            *word = operator.apply(*word, operand, cell);
        }
    }

    /// The general case: any operator, counter width and trigger.
    fn any(&mut self, program: &Program, part: &[BusRecord], found: &[Match]) {
        let per = program.cell.per_word().trailing_zeros();
        for found in found {
            let (request, state) = (part[found.at()], found.state(per));
            let (_, lane) = program.word_of(state);
            let operand = program.operand.of(request);
            self.update(program, state, found.place(), lane, operand, request);
        }
    }

    /// Updates the counter of a state, `lane` bits up in the word at `place`; returns its new
    /// value.
    #[inline(always)]
    pub(super) fn update(
        &mut self,
        program: &Program,
        state: u32,
        place: usize,
        lane: u32,
        operand: u64,
        request: BusRecord,
    ) -> u64 {
        let channel = place / WORDS;
        let updated = program.update(self.words[place], lane, operand, channel);
        self.words[place] = updated.word;
        let status = &mut self.status[channel];
        status.wrapped |= updated.wrapped;
        if updated.triggered {
            Hint::latch(&mut status.hint, state, updated.value, request.time());
        }
        updated.value
    }
}

/// The values for which a trigger holds: `length` values from `first` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Interval {
    first: u64,
    length: u64,
}

impl Interval {
    /// `None` if the trigger holds for all values: their number does not fit into 64 bits.
    fn of(trigger: Option<Trigger>) -> Option<Self> {
        let Some(Trigger { compare, value }) = trigger else {
            return Some(Self { first: 0, length: 0 });
        };
        let from = |first: u64| match first {
            0 => None,
            first => Some(Self { first, length: first.wrapping_neg() }),
        };
        match compare {
            Compare::Equal => Some(Self { first: value, length: 1 }),
            Compare::AtLeast => from(value),
            Compare::Above => match value {
                u64::MAX => Some(Self { first: 0, length: 0 }),
                value => from(value + 1),
            },
            Compare::Below => Some(Self { first: 0, length: value }),
            Compare::AtMost => value.checked_add(1).map(|length| Self { first: 0, length }),
        }
    }

    #[inline(always)]
    fn holds(self, state: u64) -> bool {
        state.wrapping_sub(self.first) < self.length
    }
}

/// Finds the states of a chunk's requests; returns the number of matches. `base` returns the base
/// index of a key, or an index beyond all states if there is no entry.
#[inline(always)]
fn find<const WHAT: u8>(
    program: &Program,
    part: &Chunk,
    found: &mut [Match],
    base: impl Fn(u64, bool) -> u64,
) -> usize {
    const WRITE: u64 = 1 << 48;
    // Mask and required value of the write flag, bit 48.
    let (asked, write) = match program.filter.kind {
        RequestKind::All => (0, 0),
        RequestKind::Read => (WRITE, 0),
        RequestKind::Write => (WRITE, WRITE),
    };
    let start = program.filter.start;
    let length = program.filter.end.saturating_sub(start);
    let (key_shift, offset_shift) = (program.key.shift & 63, program.offset.shift & 63);
    let (key_mask, offset_mask) =
        (program.key.mask & (WRITE - 1), program.offset.mask & (WRITE - 1));
    let limit = u64::from(program.states);
    let per = if WHAT < ALL { 0 } else { program.cell.per_word().trailing_zeros() };
    let found = &mut found[..CHUNK_REQUESTS];
    let mut count = 0;
    for (packed, place) in part.addresses.iter().zip(&part.places) {
        let inside = (packed & (WRITE - 1)).wrapping_sub(start) < length;
        let wanted = (WHAT < ALL) | (inside & (packed & asked == write));
        let offset = if WHAT < OFFSET { 0 } else { (packed & offset_mask) >> offset_shift };
        let state = base((packed & key_mask) >> key_shift, wanted) + offset;
        found[count & (CHUNK_REQUESTS - 1)] = place.with_state(state, per);
        count += usize::from(state < limit);
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_hold_where_triggers_do() {
        let compares =
            [Compare::Equal, Compare::AtLeast, Compare::Above, Compare::Below, Compare::AtMost];
        let values = [0, 1, 7, u64::MAX - 1, u64::MAX];
        for (compare, value) in compares.iter().flat_map(|c| values.map(|value| (*c, value))) {
            let trigger = Trigger { compare, value };
            let Some(interval) = Interval::of(Some(trigger)) else {
                assert!(values.iter().all(|state| trigger.holds(*state)), "{trigger:?}");
                continue;
            };
            for state in [0, 1, 2, 6, 7, 8, u64::MAX - 1, u64::MAX] {
                assert_eq!(interval.holds(state), trigger.holds(state), "{trigger:?} {state}");
            }
        }
        assert!(!Interval::of(None).unwrap().holds(0));
    }
}
