//! Rules are checked when they are built: an error names the offending field.

use std::fmt::Display;

use super::{
    Cell, Compare, Filter, Key, Operand, Operator, ReadEffect, RequestField, RequestKind, Rule,
    Trigger,
};
use crate::{Error, ErrorKind, Result};

/// Limits of a memory that rules are checked against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// One past the last byte of the memory.
    pub end: u64,
    /// The type of the counters that hold the states.
    pub cell: Cell,
}

impl Limits {
    /// Limits of memory up to `end`, with 64-bit counters.
    #[must_use]
    pub fn of_memory(end: u64) -> Self {
        Self { end, cell: Cell::WORD }
    }

    /// Width of an address of the memory, in bits.
    #[must_use]
    pub fn address_bits(&self) -> u32 {
        64 - self.end.saturating_sub(1).leading_zeros()
    }
}

fn refused(field: &str, cause: impl Display) -> Error {
    Error::new(ErrorKind::Usage, format!("telemetry rule refused at `{field}`")).cause(cause)
}

/// Makes a rule, field by field. Defaults: all requests, one state, incremented by 1, no
/// notification, reads without effect.
#[derive(Clone, Debug)]
pub struct Builder {
    rule: Rule,
    /// Fields set so far, to find fields that are set twice.
    given: Vec<&'static str>,
    given_twice: Option<&'static str>,
}

impl Rule {
    /// Begins a rule with default fields.
    #[must_use]
    pub fn build() -> Builder {
        let rule = Rule {
            filter: Filter { kind: RequestKind::All, start: 0, end: u64::MAX },
            key: Key::NONE,
            offset: Key::NONE,
            update: (Operator::Add, Operand::Constant(1)),
            notify: None,
            on_read: ReadEffect::Keep,
        };
        Builder { rule, given: Vec::new(), given_twice: None }
    }

    /// Checks a rule, however it was made.
    ///
    /// # Errors
    /// An invalid field, by name.
    pub fn check(&self, limits: &Limits) -> Result<()> {
        check_filter(&self.filter, limits)?;
        check_key("key", self.key, limits)?;
        check_key("offset", self.offset, limits)?;
        self.check_sub_region()?;
        check_update(self.update, limits.cell)?;
        check_trigger(self.notify, limits.cell)?;
        self.check_effect(limits.cell)
    }

    /// States of a primary region: one more than the largest offset.
    #[must_use]
    pub fn states_per_key(&self) -> u64 {
        self.offset.span()
    }

    fn check_sub_region(&self) -> Result<()> {
        let region = 1u64.checked_shl(self.key.shift.into()).map_or(u64::MAX, |bytes| bytes - 1);
        if self.key.mask == 0 || self.offset.mask & !region == 0 {
            return Ok(());
        }
        let beyond = self.offset.mask & !region;
        Err(refused("offset.mask", format_args!("bits {beyond:#x} lie outside the primary region"))
            .remedy(format!("use bits below 2^{} (`key.shift`)", self.key.shift)))
    }

    fn check_effect(&self, cell: Cell) -> Result<()> {
        use Operator::{ShiftLeft, ShiftRight};
        match self.on_read {
            ReadEffect::Keep => Ok(()),
            ReadEffect::Reset(value) => {
                fits("on-read.value", value, cell)?;
                if value == 0 && matches!(self.update.0, ShiftLeft | ShiftRight) {
                    return Err(refused("on-read.value", "0 stays 0 however often it is shifted")
                        .remedy("reset to a value with a bit set, 1 for `<<`"));
                }
                Ok(())
            }
            ReadEffect::Apply(operator, value) => check_operand("on-read", operator, value, cell),
        }
    }
}

fn check_filter(filter: &Filter, limits: &Limits) -> Result<()> {
    let Filter { start, end, .. } = *filter;
    if start >= end {
        return Err(refused("filter.end", format_args!("{start:#x}..{end:#x} holds no byte")));
    }
    if start >= limits.end {
        return Err(refused("filter.start", format_args!("{start:#x} lies beyond the memory"))
            .remedy(format!("the memory ends at {:#x}", limits.end)));
    }
    if end > limits.end && end != u64::MAX {
        return Err(refused("filter.end", format_args!("{end:#x} lies beyond the memory"))
            .remedy(format!("the memory ends at {:#x}", limits.end)));
    }
    Ok(())
}

