//! Experiments by name, from files, or from a few settings, with overrides.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use tierscope_core::{Error, ErrorKind, Result};
use tierscope_sim::experiment::{Change, Experiment, Mode, read_file};

use crate::catalogue;
use crate::workload::read_workload;

/// Overrides of an experiment's settings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overrides {
    /// Simulated time.
    pub time: Option<Duration>,
    /// Seed of all draws.
    pub seed: Option<u64>,
    /// Changed parameters.
    pub changes: Vec<Change>,
}

/// Parses `KEY=VALUE`.
///
/// # Errors
/// A message with the expected form, if there is no `=`, or no key before it.
pub fn change(text: &str) -> Result<Change, String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => {
            Ok(Change { key: key.into(), value: value.into() })
        }
        _ => Err("give it like simulation.exact.tick=1ms".into()),
    }
}

/// Loads a built-in experiment by name, or a file, with overrides and further changes applied.
///
/// # Errors
/// It cannot be read, it is invalid, or an override is.
pub fn load(name: &str, overrides: &Overrides, more: &[Change]) -> Result<Experiment> {
    let text = match catalogue::experiment(name) {
        Some(text) => text,
        None => read_file(Path::new(name))?,
    };
    parse(name, &text, overrides, more)
}

/// Parses an experiment's text, with overrides and further changes applied.
///
/// # Errors
/// The text is invalid, or an override is.
pub fn parse(name: &str, text: &str, overrides: &Overrides, more: &[Change]) -> Result<Experiment> {
    let changes = [&overrides.changes[..], more].concat();
    let mut experiment = Experiment::changed(name, text, &changes, read_workload)?;
    if let Some(time) = overrides.time {
        if time < experiment.window {
            return Err(Error::new(ErrorKind::Usage, "the time is too short")
                .cause(format!("it does not hold a window of {:?}", experiment.window))
                .remedy("simulate longer"));
        }
        experiment.time = time;
    }
    if let Some(seed) = overrides.seed {
        experiment.reseed(seed);
    }
    Ok(experiment)
}

/// Simulated time of a [`Plain`] experiment.
const TIME: Duration = Duration::from_secs(20);

/// An experiment of one process on ready-made hardware.
#[derive(Clone, Copy, Debug)]
pub struct Plain<'a> {
    /// The workload, as in an experiment file.
    pub workload: &'a str,
    /// The hardware: ready-made, or a file.
    pub machine: &'a str,
    /// Tiers of the hardware, and their bytes; all at full size if empty.
    pub tiers: &'a [(String, u64)],
    /// Number of threads; `None` for the workload's own.
    pub threads: Option<u32>,
    /// Simulation mode.
    pub mode: Mode,
    /// Whether all pages are present from the beginning.
    pub populate: bool,
}

impl Plain<'_> {
    /// The equivalent TOML text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!(
            "name = \"tier\"\nabout = {}\nsource = \"the command line\"\ntime = \"{}s\"\n\n\
             [machine]\nhardware = {}\n",
            quoted(&format!("{} on {}", self.workload, self.machine)),
            TIME.as_secs(),
            quoted(self.machine)
        );
        for (name, bytes) in self.tiers {
            // Writing to a string cannot fail, here and below.
            let _ =
                writeln!(text, "\n[[machine.tier]]\nname = {}\nsize = \"{bytes}B\"", quoted(name));
        }
        let Self { workload, populate, .. } = self;
        let _ =
            writeln!(text, "\n[[process]]\nworkload = {}\npopulate = {populate}", quoted(workload));
        if let Some(threads) = self.threads {
            let _ = writeln!(text, "threads = {threads}");
        }
        let _ = writeln!(text, "\n[simulation]\nmode = \"{}\"", self.mode.name());
        text
    }
}

/// Quotes a text as a TOML string.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_make_an_experiment() {
        let tiers = [("dram".to_owned(), 64 << 20), ("optane".to_owned(), 256 << 20)];
        let plain = Plain {
            workload: "contiguous:space=128MiB,hot=8MiB",
            machine: "xeon-gold-6238m",
            tiers: &tiers,
            threads: Some(2),
            mode: Mode::Exact,
            populate: true,
        };
        let experiment =
            Experiment::parse("t", &plain.text()).unwrap_or_else(|error| panic!("{error}"));
        let sizes: Vec<u64> = experiment.setup.hardware.tiers.iter().map(|t| t.mib).collect();
        assert_eq!((sizes, experiment.processes[0].threads), (vec![64, 256], 2));
        assert_eq!(experiment.time, TIME);
    }
}
