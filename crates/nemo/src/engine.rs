//! What the driver needs of controllers, however they are made.

use tierscope_core::Result;

use crate::geometry::{Geometry, LINE_WORDS};
use crate::memory::Memory;
use crate::program::{Hint, Program};

/// A line of the telemetry region.
pub type Line = [u64; LINE_WORDS];

/// A pipeline of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct At {
    /// The controller.
    pub controller: usize,
    /// The pipeline in it.
    pub pipeline: usize,
}

/// A write to the control registers of a pipeline: it goes to each of its channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Control {
    /// Forgets all states and entries, and programs it, or leaves it idle.
    Program(Option<Program>),
    /// Writes an entry of the translation table: the base index, or none.
    Translate(u16, Option<u32>),
    /// Captures that many states from the first on, with the effect of a read, into the
    /// controller's capture page; at most a page of words.
    Capture {
        /// The first state.
        first: u32,
        /// How many.
        count: u32,
    },
    /// Forgets the hints of all channels.
    Acknowledge,
}

/// What a channel of a pipeline has to say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Status {
    /// Requests that found the queue full since it was programmed, and are in no state.
    pub dropped: u64,
    /// Whether a counter went beyond its largest value and began anew.
    pub wrapped: bool,
    /// The first state for which the trigger held since the last acknowledgement.
    pub hint: Option<Hint>,
}

/// Controllers with telemetry, and the memory that they serve.
pub trait Engine {
    /// What each controller carries.
    fn geometry(&self) -> Geometry;

    /// What they serve.
    fn memory(&self) -> &Memory;

    /// Writes to control registers; returns when it is done.
    fn control(&mut self, at: At, control: Control);

    /// Drops what caches hold of a line.
    fn invalidate(&mut self, _controller: usize, _line: u64) {}

    /// Loads a line of a controller's telemetry region ([`crate::region`]).
    fn load(&mut self, controller: usize, line: u64) -> Line;

    /// Reads status registers.
    fn status(&mut self, at: At, channel: usize) -> Status;

    /// Pipelines of a controller that hold a hint, a bit each: its interrupt.
    fn pending(&mut self, controller: usize) -> u64;

    /// Whether all of it was carried out so far. Registers cannot refuse; a machine that stops answering
    /// can only be told of afterwards. The driver asks at the end of whatever it is asked for.
    ///
    /// # Errors
    /// The first thing that was not.
    fn check(&self) -> Result<()> {
        Ok(())
    }
}
