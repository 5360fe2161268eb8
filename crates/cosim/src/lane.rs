//! A lane of the circuit: `rtl/nemo_lane.v` behind `rtl/cosim/lane.cpp`.

use tierscope_core::{Compare, Operand, Operator, ReadEffect, RequestField, RequestKind, Result};
use tierscope_nemo::cycle::ports::{In, OUT_WORDS};
use tierscope_nemo::engine::Status;
use tierscope_nemo::program::{Chain, Program, Select, Slot};
use tierscope_nemo::registers::{STATUS_WORDS, decode_status};

use crate::defects::Defect;
use crate::library::{Circuit, Library};

/// Words of a program's fields.
const FIELDS: usize = 24;

/// Functions of the library.
#[derive(Clone, Copy, Debug)]
struct Functions {
    program: unsafe extern "C" fn(*mut libc::c_void, *const u64),
    clock: unsafe extern "C" fn(*mut libc::c_void, *const u64, *mut u64),
    is_idle: unsafe extern "C" fn(*mut libc::c_void) -> libc::c_int,
    status: unsafe extern "C" fn(*mut libc::c_void, *mut u64),
}

/// One channel of a pipeline as a circuit.
#[derive(Debug)]
pub struct CircuitLane {
    functions: Functions,
    circuit: Circuit,
    channel: usize,
}

impl CircuitLane {
    /// An idle lane of that channel, with a defect or none.
    ///
    /// # Errors
    /// The circuit cannot be built or loaded.
    pub fn new(channel: usize, defect: Option<&Defect>) -> Result<Self> {
        let library = Library::of("nemo_lane", &[], defect)?;
        // SAFETY: rtl/cosim/lane.cpp defines these functions with these types.
        let (circuit, functions) = unsafe {
            let functions = Functions {
                program: library.function("nemo_lane_program"),
                clock: library.function("nemo_lane_clock"),
                is_idle: library.function("nemo_lane_is_idle"),
                status: library.function("nemo_lane_status"),
            };
            (Circuit::new(library, "nemo_lane"), functions)
        };
        Ok(Self { functions, circuit, channel })
    }

    /// Simulates one cycle; the outputs as [`tierscope_nemo::cycle::ports::Out::to_bits`].
    pub fn clock(&mut self, input: In) -> [u64; OUT_WORDS] {
        if let Some(Slot::Program(program)) = input.control {
            let fields = program.map(|program| fields(&program, self.channel));
            let words = fields.as_ref().map_or(std::ptr::null(), |fields| fields.as_ptr());
            // SAFETY: the circuit lives as long as `self`; the words are there, or null.
            unsafe { (self.functions.program)(self.circuit.pointer(), words) };
        }
        let (bits, mut out) = (input.to_bits(), [0; OUT_WORDS]);
        // SAFETY: the circuit lives as long as `self`; it reads 4 words and writes 11.
        unsafe { (self.functions.clock)(self.circuit.pointer(), bits.as_ptr(), out.as_mut_ptr()) };
        out
    }

    /// Whether no operation is in flight.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        // SAFETY: the circuit lives as long as `self`.
        unsafe { (self.functions.is_idle)(self.circuit.pointer()) != 0 }
    }

    /// Status registers.
    #[must_use]
    pub fn status(&self) -> Status {
        let mut words = [0; STATUS_WORDS];
        // SAFETY: the circuit lives as long as `self`; it writes 7 words.
        unsafe { (self.functions.status)(self.circuit.pointer(), words.as_mut_ptr()) };
        decode_status(&words)
    }
}

fn operator(operator: Operator) -> u64 {
    match operator {
        Operator::Add => 0,
        Operator::Subtract => 1,
        Operator::ShiftLeft => 2,
        Operator::ShiftRight => 3,
        Operator::Xor => 4,
    }
}

/// The fields of the register bus of `rtl/nemo_lane.v`, for the lane of a channel.
fn fields(program: &Program, channel: usize) -> [u64; FIELDS] {
    let side = program.side(channel);
    let kind = match program.filter.kind {
        RequestKind::Read => 0,
        RequestKind::Write => 1,
        RequestKind::All => 2,
    };
    let (hashes, multiplier, bits) = match program.select {
        Select::Table => (0, 0, 0),
        Select::Hash { multiplier, bits } => (1, multiplier, u64::from(bits)),
    };
    let (source, constant) = match program.operand {
        Operand::Constant(value) => (0, value),
        Operand::Field(RequestField::Address) => (1, 0),
        Operand::Field(RequestField::IsWrite) => (2, 0),
        Operand::Field(RequestField::Length) => (3, 0),
        Operand::Field(RequestField::Requester) => (4, 0),
    };
    let chain = match program.chain {
        Chain::None => 0,
        Chain::Value => 1,
        Chain::SquareStep => 2,
    };
    let (effect, by) = match side.effect {
        ReadEffect::Keep => (0, 0),
        ReadEffect::Reset(value) => (1, value),
        ReadEffect::Apply(by, value) => (2 + operator(by), value),
    };
    let (compare, threshold) = side.trigger.map_or((0, 0), |trigger| {
        let compare = match trigger.compare {
            Compare::Equal => 1,
            Compare::AtLeast => 2,
            Compare::Above => 3,
            Compare::Below => 4,
            Compare::AtMost => 5,
        };
        (compare, trigger.value)
    });
    [
        kind,
        program.filter.start,
        program.filter.end.min(1 << 48),
        program.key.mask,
        program.key.shift.into(),
        program.first_key,
        program.offset.mask,
        program.offset.shift.into(),
        hashes,
        multiplier,
        bits,
        operator(program.operator),
        source,
        constant,
        chain,
        program.cell.bytes().into(),
        program.cell.saturates().into(),
        program.states.into(),
        program.banks.into(),
        side.start,
        effect,
        by,
        compare,
        threshold,
    ]
}
