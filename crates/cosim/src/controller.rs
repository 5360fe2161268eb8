//! A controller of the circuit, programmed through its control registers: `rtl/nemo_controller.v`
//! behind `rtl/cosim/controller.cpp`. The driver that the models have drives it unchanged.

use tierscope_core::{BusObserver, BusRecord, Error, ErrorKind, Result};
use tierscope_nemo::cycle::ports::{In, Request};
use tierscope_nemo::engine::{At, Control, Engine, Line, Status};
use tierscope_nemo::registers::{STATUS_WORDS, decode_status, encode};
use tierscope_nemo::{Geometry, Memory};
use tierscope_wire::device::{Answer, B_ANSWER, B_ARGUMENTS, B_REPLY, B_RESULT, Command};

use crate::library::{Circuit, Library};

/// Channels of the circuit.
const CHANNELS: usize = 2;
/// Cycles after which an operation that is not answered has failed: a capture under load takes
/// 512 times a patience of 64.
const LATEST: u64 = 100_000;

type Pointer = *mut libc::c_void;

/// Functions of the library.
#[derive(Clone, Copy, Debug)]
struct Functions {
    cycles: unsafe extern "C" fn(Pointer) -> u64,
    clock: unsafe extern "C" fn(Pointer, *const u64),
    write: unsafe extern "C" fn(Pointer, u32, u64),
    read: unsafe extern "C" fn(Pointer, u32) -> u64,
    load: unsafe extern "C" fn(Pointer, u32, u32, u32, *mut u64) -> u64,
    is_idle: unsafe extern "C" fn(Pointer) -> libc::c_int,
    interrupt: unsafe extern "C" fn(Pointer) -> libc::c_int,
}

/// One controller as a circuit, with two channels.
#[derive(Debug)]
pub struct Controller {
    functions: Functions,
    circuit: Circuit,
    memory: Memory,
    pipelines: usize,
    /// The first operation that was refused.
    refused: Option<Error>,
}

impl Controller {
    /// An idle controller of 2 to 8 pipelines that serves `memory`.
    ///
    /// # Errors
    /// The circuit cannot be built or loaded; or the memory has more than one controller, or not
    /// two channels.
    pub fn new(memory: Memory, pipelines: usize) -> Result<Self> {
        if memory.controllers() != 1 || memory.channels() != CHANNELS {
            return Err(Error::new(ErrorKind::Usage, "the circuit is one controller")
                .cause(format!("of {CHANNELS} channels")));
        }
        let library = Library::of("nemo_controller", &[("PIPELINES", pipelines)], None)?;
        // SAFETY: rtl/cosim/controller.cpp defines these functions with these types.
        let (circuit, functions) = unsafe {
            let circuit = Circuit::new(library, "nemo_controller");
            let functions = Functions {
                cycles: library.function("nemo_controller_cycles"),
                clock: library.function("nemo_controller_clock"),
                write: library.function("nemo_controller_write"),
                read: library.function("nemo_controller_read"),
                load: library.function("nemo_controller_load"),
                is_idle: library.function("nemo_controller_is_idle"),
                interrupt: library.function("nemo_controller_interrupt"),
            };
            (circuit, functions)
        };
        Ok(Self { functions, circuit, memory, pipelines, refused: None })
    }

    /// Simulated cycles so far.
    #[must_use]
    pub fn cycles(&self) -> u64 {
        // SAFETY: the circuit lives as long as `self`; so below.
        unsafe { (self.functions.cycles)(self.circuit.pointer()) }
    }

    /// Whether the interrupt is raised.
    #[must_use]
    pub fn interrupt(&self) -> bool {
        // SAFETY: as above.
        unsafe { (self.functions.interrupt)(self.circuit.pointer()) != 0 }
    }

