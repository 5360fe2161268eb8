//! An instrument that probes nothing and only ends windows: for policies that order all evidence
//! themselves. An instrument that clears ACCESSED bits would compete with them for the bits.

use std::time::Duration;

use tierscope_core::{Instrument, Ports, Result, Setting, Snapshot, Step, Time};

/// Ends an empty window at a fixed interval.
#[derive(Clone, Copy, Debug)]
pub struct Metronome {
    window: Duration,
    began: Option<Time>,
}

impl Metronome {
    /// A metronome with windows of this length.
    #[must_use]
    pub fn new(window: Duration) -> Self {
        Self { window, began: None }
    }
}

impl Instrument for Metronome {
    fn name(&self) -> &'static str {
        "none"
    }

    fn settings(&self) -> Vec<Setting> {
        vec![Setting { name: "window", value: format!("{:?}", self.window) }]
    }

    fn step(&mut self, ports: &mut dyn Ports) -> Result<Step> {
        let now = ports.now();
        let began = *self.began.get_or_insert(now);
        if now < began + self.window {
            return Ok(Step { wake: began + self.window, snapshot: None });
        }
        self.began = Some(now);
        let snapshot = Snapshot { start: began, end: now, ..Snapshot::default() };
        Ok(Step { wake: now + self.window, snapshot: Some(snapshot) })
    }
}
