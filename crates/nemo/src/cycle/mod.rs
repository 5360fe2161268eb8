//! The cycle-accurate model, made of [`lane`]s as hardware would be, with the [`ports`] of a
//! hardware description.

pub mod lane;
pub mod ports;
mod sram;

use tierscope_core::{BusObserver, BusRecord, Result};

use crate::engine::{At, Control, Engine, Line, Status};
use crate::geometry::{Geometry, LINE_WORDS, PAGE_WORDS};
use crate::memory::Memory;
use crate::program::{Chain, Slot, capture_slots};
use crate::region::{LineContent, Region};
use lane::Lane;
use ports::{Granted, In, Request};

/// Cycle-accurate engine. The requests of a batch arrive as fast as the channels accept them: one
/// per cycle and channel.
#[derive(Clone, Debug)]
pub struct Cycle {
    memory: Memory,
    controllers: Vec<Controller>,
    cycles: u64,
}

/// Lanes by pipeline and channel, and the capture page.
#[derive(Clone, Debug)]
struct Controller {
    lanes: Vec<Vec<Lane>>,
    /// Input from the previous pipeline of a chain for the next cycle, by pipeline and channel.
    links: Vec<Vec<Option<Request>>>,
    captured: Vec<[u64; PAGE_WORDS]>,
}

impl Cycle {
    /// Idle controllers that serve `memory`.
    ///
    /// # Errors
    /// An impossible geometry.
    pub fn new(memory: Memory, pipelines: usize) -> Result<Self> {
        let channels = memory.channels();
        Geometry { pipelines, channels, banks: pipelines * crate::geometry::MAX_BANKS }.check()?;
        let lanes = || (0..channels).map(Lane::new).collect::<Vec<_>>();
        let controller = |_| Controller {
            lanes: (0..pipelines).map(|_| lanes()).collect(),
            links: vec![vec![None; channels]; pipelines],
            captured: vec![[0; PAGE_WORDS]; channels],
        };
        let controllers = (0..memory.controllers()).map(controller).collect();
        Ok(Self { memory, controllers, cycles: 0 })
    }

    /// Simulated cycles so far.
    #[must_use]
    pub fn cycles(&self) -> u64 {
        self.cycles
    }

    /// Simulates a cycle of all controllers; `requests` by controller and channel.
    fn clock(&mut self, requests: &[Vec<Option<BusRecord>>]) {
        self.cycles += 1;
        for (controller, requests) in self.controllers.iter_mut().zip(requests) {
            controller.clock(requests);
        }
    }

    fn nothing(&self) -> Vec<Vec<Option<BusRecord>>> {
        vec![vec![None; self.memory.channels()]; self.memory.controllers()]
    }

    /// Simulates until no operation is in flight.
    fn drain(&mut self) {
        let nothing = self.nothing();
        while self.controllers.iter().any(|controller| !controller.is_idle()) {
            self.clock(&nothing);
        }
    }
}

impl Controller {
    fn is_idle(&self) -> bool {
        let lanes = self.lanes.iter().flatten().all(Lane::is_idle);
        lanes && self.links.iter().flatten().all(Option::is_none)
    }

    fn clock(&mut self, requests: &[Option<BusRecord>]) {
        // Last pipeline first: a chained pipeline gets its predecessor's result one cycle later.
        for (number, lanes) in self.lanes.iter_mut().enumerate().rev() {
            for (channel, lane) in lanes.iter_mut().enumerate() {
                let chained = lane.program().is_some_and(|program| program.chain != Chain::None);
                let link = std::mem::take(&mut self.links[number][channel]);
                let request = if chained { link } else { requests[channel].map(Request::from) };
                let out = lane.clock(In { request, control: None });
                if let (Some(ended), Some(next)) = (out.ended, self.links.get_mut(number + 1)) {
                    next[channel] =
                        Some(Request { record: ended.request.record, chained: Some(ended.value) });
                }
            }
        }
    }

    /// Issues a control operation to a lane and waits until it ends; the other lanes are halted,
    /// which affects no result. Returns the word that was read, and the line.
    fn slot(&mut self, pipeline: usize, channel: usize, slot: Slot) -> (Option<u64>, Option<Line>) {
        let lane = &mut self.lanes[pipeline][channel];
        let mut control = Some(slot);
        let mut read = (None, None);
        while control.is_some() || !lane.is_idle() {
            let out = lane.clock(In { request: None, control });
            if out.granted == Granted::Control {
                control = None;
            }
            read = (read.0.or(out.taken), read.1.or(out.line));
        }
        read
    }
}

impl BusObserver for Cycle {
    fn observe(&mut self, batch: &[BusRecord]) {
        let mut requests = self.nothing();
        for record in batch {
            let Some(place) = self.memory.route(record.address()) else { continue };
            if requests[place.controller][place.channel].is_some() {
                self.clock(&requests);
                requests.iter_mut().flatten().for_each(|request| *request = None);
            }
            requests[place.controller][place.channel] = Some(*record);
        }
        self.clock(&requests);
        self.drain();
    }
}

impl Engine for Cycle {
    fn geometry(&self) -> Geometry {
        let pipelines = self.controllers[0].lanes.len();
        let banks = pipelines * crate::geometry::MAX_BANKS;
        Geometry { pipelines, channels: self.memory.channels(), banks }
    }

    fn memory(&self) -> &Memory {
        &self.memory
    }

    fn control(&mut self, at: At, control: Control) {
        let controller = &mut self.controllers[at.controller];
        let slot = match control {
            Control::Program(program) => Slot::Program(program),
            Control::Translate(key, entry) => Slot::Translate(key, entry),
            Control::Acknowledge => Slot::Acknowledge,
            Control::Capture { first, count } => {
                let Some(program) = controller.lanes[at.pipeline][0].program().copied() else {
                    return;
                };
                for (cell, (word, lanes)) in capture_slots(&program, first, count).enumerate() {
                    for channel in 0..self.memory.channels() {
                        let take = Slot::Take { word: word as u16, lanes };
                        let taken = controller.slot(at.pipeline, channel, take).0.unwrap_or(0);
                        if let Some(cell) = controller.captured[channel].get_mut(cell) {
                            *cell = taken;
                        }
                    }
                }
                return;
            }
        };
        for channel in 0..self.memory.channels() {
            controller.slot(at.pipeline, channel, slot);
        }
    }

    fn load(&mut self, controller: usize, line: u64) -> Line {
        let region = Region::of(self.geometry());
        let controller = &mut self.controllers[controller];
        match region.holds(line) {
            Some(LineContent::Captured { channel, word }) => {
                std::array::from_fn(|at| controller.captured[channel][word + at])
            }
            Some(LineContent::States { pipeline, channel, word }) => {
                let line = (word / LINE_WORDS) as u16;
                controller.slot(pipeline, channel, Slot::Load { line }).1.unwrap_or_default()
            }
            None => [0; LINE_WORDS],
        }
    }

    fn status(&mut self, at: At, channel: usize) -> Status {
        self.controllers[at.controller].lanes[at.pipeline][channel].status()
    }

    fn pending(&mut self, controller: usize) -> u64 {
        let lanes = self.controllers[controller].lanes.iter().enumerate();
        let triggered = lanes.filter(|(_, l)| l.iter().any(|lane| lane.status().hint.is_some()));
        triggered.fold(0, |bits, (number, _)| bits | 1 << number)
    }
}
