//! Encoding of control register writes, geometry and status as words of the telemetry device
//! ([`tierscope_wire::device`]), for the driver in a guest and for the device itself.
//!
//! A control operation is a code and its operands:
//!
//! ```text
//! 0 idle      1 program     2 translate: key, whether there is an entry, its base
//! 3 capture: first, count   4 acknowledge
//! ```
//!
//! A program is its rule twice, as [`encode_rule`](tierscope_wire::device::encode) encodes it, once
//! with the trigger and effect of the home bank and once with those of all others; then first key;
//! selection (0 table, 1 hash), multiplier, bits; chain (0 none, 1 value, 2 square step); bytes of
//! a counter, whether it saturates; states; first bank, banks; initial value at home, and
//! elsewhere.

use tierscope_core::{BusRecord, Cell, Error, ErrorKind, Result, Rule, Time};
use tierscope_wire::device::{RULE_WORDS, decode as decode_rule, encode as encode_rule};

use crate::engine::{Control, Status};
use crate::geometry::{
    BANK_WORDS, ENTRY_BITS, Geometry, KEYS, MAX_BANKS, PAGE_WORDS, states_per_pipeline,
};
use crate::memory::{Memory, Zone};
use crate::program::{Chain, Hint, Program, Select, Side};

/// Words of a control operation.
pub const CONTROL_WORDS: usize = 1 + 2 * RULE_WORDS + MORE;
/// Words of a program besides its rule.
const MORE: usize = 12;
/// Words of a status.
pub const STATUS_WORDS: usize = 7;
/// Words before the zones, and words of each zone.
const GEOMETRY_WORDS: usize = 4;
const ZONE_WORDS: usize = 5;

/// Encodes a control operation.
#[must_use]
pub fn encode(control: &Control) -> [u64; CONTROL_WORDS] {
    let mut words = [0; CONTROL_WORDS];
    let mut put = |values: &[u64]| words[..values.len()].copy_from_slice(values);
    match control {
        Control::Program(None) => put(&[0]),
        Control::Program(Some(program)) => {
            put(&[1]);
            write_program(program, &mut words[1..]);
        }
        Control::Translate(key, entry) => {
            put(&[2, (*key).into(), entry.is_some().into(), entry.unwrap_or(0).into()]);
        }
        Control::Capture { first, count } => put(&[3, (*first).into(), (*count).into()]),
        Control::Acknowledge => put(&[4]),
    }
    words
}

/// Decodes a control operation; `None` for invalid words.
#[must_use]
pub fn decode(words: &[u64; CONTROL_WORDS]) -> Option<Control> {
    let narrow = |word: u64| u32::try_from(word).ok();
    let control = match words[0] {
        0 => Control::Program(None),
        1 => Control::Program(Some(read_program(&words[1..])?)),
        2 => {
            let entry = if words[2] == 0 { None } else { Some(narrow(words[3])?) };
            Control::Translate(u16::try_from(words[1]).ok()?, entry)
        }
        3 => Control::Capture { first: narrow(words[1])?, count: narrow(words[2])? },
        4 => Control::Acknowledge,
        _ => return None,
    };
    Some(control)
}

fn rule_of(program: &Program, side: &Side) -> Rule {
    Rule {
        filter: program.filter,
        key: program.key,
        offset: program.offset,
        update: (program.operator, program.operand),
        notify: side.trigger,
        on_read: side.effect,
    }
}

fn write_program(program: &Program, words: &mut [u64]) {
    let (home, rest) = words.split_at_mut(RULE_WORDS);
    let (away, more) = rest.split_at_mut(RULE_WORDS);
    home.copy_from_slice(&encode_rule(&rule_of(program, &program.home)));
    away.copy_from_slice(&encode_rule(&rule_of(program, &program.away)));
    let (select, multiplier, bits) = match program.select {
        Select::Table => (0, 0, 0),
        Select::Hash { multiplier, bits } => (1, multiplier, bits.into()),
    };
    let chain = match program.chain {
        Chain::None => 0,
        Chain::Value => 1,
        Chain::SquareStep => 2,
    };
    more.copy_from_slice(&[
        program.first_key,
        select,
        multiplier,
        bits,
        chain,
        program.cell.bytes().into(),
        program.cell.saturates().into(),
        program.states.into(),
        program.first_bank.into(),
        program.banks.into(),
        program.home.start,
        program.away.start,
    ]);
}