fn check_key(name: &str, key: Key, limits: &Limits) -> Result<()> {
    let bits = limits.address_bits();
    if key.mask == 0 {
        return Ok(());
    }
    if u32::from(key.shift) >= bits {
        return Err(refused(
            &format!("{name}.shift"),
            format_args!("{} takes all of an address of {bits} bits away", key.shift),
        ));
    }
    let wide = key.mask >> (bits - 1) >> 1;
    if wide != 0 && key.mask != Key::ALL_MEMORY {
        return Err(refused(
            &format!("{name}.mask"),
            format_args!("{:#x} is wider than the memory's addresses of {bits} bits", key.mask),
        )
        .remedy("write `all` for every bit that there is"));
    }
    if key.mask >> key.shift == 0 {
        return Err(refused(
            &format!("{name}.mask"),
            format_args!("the shift by {} leaves nothing of {:#x}", key.shift, key.mask),
        ));
    }
    Ok(())
}

fn check_update((operator, operand): (Operator, Operand), cell: Cell) -> Result<()> {
    match operand {
        Operand::Constant(value) => check_operand("update", operator, value, cell),
        Operand::Field(_) => check_ends("update", operator, cell),
    }
}

fn check_operand(field: &str, operator: Operator, value: u64, cell: Cell) -> Result<()> {
    check_ends(field, operator, cell)?;
    let operand = format!("{field}.operand");
    if value == 0 {
        return Err(refused(&operand, format_args!("`{operator}` by 0 changes nothing")));
    }
    if matches!(operator, Operator::ShiftLeft | Operator::ShiftRight) {
        if value >= cell.bits().into() {
            return Err(refused(
                &operand,
                format_args!("a shift by {value} empties a state of {} bits", cell.bits()),
            ));
        }
        return Ok(());
    }
    fits(&operand, value, cell)
}

fn check_ends(field: &str, operator: Operator, cell: Cell) -> Result<()> {
    if !cell.saturates() || matches!(operator, Operator::Add | Operator::Subtract) {
        return Ok(());
    }
    Err(refused(
        &format!("{field}.operator"),
        format_args!("`{operator}` has no maximum at which to saturate"),
    )
    .remedy("use counters that do not saturate"))
}

fn fits(field: &str, value: u64, cell: Cell) -> Result<()> {
    if value <= cell.max() {
        return Ok(());
    }
    Err(refused(field, format_args!("{value} does not fit counters of {} bytes", cell.bytes())))
}

fn check_trigger(trigger: Option<Trigger>, cell: Cell) -> Result<()> {
    let Some(trigger) = trigger else { return Ok(()) };
    fits("notify.value", trigger.value, cell)?;
    let always = match trigger.compare {
        Compare::AtLeast => trigger.value == 0,
        Compare::AtMost => trigger.value == cell.max(),
        _ => false,
    };
    let never = match trigger.compare {
        Compare::Below => trigger.value == 0,
        Compare::Above => trigger.value == cell.max(),
        _ => false,
    };
    match (always, never) {
        (true, _) => Err(refused("notify.value", "the predicate holds for every state")),
        (_, true) => Err(refused("notify.value", "the predicate holds for no state")),
        _ => Ok(()),
    }
}

impl Builder {
    fn set(&mut self, field: &'static str) -> &mut Rule {
        if self.given.contains(&field) {
            self.given_twice = self.given_twice.or(Some(field));
        }
        self.given.push(field);
        &mut self.rule
    }

    /// Sets the request filter.
    #[must_use]
    pub fn filter(mut self, kind: RequestKind, start: u64, end: u64) -> Self {
        self.set("filter").filter = Filter { kind, start, end };
        self
    }

    /// Matches requests of a kind, to all of the memory.
    #[must_use]
    pub fn matching(self, kind: RequestKind) -> Self {
        self.filter(kind, 0, u64::MAX)
    }

    /// The primary region, of `2^shift` bytes.
    #[must_use]
    pub fn key(mut self, mask: u64, shift: u8) -> Self {
        self.set("key").key = Key { mask, shift };
        self
    }

    /// Sets the sub-region of the rule.
    #[must_use]
    pub fn offset(mut self, mask: u64, shift: u8) -> Self {
        self.set("offset").offset = Key { mask, shift };
        self
    }

    /// How the selected state changes.
    #[must_use]
    pub fn update(mut self, operator: Operator, operand: Operand) -> Self {
        self.set("update").update = (operator, operand);
        self
    }

    /// When a notification is sent.
    #[must_use]
    pub fn notify(mut self, compare: Compare, value: u64) -> Self {
        self.set("notify").notify = Some(Trigger { compare, value });
        self
    }

    /// Sets the effect of a read on the state.
    #[must_use]
    pub fn on_read(mut self, effect: ReadEffect) -> Self {
        self.set("on-read").on_read = effect;
        self
    }

