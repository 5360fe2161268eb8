//! The text form of a rule: one part per line, or parts separated by semicolons; `#` begins a
//! comment.
//!
//! ```text
//! filter all 0x0..0x400000000     # all, read or write; without a range all of the memory
//! key all >> 21                   # mask, shift: the primary region
//! offset 0x1fffff >> 12           # mask, shift: the sub-region
//! update + 1                      # + - << >> ^, by a number, address, write, length, requester
//! notify >= 1000                  # == >= > < <=, or never
//! on-read reset 0                 # keep, reset VALUE, or an operator and a number
//! ```
//!
//! Parts left out have the defaults of [`Rule::build`]. A printed rule parses back to the same
//! rule.

use std::fmt;
use std::str::FromStr;

use super::check::Builder;
use super::{
    Compare, Filter, Key, Operand, Operator, ReadEffect, RequestField, RequestKind, Rule, Trigger,
};
use crate::{Error, ErrorKind, Result, names};

const ON_READ: &str = "on-read";
const OPERATORS: [(&str, Operator); 5] = [
    ("+", Operator::Add),
    ("-", Operator::Subtract),
    ("<<", Operator::ShiftLeft),
    (">>", Operator::ShiftRight),
    ("^", Operator::Xor),
];
const COMPARES: [(&str, Compare); 5] = [
    ("==", Compare::Equal),
    (">=", Compare::AtLeast),
    (">", Compare::Above),
    ("<", Compare::Below),
    ("<=", Compare::AtMost),
];
const KINDS: [(&str, RequestKind); 3] =
    [("all", RequestKind::All), ("read", RequestKind::Read), ("write", RequestKind::Write)];

fn name_of<T: PartialEq>(table: &[(&'static str, T)], value: &T) -> &'static str {
    table.iter().find(|(_, each)| each == value).map_or("?", |(name, _)| name)
}

fn named<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    table.iter().find(|(each, _)| *each == name).map(|(_, value)| *value)
}

macro_rules! shown_by_name {
    ($type:ty, $table:expr) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(name_of(&$table, self))
            }
        }
    };
}
shown_by_name!(Operator, OPERATORS);
shown_by_name!(Compare, COMPARES);
shown_by_name!(RequestKind, KINDS);
shown_by_name!(RequestField, RequestField::NAMES);

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operand::Constant(value) => value.fmt(f),
            Operand::Field(field) => field.fmt(f),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mask {
            Key::ALL_MEMORY => write!(f, "all >> {}", self.shift),
            mask => write!(f, "{mask:#x} >> {}", self.shift),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Filter { kind, start, end } = self.filter;
        match (start, end) {
            (0, u64::MAX) => writeln!(f, "filter {kind}")?,
            _ => writeln!(f, "filter {kind} {start:#x}..{end:#x}")?,
        }
        for (name, key) in [("key", self.key), ("offset", self.offset)] {
            if key != Key::NONE {
                writeln!(f, "{name} {key}")?;
            }
        }
        writeln!(f, "update {} {}", self.update.0, self.update.1)?;
        match self.notify {
            None => writeln!(f, "notify never")?,
            Some(Trigger { compare, value }) => writeln!(f, "notify {compare} {value}")?,
        }
        match self.on_read {
            ReadEffect::Keep => writeln!(f, "on-read keep"),
            ReadEffect::Reset(value) => writeln!(f, "on-read reset {value}"),
            ReadEffect::Apply(operator, value) => writeln!(f, "on-read {operator} {value}"),
        }
    }
}

impl FromStr for Rule {
    type Err = Error;

    /// Parses the text form; [`Rule::check`] then validates the rule for a memory.
    fn from_str(text: &str) -> Result<Rule> {
        let parts = text.lines().enumerate().flat_map(|(line, text)| {
            let text = text.split('#').next().unwrap_or_default();
            text.split(';').map(move |part| (line + 1, part))
        });
        let mut builder = Rule::build();
        for (line, part) in parts {
            let mut words: Vec<&str> = part.split_whitespace().collect();
            if words.first().is_some_and(|word| names::same(word, ON_READ)) {
                words[0] = ON_READ;
            }
            if !words.is_empty() {
                builder = add_part(builder, &words).map_err(|error| error.at(line))?;
            }
        }
        builder.each_given_once().copied()
    }
}

/// An error in a part, before its line number is known.
struct PartError {
    field: String,
    cause: String,
    remedy: String,
}

impl PartError {
    fn new(field: &str, cause: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { field: field.into(), cause: cause.into(), remedy: remedy.into() }
    }

    fn at(self, line: usize) -> Error {
        let what = format!("telemetry rule refused at `{}`, line {line}", self.field);
        Error::new(ErrorKind::Usage, what).cause(self.cause).remedy(self.remedy)
    }
}