fn read_program(words: &[u64]) -> Option<Program> {
    let (home, rest) = words.split_first_chunk::<RULE_WORDS>()?;
    let (away, more) = rest.split_first_chunk::<RULE_WORDS>()?;
    let more: &[u64; MORE] = more.try_into().ok()?;
    let [
        first_key,
        select,
        multiplier,
        bits,
        chain,
        bytes,
        saturates,
        states,
        first_bank,
        banks,
        start,
        start_away,
    ] = *more;
    let (home, away) = (decode_rule(home)?, decode_rule(away)?);
    let side = |rule: &Rule, start| Side { start, effect: rule.on_read, trigger: rule.notify };
    let select = match select {
        0 => Select::Table,
        1 if bits <= 64 => Select::Hash { multiplier, bits: bits as u32 },
        _ => return None,
    };
    let chain = match chain {
        0 => Chain::None,
        1 => Chain::Value,
        2 => Chain::SquareStep,
        _ => return None,
    };
    Some(Program {
        filter: home.filter,
        key: home.key,
        first_key,
        offset: home.offset,
        select,
        operator: home.update.0,
        operand: home.update.1,
        chain,
        cell: Cell::new(u8::try_from(bytes).ok()?, saturates != 0).ok()?,
        states: u32::try_from(states).ok()?,
        first_bank: u16::try_from(first_bank).ok()?,
        banks: u16::try_from(banks).ok()?,
        home: side(&home, start),
        away: side(&away, start_away),
    })
}

/// Largest values of the registers that may be narrower than [`Program`] can express.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// The largest base index of a table entry.
    pub base: u32,
    /// The largest log2 of states that a hash selects; 0 without hashing.
    pub hash_bits: u32,
    /// Whether pipelines can be chained.
    pub chains: bool,
}

impl Limits {
    /// The registers of the models: bases for as many states as a pipeline of byte counters has,
    /// and the extensions (NEMO, sections 6.1 and 6.3).
    pub const EXTENDED: Limits = Limits { base: 65_535, hash_bits: 16, chains: true };
    /// The prototype's registers (NEMO, section 4: entries of 14 bits).
    pub const PROTOTYPE: Limits =
        Limits { base: (1 << (ENTRY_BITS - 1)) - 1, hash_bits: 0, chains: false };
}

/// Checks that the registers of a controller hold a control operation, and that it has the
/// resources that the operation names.
///
/// # Errors
/// The name of the first register that does not hold its value, and its limit.
pub fn check(control: &Control, geometry: &Geometry, limits: &Limits) -> Result<()> {
    match control {
        Control::Program(None) | Control::Acknowledge => Ok(()),
        Control::Program(Some(program)) => check_program(program, geometry, limits),
        Control::Translate(key, base) => {
            at_most("key", (*key).into(), KEYS as u64 - 1)?;
            at_most("base", base.unwrap_or(0).into(), limits.base.into())
        }
        Control::Capture { count, .. } => {
            at_most("capture.count", (*count).into(), 8 * PAGE_WORDS as u64)
        }
    }
}

fn check_program(program: &Program, geometry: &Geometry, limits: &Limits) -> Result<()> {
    let Program { cell, banks, .. } = *program;
    at_most("filter.start", program.filter.start, BusRecord::LAST_ADDRESS)?;
    at_most("first_key", program.first_key, BusRecord::LAST_ADDRESS)?;
    if let Select::Hash { bits, .. } = program.select {
        // Without hashing no number of states can be selected.
        let most = if limits.hash_bits == 0 { None } else { Some(limits.hash_bits.into()) };
        most.map_or_else(
            || Err(refused("select", "1 is no way to find a state: these pipelines have a table")),
            |most| at_most("bits", bits.into(), most),
        )?;
    }
    if program.chain != Chain::None && !limits.chains {
        return Err(refused("chain", "these pipelines cannot be chained"));
    }
    if banks == 0 {
        return Err(refused("banks", "0 banks hold no state: 1 to 8 do"));
    }
    at_most("banks", banks.into(), MAX_BANKS as u64)?;
    let last = (geometry.banks as u64).saturating_sub(banks.into());
    at_most("first_bank", program.first_bank.into(), last)?;
    let room = u64::from(banks) * BANK_WORDS as u64 * u64::from(cell.per_word());
    at_most("states", program.states.into(), room.min(states_per_pipeline(cell)))?;
    at_most("home.start", program.home.start, cell.max())?;
    at_most("away.start", program.away.start, cell.max())
}

