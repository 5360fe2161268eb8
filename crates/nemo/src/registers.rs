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

use tierscope_core::{Cell, Rule, Time};
use tierscope_wire::device::{RULE_WORDS, decode as decode_rule, encode as encode_rule};

use crate::engine::{Control, Status};
use crate::geometry::{Geometry, KEYS, MAX_BANKS, PAGE_WORDS, states_per_pipeline};
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

/// Whether a controller of that geometry has the resources that a control operation names. The
/// driver never exceeds them; a guest might.
#[must_use]
pub fn is_possible(control: &Control, geometry: &Geometry) -> bool {
    match control {
        Control::Program(None) | Control::Acknowledge => true,
        Control::Program(Some(program)) => {
            let banks = usize::from(program.banks);
            let room = (banks * crate::geometry::BANK_WORDS) as u64;
            (1..=MAX_BANKS).contains(&banks)
                && usize::from(program.first_bank) + banks <= geometry.banks
                && u64::from(program.states) <= room * u64::from(program.cell.per_word())
                && u64::from(program.states) <= states_per_pipeline(program.cell)
        }
        Control::Translate(key, _) => usize::from(*key) < KEYS,
        Control::Capture { count, .. } => *count as usize <= 8 * PAGE_WORDS,
    }
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
            let _ = decode(&all).map(|control| is_possible(&control, &Geometry::PROTOTYPE));
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
    fn absent_resources_are_refused() {
        let geometry = Geometry { pipelines: 1, channels: 2, banks: 8 };
        let program = |program| is_possible(&Control::Program(Some(program)), &geometry);
        assert!(program(counting()));
        assert!(!program(Program { first_bank: 1, ..counting() }), "beyond the last bank");
        assert!(!program(Program { states: 8193, ..counting() }), "more than its words");
        assert!(!program(Program { banks: 0, ..counting() }));
        assert!(!is_possible(&Control::Translate(8192, None), &geometry));
    }
}
