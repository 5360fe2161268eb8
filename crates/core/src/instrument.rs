//! Instruments: they turn a target's evidence into snapshots.

use crate::{Ports, Result, Snapshot, Time};

/// A setting of an instrument, as text for recordings and reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its name, as on the command line.
    pub name: &'static str,
    /// Its value.
    pub value: String,
}

/// What one step of an instrument gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// When the instrument wants to be stepped again.
    pub wake: Time,
    /// The snapshot, if this step ended a window.
    pub snapshot: Option<Snapshot>,
}

/// Evidence that is gone once somebody has read it, and that an instrument reads itself: a policy beside it
/// is not given what it would miss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// The machine's samples.
    pub samples: bool,
    /// Its hint faults.
    pub faults: bool,
}

/// A telemetry technique.
///
/// It never sleeps and never loops over time: the drive loop steps it when its `wake` has come,
/// or earlier when something happened (a target's mappings changed). Whatever it needs from the
/// machine comes through the ports, on every step anew.
pub trait Instrument {
    /// Its name, as on the command line.
    fn name(&self) -> &'static str;

    /// Its settings, for the recording.
    fn settings(&self) -> Vec<Setting>;

    /// What it reads that nobody else can read after it.
    fn reads(&self) -> Reads {
        Reads::default()
    }

    /// Does what is due now.
    ///
    /// # Errors
    /// If a port that it cannot work without is missing or fails. A space that vanished is no
    /// error: the instrument drops its regions.
    fn step(&mut self, ports: &mut dyn Ports) -> Result<Step>;
}
