//! Somebody else's regions as an instrument: the kernel's DAMON, an imported recording.
//!
//! It decides nothing and clears nothing itself. It asks the source often enough to know of a
//! window soon after its end, and hands it on as it is.

use std::time::Duration;

use tierscope_core::{Instrument, Ports, Result, Setting, Snapshot, Step};

/// Hands on what a [`tierscope_core::RegionSource`] says.
#[derive(Clone, Debug)]
pub struct RegionSource {
    name: &'static str,
    settings: Vec<Setting>,
    poll: Duration,
}

impl RegionSource {
    /// How often the source is asked for news: a quarter of the window of METRICS.md.
    pub const POLL: Duration = Duration::from_millis(50);

    /// An instrument of that name. `settings` are the source's own, for the recording.
    #[must_use]
    pub fn new(name: &'static str, settings: Vec<Setting>) -> Self {
        Self { name, settings, poll: Self::POLL }
    }

    /// Asks the source that often.
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
        // Where there was one window there may be another: ask again before time passes.
        let wake = if snapshot.is_some() { now } else { now + self.poll };
        Ok(Step { wake, snapshot })
    }
}
