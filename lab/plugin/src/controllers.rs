//! Programmable memory controllers behind the telemetry device: the fast model of `nemo`, one
//! controller per node, fed with cache misses. Their driver runs in the guest and writes to their
//! registers by doorbell.
//!
//! Each vCPU collects its requests under a lock of its own and submits them in batches, so that
//! vCPUs seldom wait for each other. A doorbell first submits the batches of all vCPUs: replies
//! take into account all requests before the doorbell.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Deserialize;
use tierscope_core::{BusObserver, BusRecord, Time};
use tierscope_nemo::registers::{
    CONTROL_WORDS, Limits, check, decode, encode_geometry, encode_status,
};
use tierscope_nemo::{At, Control, Engine, Functional, Geometry, Memory, Zone};
use tierscope_wire::device::{ARGUMENTS, Answer, Command};
use tierscope_wire::guest_ram::RamPart;

use crate::clock::Clock;

/// Configuration of the controllers, in the options file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Controllers {
    /// Pipelines of each controller.
    #[serde(default = "default_pipelines")]
    pub pipelines: usize,
    /// Memory channels of each controller.
    #[serde(default = "default_channels")]
    pub channels: usize,
    /// Banks of state in each channel.
    #[serde(default = "default_banks")]
    pub banks: usize,
}

/// The largest number that the paper evaluates.
fn default_pipelines() -> usize {
    Geometry::PROTOTYPE.pipelines
}

fn default_channels() -> usize {
    Geometry::PROTOTYPE.channels
}

fn default_banks() -> usize {
    Geometry::PROTOTYPE.banks
}

/// Batch sizes in requests: with triggers installed, and without.
const SOON: usize = 256;
const LATE: usize = 4096;

/// Number of requests between two reads of the clock.
const CLOCK_EVERY: usize = 64;

/// Requests that a vCPU has collected.
#[derive(Debug, Default)]
struct Batch {
    requests: Vec<BusRecord>,
    now: Time,
}

/// The memory controllers of a machine.
#[derive(Debug)]
pub struct Telemetry {
    geometry: Geometry,
    engine: Mutex<Functional>,
    batches: Vec<Mutex<Batch>>,
    /// Bit mask of the programmed pipelines of each controller; requests take no lock while all are
    /// 0.
    programmed: Vec<AtomicU64>,
    /// Bit mask of the pipelines with a trigger, for each controller.
    hinting: Vec<AtomicU64>,
    /// The driver was interrupted and has not acknowledged yet.
    raised: AtomicBool,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Telemetry {
    /// Idle controllers for `cpus` vCPUs, one for each node of the machine's RAM.
    ///
    /// # Errors
    /// The configuration is invalid.
    pub fn new(wanted: &Controllers, ram: &[RamPart], cpus: u32) -> Result<Self, String> {
        let Controllers { pipelines, channels, banks } = *wanted;
        let geometry = Geometry { pipelines, channels, banks };
        let zone = |piece: &RamPart| Zone {
            start: piece.physical,
            end: piece.physical + piece.bytes,
            first: piece.node,
            controllers: 1,
            granule: 4096,
        };
        let memory = Memory::new(ram.iter().map(zone).collect(), channels);
        let engine = memory.and_then(|memory| Functional::new(memory, pipelines, banks));
        let engine = engine.map_err(|error| error.to_string().replace('\n', "; "))?;
        let nodes = engine.memory().controllers();
        let none = || (0..nodes).map(|_| AtomicU64::new(0)).collect();
        Ok(Self {
            geometry,
            engine: Mutex::new(engine),
            batches: (0..cpus).map(|_| Mutex::default()).collect(),
            programmed: none(),
            hinting: none(),
            raised: AtomicBool::new(false),
        })
    }

    /// Counts a request of a vCPU. Returns whether to interrupt the driver.
    #[inline]
    pub fn count(&self, cpu: u32, address: u64, write: bool, clock: &Clock) -> bool {
        if any(&self.programmed) { self.gather(cpu, address, write, clock) } else { false }
    }

    fn gather(&self, cpu: u32, address: u64, write: bool, clock: &Clock) -> bool {
        let mut batch = lock(&self.batches[cpu as usize]);
        if batch.requests.len().is_multiple_of(CLOCK_EVERY) {
            batch.now = Time(clock.now());
        }
        let line = address & !(BusRecord::BYTES - 1);
        let request = BusRecord::new(batch.now, line, write).via(0, cpu as u16);
        batch.requests.push(request);
        let hints = any(&self.hinting);
        if batch.requests.len() < if hints { SOON } else { LATE } {
            return false;
        }
        let mut engine = lock(&self.engine);
        engine.observe(&batch.requests);
        batch.requests.clear();
        hints && self.is_due(&mut engine)
    }

    /// Whether to interrupt the driver: true once until it acknowledges.
    fn is_due(&self, engine: &mut Functional) -> bool {
        let hinted = (0..self.programmed.len()).any(|node| engine.pending(node) != 0);
        hinted && !self.raised.swap(true, Relaxed)
    }

    /// Whether to interrupt the driver after a command, which may have submitted requests that
    /// cause an alert.
    pub fn is_due_now(&self) -> bool {
        any(&self.hinting) && self.is_due(&mut lock(&self.engine))
    }

    /// The controllers, after all requests so far are submitted.
    fn settled(&self) -> MutexGuard<'_, Functional> {
        let taken: Vec<Vec<BusRecord>> =
            self.batches.iter().map(|batch| std::mem::take(&mut lock(batch).requests)).collect();
        let mut engine = lock(&self.engine);
        taken.iter().for_each(|requests| engine.observe(requests));
        engine
    }

