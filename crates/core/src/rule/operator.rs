//! Operator arithmetic, and how the states of several memory channels are folded into one.
//!
//! A telemetry's state is spread over *banks*: one per channel, pipeline and controller. One of
//! them is *home* and begins with the state's initial value; all others begin with the operator's
//! identity, which means "nothing happened here". Folding applies to the home value the changes of
//! each of the others ([`Operator::combine`]): sums add, and shifts add their *counts*, which stay
//! readable because a shifted bank begins with a single bit.

use super::{Operator, ReadEffect, Rule};
use crate::{Error, ErrorKind, Result};

/// The counter that holds a state: its width, and whether it wraps or saturates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cell {
    bytes: u8,
    saturating: bool,
}

impl Default for Cell {
    fn default() -> Self {
        Self::WORD
    }
}

impl Cell {
    /// 64 bits that wrap around: the prototype's (NEMO, section 4).
    pub const WORD: Cell = Cell { bytes: 8, saturating: false };

    /// A counter of 1 to 8 bytes that wraps around, or saturates.
    ///
    /// # Errors
    /// If the width is not in 1..=8.
    pub fn new(bytes: u8, saturating: bool) -> Result<Self> {
        if (1..=8).contains(&bytes) {
            return Ok(Self { bytes, saturating });
        }
        Err(Error::new(ErrorKind::Usage, "telemetry refused at `counter.bytes`")
            .cause(format!("{bytes} bytes are no counter"))
            .remedy("choose 1 to 8"))
    }

    /// Width in bytes.
    #[must_use]
    pub fn bytes(self) -> u8 {
        self.bytes
    }

    /// Width in bits.
    #[must_use]
    #[inline]
    pub fn bits(self) -> u32 {
        u32::from(self.bytes) * 8
    }

    /// Whether the counter saturates instead of wrapping around.
    #[must_use]
    #[inline]
    pub fn saturates(self) -> bool {
        self.saturating
    }

    /// The largest value; also the mask of its bits.
    #[must_use]
    #[inline]
    pub fn max(self) -> u64 {
        u64::MAX >> (64 - self.bits())
    }

    /// Counters per 64-bit word of SRAM: 8, 4, 2 or 1.
    #[must_use]
    #[inline]
    pub fn per_word(self) -> u32 {
        u32::from(8 / self.bytes)
    }
}

impl Operator {
    /// The state after an update of `state` by `operand`.
    #[must_use]
    #[inline(always)]
    pub fn apply(self, state: u64, operand: u64, cell: Cell) -> u64 {
        let max = cell.max();
        match self {
            Operator::Add if cell.saturating => state.saturating_add(operand).min(max),
            Operator::Add => state.wrapping_add(operand) & max,
            Operator::Subtract if cell.saturating => state.saturating_sub(operand),
            Operator::Subtract => state.wrapping_sub(operand) & max,
            Operator::ShiftLeft if operand >= 64 => 0,
            Operator::ShiftLeft => (state << operand) & max,
            Operator::ShiftRight if operand >= 64 => 0,
            Operator::ShiftRight => state >> operand,
            Operator::Xor => (state ^ operand) & max,
        }
    }

    /// The initial state of every bank except the home: the operator's identity.
    #[must_use]
    pub fn identity(self, cell: Cell) -> u64 {
        match self {
            Operator::Subtract if cell.saturating => cell.max(),
            Operator::Add | Operator::Subtract | Operator::Xor => 0,
            Operator::ShiftLeft => 1,
            Operator::ShiftRight => 1 << (cell.bits() - 1),
        }
    }

    /// Applies to `home` the changes of a bank that began with the identity and is `bank` now.
    ///
    /// The order of the banks does not matter.
    #[must_use]
    #[inline]
    pub fn combine(self, home: u64, bank: u64, cell: Cell) -> u64 {
        match self {
            Operator::Add | Operator::Xor => self.apply(home, bank, cell),
            // The change is the distance below the identity.
            Operator::Subtract => {
                self.apply(home, self.identity(cell).wrapping_sub(bank) & cell.max(), cell)
            }
            Operator::ShiftLeft | Operator::ShiftRight => {
                self.apply(home, self.shifts(bank, cell), cell)
            }
        }
    }

    /// The number of shifts of a bank that began as a single bit; the full width if the bit is
    /// gone.
    fn shifts(self, bank: u64, cell: Cell) -> u64 {
        match (bank, self) {
            (0, _) => u64::from(cell.bits()),
            (_, Operator::ShiftLeft) => bank.trailing_zeros().into(),
            (_, _) => (bank.leading_zeros() - (64 - cell.bits())).into(),
        }
    }
}

impl ReadEffect {
    /// The state after a read of `state`.
    #[must_use]
    #[inline]
    pub fn after(self, state: u64, cell: Cell) -> u64 {
        match self {
            ReadEffect::Keep => state,
            ReadEffect::Reset(value) => value & cell.max(),
            ReadEffect::Apply(operator, value) => operator.apply(state, value, cell),
        }
    }
}