fn at_most(register: &str, value: u64, most: u64) -> Result<()> {
    if value <= most {
        return Ok(());
    }
    Err(refused(register, format!("{value} does not fit: the register holds at most {most}")))
}

fn refused(register: &str, cause: impl Into<String>) -> Error {
    Error::new(ErrorKind::Usage, format!("telemetry refused at `{register}`")).cause(cause.into())
}

/// Encodes a status.
#[must_use]
pub fn encode_status(status: &Status) -> [u64; STATUS_WORDS] {
    let hint = status.hint.map(|hint| [hint.state.into(), hint.value, hint.time.0, hint.more]);
    let [state, value, nanos, more] = hint.unwrap_or_default();
    [status.dropped, status.wrapped.into(), hint.is_some().into(), state, value, nanos, more]
}

/// Decodes a status.
#[must_use]
pub fn decode_status(words: &[u64; STATUS_WORDS]) -> Status {
    let [dropped, wrapped, there, state, value, nanos, more] = *words;
    let hint = Hint { state: state as u32, value, time: Time(nanos), more };
    Status { dropped, wrapped: wrapped != 0, hint: (there != 0).then_some(hint) }
}

/// Encodes geometry and zones.
#[must_use]
pub fn encode_geometry(geometry: &Geometry, memory: &Memory) -> Vec<u64> {
    let zones = memory.zones();
    let mut words = vec![
        geometry.pipelines as u64,
        geometry.channels as u64,
        geometry.banks as u64,
        zones.len() as u64,
    ];
    words.extend(zones.iter().flat_map(|zone| {
        [zone.start, zone.end, zone.first as u64, zone.controllers as u64, zone.granule]
    }));
    words
}