    /// Carries out a command for the controllers; returns result and reply.
    ///
    /// # Errors
    /// The device's error code.
    pub fn perform(
        &self,
        command: Command,
        arguments: &[u64; ARGUMENTS],
    ) -> Result<(u64, Vec<u64>), Answer> {
        let [controller, second, third, ..] = *arguments;
        let size = |word: u64| usize::try_from(word).unwrap_or(usize::MAX);
        let mut engine = self.settled();
        if command == Command::Geometry {
            return Ok((0, encode_geometry(&self.geometry, engine.memory())));
        }
        let controller = size(controller);
        if controller >= self.programmed.len() {
            return Err(Answer::BadArgument);
        }
        let at = At { controller, pipeline: size(second) };
        if matches!(command, Command::Control | Command::Status)
            && at.pipeline >= self.geometry.pipelines
        {
            return Err(Answer::BadArgument);
        }
        match command {
            Command::Control => self.control(&mut engine, at, arguments).map(|()| (0, Vec::new())),
            Command::Line => Ok((0, engine.load(controller, second).to_vec())),
            Command::Status if size(third) < self.geometry.channels => {
                Ok((0, encode_status(&engine.status(at, size(third))).to_vec()))
            }
            Command::Status => Err(Answer::BadArgument),
            Command::Pending => Ok((engine.pending(controller), Vec::new())),
            _ => Err(Answer::Unknown),
        }
    }

    fn control(
        &self,
        engine: &mut Functional,
        at: At,
        arguments: &[u64; ARGUMENTS],
    ) -> Result<(), Answer> {
        let words: &[u64; CONTROL_WORDS] =
            arguments[2..].first_chunk().ok_or(Answer::BadArgument)?;
        let control = decode(words).ok_or(Answer::BadArgument)?;
        check(&control, &self.geometry, &Limits::EXTENDED).map_err(|_| Answer::BadArgument)?;
        match &control {
            Control::Program(program) => {
                let free =
                    |program| engine.controller(at.controller).has_banks(at.pipeline, program);
                if !program.as_ref().is_none_or(free) {
                    return Err(Answer::BadArgument);
                }
                let hints = program
                    .is_some_and(|p| [p.home, p.away].iter().any(|side| side.trigger.is_some()));
                set(&self.programmed[at.controller], at.pipeline, program.is_some());
                set(&self.hinting[at.controller], at.pipeline, hints);
            }
            Control::Acknowledge => self.raised.store(false, Relaxed),
            Control::Translate(..) | Control::Capture { .. } => {}
        }
        engine.control(at, control);
        Ok(())
    }
}

fn any(bits: &[AtomicU64]) -> bool {
    bits.iter().any(|bits| bits.load(Relaxed) != 0)
}

