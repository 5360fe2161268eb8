//! Regions made by another program, as an instrument: the kernel's DAMON, an imported recording.
//!
//! It makes no decisions and clears nothing itself. It polls the source often enough to see a
//! window soon after its end, and passes it on unchanged.

use std::time::Duration;

use tierscope_core::{Instrument, Ports, Result, Setting, Snapshot, Step};

/// Passes on the snapshots of a [`tierscope_core::RegionSource`].
#[derive(Clone, Debug)]
pub struct RegionSource {
    name: &'static str,
    settings: Vec<Setting>,
    poll: Duration,
}

impl RegionSource {
    /// Default polling interval: a quarter of the window of METRICS.md.
    pub const POLL: Duration = Duration::from_millis(50);

    /// Makes an instrument with this name. `settings` are the source's own, for the recording.
    #[must_use]
    pub fn new(name: &'static str, settings: Vec<Setting>) -> Self {
        Self { name, settings, poll: Self::POLL }
    }

    /// Sets the polling interval.
    #[must_use]
    pub fn with_poll(mut self, poll: Duration) -> Self {
        self.poll = poll;
        self
    }
}

impl Instrument for RegionSource {
    fn name(&self) -> &'static str {
        self.name
    }

    fn settings(&self) -> Vec<Setting> {
        let mut settings = self.settings.clone();
        settings.push(Setting { name: "poll", value: format!("{:?}", self.poll) });
        settings
    }

    fn step(&mut self, ports: &mut dyn Ports) -> Result<Step> {
        let snapshot: Option<Snapshot> = ports.region_source()?.next()?;
        let now = ports.now();
        // After one window there may be another: poll again before time passes.
        let wake = if snapshot.is_some() { now } else { now + self.poll };
        Ok(Step { wake, snapshot })
    }
}
