//! Telemetry rules of a programmable memory controller, as data (NEMO, section 3 and Table 1).
//!
//! A rule says which requests count, which state each of them selects, how that state changes,
//! when somebody is told, and what a read of the state does to it.

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

    /// The key of `address`.
    #[must_use]
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
    }
}
