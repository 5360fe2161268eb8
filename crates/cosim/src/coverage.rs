//! Which options of table 1 (NEMO) the programs of a co-simulation had, and what happened in it.

use std::collections::BTreeMap;

use tierscope_core::{Key, Operand, ReadEffect};
use tierscope_nemo::cycle::ports::{Granted, Out};
use tierscope_nemo::program::{Program, Select};

/// Number of programs by option, and of events by kind.
#[derive(Clone, Debug, Default)]
pub struct Coverage(pub BTreeMap<String, u64>);

/// All options and events, each of which a long random run must have.
pub fn options() -> Vec<String> {
    let fixed = [
        "filter Read",
        "filter Write",
        "filter All",
        "filter range",
        "filter whole memory",
        "base index by table",
        "base index by hash",
        "key mask all bits",
        "key mask some bits",
        "offset none",
        "offset mask and shift",
        "operand constant",
        "operand Address",
        "operand IsWrite",
        "operand Length",
        "operand Requester",
        "chain None",
        "chain Value",
        "chain SquareStep",
        "predicate none",
        "predicate Equal",
        "predicate AtLeast",
        "predicate Above",
        "predicate Below",
        "predicate AtMost",
        "side effect none",
        "side effect reset",
        "side effect Add",
        "side effect Subtract",
        "side effect ShiftLeft",
        "side effect ShiftRight",
        "side effect Xor",
        "event update",
        "event trigger",
        "event wrap",
        "event drop",
        "event take",
        "event line",
    ];
    let cells =
        ["Add", "Subtract", "ShiftLeft", "ShiftRight", "Xor"].into_iter().flat_map(|operator| {
            (1..=8).flat_map(move |bytes| {
                ["wraps", "saturates"].map(|end| format!("update {operator}, {bytes} bytes, {end}"))
            })
        });
    fixed.into_iter().map(str::to_owned).chain(cells).collect()
}

impl Coverage {
    fn count(&mut self, option: String) {
        *self.0.entry(option).or_default() += 1;
    }

    /// Counts the options of a program in a channel.
    pub fn program(&mut self, program: &Program, channel: usize) {
        let (filter, side) = (program.filter, program.side(channel));
        self.count(format!("filter {:?}", filter.kind));
        let whole = filter.start == 0 && filter.end >= 1 << 48;
        self.count(if whole { "filter whole memory" } else { "filter range" }.into());
        let table = program.select == Select::Table;
        self.count(if table { "base index by table" } else { "base index by hash" }.into());
        let every = program.key.mask == u64::MAX;
        self.count(if every { "key mask all bits" } else { "key mask some bits" }.into());
        let none = program.offset == Key::NONE;
        self.count(if none { "offset none" } else { "offset mask and shift" }.into());
        self.count(match program.operand {
            Operand::Constant(_) => "operand constant".into(),
            Operand::Field(field) => format!("operand {field:?}"),
        });
        self.count(format!("chain {:?}", program.chain));
        let (bytes, saturates) = (program.cell.bytes(), program.cell.saturates());
        let end = if saturates { "saturates" } else { "wraps" };
        self.count(format!("update {:?}, {bytes} bytes, {end}", program.operator));
        let predicate = side.trigger.map(|trigger| format!("predicate {:?}", trigger.compare));
        self.count(predicate.unwrap_or("predicate none".into()));
        self.count(match side.effect {
            ReadEffect::Keep => "side effect none".into(),
            ReadEffect::Reset(_) => "side effect reset".into(),
            ReadEffect::Apply(operator, _) => format!("side effect {operator:?}"),
        });
    }

    /// Options and events that never were.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        options().into_iter().filter(|option| !self.0.contains_key(option)).collect()
    }
}

/// Events of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Events {
    /// Requests that entered the lane.
    pub requests: u64,
    /// Simulated cycles.
    pub cycles: u64,
    updates: u64,
    triggers: u64,
    wraps: u64,
    drops: u64,
    takes: u64,
    lines: u64,
}

impl Events {
    pub(crate) fn add(&mut self, out: &Out) {
        self.cycles += 1;
        self.requests += u64::from(matches!(out.granted, Granted::Request(_)));
        self.updates += u64::from(out.ended.is_some());
        self.triggers += u64::from(out.ended.is_some_and(|ended| ended.triggered));
        self.wraps += u64::from(out.ended.is_some_and(|ended| ended.wrapped));
        self.drops += u64::from(out.dropped);
        self.takes += u64::from(out.taken.is_some());
        self.lines += u64::from(out.line.is_some());
    }

    /// Adds the events that were to the options that were.
    pub(crate) fn cover(&self, coverage: &mut Coverage) {
        let all = [
            ("event update", self.updates),
            ("event trigger", self.triggers),
            ("event wrap", self.wraps),
            ("event drop", self.drops),
            ("event take", self.takes),
            ("event line", self.lines),
        ];
        for (event, count) in all.into_iter().filter(|(_, count)| *count > 0) {
            *coverage.0.entry(event.into()).or_default() += count;
        }
    }
}
