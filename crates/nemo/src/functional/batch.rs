//! A batch of requests through one pipeline: first all of it is matched, without a branch, into a
//! list of what to update; then the list is gone through, for each kind of update by a loop of its
//! own. A pipeline that few requests match costs little more than the first half.

use tierscope_core::{BusRecord, Cell, Operand, Operator, RequestKind};

use super::pipeline::{NONE, Pipeline};
use crate::geometry::KEYS;
use crate::program::{Chain, Hint, Program, Select};

/// Requests matched at a time.
const PART: usize = 1 << 12;

/// A state to update: bits 0..16 the state, 16..19 the channel, 19..31 which request of the part.
#[derive(Clone, Copy, Debug, Default)]
struct Found(u32);

impl Found {
    #[inline(always)]
    fn new(state: u64, channel: u64, at: usize) -> Self {
        Self(state as u32 & 0xffff | (channel as u32) << 16 | (at as u32) << 19)
    }

    #[inline(always)]
    fn state(self) -> u32 {
        self.0 & 0xffff
    }

    #[inline(always)]
    fn channel(self) -> usize {
        (self.0 >> 16 & 7) as usize
    }

    #[inline(always)]
    fn at(self) -> usize {
        (self.0 >> 19) as usize
    }
}

/// What a part's requests found.
#[derive(Clone, Debug)]
pub(super) struct Matched(Box<[Found; PART]>);

impl Default for Matched {
    fn default() -> Self {
        Self(Box::new([Found::default(); PART]))
    }
}

impl Pipeline {
    /// Sees requests, in order; each goes to the channel that `channel_shift` says. Not for
    /// pipelines in a chain.
    pub fn observe(&mut self, batch: &[BusRecord], channel_shift: u32) {
        let Some(program) = self.program else { return };
        debug_assert_eq!(program.chain, Chain::None);
        let mut matched = std::mem::take(&mut self.matched);
        for part in batch.chunks(PART) {
            let count = match program.select {
                Select::Table => {
                    let table = &self.table[..KEYS + 1];
                    let base = |key: u64, wanted| {
                        let key = key.wrapping_sub(program.first_key);
                        let at = if wanted & (key < KEYS as u64) { key as usize } else { KEYS };
                        u64::from(table[at])
                    };
                    find(&program, self.channels, part, channel_shift, &mut matched, base)
                }
                Select::Hash { multiplier, bits } => {
                    let base = |key, wanted| match wanted {
                        true => Select::hash(key, multiplier, bits),
                        false => NONE.into(),
                    };
                    find(&program, self.channels, part, channel_shift, &mut matched, base)
                }
            };
            self.update_all(&program, part, &matched.0[..count]);
        }
        self.matched = matched;
    }

    fn update_all(&mut self, program: &Program, part: &[BusRecord], found: &[Found]) {
        let told = program.home.trigger.is_some() || program.away.trigger.is_some();
        match (program.operator, program.operand, program.cell) {
            (Operator::Add, Operand::Constant(by), Cell::WORD) if !told => self.add(found, by),
            (_, _, Cell::WORD) if !told => self.words(program, part, found),
            _ => self.any(program, part, found),
        }
    }

    /// Words that a constant is added to.
    fn add(&mut self, found: &[Found], by: u64) {
        let stride = self.stride;
        let mut wrapped = 0u32;
        for found in found {
            let word = &mut self.words[found.channel() * stride + found.state() as usize];
            let (new, anew) = word.overflowing_add(by);
            *word = new;
            wrapped |= u32::from(anew) << found.channel();
        }
        for (channel, status) in self.status.iter_mut().enumerate() {
            status.wrapped |= wrapped >> channel & 1 == 1;
        }
    }

    /// Words, any operator, nobody told.
    fn words(&mut self, program: &Program, part: &[BusRecord], found: &[Found]) {
        let Program { operator, operand, cell, .. } = *program;
        for found in found {
            let word = &mut self.words[found.channel() * self.stride + found.state() as usize];
            let operand = operand.of(part[found.at()]);
            self.status[found.channel()].wrapped |=
                operator == Operator::Add && word.checked_add(operand).is_none();
            *word = operator.apply(*word, operand, cell);
        }
    }

    /// Whatever there is.
    fn any(&mut self, program: &Program, part: &[BusRecord], found: &[Found]) {
        for found in found {
            let (request, channel) = (part[found.at()], found.channel());
            self.update(program, found.state(), channel, program.operand.of(request), request);
        }
    }

    /// Updates a state; returns what it has become.
    #[inline(always)]
    pub(super) fn update(
        &mut self,
        program: &Program,
        state: u32,
        channel: usize,
        operand: u64,
        request: BusRecord,
    ) -> u64 {
        let (word, lane) = program.word_of(state);
        let word = &mut self.words[channel * self.stride + word];
        let updated = program.update(*word, lane, operand, channel);
        *word = updated.word;
        let status = &mut self.status[channel];
        status.wrapped |= updated.wrapped;
        if updated.told {
            Hint::latch(&mut status.hint, state, updated.value, request.time());
        }
        updated.value
    }
}

/// Finds the states of a part's requests; returns how many match. `base` gives the base index of a
/// key, or more than there are states.
#[inline(always)]
fn find(
    program: &Program,
    channels: usize,
    part: &[BusRecord],
    channel_shift: u32,
    matched: &mut Matched,
    base: impl Fn(u64, bool) -> u64,
) -> usize {
    let (reads, writes) = match program.filter.kind {
        RequestKind::Read => (true, false),
        RequestKind::Write => (false, true),
        RequestKind::All => (true, true),
    };
    let (start, length) = (program.filter.start, program.filter.end - program.filter.start);
    let (key, offset) = (program.key, program.offset);
    let (key_shift, offset_shift) = (key.shift & 63, offset.shift & 63);
    let (limit, channel_mask) = (u64::from(program.states), channels as u64 - 1);
    let mut count = 0;
    for (at, record) in part.iter().enumerate() {
        let address = record.address();
        let kind = if record.is_write() { writes } else { reads };
        let wanted = kind & (address.wrapping_sub(start) < length);
        let state = base((address & key.mask) >> key_shift, wanted)
            + ((address & offset.mask) >> offset_shift);
        let channel = (address >> channel_shift) & channel_mask;
        matched.0[count & (PART - 1)] = Found::new(state, channel, at);
        count += usize::from(state < limit);
    }
    count
}