    /// Sets `notify` to never, explicitly.
    #[must_use]
    pub(super) fn never(mut self) -> Self {
        self.set("notify").notify = None;
        self
    }

    /// The rule, if it is valid.
    ///
    /// # Errors
    /// An invalid field, by name.
    pub fn finish(self, limits: &Limits) -> Result<Rule> {
        self.each_given_once()?.check(limits).map(|()| self.rule)
    }

    /// The rule, if each of its fields was set at most once.
    pub(super) fn each_given_once(&self) -> Result<&Rule> {
        match self.given_twice {
            None => Ok(&self.rule),
            Some(field @ ("key" | "offset" | "update")) => Err(refused(
                field,
                "it is given twice, but a request changes one state, once: full coverage leaves \
                 time for no more (NEMO, section 3.3)",
            )
            .remedy("register two rules and combine what they read, or chain pipelines")),
            Some(field) => Err(refused(field, "it is given twice")),
        }
    }
}

impl RequestField {
    /// All request fields, by name.
    pub(super) const NAMES: [(&'static str, RequestField); 4] = [
        ("address", RequestField::Address),
        ("write", RequestField::IsWrite),
        ("length", RequestField::Length),
        ("requester", RequestField::Requester),
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn base() -> Builder {
        Rule::build().key(Key::ALL_MEMORY, 21)
    }

    fn why(builder: Builder, cell: Cell) -> String {
        builder.finish(&Limits { end: 16 * GIB, cell }).unwrap_err().to_string()
    }

    #[test]
    fn invalid_fields_are_named() {
        use Operator::{Add, ShiftLeft, ShiftRight, Xor};
        let one = Operand::Constant(1);
        let cases: &[(&str, Builder)] = &[
            ("filter.end", base().filter(RequestKind::All, 5, 5)),
            ("filter.end", base().filter(RequestKind::All, 0, 17 * GIB)),
            ("filter.start", base().filter(RequestKind::All, 16 * GIB, 17 * GIB)),
            ("key.shift", Rule::build().key(Key::ALL_MEMORY, 34)),
            ("key.mask", Rule::build().key(1 << 34, 21)),
            ("key.mask", Rule::build().key(0xfffff, 21)),
            ("offset.shift", base().offset(0xfff, 60)),
            ("offset.mask", base().offset(0xfff, 12)),
            ("offset.mask", base().offset(0x3f_ffff, 12)),
            ("update.operand", base().update(Add, Operand::Constant(0))),
            ("update.operand", base().update(ShiftLeft, Operand::Constant(64))),
            ("notify.value", base().notify(Compare::Below, 0)),
            ("notify.value", base().notify(Compare::AtLeast, 0)),
            ("on-read.operand", base().on_read(ReadEffect::Apply(Add, 0))),
            ("on-read.operand", base().on_read(ReadEffect::Apply(ShiftRight, 99))),
            ("on-read.value", base().update(ShiftLeft, one).on_read(ReadEffect::Reset(0))),
            ("update", base().update(Add, one).update(Xor, one)),
            ("notify", base().notify(Compare::Above, 1).notify(Compare::Above, 1)),
        ];
        for (field, builder) in cases {
            let refusal = why(builder.clone(), Cell::WORD);
            assert!(
                refusal.starts_with(&format!("telemetry rule refused at `{field}`: ")),
                "{refusal}"
            );
        }
        let narrow = |builder, saturating| why(builder, Cell::new(1, saturating).unwrap());
        assert!(narrow(base().notify(Compare::Above, 300), false).contains("`notify.value`"));
        assert!(narrow(base().on_read(ReadEffect::Reset(256)), false).contains("`on-read.value`"));
        assert!(narrow(base().update(Xor, one), true).contains("`update.operator`"));
    }

    #[test]
    fn two_locations_are_refused_with_the_reason() {
        let refusal = why(base().key(Key::ALL_MEMORY, 12), Cell::WORD);
        assert!(refusal.contains("a request changes one state, once"), "{refusal}");
        assert!(refusal.contains("chain pipelines"), "{refusal}");
    }

    // 1 TiB minus a page: 40 bits.
    #[test]
    fn limits_know_how_wide_addresses_are() {
        assert_eq!(Limits::of_memory((1 << 40) - 4096).address_bits(), 40);
        assert_eq!(Limits::of_memory(1 << 40).address_bits(), 40);
        assert_eq!(Limits::of_memory((1 << 40) + 1).address_bits(), 41);
    }
}
