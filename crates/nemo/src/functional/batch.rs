//! A batch of requests through one pipeline, for each kind of update a loop of its own.

use tierscope_core::{BusRecord, Cell, Operand, Operator, RequestKind};

use super::pipeline::Pipeline;
use crate::geometry::KEYS;
use crate::program::{Chain, Hint, Program, Select};

/// Requests between two looks at the spare word, which must not run over: 2^12 addresses below
/// 2^48 add up to less than 2^64.
const PART: usize = 1 << 12;

impl Pipeline {
    /// Sees requests, in order; each goes to the channel that `channel_shift` says. Not for
    /// pipelines in a chain.
    pub fn observe(&mut self, batch: &[BusRecord], channel_shift: u32) {
        let Some(program) = self.program else { return };
        debug_assert_eq!(program.chain, Chain::None);
        for part in batch.chunks(PART) {
            self.part(&program, part, channel_shift);
        }
    }

    fn part(&mut self, program: &Program, batch: &[BusRecord], channel_shift: u32) {
        let words = self.stride - 1;
        for channel in 0..self.channels {
            self.words[channel * self.stride + words] = 0;
        }
        let told = program.home.trigger.is_some() || program.away.trigger.is_some();
        let table = program.select == Select::Table;
        match (program.operator, program.operand, program.cell) {
            (Operator::Add, Operand::Constant(by), Cell::WORD) if !told && table => {
                self.run::<true, true, false>(program, batch, channel_shift, |old, _| {
                    let (new, wrapped) = old.overflowing_add(by);
                    (new, wrapped)
                });
            }
            (_, _, Cell::WORD) if !told && table => {
                self.run::<true, true, false>(program, batch, channel_shift, any(program));
            }
            (_, _, Cell::WORD) if table => {
                self.run::<true, true, true>(program, batch, channel_shift, any(program));
            }
            _ if table => {
                self.run::<true, false, true>(program, batch, channel_shift, any(program));
            }
            _ => self.run::<false, false, true>(program, batch, channel_shift, any(program)),
        }
    }

    /// The loop. `TABLE`: keys go through the translation table; `WORD`: a state is a word;
    /// `TOLD`: there are triggers. `update` gives the new state and whether it began anew.
    #[inline(always)]
    fn run<const TABLE: bool, const WORD: bool, const TOLD: bool>(
        &mut self,
        program: &Program,
        batch: &[BusRecord],
        channel_shift: u32,
        update: impl Fn(u64, BusRecord) -> (u64, bool),
    ) {
        let kinds = kinds(program.filter.kind);
        let (start, length) = (program.filter.start, program.filter.end - program.filter.start);
        let (key, offset, first) = (program.key, program.offset, program.first_key);
        let (key_shift, offset_shift) = (key.shift & 63, offset.shift & 63);
        let limit = u64::from(program.states);
        let (bits, max) = (program.cell.bits(), program.cell.max());
        let per = program.cell.per_word().trailing_zeros();
        let (stride, spare) = (self.stride, self.stride - 1);
        let table = &self.table[..KEYS + 1];
        let words = &mut self.words[..];
        let channel_mask = self.channels - 1;
        let mut wrapped = [0u8; 8];
        for record in batch {
            let address = record.address();
            let wanted = kinds >> u8::from(record.is_write()) & 1 == 1;
            let wanted = wanted & (address.wrapping_sub(start) < length);
            let key = ((address & key.mask) >> key_shift).wrapping_sub(first);
            let base = if TABLE {
                let at = if wanted & (key < KEYS as u64) { key as usize } else { KEYS };
                u64::from(table[at])
            } else {
                hashed(program.select, key.wrapping_add(first), wanted)
            };
            let state = base + ((address & offset.mask) >> offset_shift);
            let inside = state < limit;
            let channel = (address >> channel_shift) as usize & channel_mask;
            let (at, lane) = match (WORD, inside) {
                (_, false) => (spare, 0),
                (true, true) => (state as usize, 0),
                (false, true) => {
                    ((state >> per) as usize, (state as u32 & ((1 << per) - 1)) * bits)
                }
            };
            let word = &mut words[channel * stride + at];
            let old = if WORD { *word } else { (*word >> lane) & max };
            let (new, anew) = update(old, *record);
            *word = if WORD { new } else { (*word & !(max << lane)) | new << lane };
            wrapped[channel & 7] |= u8::from(anew & inside);
            if TOLD
                && inside
                && program.side(channel).trigger.is_some_and(|trigger| trigger.holds(new))
            {
                let hint = &mut self.status[channel].hint;
                Hint::latch(hint, state as u32, new, record.time());
            }
        }
        for (status, wrapped) in self.status.iter_mut().zip(wrapped) {
            status.wrapped |= wrapped != 0;
        }
    }
}

/// Any operator with any operand.
fn any(program: &Program) -> impl Fn(u64, BusRecord) -> (u64, bool) {
    let Program { operator, operand, cell, .. } = *program;
    let adds = operator == Operator::Add && !cell.saturates();
    move |old, record| {
        let operand = operand.of(record);
        (operator.apply(old, operand, cell), adds && operand > cell.max() - old)
    }
}

/// A bit for reads, a bit for writes.
fn kinds(kind: RequestKind) -> u8 {
    match kind {
        RequestKind::Read => 0b01,
        RequestKind::Write => 0b10,
        RequestKind::All => 0b11,
    }
}

#[inline(always)]
fn hashed(select: Select, key: u64, wanted: bool) -> u64 {
    match select {
        Select::Hash { multiplier, bits } if wanted => Select::hash(key, multiplier, bits),
        _ => u64::from(super::pipeline::NONE),
    }
}