fn set(bits: &AtomicU64, bit: usize, on: bool) {
    if on {
        bits.fetch_or(1 << bit, Relaxed);
    } else {
        bits.fetch_and(!(1 << bit), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierscope_core::{
        Compare, Counters, Filter, Key, Operand, Operator, ReadEffect, RequestKind, Rule, Trigger,
    };
    use tierscope_nemo::registers::{decode_geometry, decode_status, encode};
    use tierscope_nemo::{Driver, Line, Status};
    use tierscope_wire::guest_ram::q35;

    const MIB: u64 = 1 << 20;

    fn telemetry() -> Telemetry {
        let wanted = Controllers { pipelines: 4, channels: 2, banks: 32 };
        Telemetry::new(&wanted, &q35(&[16 * MIB, 16 * MIB]), 2).unwrap()
    }

    /// Engine of a driver that calls the device directly, without a guest.
    struct Rung<'a> {
        device: &'a Telemetry,
        geometry: Geometry,
        memory: Memory,
    }

    impl<'a> Rung<'a> {
        fn new(device: &'a Telemetry) -> Self {
            let (_, words) = device.perform(Command::Geometry, &[0; ARGUMENTS]).unwrap();
            let word = |at: usize| words.get(at).copied().unwrap_or(0);
            let (geometry, memory) = decode_geometry(word).unwrap();
            Self { device, geometry, memory }
        }

        fn ring(&self, command: Command, words: &[u64]) -> (u64, Vec<u64>) {
            let mut arguments = [0; ARGUMENTS];
            arguments[..words.len()].copy_from_slice(words);
            self.device.perform(command, &arguments).unwrap()
        }
    }

    impl Engine for Rung<'_> {
        fn geometry(&self) -> Geometry {
            self.geometry
        }

        fn memory(&self) -> &Memory {
            &self.memory
        }

        fn control(&mut self, at: At, control: Control) {
            let place = [at.controller as u64, at.pipeline as u64];
            self.ring(Command::Control, &[&place[..], &encode(&control)].concat());
        }

        fn load(&mut self, controller: usize, line: u64) -> Line {
            self.ring(Command::Line, &[controller as u64, line]).1.try_into().unwrap()
        }

        fn status(&mut self, at: At, channel: usize) -> Status {
            let place = [at.controller as u64, at.pipeline as u64, channel as u64];
            decode_status(&self.ring(Command::Status, &place).1.try_into().unwrap())
        }

        fn pending(&mut self, controller: usize) -> u64 {
            self.ring(Command::Pending, &[controller as u64]).0
        }
    }

    fn by_page(value: Option<u64>) -> Rule {
        Rule {
            filter: Filter { kind: RequestKind::All, start: 0, end: 32 * MIB },
            key: Key { mask: Key::ALL_MEMORY, shift: 12 },
            offset: Key::NONE,
            update: (Operator::Add, Operand::Constant(1)),
            notify: value.map(|value| Trigger { compare: Compare::AtLeast, value }),
            on_read: ReadEffect::Reset(0),
        }
    }

    // Two states count accesses of both vCPUs to pages of both nodes.
    #[test]
    fn a_driver_counts_through_the_registers() {
        let (device, clock) = (telemetry(), Clock::start());
        assert!(!device.count(0, 0x1000, false, &clock), "nothing is programmed");
        let mut driver = Driver::new(Rung::new(&device));
        let rule = driver.register_states(&by_page(None), 2).unwrap();
        for (page, state) in [(1, 0), (2, 1), (5000, 1)] {
            driver.translate(rule, page, Some(state)).unwrap();
        }
        for at in 0..10_000u64 {
            let cpu = (at % 2) as u32;
            device.count(cpu, 0x1000 + at * 64 % 4096, false, &clock);
            device.count(cpu, (5000 << 12) + at * 64 % 4096, true, &clock);
            device.count(cpu, 7 << 12, true, &clock);
        }
        device.count(0, 2 << 12, false, &clock);
        let mut states = [0; 2];
        driver.read(rule, &mut states).unwrap();
        assert_eq!(states, [10_000, 10_001]);
        driver.read(rule, &mut states).unwrap();
        assert_eq!(states, [0, 0], "reading resets");
        driver.uninstall(rule).unwrap();
        assert!(!any(&device.programmed));
    }

    // A trigger at 100 causes one interrupt until it is acknowledged.
    #[test]
    fn a_hint_is_raised_once_until_acknowledged() {
        let (device, clock) = (telemetry(), Clock::start());
        let mut driver = Driver::new(Rung::new(&device));
        let rule = driver.register_states(&by_page(Some(100)), 1).unwrap();
        driver.translate(rule, 1, Some(0)).unwrap();
        let raised =
            |times: usize| (0..times).filter(|_| device.count(0, 0x1000, false, &clock)).count();
        assert_eq!((raised(1000), raised(1000)), (1, 0));
        let mut alerts = Vec::new();
        driver.dispatch(|alert| alerts.push((alert.rule, alert.state, alert.value))).unwrap();
        assert_eq!(alerts, [(rule, 0, 2000)]);
        assert_eq!(raised(300), 1, "acknowledged: raised again");
    }

    #[test]
    fn missing_controllers_are_refused() {
        let device = telemetry();
        let ring = |command, words: &[u64]| {
            let mut arguments = [0; ARGUMENTS];
            arguments[..words.len()].copy_from_slice(words);
            device.perform(command, &arguments).map(|(result, _)| result)
        };
        assert_eq!(ring(Command::Pending, &[2]), Err(Answer::BadArgument), "two controllers");
        assert_eq!(ring(Command::Control, &[0, 4, 0]), Err(Answer::BadArgument), "four pipelines");
        assert_eq!(ring(Command::Control, &[0, 0, 9]), Err(Answer::BadArgument), "no control");
        assert_eq!(ring(Command::Status, &[0, 0, 2]), Err(Answer::BadArgument), "two channels");
        assert_eq!(ring(Command::Line, &[0, u64::MAX]).map(|_| ()), Ok(()), "nothing is there");
        assert_eq!(ring(Command::Ping, &[0]), Err(Answer::Unknown));
    }

    #[test]
    fn impossible_controllers_are_refused() {
        let wanted = Controllers { pipelines: 4, channels: 3, banks: 32 };
        let error = Telemetry::new(&wanted, &q35(&[MIB]), 1).unwrap_err();
        assert!(error.contains("channels"), "{error}");
    }
}
