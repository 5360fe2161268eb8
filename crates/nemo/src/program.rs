//! The registers of a pipeline, written by the driver.

use tierscope_core::{
    BusRecord, Cell, Filter, Key, Operand, Operator, ReadEffect, RequestKind, Time, Trigger,
};

use crate::geometry::{BANK_WORDS, KEYS, PAGE_WORDS};

/// Registers that differ between a state's home bank and all others
/// ([`tierscope_core::Operator::combine`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Side {
    /// Initial value of every state.
    pub start: u64,
    /// Effect of a capture on the state.
    pub effect: ReadEffect,
    /// Condition for a hint to the host.
    pub trigger: Option<Trigger>,
}

/// Mapping of keys to states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Select {
    /// By the translation table.
    Table,
    /// By multiply-shift hashing onto `2^bits` states (NEMO, section 6.3).
    Hash {
        /// Odd multiplier.
        multiplier: u64,
        /// log2 of the number of states.
        bits: u32,
    },
}

impl Select {
    /// The state that a hash selects.
    #[must_use]
    #[inline]
    pub fn hash(key: u64, multiplier: u64, bits: u32) -> u64 {
        key.wrapping_mul(multiplier).checked_shr(64 - bits).unwrap_or(0)
    }
}

/// Input of a pipeline from its predecessor in a chain (NEMO, section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Chain {
    /// Not chained: it sees the bus itself.
    None,
    /// The predecessor's updated state is the operand.
    Value,
    /// 2n − 1 is the operand, n being the predecessor's updated state: the step from (n − 1)² to
    /// n².
    SquareStep,
}

impl Chain {
    /// The operand for a predecessor's result.
    #[must_use]
    #[inline]
    pub fn operand(self, value: u64) -> u64 {
        match self {
            Chain::SquareStep => value.wrapping_mul(2).wrapping_sub(1),
            Chain::None | Chain::Value => value,
        }
    }
}

/// The registers of a pipeline, the same in each of its channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Program {
    /// Match: the request filter.
    pub filter: Filter,
    /// Match: the primary region.
    pub key: Key,
    /// Match: the key of the table's first entry, subtracted from all keys.
    pub first_key: u64,
    /// Match: the sub-region.
    pub offset: Key,
    /// Match: the mapping of keys to states.
    pub select: Select,
    /// Update: the operator.
    pub operator: Operator,
    /// Update: its operand, unless chained.
    pub operand: Operand,
    /// Update: the operand from the predecessor, if chained.
    pub chain: Chain,
    /// Width of the counters that hold the states.
    pub cell: Cell,
    /// Number of states; requests whose base plus offset exceeds it are dropped.
    pub states: u32,
    /// First bank owned in each channel.
    pub first_bank: u16,
    /// Number of banks owned in each channel.
    pub banks: u16,
    /// Initial value, effect and trigger of channel 0.
    pub home: Side,
    /// Initial value, effect and trigger of the other channels.
    pub away: Side,
}

impl Program {
    /// The registers that apply to a channel.
    #[must_use]
    pub fn side(&self, channel: usize) -> &Side {
        if channel == 0 { &self.home } else { &self.away }
    }

    /// State words owned in each channel.
    #[must_use]
    pub fn words(&self) -> usize {
        usize::from(self.banks) * BANK_WORDS
    }

    /// Whether a request passes the filter.
    #[must_use]
    pub fn wants(&self, request: BusRecord) -> bool {
        let kind = match self.filter.kind {
            RequestKind::All => true,
            RequestKind::Read => !request.is_write(),
            RequestKind::Write => request.is_write(),
        };
        kind && self.filter.start <= request.address() && request.address() < self.filter.end
    }

    /// The translation table entry of a request; `None` if the request is dropped.
    #[must_use]
    pub fn entry(&self, request: BusRecord) -> Option<usize> {
        let key = self.key.of(request.address()).wrapping_sub(self.first_key);
        (self.wants(request) && key < KEYS as u64).then_some(key as usize)
    }

    /// The state of a request, given the content of the table.
    #[must_use]
    pub fn state(&self, request: BusRecord, entry: impl Fn(usize) -> Option<u32>) -> Option<u32> {
        let base = match self.select {
            Select::Table => u64::from(entry(self.entry(request)?)?),
            Select::Hash { multiplier, bits } if self.wants(request) => {
                Select::hash(self.key.of(request.address()), multiplier, bits)
            }
            Select::Hash { .. } => return None,
        };
        let index = base + self.offset.of(request.address());
        u32::try_from(index).ok().filter(|index| *index < self.states)
    }

    /// Initial content of a state word.
    #[must_use]
    pub fn fresh_word(&self, channel: usize) -> u64 {
        (0..self.cell.per_word())
            .fold(0, |word, lane| word | self.side(channel).start << (lane * self.cell.bits()))
    }

    /// The word that holds a state, and the state's bit offset in it.
    #[must_use]
    #[inline]
    pub fn word_of(&self, state: u32) -> (usize, u32) {
        let per = self.cell.per_word();
        ((state / per) as usize, state % per * self.cell.bits())
    }

    /// Updates the counter `lane` bits up in a word.
    #[must_use]
    pub fn update(&self, word: u64, lane: u32, operand: u64, channel: usize) -> Updated {
        let (max, cell) = (self.cell.max(), self.cell);
        let old = (word >> lane) & max;
        let new = self.operator.apply(old, operand, cell);
        let adds = self.operator == Operator::Add && !cell.saturates();
        Updated {
            word: (word & !(max << lane)) | new << lane,
            value: new,
            wrapped: adds && operand > max - old,
            triggered: self.side(channel).trigger.is_some_and(|trigger| trigger.holds(new)),
        }
    }

