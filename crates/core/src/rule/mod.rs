//! Telemetry rules of a programmable memory controller, as data (NEMO, section 3 and Table 1).
//!
//! A rule defines which requests count, which state each of them selects, how that state changes,
//! when a notification is sent, and the effect of reading the state. [`Rule::build`] makes a
//! checked rule; [`text`] defines its text form; [`operator`] the arithmetic, and how the states of
//! several memory channels are folded into one; [`loss`] the parts of a rule that folding cannot
//! preserve.

mod check;
mod loss;
mod operator;
mod text;

pub use check::{Builder, Limits};
pub use loss::Loss;
pub use operator::Cell;

use crate::BusRecord;

/// Kinds of requests that match.
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
    /// Kind of requests that match.
    pub kind: RequestKind,
    /// First physical byte that matches.
    pub start: u64,
    /// One past the last physical byte that matches.
    pub end: u64,
}

/// `(address & mask) >> shift`: how a key or an offset is derived from a physical address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Address bits that take part; 0 for no subdivision.
    pub mask: u64,
    /// log2 of the size of the (sub-)region.
    pub shift: u8,
}

impl Key {
    /// No subdivision: always 0.
    pub const NONE: Key = Key { mask: 0, shift: 0 };

    /// All address bits of the memory (`NEMO_ALL_MEM` in the listings).
    pub const ALL_MEMORY: u64 = u64::MAX;

    /// Number of possible keys of addresses below 2^48: one more than the largest.
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

/// A field of the request, as an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestField {
    /// The physical address.
    Address,
    /// 1 for a write, 0 for a read.
    IsWrite,
    /// Bytes requested.
    Length,
    /// The core or device that issued the request.
    Requester,
}

/// Operand of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// The same value for every request.
    Constant(u64),
    /// A field of the request.
    Field(RequestField),
}

impl Operand {
    /// The operand's value for a request.
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

/// Notify stage: send a notification when the updated state satisfies the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Trigger {
    /// The comparison: state on the left, `value` on the right.
    pub compare: Compare,
    /// The threshold of the comparison.
    pub value: u64,
}

impl Trigger {
    /// Whether a state satisfies the comparison.
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

/// Effect of a read on the state, after its value was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReadEffect {
    /// The state is kept.
    Keep,
    /// The state is set to this value.
    Reset(u64),
    /// An operator is applied to the state.
    Apply(Operator, u64),
}

/// A telemetry rule (NEMO, Table 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rule {
    /// Filter for matching requests.
    pub filter: Filter,
    /// The primary region: indexes the translation table, which gives the base index.
    pub key: Key,
    /// The sub-region: added to the base index.
    pub offset: Key,
    /// How the selected state changes.
    pub update: (Operator, Operand),
    /// Notification condition; `None` for never.
    pub notify: Option<Trigger>,
    /// Effect of a read on the state.
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
