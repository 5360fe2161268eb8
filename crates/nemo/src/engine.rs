//! The interface between the driver and controllers of any implementation.

use tierscope_core::Result;

use crate::geometry::{Geometry, LINE_WORDS};
use crate::memory::Memory;
use crate::program::{Hint, Program};
use crate::registers::Limits;

/// A cache line of the telemetry region.
pub type Line = [u64; LINE_WORDS];

/// Address of a pipeline: its controller and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct At {
    /// Number of the controller.
    pub controller: usize,
    /// Number of the pipeline in it.
    pub pipeline: usize,
}

/// A write to the control registers of a pipeline; it applies to each of its channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Control {
    /// Clears all states and entries, and programs the pipeline, or leaves it idle.
    Program(Option<Program>),
    /// Writes an entry of the translation table: the base index, or none.
    Translate(u16, Option<u32>),
    /// Captures `count` states from `first` on, with the read effect, into the controller's capture
    /// page; at most a page of words.
    Capture {
        /// First state to capture.
        first: u32,
        /// Number of states to capture.
        count: u32,
    },
    /// Clears the hints of all channels.
    Acknowledge,
}

/// Status registers of a pipeline in one channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Status {
    /// Requests dropped since programming because the queue was full.
    pub dropped: u64,
    /// Whether a counter wrapped around.
    pub wrapped: bool,
    /// The first state for which the trigger held since the last acknowledgement.
    pub hint: Option<Hint>,
}

/// Controllers with telemetry, and the memory that they serve.
pub trait Engine {
    /// Resources of each controller.
    fn geometry(&self) -> Geometry;

    /// What the control registers hold.
    fn limits(&self) -> Limits {
        Limits::EXTENDED
    }

    /// The memory served by the controllers.
    fn memory(&self) -> &Memory;

    /// Writes to control registers; returns when the operation is complete.
    fn control(&mut self, at: At, control: Control);

    /// Invalidates a line in the host's caches.
    fn invalidate(&mut self, _controller: usize, _line: u64) {}

    /// Loads a line of a controller's telemetry region ([`crate::region`]).
    fn load(&mut self, controller: usize, line: u64) -> Line;

    /// Reads status registers.
    fn status(&mut self, at: At, channel: usize) -> Status;

    /// Bitmap of a controller's pipelines that hold a hint: its interrupt.
    fn pending(&mut self, controller: usize) -> u64;

    /// Whether all operations so far were carried out. Register writes return no errors; a machine
    /// that stops responding is only noticed afterwards. The driver calls this at the end of each
    /// request.
    ///
    /// # Errors
    /// The first operation that failed.
    fn check(&self) -> Result<()> {
        Ok(())
    }
}