    /// A word after the capture of its counters of `lanes`, one bit per lane.
    #[must_use]
    pub fn captured(&self, word: u64, lanes: u8, channel: usize) -> u64 {
        let (max, effect) = (self.cell.max(), self.side(channel).effect);
        (0..self.cell.per_word()).filter(|lane| lanes >> lane & 1 == 1).fold(word, |word, lane| {
            let up = lane * self.cell.bits();
            let after = effect.after((word >> up) & max, self.cell);
            (word & !(max << up)) | after << up
        })
    }
}

/// Result of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Updated {
    /// New content of the word.
    pub word: u64,
    /// New value of the state.
    pub value: u64,
    /// Whether the counter wrapped around.
    pub wrapped: bool,
    /// Whether the trigger holds.
    pub triggered: bool,
}

/// The first state since the last acknowledgement for which a trigger held, in one channel of one
/// pipeline, and the number of further hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hint {
    /// Number of the state.
    pub state: u32,
    /// Its value then, in this channel.
    pub value: u64,
    /// Time on the bus of the request.
    pub time: Time,
    /// Later updates for which the trigger held too.
    pub more: u64,
}

impl Hint {
    /// Records the first hit, and counts the others.
    pub(crate) fn latch(latched: &mut Option<Hint>, state: u32, value: u64, time: Time) {
        match latched {
            Some(first) => first.more += 1,
            None => *latched = Some(Hint { state, value, time, more: 0 }),
        }
    }
}

/// A control operation on one channel of a pipeline: it takes a slot of the pipeline, in order with
/// the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Slot {
    /// Clears all states and entries, and programs the pipeline, or leaves it idle.
    Program(Option<Program>),
    /// Writes an entry of the translation table.
    Translate(u16, Option<u32>),
    /// Reads a word, and captures its counters of these lanes, one bit per lane.
    Take {
        /// Index of the word.
        word: u16,
        /// The lanes; 0 to read without a capture.
        lanes: u8,
    },
    /// Clears the hint.
    Acknowledge,
    /// Loads a line of eight words, without an effect: a load of the telemetry region, which comes
    /// over the channel like a request and takes a slot like one.
    Load {
        /// Number of the line among those of the lane.
        line: u16,
    },
}

/// The slots that capture `count` states from `first` on, at most a page of words: word and lanes
/// of each.
pub(crate) fn capture_slots(
    program: &Program,
    first: u32,
    count: u32,
) -> impl Iterator<Item = (usize, u8)> {
    let per = program.cell.per_word();
    let end = first.saturating_add(count).min(program.states);
    let slot = move |word| {
        let inside = |lane: &u32| (first..end).contains(&(word * per + lane));
        let lanes = (0..per).filter(inside).fold(0u8, |lanes, lane| lanes | 1 << lane);
        (word as usize, lanes)
    };
    (first / per..end.div_ceil(per)).take(PAGE_WORDS).map(slot)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A program that counts all requests by 4 KiB page, in word-sized counters.
    pub(crate) fn counting() -> Program {
        let side = Side { start: 0, effect: ReadEffect::Reset(0), trigger: None };
        Program {
            filter: Filter { kind: RequestKind::All, start: 0, end: u64::MAX },
            key: Key { mask: u64::MAX, shift: 12 },
            first_key: 0,
            offset: Key::NONE,
            select: Select::Table,
            operator: Operator::Add,
            operand: Operand::Constant(1),
            chain: Chain::None,
            cell: Cell::WORD,
            states: 8192,
            first_bank: 0,
            banks: 8,
            home: side,
            away: side,
        }
    }

    fn at(address: u64) -> BusRecord {
        BusRecord::new(Time(0), address, false)
    }

    #[test]
    fn base_and_offset_find_the_state() {
        let program = Program {
            key: Key { mask: u64::MAX, shift: 21 },
            offset: Key { mask: 0x1f_ffff, shift: 12 },
            first_key: 5,
            states: 1024,
            ..counting()
        };
        let entry = |key| [Some(512), None].get(key).copied().flatten();
        assert_eq!(program.state(at(5 << 21 | 3 << 12), entry), Some(515));
        assert_eq!(program.state(at(6 << 21), entry), None, "not translated");
        assert_eq!(program.state(at(4 << 21), entry), None, "before the first key");
        let beyond = |_| Some(1000);
        assert_eq!(program.state(at(5 << 21 | 23 << 12), beyond), Some(1023));
        assert_eq!(program.state(at(5 << 21 | 24 << 12), beyond), None, "beyond its states");
    }

    #[test]
    fn counters_share_a_word_and_leave_each_other_alone() {
        let cell = Cell::new(1, false).unwrap();
        let program = Program { cell, ..counting() };
        assert_eq!(program.word_of(10), (1, 16));
        let updated = program.update(0x11ff_2233, 16, 1, 0);
        assert_eq!((updated.word, updated.value, updated.wrapped), (0x1100_2233, 0, true));
        assert_eq!(program.captured(0x4433_2211, 0b0101, 0), 0x4400_2200);
        let slots: Vec<_> = capture_slots(&program, 6, 4).collect();
        assert_eq!(slots, [(0, 0b1100_0000), (1, 0b11)]);
    }

    // What a capture resets, its page holds: the rest of 600 words stays as it is.
    #[test]
    fn a_capture_ends_with_its_page() {
        let slots: Vec<_> = capture_slots(&counting(), 7, 600).collect();
        assert_eq!((slots.len(), slots[511]), (PAGE_WORDS, (518, 1)));
    }

    #[test]
    fn squares_grow_by_odd_steps() {
        let square = (1..=9).map(|n| Chain::SquareStep.operand(n)).sum::<u64>();
        assert_eq!(square, 81);
    }
}