impl Rule {
    /// The initial state: the value that reads reset it to, else the operator's identity.
    #[must_use]
    pub fn start(&self, cell: Cell) -> u64 {
        match self.on_read {
            ReadEffect::Reset(value) => value & cell.max(),
            _ => self.update.0.identity(cell),
        }
    }

    /// Effect of a read on banks other than the home: a reset sets them to the identity; an
    /// operator is applied to the home alone.
    #[must_use]
    pub fn effect_elsewhere(&self, cell: Cell) -> ReadEffect {
        match self.on_read {
            ReadEffect::Reset(_) => ReadEffect::Reset(self.update.0.identity(cell)),
            ReadEffect::Keep | ReadEffect::Apply(..) => ReadEffect::Keep,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: [Operator; 5] = [
        Operator::Add,
        Operator::Subtract,
        Operator::ShiftLeft,
        Operator::ShiftRight,
        Operator::Xor,
    ];

    fn byte(saturating: bool) -> Cell {
        Cell::new(1, saturating).unwrap()
    }

    #[test]
    fn a_byte_wraps_or_saturates() {
        assert_eq!(Operator::Add.apply(250, 10, byte(false)), 4);
        assert_eq!(Operator::Add.apply(250, 10, byte(true)), 255);
        assert_eq!(Operator::Subtract.apply(3, 5, byte(false)), 254);
        assert_eq!(Operator::Subtract.apply(3, 5, byte(true)), 0);
        assert_eq!(Operator::ShiftLeft.apply(0b1100_0000, 1, byte(false)), 0b1000_0000);
        assert_eq!(Operator::ShiftRight.apply(0b11, 1, byte(false)), 1);
        assert_eq!(Operator::ShiftLeft.apply(1, 64, Cell::WORD), 0);
        assert_eq!(Operator::Xor.apply(0b1010, 0x1ff, byte(false)), 0b1111_0101);
        assert_eq!(Cell::new(3, false).unwrap().per_word(), 2);
        assert!(Cell::new(0, false).is_err() && Cell::new(9, false).is_err());
    }

    // A home that was shifted left by 2, and banks that were shifted by 3 and by 0.
    #[test]
    fn shifts_add_their_counts() {
        let (left, right) = (Operator::ShiftLeft, Operator::ShiftRight);
        let fold = |home, banks: [u64; 2], operator: Operator| {
            banks.iter().fold(home, |home, bank| operator.combine(home, *bank, Cell::WORD))
        };
        assert_eq!(fold(5 << 2, [1 << 3, 1], left), 5 << 5);
        assert_eq!(fold(5 << 2, [0, 1], left), 0, "a bank that was shifted empty");
        assert_eq!(fold(1 << 60, [1 << 60, 1 << 63], right), 1 << 57);
    }

    fn cell() -> impl Strategy<Value = Cell> {
        (1..=8u8, any::<bool>()).prop_map(|(bytes, saturating)| Cell { bytes, saturating })
    }

    /// Typical operands: mostly small, some as large as the field.
    fn operands() -> impl Strategy<Value = Vec<u64>> {
        prop::collection::vec(prop_oneof![0..4u64, 0..300u64, any::<u64>()], 0..40)
    }

    proptest! {
        #[test]
        fn every_operator_commutes_with_itself(
            which in 0..5usize, cell in cell(), state: u64, a in 0..70u64, b: u64,
        ) {
            let apply = |state, operand| ALL[which].apply(state, operand, cell);
            let state = state & cell.max();
            prop_assert_eq!(apply(apply(state, a), b), apply(apply(state, b), a));
        }

        #[test]
        fn an_identity_changes_nothing(which in 0..5usize, cell in cell(), home: u64) {
            let home = home & cell.max();
            let identity = ALL[which].identity(cell);
            prop_assert_eq!(ALL[which].combine(home, identity, cell), home);
        }

        /// Any stream distributed over any number of banks and folded in any order equals the
        /// stream applied to one state.
        #[test]
        fn folded_parts_equal_the_serial_result(
            which in 0..5usize, cell in cell(), start: u64, stream in operands(),
            deal in prop::collection::vec(0..5usize, 40), reversed: bool,
        ) {
            let (operator, start) = (ALL[which], start & cell.max());
            let serial = stream.iter().fold(start, |state, v| operator.apply(state, *v, cell));
            let mut banks = [operator.identity(cell); 5];
            banks[0] = start;
            for (value, bank) in stream.iter().zip(deal) {
                banks[bank] = operator.apply(banks[bank], *value, cell);
            }
            if reversed {
                banks[1..].reverse();
            }
            let combine = |home, bank: &u64| operator.combine(home, *bank, cell);
            prop_assert_eq!(banks[1..].iter().fold(banks[0], combine), serial);
        }
    }
}
