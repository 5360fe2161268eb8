//! The fast model: what telemetry computes, without when.
//!
//! A pipeline goes through some thousand requests before the next one does, so that its table and
//! states stay in cache; until so many have come they wait, but never longer than until somebody
//! looks.
//!
//! Equal to the cycle model in every state, hint and flag (`tests/models`), but for requests that a
//! full queue drops: here none is full.

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

/// All controllers.
#[derive(Clone, Debug)]
pub struct Functional {
    memory: Memory,
    controllers: Vec<Controller>,
    /// A controller's share of a batch.
    shares: Vec<Vec<BusRecord>>,
}

impl Functional {
    /// Idle controllers that serve `memory`.
    ///
    /// # Errors
    /// No controller can be like that, or its channels are not the memory's.
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
        // One controller needs no routing: what it does not serve matches no entry of its tables.
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
