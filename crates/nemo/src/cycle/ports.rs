//! The ports of a lane: all its inputs and outputs in a cycle, as bits.
//!
//! A hardware description of a lane has these ports; a test bench feeds it the words of
//! [`In::to_bits`] cycle by cycle and compares its outputs with [`Out::to_bits`]. Bit 0 of word 0
//! is the least significant one.
//!
//! ```text
//! in   word 0   0..48  address      48 write      49 a request is there
//!               50 chained value is there
//!               52..64 requester
//!      word 1   time in nanoseconds
//!      word 2   value of the pipeline before, in a chain
//!      word 3   0..3 control: 0 none, 1 program, 2 translate, 3 take, 4 acknowledge, 5 load
//!               8..24 entry, word or line    24..32 lanes    32..63 base    63 entry is valid
//! out  word 0   0 control granted  1 request granted    3 request dropped
//!               4 a word was taken    5 an update ends    6 its trigger holds    7 it wrapped
//!               8 a line was loaded    16..32 state of the update
//!      word 1   the word that was taken
//!      word 2   the value of the update
//!      words 3..11  the line that was loaded
//! ```
//!
//! The registers of a program ([`Program`]'s fields) are written separately, while the lane is
//! idle.

use tierscope_core::{BusRecord, Time};

use crate::engine::Line;
use crate::program::{Program, Slot};

/// Words of a lane's outputs.
pub const OUT_WORDS: usize = 3 + crate::geometry::LINE_WORDS;

/// A request at a lane's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The bus request.
    pub record: BusRecord,
    /// In a chain, the result of the previous pipeline.
    pub chained: Option<u64>,
}

impl From<BusRecord> for Request {
    fn from(record: BusRecord) -> Self {
        Self { record, chained: None }
    }
}

/// Inputs of a lane in a cycle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct In {
    /// A request, if one arrives.
    pub request: Option<Request>,
    /// A control operation; it is held until it is granted.
    pub control: Option<Slot>,
}

/// A completed update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletedUpdate {
    /// The request that caused it.
    pub request: Request,
    /// Number of the updated state.
    pub state: u32,
    /// New value of the state.
    pub value: u64,
    /// Whether its trigger holds.
    pub triggered: bool,
    /// Whether the counter wrapped around.
    pub wrapped: bool,
}

/// The operation that entered the pipeline in a cycle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Granted {
    /// No operation.
    #[default]
    None,
    /// A request: this cycle's, or the first in the queue.
    Request(Request),
    /// The control operation.
    Control,
}

/// Outputs of a lane in a cycle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Out {
    /// The operation that entered the pipeline; operations take effect in this order.
    pub granted: Granted,
    /// The request found the queue full: it was dropped and counted.
    pub dropped: bool,
    /// The word read by a control operation.
    pub taken: Option<u64>,
    /// The line that was loaded.
    pub line: Option<Line>,
    /// The update that completed.
    pub ended: Option<CompletedUpdate>,
}

impl In {
    /// Encodes the inputs as port words.
    #[must_use]
    pub fn to_bits(&self) -> [u64; 4] {
        let mut bits = [0; 4];
        if let Some(Request { record, chained }) = self.request {
            bits[0] = record.address() | u64::from(record.is_write()) << 48 | 1 << 49;
            bits[0] |= u64::from(chained.is_some()) << 50 | u64::from(record.requester()) << 52;
            bits[1] = record.time().0;
            bits[2] = chained.unwrap_or(0);
        }
        bits[3] = match self.control {
            None => 0,
            Some(Slot::Program(_)) => 1,
            Some(Slot::Translate(key, None)) => 2 | u64::from(key) << 8,
            Some(Slot::Translate(key, Some(base))) => {
                2 | u64::from(key) << 8 | u64::from(base) << 32 | 1 << 63
            }
            Some(Slot::Take { word, lanes }) => 3 | u64::from(word) << 8 | u64::from(lanes) << 24,
            Some(Slot::Acknowledge) => 4,
            Some(Slot::Load { line }) => 5 | u64::from(line) << 8,
        };
        bits
    }

    /// Decodes the inputs; `program` is the content of the program registers. `None` for invalid
    /// port words.
    #[must_use]
    pub fn from_bits(bits: [u64; 4], program: Option<Program>) -> Option<Self> {
        let [first, nanos, value, control] = bits;
        let record = || {
            let record = BusRecord::new(Time(nanos), first & ((1 << 48) - 1), first >> 48 & 1 == 1);
            record.via(0, (first >> 52) as u16)
        };
        let chained = (first >> 50 & 1 == 1).then_some(value);
        let request = (first >> 49 & 1 == 1).then(|| Request { record: record(), chained });
        let at = (control >> 8) as u16;
        let control = match control & 7 {
            0 => None,
            1 => Some(Slot::Program(program)),
            2 => {
                let base = (control >> 32 & 0x7fff_ffff) as u32;
                Some(Slot::Translate(at, (control >> 63 == 1).then_some(base)))
            }
            3 => Some(Slot::Take { word: at, lanes: (control >> 24) as u8 }),
            4 => Some(Slot::Acknowledge),
            5 => Some(Slot::Load { line: at }),
            _ => return None,
        };
        Some(Self { request, control })
    }
}

impl Out {
    /// Encodes the outputs as port words.
    #[must_use]
    pub fn to_bits(&self) -> [u64; OUT_WORDS] {
        let control = u64::from(self.granted == Granted::Control);
        let request = u64::from(matches!(self.granted, Granted::Request(_)));
        let mut first = control | request << 1 | u64::from(self.dropped) << 3;
        first |= u64::from(self.taken.is_some()) << 4 | u64::from(self.line.is_some()) << 8;
        if let Some(ended) = self.ended {
            first |= 1 << 5 | u64::from(ended.triggered) << 6 | u64::from(ended.wrapped) << 7;
            first |= u64::from(ended.state) << 16;
        }
        let mut bits = [0; OUT_WORDS];
        bits[..3].copy_from_slice(&[
            first,
            self.taken.unwrap_or(0),
            self.ended.map_or(0, |ended| ended.value),
        ]);
        bits[3..].copy_from_slice(&self.line.unwrap_or_default());
        bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn slot() -> impl Strategy<Value = Slot> {
        prop_oneof![
            (0..8192u16, proptest::option::of(0..65_536u32))
                .prop_map(|(key, base)| Slot::Translate(key, base)),
            (0..8192u16, any::<u8>()).prop_map(|(word, lanes)| Slot::Take { word, lanes }),
            Just(Slot::Program(None)),
            Just(Slot::Acknowledge),
            (0..1024u16).prop_map(|line| Slot::Load { line }),
        ]
    }

    proptest! {
        #[test]
        fn packed_ports_hold_their_inputs(
            request in proptest::option::of((
                0..1u64 << 48, any::<bool>(), any::<u64>(), 0..4096u16,
                proptest::option::of(any::<u64>()),
            )),
            control in proptest::option::of(slot()),
        ) {
            let request = request.map(|(address, write, time, requester, chained)| Request {
                record: BusRecord::new(Time(time), address, write).via(0, requester),
                chained,
            });
            let input = In { request, control };
            prop_assert_eq!(In::from_bits(input.to_bits(), None), Some(input));
        }
    }
}
