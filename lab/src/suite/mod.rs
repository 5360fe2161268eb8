//! `suite.toml`: the checks of `make test` that need a kernel, run sequentially and counted.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::accuracy;
use crate::bench;
use crate::error::{Context, Error, Kind, Result};
use crate::fetch::Tree;
use crate::machine;
use crate::paths;
use crate::run::{self, Options};
use crate::scenario::Scenario;

mod shared;
mod tally;

pub use tally::{Count, Tally, build_modules, run_all, run_cases};

/// Contents of `suite.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suite {
    /// Cases, in order.
    #[serde(rename = "case")]
    pub cases: Vec<Case>,
}

/// A case of the suite: a scenario in one variant, and the checks of its results.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Case {
    /// Readable name of the case.
    pub name: String,
    /// Name of the scenario.
    pub scenario: String,
    /// Name of a machine that the case shares with others of the same machine; none: its own.
    pub boot: Option<String>,
    /// Names of kernels; none: all.
    pub kernels: Vec<String>,
    /// Parameters of the job, as `key=value`.
    pub set: Vec<String>,
    /// NUMA machine instead of the scenario's.
    pub topology: Option<String>,
    /// Use 5-level page tables.
    pub la57: bool,
    /// Enable page-table isolation.
    pub pti: bool,
    /// Minimum recall of the recording against the workload's truth.
    pub accuracy: Option<f64>,
    /// Whether `rates` and Telescope bounded must report the same as on the exact simulated
    /// machine.
    pub simulated: bool,
    /// Whether the checks of an instrumented machine are run.
    pub machine: bool,
    /// Whether the checks of placement policies are run.
    pub place: bool,
    /// Whether the checks of reclaim policies are run.
    pub reclaim: bool,
    /// Minimum precision and recall of the first entry of `compared` against the toucher's truth.
    pub compare: Option<f64>,
    /// Instruments whose recordings are compared, by the scenario's directory names; default:
    /// `rates` and Telescope bounded.
    pub compared: Vec<String>,
}

impl Suite {
    /// Reads `lab/suite.toml`.
    pub fn load() -> Result<Self> {
        Self::read("suite.toml")
    }

    /// Reads a file of `lab`.
    pub(crate) fn read(name: &str) -> Result<Self> {
        let path = paths::lab().join(name);
        Self::parse(&std::fs::read_to_string(&path).at(path.display())?)
    }

    /// Parses a suite and checks that its scenarios and their parameters exist.
    pub fn parse(text: &str) -> Result<Self> {
        let bad =
            |e: toml::de::Error| Error::new(Kind::Usage, "cases", e.to_string().replace('\n', " "));
        let suite: Suite = toml::from_str(text).map_err(bad)?;
        suite.cases.iter().try_for_each(|case| case.scenario().map(|_| ()))?;
        shared::boots(&suite.cases).iter().try_for_each(|boot| shared::joined(boot).map(|_| ()))?;
        Ok(suite)
    }
}

impl Case {
    fn scenario(&self) -> Result<Scenario> {
        let mut scenario = Scenario::load(&self.scenario)?;
        self.set.iter().try_for_each(|assignment| scenario.assign(assignment))?;
        if let Some(topology) = &self.topology {
            scenario.topology.clone_from(topology);
        }
        Ok(scenario)
    }

    fn compared(&self) -> Vec<String> {
        match self.compared.as_slice() {
            [] => ["rates-bayes", "telescope-bounded"].map(String::from).to_vec(),
            named => named.to_vec(),
        }
    }

    /// Whether the case applies to the kernel of that name.
    #[must_use]
    pub fn runs_on(&self, kernel: &str) -> bool {
        self.kernels.is_empty() || self.kernels.iter().any(|name| name == kernel)
    }

    /// Runs the case on a kernel, in a machine of its own.
    ///
    /// # Errors
    /// The case fails.
    pub fn run(&self, kernel_name: &str, kernel: &Tree) -> Result<()> {
        let scenario = self.scenario()?;
        let done =
            run::run(&scenario, kernel_name, kernel, &self.options(&self.name, kernel_name))?;
        run::judge(&self.name, &done)?;
        self.check(&done.out, &scenario)
    }

    /// Where the files of the case's own machine are.
    pub(crate) fn out(&self, kernel_name: &str) -> PathBuf {
        out_of(&self.name, kernel_name)
    }

    /// Options of a machine whose files have this name.
    fn options(&self, name: &str, kernel_name: &str) -> Options {
        let out = out_of(name, kernel_name);
        let _ = std::fs::remove_dir_all(&out);
        Options { out: Some(out), la57: self.la57, pti: self.pti, ..Options::default() }
    }

    /// Checks what the case's job left in its /out.
    fn check(&self, out: &Path, scenario: &Scenario) -> Result<()> {
        if let Some(bar) = self.compare {
            bench::accuracy::check(out, &self.compared(), bar)?;
        }
        if self.machine {
            machine::check(out)?;
        }
        if self.place {
            bench::tiering::check(out, scenario)?;
        }
        if self.reclaim {
            bench::reclaim::check(out, scenario)?;
        }
        if self.simulated {
            bench::sim::check(out, scenario)?;
        }
        match self.accuracy {
            Some(bar) => accuracy::check(out, bar),
            None => Ok(()),
        }
    }
}

fn out_of(name: &str, kernel_name: &str) -> PathBuf {
    paths::cache().join("out").join(format!("{}-{kernel_name}", file_name(name)))
}

/// File name for the name of a case: `smoke, 5 levels` becomes `smoke-5-levels`.
fn file_name(name: &str) -> String {
    name.split(|c: char| !c.is_alphanumeric())
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suite_in_the_tree_is_sound() {
        assert_eq!(Suite::load().unwrap().cases.len(), 37, "a case less is a check less");
    }

    #[test]
    fn a_case_without_kernels_runs_on_all() {
        let case = |kernels: &[&str]| Case {
            kernels: kernels.iter().map(|k| (*k).to_owned()).collect(),
            ..Case::default()
        };
        assert!(case(&[]).runs_on("6.1"));
        assert!(case(&["6.12"]).runs_on("6.12"));
        assert!(!case(&["6.12"]).runs_on("6.1"));
    }

    #[test]
    fn a_case_with_an_unknown_parameter_is_refused() {
        let text = "[[case]]\nname = 'x'\nscenario = 'smoke'\nset = ['nosuch=1']\n";
        assert!(Suite::parse(text).unwrap_err().to_string().contains("no such key"));
    }

    #[test]
    fn names_become_file_names() {
        assert_eq!(file_name("smoke, 5 levels"), "smoke-5-levels");
    }
}