fn add_part(builder: Builder, words: &[&str]) -> Result<Builder, PartError> {
    match *words {
        ["filter", kind] => Ok(builder.matching(a_kind(kind)?)),
        ["filter", kind, range] => {
            let (start, end) = a_range(range)?;
            Ok(builder.filter(a_kind(kind)?, start, end))
        }
        ["key", mask, ">>", shift] => {
            Ok(builder.key(a_mask("key.mask", mask)?, a_shift("key.shift", shift)?))
        }
        ["offset", mask, ">>", shift] => {
            Ok(builder.offset(a_mask("offset.mask", mask)?, a_shift("offset.shift", shift)?))
        }
        ["update", operator, operand] => {
            Ok(builder.update(an_operator("update.operator", operator)?, an_operand(operand)?))
        }
        ["notify", "never"] => Ok(builder.never()),
        ["notify", compare, value] => {
            Ok(builder.notify(a_compare(compare)?, a_number("notify.value", value)?))
        }
        [ON_READ, "keep"] => Ok(builder.on_read(ReadEffect::Keep)),
        [ON_READ, "reset", value] => {
            Ok(builder.on_read(ReadEffect::Reset(a_number("on-read.value", value)?)))
        }
        [ON_READ, operator, value] => {
            let operator = an_operator("on-read.operator", operator)?;
            let value = a_number("on-read.operand", value)?;
            Ok(builder.on_read(ReadEffect::Apply(operator, value)))
        }
        [field @ ("filter" | "key" | "offset" | "update" | "notify" | ON_READ), ..] => Err(
            PartError::new(field, format!("`{}` is not its form", words.join(" ")), form(field)),
        ),
        _ => Err(PartError::new(
            words[0],
            "a rule has no such part",
            "its parts are filter, key, offset, update, notify, on-read",
        )),
    }
}

/// The syntax of a part.
fn form(field: &str) -> &'static str {
    match field {
        "filter" => "write `filter all|read|write [START..END]`",
        "key" => "write `key MASK >> SHIFT`",
        "offset" => "write `offset MASK >> SHIFT`",
        "update" => {
            "write `update OPERATOR OPERAND`, one of each: a request changes one state, once"
        }
        "notify" => "write `notify == | >= | > | < | <= VALUE`, or `notify never`",
        _ => "write `on-read keep`, `on-read reset VALUE` or `on-read OPERATOR VALUE`",
    }
}

fn a_number(field: &str, word: &str) -> Result<u64, PartError> {
    let digits = word.replace('_', "");
    let number = match digits.strip_prefix("0x") {
        // `from_str_radix` would accept a sign.
        Some(hex) if hex.starts_with(|c: char| c.is_ascii_hexdigit()) => {
            u64::from_str_radix(hex, 16).ok()
        }
        None if digits.starts_with(|c: char| c.is_ascii_digit()) => digits.parse().ok(),
        _ => None,
    };
    let remedy = "write a number below 2^64, decimal or 0x…";
    number.ok_or_else(|| PartError::new(field, format!("`{word}` is no number"), remedy))
}

fn a_kind(word: &str) -> Result<RequestKind, PartError> {
    let cause = || format!("`{word}` is no kind of request");
    named(&KINDS, word)
        .ok_or_else(|| PartError::new("filter.kind", cause(), "write all, read or write"))
}

fn a_range(word: &str) -> Result<(u64, u64), PartError> {
    let (start, end) = word.split_once("..").ok_or_else(|| {
        PartError::new("filter.range", format!("`{word}` is no range"), "write START..END")
    })?;
    Ok((a_number("filter.start", start)?, a_number("filter.end", end)?))
}

fn a_mask(field: &str, word: &str) -> Result<u64, PartError> {
    if word == "all" { Ok(Key::ALL_MEMORY) } else { a_number(field, word) }
}

fn a_shift(field: &str, word: &str) -> Result<u8, PartError> {
    let shift = a_number(field, word)?;
    let cause = || format!("{word} is beyond the 64 bits of any address");
    let narrow = u8::try_from(shift).ok().filter(|shift| *shift < 64);
    narrow.ok_or_else(|| PartError::new(field, cause(), "write 0 to 63"))
}

fn an_operator(field: &str, word: &str) -> Result<Operator, PartError> {
    let remedy = "use one of + - << >> ^ (NEMO, Table 1)";
    named(&OPERATORS, word).ok_or_else(|| match word {
        "=" | ":=" => PartError::new(
            field,
            "assignments do not commute: the state would depend on the order in which channels \
             are folded",
            remedy,
        ),
        _ => PartError::new(field, format!("there is no operator `{word}`"), remedy),
    })
}