/// Decodes geometry and zones; `None` for an impossible controller.
#[must_use]
pub fn decode_geometry(word: impl Fn(usize) -> u64) -> Option<(Geometry, Memory)> {
    let size = |at: usize| usize::try_from(word(at)).ok();
    let geometry = Geometry { pipelines: size(0)?, channels: size(1)?, banks: size(2)? };
    geometry.check().ok()?;
    let zone = |number: usize| {
        let at = GEOMETRY_WORDS + number * ZONE_WORDS;
        Some(Zone {
            start: word(at),
            end: word(at + 1),
            first: size(at + 2)?,
            controllers: size(at + 3)?,
            granule: word(at + 4),
        })
    };
    let zones: Option<Vec<Zone>> = (0..size(3).filter(|zones| *zones <= 64)?).map(zone).collect();
    Some((geometry, Memory::new(zones?, geometry.channels).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::tests::counting;
    use proptest::prelude::*;
    use tierscope_core::{Compare, Operator, ReadEffect, Trigger};

    fn any_program() -> impl Strategy<Value = Program> {
        let select = prop_oneof![
            Just(Select::Table),
            (any::<u64>(), 0u32..=64)
                .prop_map(|(multiplier, bits)| Select::Hash { multiplier, bits }),
        ];
        let chain = prop_oneof![Just(Chain::None), Just(Chain::Value), Just(Chain::SquareStep)];
        let cell = (1u8..=8, any::<bool>()).prop_map(|(bytes, s)| Cell::new(bytes, s).unwrap());
        let sides = (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>());
        let numbers = (any::<u64>(), any::<u32>(), any::<u16>(), any::<u16>());
        (select, chain, cell, sides, numbers).prop_map(|(select, chain, cell, sides, numbers)| {
            let (home, away, value, by) = sides;
            let (first_key, states, first_bank, banks) = numbers;
            let trigger = Some(Trigger { compare: Compare::AtLeast, value });
            let home = Side { start: home, effect: ReadEffect::Reset(value), trigger };
            let effect = ReadEffect::Apply(Operator::Subtract, by);
            let away = Side { start: away, effect, trigger: None };
            let more = Program { first_key, select, chain, cell, states, ..counting() };
            Program { first_bank, banks, home, away, ..more }
        })
    }

    fn any_control() -> impl Strategy<Value = Control> {
        prop_oneof![
            Just(Control::Program(None)),
            any_program().prop_map(|program| Control::Program(Some(program))),
            (any::<u16>(), any::<Option<u32>>()).prop_map(|(k, e)| Control::Translate(k, e)),
            (any::<u32>(), any::<u32>())
                .prop_map(|(first, count)| Control::Capture { first, count }),
            Just(Control::Acknowledge),
        ]
    }

    proptest! {
        #[test]
        fn controls_are_decoded(control in any_control()) {
            prop_assert_eq!(decode(&encode(&control)), Some(control));
        }

        #[test]
        fn any_words_are_decoded_or_refused(words in any::<[u64; 32]>(), kind in 0u64..6) {
            let mut all = [0; CONTROL_WORDS];
            all[1..=32].copy_from_slice(&words);
            all[0] = kind;
            let _ = decode(&all)
                .map(|control| check(&control, &Geometry::PROTOTYPE, &Limits::EXTENDED));
        }

        #[test]
        fn a_status_is_decoded(dropped: u64, wrapped: bool, hint: Option<(u32, u64, u64, u64)>) {
            let hint = hint.map(|(state, value, nanos, more)| Hint { state, value, time: Time(nanos), more });
            let status = Status { dropped, wrapped, hint };
            prop_assert_eq!(decode_status(&encode_status(&status)), status);
        }
    }

    #[test]
    fn a_geometry_is_decoded() {
        let zone = |start: u64, first| Zone {
            start,
            end: start + (1 << 30),
            first,
            controllers: 1,
            granule: 4096,
        };
        let memory = Memory::new(vec![zone(0, 0), zone(1 << 32, 1)], 2).unwrap();
        let words = encode_geometry(&Geometry::PROTOTYPE, &memory);
        let again = decode_geometry(|at| words.get(at).copied().unwrap_or(0)).unwrap();
        assert_eq!(again, (Geometry::PROTOTYPE, memory));
        assert!(decode_geometry(|_| 0).is_none());
    }

    #[test]
    fn what_registers_cannot_hold_is_refused_by_name_and_limit() {
        let geometry = Geometry { pipelines: 1, channels: 2, banks: 8 };
        let why = |control: Control, limits: &Limits| {
            check(&control, &geometry, limits).map_err(|error| error.to_string())
        };
        let program = |program| why(Control::Program(Some(program)), &Limits::EXTENDED);
        assert_eq!(program(counting()), Ok(()));
        let refused = |result: std::result::Result<(), String>, register: &str, limit: &str| {
            let said = result.unwrap_err();
            let both = said.contains(&format!("`{register}`")) && said.contains(limit);
            assert!(both, "{said}");
        };
        refused(program(Program { first_bank: 1, ..counting() }), "first_bank", "at most 0");
        refused(program(Program { states: 8193, ..counting() }), "states", "at most 8192");
        refused(program(Program { banks: 0, ..counting() }), "banks", "1 to 8");
        refused(program(Program { banks: 9, ..counting() }), "banks", "at most 8");
        refused(program(Program { first_key: 1 << 48, ..counting() }), "first_key", "at most 2814");
        let byte = Cell::new(1, false).unwrap();
        let away = Side { start: 256, ..counting().away };
        refused(program(Program { cell: byte, away, ..counting() }), "away.start", "at most 255");
        let hash = |bits| Select::Hash { multiplier: 3, bits };
        refused(program(Program { select: hash(17), ..counting() }), "bits", "at most 16");
        let prototype = |program| why(Control::Program(Some(program)), &Limits::PROTOTYPE);
        refused(prototype(Program { select: hash(4), ..counting() }), "select", "a table");
        refused(prototype(Program { chain: Chain::Value, ..counting() }), "chain", "chained");
        let entry = |base| why(Control::Translate(8191, Some(base)), &Limits::PROTOTYPE);
        assert_eq!(entry(8191), Ok(()));
        refused(entry(8192), "base", "at most 8191");
        refused(why(Control::Translate(8192, None), &Limits::EXTENDED), "key", "at most 8191");
    }
}
