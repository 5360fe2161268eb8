//! Telemetry rules of a programmable memory controller, as data (NEMO, section 3 and Table 1).
//!
//! A rule says which requests count, which state each of them selects, how that state changes,
//! when somebody is told, and what a read of the state does to it. [`Rule::build`] makes one that
//! is checked; [`Rule`]'s text form is that of [`text`]; [`operator`] says what operators compute
//! and how the states of several memory channels become one; [`loss`] what that cannot keep.

mod check;
mod loss;
mod operator;
mod text;

pub use check::{Builder, Limits};
pub use loss::Loss;
pub use operator::Cell;

use crate::BusRecord;

/// Which requests match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestKind {
    /// Reads only.
    Read,
    /// Writes only.
    Write,
    /// Both.
    All,
}

/// Match stage: the request filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Filter {
    /// Reads, writes or both.
    pub kind: RequestKind,
    /// First physical byte that matches.
    pub start: u64,
    /// One past the last physical byte that matches.
    pub end: u64,
}

/// `(address & mask) >> shift`: how a key or an offset is taken from a physical address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Bits of the address that take part; 0 for no subdivision.
    pub mask: u64,
    /// log2 of the size of the (sub-)region.
    pub shift: u8,
}

impl Key {
    /// No subdivision: always 0.
    pub const NONE: Key = Key { mask: 0, shift: 0 };

    /// The mask of every bit that an address of the memory has (`NEMO_ALL_MEM` of the listings).
    pub const ALL_MEMORY: u64 = u64::MAX;

    /// Keys that addresses below 2^48 can have: one more than the largest.
    #[must_use]
    pub fn span(self) -> u64 {
        self.of(BusRecord::LAST_ADDRESS).saturating_add(1)
    }

    /// The key of `address`.
    #[must_use]
    #[inline]
    pub fn of(self, address: u64) -> u64 {
        (address & self.mask).checked_shr(u32::from(self.shift)).unwrap_or(0)
    }
}

/// The update operators. Each one commutes with itself, so that channels and controllers can be
/// folded in any order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operator {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `<<`
    ShiftLeft,
    /// `>>`
    ShiftRight,
    /// `^`
    Xor,
}

/// A part of the request that can be an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestField {
    /// The physical address.
    Address,
    /// 1 for a write, 0 for a read.
    IsWrite,
    /// Bytes asked for.
    Length,
    /// The core or device that asked.
    Requester,
}

/// What an operator works with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// The same value each time.
    Constant(u64),
    /// A field of the request.
    Field(RequestField),
}

impl Operand {
    /// What it is for a request.
    #[must_use]
    #[inline]
    pub fn of(self, request: BusRecord) -> u64 {
        match self {
            Operand::Constant(value) => value,
            Operand::Field(RequestField::Address) => request.address(),
            Operand::Field(RequestField::IsWrite) => request.is_write().into(),
            Operand::Field(RequestField::Length) => BusRecord::BYTES,
            Operand::Field(RequestField::Requester) => request.requester().into(),
        }
    }
}

/// The notify predicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compare {
    /// `==`
    Equal,
    /// `>=`
    AtLeast,
    /// `>`
    Above,
    /// `<`
    Below,
    /// `<=`
    AtMost,
}

/// Notify stage: tell when the updated state compares so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Trigger {
    /// The comparison: state on the left, `value` on the right.
    pub compare: Compare,
    /// The threshold.
    pub value: u64,
}

impl Trigger {
    /// Whether it holds for a state.
    #[must_use]
    #[inline]
    pub fn holds(self, state: u64) -> bool {
        match self.compare {
            Compare::Equal => state == self.value,
            Compare::AtLeast => state >= self.value,
            Compare::Above => state > self.value,
            Compare::Below => state < self.value,
            Compare::AtMost => state <= self.value,
        }
    }
}

/// What a read does to the state after its value was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReadEffect {
    /// Nothing.
    Keep,
    /// The state becomes this value.
    Reset(u64),
    /// An operator is applied.
    Apply(Operator, u64),
}

/// A telemetry rule (NEMO, Table 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rule {
    /// Which requests match.
    pub filter: Filter,
    /// The primary region: indexes the translation table, which gives the base index.
    pub key: Key,
    /// The sub-region: added to the base index.
    pub offset: Key,
    /// How the selected state changes.
    pub update: (Operator, Operand),
    /// When somebody is told; `None` for never.
    pub notify: Option<Trigger>,
    /// What a read does.
    pub on_read: ReadEffect,
}

#[cfg(test)]
mod tests {
    use super::*;

    // NEMO, listing 1: 2 MiB key, 4 KiB page within it as offset.
    #[test]
    fn key_and_offset_of_a_base_page_in_a_huge_page() {
        let key = Key { mask: u64::MAX, shift: 21 };
        let offset = Key { mask: (1 << 21) - 1, shift: 12 };
        let address = (5 << 21) | (17 << 12) | 64;
        assert_eq!((key.of(address), offset.of(address)), (5, 17));
        assert_eq!(Key::NONE.of(address), 0);
        assert_eq!((offset.span(), Key::NONE.span()), (512, 1));
    }

    #[test]
    fn operands_come_from_the_request() {
        let write = BusRecord::new(crate::Time(7), 0x1240, true).via(0, 5);
        let field = |field| Operand::Field(field).of(write);
        assert_eq!(field(RequestField::Address), 0x1240);
        assert_eq!(field(RequestField::IsWrite), 1);
        assert_eq!(field(RequestField::Length), 64);
        assert_eq!(field(RequestField::Requester), 5);
        assert_eq!(Operand::Constant(9).of(write), 9);
    }

    #[test]
    fn predicates_have_the_state_on_the_left() {
        let holds = |compare| [4, 5, 6].map(|state| Trigger { compare, value: 5 }.holds(state));
        assert_eq!(holds(Compare::Equal), [false, true, false]);
        assert_eq!(holds(Compare::AtLeast), [false, true, true]);
        assert_eq!(holds(Compare::Above), [false, false, true]);
        assert_eq!(holds(Compare::Below), [true, false, false]);
        assert_eq!(holds(Compare::AtMost), [true, true, false]);
    }
}