fn an_operand(word: &str) -> Result<Operand, PartError> {
    match named(&RequestField::NAMES, word) {
        Some(field) => Ok(Operand::Field(field)),
        None if word.starts_with(|c: char| c.is_ascii_alphabetic()) => Err(PartError::new(
            "update.operand",
            format!("a request has no field `{word}`"),
            "write a number, or address, write, length, requester",
        )),
        None => a_number("update.operand", word).map(Operand::Constant),
    }
}

fn a_compare(word: &str) -> Result<Compare, PartError> {
    let cause = || format!("there is no predicate `{word}`");
    named(&COMPARES, word)
        .ok_or_else(|| PartError::new("notify.compare", cause(), "use one of == >= > < <="))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RuleLimits;
    use proptest::prelude::*;

    // NEMO, listing 1.
    const LISTING_1: &str = "filter all\nkey all >> 21\noffset 0x1fffff >> 12\nupdate + 1\n\
                             notify never\non-read reset 0\n";

    #[test]
    fn the_first_listing_reads_and_prints() {
        let rule: Rule = LISTING_1.parse().unwrap();
        assert!(rule.check(&RuleLimits::of_memory(16 << 30)).is_ok());
        assert_eq!(rule.states_per_key(), 512);
        assert_eq!(rule.to_string(), LISTING_1);
        let short = "key all>>21".replace(">>", " >> ")
            + "; offset 0x1f_ffff >> 12 # pages\n \
                     on_read reset 0";
        assert_eq!(short.parse(), Ok(rule));
    }

    #[test]
    fn unreadable_fields_are_named() {
        let cases = [
            ("update * 2", "`update.operator`, line 1: there is no operator `*`"),
            ("update = 2", "do not commute"),
            ("update + 1 length", "a request changes one state, once"),
            ("update + 1\nupdate + length", "at `update`: it is given twice"),
            ("\nupdate + colour", "`update.operand`, line 2: a request has no field `colour`"),
            ("key all >> 64", "`key.shift`, line 1: 64 is beyond"),
            ("key all 21", "write `key MASK >> SHIFT`"),
            ("offset 0xg >> 1", "`offset.mask`, line 1: `0xg` is no number"),
            ("filter reads", "`filter.kind`"),
            ("filter all 5-6", "`filter.range`"),
            ("filter all -1..5", "`filter.start`"),
            ("notify != 4", "`notify.compare`"),
            ("on-read reset 0x1_0000_0000_0000_0000", "`on-read.value`"),
            ("colour 5", "a rule has no such part"),
        ];
        for (text, expected) in cases {
            let refusal = text.parse::<Rule>().unwrap_err().to_string();
            assert!(refusal.contains(expected), "{text}: {refusal}");
        }
    }

    fn any_rule() -> impl Strategy<Value = Rule> {
        let key = || (any::<u64>(), 0u8..64).prop_map(|(mask, shift)| Key { mask, shift });
        let operand = prop_oneof![
            any::<u64>().prop_map(Operand::Constant),
            (0..4usize).prop_map(|n| Operand::Field(RequestField::NAMES[n].1))
        ];
        let notify = proptest::option::of((0..5usize, any::<u64>()));
        let on_read = prop_oneof![
            Just(ReadEffect::Keep),
            any::<u64>().prop_map(ReadEffect::Reset),
            (0..5usize, any::<u64>()).prop_map(|(n, v)| ReadEffect::Apply(OPERATORS[n].1, v))
        ];
        let filter = (0..3usize, any::<u64>(), any::<u64>());
        (filter, key(), key(), 0..5usize, operand, notify, on_read).prop_map(
            |((kind, start, end), key, offset, operator, operand, notify, on_read)| Rule {
                filter: Filter { kind: KINDS[kind].1, start, end },
                key,
                offset,
                update: (OPERATORS[operator].1, operand),
                notify: notify.map(|(n, value)| Trigger { compare: COMPARES[n].1, value }),
                on_read,
            },
        )
    }

    #[test]
    fn the_old_spelling_of_on_read_is_still_read() {
        let rule = |word: &str| format!("{word} reset 0").parse::<Rule>().unwrap();
        assert_eq!(rule("on_read"), rule("on-read"));
    }

    proptest! {
        #[test]
        fn a_printed_rule_is_read_back(rule in any_rule()) {
            prop_assert_eq!(rule.to_string().parse(), Ok(rule));
            prop_assert_eq!(rule.to_string().replace('\n', ";").parse(), Ok(rule));
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in "(filter|key|update|on[-_]read|[a-z#;>+ \n0-9x.]){0,12}") {
            if let Ok(rule) = text.parse::<Rule>() {
                let _ = rule.check(&RuleLimits::of_memory(1 << 40));
            }
        }
    }
}
