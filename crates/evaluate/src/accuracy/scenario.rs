//! Scenarios: experiments whose instruments are judged by the ranges that the workload declares
//! hot.

use std::ops::Deref;
use std::path::Path;

use tierscope_core::{Error, ErrorKind, Result};
use tierscope_sim::experiment::{Change, Experiment, File, read};

use crate::catalogue::{self, Kind};
use crate::contender::usual;
use crate::watch::{Watch, watches};
use crate::workload::read_workload;

/// An experiment, and the contenders to be judged.
#[derive(Clone, Debug)]
pub struct Scenario {
    experiment: Experiment,
    /// Contenders, each on its own copy of the machine; the default ones if the experiment names
    /// none.
    pub contenders: Vec<Watch>,
}

impl Deref for Scenario {
    type Target = Experiment;

    fn deref(&self) -> &Experiment {
        &self.experiment
    }
}

impl Scenario {
    /// Loads a ready-made scenario by name, or from a file.
    ///
    /// # Errors
    /// There is neither, or its text is invalid: with line and column.
    pub fn load(text: &str) -> Result<Scenario> {
        Scenario::parse(text, &content(text)?)
    }

    /// As [`Scenario::load`], with changes.
    ///
    /// # Errors
    /// As [`Scenario::load`], or an invalid change.
    pub fn changed(text: &str, changes: &[Change]) -> Result<Scenario> {
        match changes {
            [] => Scenario::load(text),
            some => Scenario::of(Experiment::changed(text, &content(text)?, some, read_workload)?),
        }
    }

    /// Parses a scenario's TOML text.
    ///
    /// # Errors
    /// As [`Scenario::load`].
    pub fn parse(name: &str, text: &str) -> Result<Scenario> {
        Scenario::part(name, text, &read(name, text)?)
    }

    /// Parses a scenario that is one part of a file.
    ///
    /// # Errors
    /// As [`Scenario::load`].
    pub(crate) fn part(name: &str, text: &str, file: &File) -> Result<Scenario> {
        Scenario::of(Experiment::part(name, text, file, read_workload)?)
    }

    /// Makes a scenario of an experiment.
    ///
    /// # Errors
    /// No workload declares hot ranges, or an instrument is unknown.
    pub fn of(experiment: Experiment) -> Result<Scenario> {
        if experiment.processes.iter().all(|process| process.work.described().is_none()) {
            let what = format!("scenario {} cannot be judged", experiment.name);
            return Err(Error::new(ErrorKind::Data, what)
                .cause(
                    "its programs' accesses follow from their computation: no hot ranges are declared",
                )
                .remedy("add a process with a described workload"));
        }
        let mut contenders = watches(&experiment, &[])?;
        if contenders.is_empty() {
            contenders = usual().map(Watch::from).collect();
        }
        Ok(Scenario { experiment, contenders })
    }

    /// Mutable access to the experiment.
    pub fn experiment_mut(&mut self) -> &mut Experiment {
        &mut self.experiment
    }
}

/// Text of the ready-made scenario of that name, or of the file.
fn content(text: &str) -> Result<String> {
    if let Some(entry) = catalogue::find(Kind::Accuracy, text) {
        return Ok(entry.text.to_owned());
    }
    std::fs::read_to_string(Path::new(text)).map_err(|error| {
        let names: Vec<&str> = catalogue::of(Kind::Accuracy).map(|entry| entry.name).collect();
        Error::new(ErrorKind::Io, format!("cannot read scenario {text}"))
            .cause(error)
            .remedy(format!("give a TOML file, or one of {}", names.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name = \"toy\"\nabout = \"a\"\nsource = \"b\"\ntime = \"1s\"\n\
                        [[process]]\nworkload = \"contiguous:space=1GiB,hot=64MiB\"\n";

    #[test]
    fn every_ready_made_scenario_is_whole() {
        for entry in catalogue::of(Kind::Accuracy) {
            let scenario = Scenario::load(entry.name).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(scenario.name, entry.name);
            assert!(!scenario.source.is_empty());
        }
    }

    #[test]
    fn all_contenders_run_where_none_is_named() {
        let scenario = |text: &str| Scenario::parse("s.toml", text);
        assert_eq!(scenario(TEXT).unwrap().contenders.len(), usual().count());
        let some = TEXT.replace("time", "instruments = [\"scan\", \"rates\"]\ntime");
        let names: Vec<String> =
            scenario(&some).unwrap().contenders.into_iter().map(|watch| watch.name).collect();
        assert_eq!(names, ["scan", "rates"]);
        let wrong = TEXT.replace("time", "instruments = [\"rates\", \"demon\"]\ntime");
        let error = scenario(&wrong).unwrap_err().to_string();
        assert!(error.starts_with("s.toml:4:25: no contender is called demon"), "{error}");
    }
}
