//! Hot lists: a hotness monitoring unit in a memory device counts requests by unit of physical
//! memory, and reports the units whose count reaches a threshold (CXL 3.2, section 8.2.8: CHMU).

use std::time::Duration;

use crate::{RequestKind, Result};

/// When a count is compared with the threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reporting {
    /// At the end of each epoch of this length; then all counts begin at zero again.
    Epoch(Duration),
    /// At each request: a unit that reaches the threshold is reported, and its count is released.
    AlwaysOn,
}

/// What the monitoring units are to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HotProgram {
    /// log2 of the bytes of a unit of memory.
    pub unit_shift: u8,
    /// When counts are compared with the threshold.
    pub reporting: Reporting,
    /// Count from which a unit is hot.
    pub threshold: u32,
    /// One in 2^`downsampling` requests is counted.
    pub downsampling: u8,
    /// The requests that are counted.
    pub requests: RequestKind,
    /// Whether a hot list that is half full, or that overflowed, wakes the reader
    /// ([`Wake::Event`]); otherwise the reader polls.
    ///
    /// [`Wake::Event`]: crate::Wake::Event
    pub interrupts: bool,
}

/// An entry of a hot list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HotUnit {
    /// Physical address of the unit's first byte.
    pub address: u64,
    /// Requests counted, after downsampling. A counter stays at its largest value.
    pub count: u64,
}

/// Hot lists of all monitoring units of a machine, read as one.
pub trait HotLists {
    /// Physical memory whose requests are counted, as (first byte, one past the last), ascending.
    fn sees(&self) -> Vec<(u64, u64)>;

    /// Stops all units, discards counts and entries, and starts the program.
    ///
    /// # Errors
    /// The hardware cannot hold the program: the error names the register and its limit.
    fn enable(&mut self, program: &HotProgram) -> Result<()>;

    /// Appends up to `most` entries to `out`, the oldest first.
    ///
    /// # Errors
    /// No program runs, or a unit does not answer.
    fn drain(&mut self, most: usize, out: &mut Vec<HotUnit>) -> Result<()>;

    /// How often a reader found the overflow flag of a hot list set, so far: entries were lost
    /// before each. The hardware does not count the entries.
    fn overflows(&self) -> u64;
}
