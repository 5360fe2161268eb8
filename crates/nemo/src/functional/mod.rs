//! The functional model: computes the results of telemetry without timing, fast.
//!
//! A pipeline processes about a thousand requests before the next pipeline does, so that its table
//! and states stay in cache; requests are buffered until then, or until a result is read.
//!
//! Equal to the cycle model in every state, hint and flag (`tests/models`), except for requests
//! dropped by a full queue: this model has no queues.

mod batch;
mod controller;
mod part;
mod pipeline;

pub use controller::Controller;
pub use pipeline::Pipeline;

use tierscope_core::{BusObserver, BusRecord, Result};

use crate::engine::{At, Control, Engine, Line, Status};
use crate::geometry::Geometry;
use crate::memory::Memory;

/// Functional engine.
#[derive(Clone, Debug)]
pub struct Functional {
    memory: Memory,
    controllers: Vec<Controller>,
    /// A controller's share of a batch, by controller.
    shares: Vec<Vec<BusRecord>>,
}

impl Functional {
    /// Idle controllers that serve `memory`.
    ///
    /// # Errors
    /// An impossible geometry, or channels that differ from the memory's.
    pub fn new(memory: Memory, pipelines: usize, banks: usize) -> Result<Self> {
        let geometry = Geometry { pipelines, channels: memory.channels(), banks };
        geometry.check()?;
        let controller = |number| Controller::new(geometry, memory.channel_shift(number));
        let controllers: Vec<_> = (0..memory.controllers()).map(controller).collect();
        let shares = vec![Vec::new(); controllers.len()];
        Ok(Self { memory, controllers, shares })
    }

    /// A controller.
    pub fn controller(&mut self, number: usize) -> &mut Controller {
        &mut self.controllers[number]
    }
}

impl BusObserver for Functional {
    fn observe(&mut self, batch: &[BusRecord]) {
        // A single controller needs no routing: addresses that it does not serve have no entry in
        // its tables.
        if let [only] = &mut self.controllers[..] {
            only.observe(batch);
            return;
        }
        self.shares.iter_mut().for_each(Vec::clear);
        for record in batch {
            if let Some(place) = self.memory.route(record.address()) {
                self.shares[place.controller].push(*record);
            }
        }
        for (controller, share) in self.controllers.iter_mut().zip(&self.shares) {
            controller.observe(share);
        }
    }
}

impl Engine for Functional {
    fn geometry(&self) -> Geometry {
        self.controllers[0].geometry()
    }

    fn memory(&self) -> &Memory {
        &self.memory
    }

    fn control(&mut self, at: At, control: Control) {
        self.controllers[at.controller].control(at.pipeline, control);
    }

    fn load(&mut self, controller: usize, line: u64) -> Line {
        self.controllers[controller].load(line)
    }

    fn status(&mut self, at: At, channel: usize) -> Status {
        self.controllers[at.controller].pipeline(at.pipeline).status(channel)
    }

    fn pending(&mut self, controller: usize) -> u64 {
        self.controllers[controller].pending()
    }
}
