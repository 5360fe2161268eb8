//! Random programs over every option of table 1 (NEMO), and requests and control operations that
//! often meet in the same states.

use tierscope_core::{
    BusRecord, Cell, Compare, Filter, Key, Operand, Operator, ReadEffect, RequestField,
    RequestKind, Rng, Time, Trigger,
};
use tierscope_nemo::cycle::ports::Request;
use tierscope_nemo::program::{Chain, Program, Select, Side, Slot};

/// Primary regions that most requests go to: few, so that they follow each other closely.
const REGIONS: u64 = 12;

const OPERATORS: [Operator; 5] =
    [Operator::Add, Operator::Subtract, Operator::ShiftLeft, Operator::ShiftRight, Operator::Xor];
const COMPARES: [Compare; 5] =
    [Compare::Equal, Compare::AtLeast, Compare::Above, Compare::Below, Compare::AtMost];
const FIELDS: [RequestField; 4] =
    [RequestField::Address, RequestField::IsWrite, RequestField::Length, RequestField::Requester];

/// A program, and where its requests go.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    /// The program.
    pub program: Program,
    /// First byte of the primary regions that most requests go to.
    origin: u64,
}

fn pick<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.below(of.len() as u64) as usize]
}

/// A number of any size: small ones as often as large ones.
fn number(rng: &mut Rng) -> u64 {
    rng.next_u64() >> rng.below(64)
}

fn side(rng: &mut Rng, cell: Cell) -> Side {
    let effect = match rng.below(4) {
        0 => ReadEffect::Keep,
        1 => ReadEffect::Reset(number(rng)),
        _ => ReadEffect::Apply(pick(rng, &OPERATORS), number(rng)),
    };
    let trigger = (rng.below(2) == 0)
        .then(|| Trigger { compare: pick(rng, &COMPARES), value: number(rng) & cell.max() });
    Side { start: number(rng) & cell.max(), effect, trigger }
}

fn operand(rng: &mut Rng) -> Operand {
    match rng.below(4) {
        0 => Operand::Field(pick(rng, &FIELDS)),
        1 => Operand::Constant(number(rng)),
        _ => Operand::Constant(1 + rng.below(4)),
    }
}

/// A mask of address bits: all, or all but a few from `low` on.
fn mask(rng: &mut Rng, low: u8) -> u64 {
    match rng.below(2) {
        0 => u64::MAX,
        _ => !(1 << rng.below(48).max(low.into()) | 1 << low),
    }
}

/// A sub-region of a primary region: none, its lines or larger parts of it, or a few bits.
fn offset(rng: &mut Rng, shift: u8) -> Key {
    match rng.below(3) {
        0 => Key::NONE,
        1 => {
            Key { mask: (1 << shift) - 1, shift: shift.saturating_sub(rng.below(10) as u8).max(6) }
        }
        _ => Key { mask: number(rng), shift: rng.below(48) as u8 },
    }
}

impl Scene {
    /// The random program number `turn`: 80 in a row have every operator with every width of the
    /// counters, which wrap around or saturate.
    pub fn new(rng: &mut Rng, turn: u64) -> Self {
        let operator = OPERATORS[(turn % 5) as usize];
        let cell = Cell::new(1 + (turn / 5 % 8) as u8, turn / 40 % 2 == 1).expect("a width");
        let shift = 6 + rng.below(31) as u8;
        let last = (1u64 << (48 - shift)) - REGIONS - 2;
        let origin = rng.below(last + 1).min(number(rng)) << shift;
        let key = Key { mask: mask(rng, shift), shift };
        let region = |number: u64| origin + (number << shift);
        let kind = pick(rng, &[RequestKind::All, RequestKind::Read, RequestKind::Write]);
        let filter = match rng.below(2) {
            0 => Filter { kind, start: 0, end: u64::MAX },
            _ => {
                let (start, end) = (rng.below(2), REGIONS - rng.below(2));
                Filter { kind, start: region(start), end: region(end) + 64 * rng.below(2) }
            }
        };
        let hash = Select::Hash { multiplier: number(rng) | 1, bits: rng.below(17) as u32 };
        let banks = 1 + rng.below(8) as u16;
        let most = (u32::from(banks) * 1024 * cell.per_word()).min(65_535);
        let states = if rng.below(2) == 0 { most } else { 1 + rng.below(most.into()) as u32 };
        let chain = match rng.below(8) {
            0 => Chain::Value,
            1 => Chain::SquareStep,
            _ => Chain::None,
        };
        let program = Program {
            filter,
            key,
            first_key: key.of(origin).saturating_sub(rng.below(3)),
            offset: offset(rng, shift),
            select: if rng.below(5) == 0 { hash } else { Select::Table },
            operator,
            operand: operand(rng),
            chain,
            cell,
            states,
            first_bank: 0,
            banks,
            home: side(rng, cell),
            away: side(rng, cell),
        };
        Self { program, origin }
    }

    /// A request, mostly to one of the regions or the next one beyond.
    pub fn request(&self, rng: &mut Rng, time: u64) -> Request {
        let shift = self.program.key.shift;
        let within = rng.below(1 << shift) >> rng.below(u64::from(shift) + 1);
        let near = self.origin + (rng.below(REGIONS + 1) << shift) + within;
        let address = if rng.below(32) == 0 { rng.next_u64() >> 16 } else { near };
        let requester = (number(rng) & 0xfff) as u16;
        let record = BusRecord::new(Time(time), address & !63, rng.below(3) == 0).via(0, requester);
        let chained = (self.program.chain != Chain::None).then(|| number(rng));
        Request { record, chained }
    }
}

/// A table entry: mostly a small base, so that keys share states.
pub fn translation(rng: &mut Rng) -> Slot {
    let base = match rng.below(8) {
        0 => None,
        1 => Some(rng.below(65_536) as u32),
        _ => Some(rng.below(6) as u32),
    };
    let key = if rng.below(16) == 0 { rng.below(8192) } else { rng.below(REGIONS + 3) };
    Slot::Translate(key as u16, base)
}

/// A control operation other than a program.
pub fn slot(rng: &mut Rng) -> Slot {
    let near =
        |rng: &mut Rng| (if rng.below(8) == 0 { rng.below(65_536) } else { rng.below(6) }) as u16;
    match rng.below(8) {
        0 => Slot::Acknowledge,
        1 | 2 => translation(rng),
        3 | 4 => Slot::Load { line: near(rng) },
        5 => Slot::Take { word: near(rng), lanes: 0 },
        _ => Slot::Take { word: near(rng), lanes: rng.next_u64() as u8 },
    }
}

/// A program that counts all requests by 4 KiB page in 64-bit counters.
#[must_use]
pub fn counting() -> Program {
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
