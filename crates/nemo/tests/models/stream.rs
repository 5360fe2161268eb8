//! Random programs, and requests that often hit the same states.

use tierscope_core::{
    BusRecord, Cell, Compare, Filter, Key, Operand, Operator, ReadEffect, RequestField,
    RequestKind, Rng, Time, Trigger,
};
use tierscope_nemo::Program;
use tierscope_nemo::program::{Chain, Select, Side};

/// Number of distinct keys: few, so that accesses to one key follow each other closely.
pub(crate) const KEYS: u64 = 12;

fn pick<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.below(of.len() as u64) as usize]
}

fn operator(rng: &mut Rng) -> Operator {
    use Operator::{Add, ShiftLeft, ShiftRight, Subtract, Xor};
    pick(rng, &[Add, Add, Subtract, ShiftLeft, ShiftRight, Xor])
}

fn operand(rng: &mut Rng) -> Operand {
    use RequestField::{Address, IsWrite, Length, Requester};
    match rng.below(3) {
        0 => Operand::Field(pick(rng, &[Address, IsWrite, Length, Requester])),
        _ => Operand::Constant(1 + rng.below(4)),
    }
}

fn side(rng: &mut Rng, cell: Cell) -> Side {
    let effect = match rng.below(4) {
        0 => ReadEffect::Keep,
        1 => ReadEffect::Apply(operator(rng), 1 + rng.below(3)),
        _ => ReadEffect::Reset(rng.below(3)),
    };
    let compares =
        [Compare::Equal, Compare::AtLeast, Compare::Above, Compare::Below, Compare::AtMost];
    let trigger = (rng.below(2) == 0)
        .then(|| Trigger { compare: pick(rng, &compares), value: rng.below(20) & cell.max() });
    Side { start: rng.next_u64() & cell.max(), effect, trigger }
}

/// A random program: any operator, operand, effect, trigger, width, with a table or a hash.
pub(crate) fn program(rng: &mut Rng) -> Program {
    let saturating = rng.below(3) == 0;
    let cell = Cell::new(1 + rng.below(8) as u8, saturating).expect("a width");
    let kind =
        pick(rng, &[RequestKind::All, RequestKind::All, RequestKind::Read, RequestKind::Write]);
    let offset =
        pick(rng, &[Key::NONE, Key { mask: 0xfff, shift: 9 }, Key { mask: 0xc0, shift: 6 }]);
    let hash = Select::Hash { multiplier: rng.next_u64() | 1, bits: 1 + rng.below(5) as u32 };
    let banks = pick(rng, &[1, 2, 8]);
    let states = (u32::from(banks) * 1024 * cell.per_word()).min(65_535);
    Program {
        filter: Filter { kind, start: rng.below(2) << 12, end: (KEYS - rng.below(2)) << 12 },
        key: Key { mask: u64::MAX, shift: 12 },
        first_key: rng.below(3),
        offset,
        select: if rng.below(4) == 0 { hash } else { Select::Table },
        operator: operator(rng),
        operand: operand(rng),
        chain: Chain::None,
        cell,
        states: 1 + rng.below(u64::from(states)) as u32,
        first_bank: 0,
        banks,
        home: side(rng, cell),
        away: side(rng, cell),
    }
}

/// A request to one of the keys, or to the next one beyond.
pub(crate) fn request(rng: &mut Rng, time: u64) -> BusRecord {
    let address = rng.below((KEYS + 1) << 12) & !63;
    BusRecord::new(Time(time), address, rng.below(3) == 0).via(0, rng.below(4096) as u16)
}

/// A base index, mostly small, so that keys share states.
pub(crate) fn base(rng: &mut Rng) -> Option<u32> {
    match rng.below(8) {
        0 => None,
        1 => Some(rng.below(65_536) as u32),
        _ => Some(rng.below(6) as u32),
    }
}
