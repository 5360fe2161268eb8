//! Instruments: they turn a target's evidence into snapshots.

use crate::{Ports, Result, Snapshot, Time};

/// A setting of an instrument, as text for recordings and reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Name, as on the command line.
    pub name: &'static str,
    /// Value of the setting, as text.
    pub value: String,
}

/// Result of one step of an instrument.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// When the instrument has to be stepped next.
    pub wake: Time,
    /// The snapshot, if this step ended a window.
    pub snapshot: Option<Snapshot>,
}

/// Evidence that reading consumes and that the instrument reads itself: the drive loop does not
/// feed it to the policy, which would miss the part that the instrument took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// The instrument drains the samples.
    pub samples: bool,
    /// The instrument drains the hint faults.
    pub faults: bool,
}

/// A telemetry technique.
///
/// It never sleeps and never loops over time: the drive loop steps it at its `wake` time, or
/// earlier after an event (the target's mappings changed). Each step receives the machine's ports
/// as an argument.
pub trait Instrument {
    /// Its name, as on the command line.
    fn name(&self) -> &'static str;

    /// Its settings, for the recording.
    fn settings(&self) -> Vec<Setting>;

    /// Consuming ports that it drains itself.
    fn reads(&self) -> Reads {
        Reads::default()
    }

    /// Does the work that is due now.
    ///
    /// # Errors
    /// If a port that it cannot work without is missing or fails. A space that vanished is no
    /// error: the instrument drops its regions.
    fn step(&mut self, ports: &mut dyn Ports) -> Result<Step>;
}
