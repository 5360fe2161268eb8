//! Programmable memory controllers behind the telemetry device: their registers, for the driver in
//! `nemo`.

use std::path::Path;

use tierscope_core::{Error, ErrorKind, Result};
use tierscope_nemo::registers::{STATUS_WORDS, decode_geometry, decode_status, encode};
use tierscope_nemo::{At, Control, Driver, Engine, Geometry, Line, Memory, Status};
use tierscope_wire::Shared;
use tierscope_wire::device::{Client, Command};

use super::telemetry_device::map_device;

/// The controllers' registers. Dropping this makes their pipelines idle.
#[derive(Debug)]
pub struct Controllers {
    shared: Shared,
    block: usize,
    geometry: Geometry,
    memory: Memory,
    /// Error of the first command that failed. The driver validates its commands, so that a refusal
    /// means that the device failed: its registers are not meaningful any more.
    failed: Option<Error>,
}

/// Opens the driver of the controllers behind the device below `sys` (`/sys`), with command block
/// `block`. Only one driver at a time is possible: it resets everything that another one
/// programmed.
///
/// # Errors
/// If there is no device, or if it cannot be mapped, has another version, or has no programmable
/// controllers.
pub fn controllers(sys: &Path, block: usize) -> Result<Driver<Controllers>> {
    let mut registers = Controllers::open(sys, block)?;
    registers.idle();
    registers.check()?;
    Ok(Driver::new(registers))
}

impl Controllers {
    fn open(sys: &Path, block: usize) -> Result<Self> {
        let shared = map_device(sys)?;
        let client = Client::attach(shared.words()?, block)?;
        client.ring(Command::Geometry, &[]).map_err(|error| {
            error.remedy("give the machine programmable controllers: `controllers = {}`")
        })?;
        let found = decode_geometry(|at| client.reply(at)).ok_or_else(|| {
            Error::new(ErrorKind::Version, "cannot use the memory controllers")
                .cause("the device describes an impossible geometry")
                .remedy("use machine and guest programs of one build")
        })?;
        let (geometry, memory) = found;
        Ok(Self { shared, block, geometry, memory, failed: None })
    }

    fn idle(&mut self) {
        for controller in 0..self.memory.controllers() {
            for pipeline in 0..self.geometry.pipelines {
                self.control(At { controller, pipeline }, Control::Program(None));
            }
        }
    }

    /// Sends a command; returns its result and `N` words of the reply, or zeros if the device
    /// refuses it.
    fn ring<const N: usize>(&mut self, command: Command, arguments: &[u64]) -> (u64, [u64; N]) {
        let rung = self.shared.words().and_then(|words| {
            let client = Client::attach(words, self.block)?;
            let result = client.ring(command, arguments)?;
            Ok((result, std::array::from_fn(|at| client.reply(at))))
        });
        rung.unwrap_or_else(|error| {
            self.failed.get_or_insert(error);
            (0, [0; N])
        })
    }
}

impl Engine for Controllers {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn memory(&self) -> &Memory {
        &self.memory
    }

    fn control(&mut self, at: At, control: Control) {
        let place = [at.controller as u64, at.pipeline as u64];
        self.ring::<0>(Command::Control, &[&place[..], &encode(&control)].concat());
    }

    fn load(&mut self, controller: usize, line: u64) -> Line {
        self.ring(Command::Line, &[controller as u64, line]).1
    }

    fn status(&mut self, at: At, channel: usize) -> Status {
        let place = [at.controller as u64, at.pipeline as u64, channel as u64];
        decode_status(&self.ring::<STATUS_WORDS>(Command::Status, &place).1)
    }

    fn pending(&mut self, controller: usize) -> u64 {
        self.ring::<0>(Command::Pending, &[controller as u64]).0
    }

    fn check(&self) -> Result<()> {
        self.failed.clone().map_or(Ok(()), Err)
    }
}

impl Drop for Controllers {
    fn drop(&mut self) {
        self.idle();
    }
}