    /// Whether no request and no control operation is in flight.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        // SAFETY: as above.
        unsafe { (self.functions.is_idle)(self.circuit.pointer()) != 0 }
    }

    /// Simulates a cycle with a request of each channel.
    pub fn clock(&mut self, requests: &[Option<BusRecord>; CHANNELS]) {
        let words = requests.map(|record| {
            let request = record.map(Request::from);
            let bits = In { request, control: None }.to_bits();
            [bits[0], bits[1]]
        });
        // SAFETY: as above; it reads two words for each channel.
        unsafe { (self.functions.clock)(self.circuit.pointer(), words.as_flattened().as_ptr()) }
    }

    fn write(&mut self, at: usize, value: u64) {
        // SAFETY: as above.
        unsafe { (self.functions.write)(self.circuit.pointer(), at as u32, value) }
    }

    fn read(&self, at: usize) -> u64 {
        // SAFETY: as above.
        unsafe { (self.functions.read)(self.circuit.pointer(), at as u32) }
    }

    /// Writes arguments, rings the doorbell and waits for the answer.
    ///
    /// # Panics
    /// There is no answer.
    pub fn ring(&mut self, command: Command, arguments: &[u64]) -> u64 {
        for (at, argument) in arguments.iter().enumerate() {
            self.write(B_ARGUMENTS + at, *argument);
        }
        self.write(0, command as u64);
        let end = self.cycles() + LATEST;
        while self.read(B_ANSWER) == Answer::Waiting as u64 {
            assert!(self.cycles() < end, "{command:?} is not answered");
            self.clock(&[None; CHANNELS]);
        }
        self.read(B_ANSWER)
    }

    /// Loads `count` lines of a channel from `number` on, without a pause: the lines, and the
    /// cycles that they took.
    pub fn stream(&mut self, channel: usize, number: u64, count: usize) -> (Vec<Line>, u64) {
        let mut lines = vec![Line::default(); count];
        let words = lines.as_flattened_mut().as_mut_ptr();
        let (channel, number) = (channel as u32, number as u32);
        // SAFETY: as above; it writes eight words for each line.
        let cycles = unsafe {
            (self.functions.load)(self.circuit.pointer(), channel, number, count as u32, words)
        };
        (lines, cycles)
    }

    /// Simulates until no operation is in flight.
    pub fn drain(&mut self) {
        while !self.is_idle() {
            self.clock(&[None; CHANNELS]);
        }
    }
}

impl BusObserver for Controller {
    fn observe(&mut self, batch: &[BusRecord]) {
        let mut requests = [None; CHANNELS];
        for record in batch {
            let Some(place) = self.memory.route(record.address()) else { continue };
            if requests[place.channel].is_some() {
                self.clock(&requests);
                requests = [None; CHANNELS];
            }
            requests[place.channel] = Some(*record);
        }
        self.clock(&requests);
        self.drain();
    }
}

impl Engine for Controller {
    fn geometry(&self) -> Geometry {
        let Self { pipelines, .. } = *self;
        let banks = pipelines * tierscope_nemo::geometry::MAX_BANKS;
        Geometry { pipelines, channels: CHANNELS, banks }
    }

    fn memory(&self) -> &Memory {
        &self.memory
    }

    fn control(&mut self, at: At, control: Control) {
        let place = [at.controller as u64, at.pipeline as u64];
        let words: Vec<u64> = place.into_iter().chain(encode(&control)).collect();
        let answer = self.ring(Command::Control, &words);
        if answer != Answer::Done as u64 && self.refused.is_none() {
            let what = format!("the circuit refused {control:?}");
            self.refused = Some(Error::new(ErrorKind::Usage, what).cause("bad argument"));
        }
    }

    fn load(&mut self, _controller: usize, line: u64) -> Line {
        let channel = line % CHANNELS as u64;
        self.stream(channel as usize, line / CHANNELS as u64, 1).0[0]
    }

    fn status(&mut self, at: At, channel: usize) -> Status {
        self.ring(Command::Status, &[at.controller, at.pipeline, channel].map(|n| n as u64));
        let words: [u64; STATUS_WORDS] = std::array::from_fn(|word| self.read(B_REPLY + word));
        decode_status(&words)
    }

    fn pending(&mut self, controller: usize) -> u64 {
        self.ring(Command::Pending, &[controller as u64]);
        self.read(B_RESULT)
    }

    fn check(&self) -> Result<()> {
        self.refused.clone().map_or(Ok(()), Err)
    }
}
