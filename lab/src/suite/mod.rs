//! `suite.toml`: the checks of `make test` that need a kernel, run sequentially and counted.

use serde::Deserialize;

use crate::accuracy;
use crate::bench;
use crate::error::{Context, Error, Kind, Result};
use crate::fetch::Tree;
use crate::kbuild;
use crate::kernels::Matrix;
use crate::machine;
use crate::paths;
use crate::progress::say;
use crate::run::{self, Options};
use crate::scenario::Scenario;

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
        let path = paths::lab().join("suite.toml");
        Self::parse(&std::fs::read_to_string(&path).at(path.display())?)
    }

    /// Parses a suite and checks that its scenarios and their parameters exist.
    pub fn parse(text: &str) -> Result<Self> {
        let bad = |e: toml::de::Error| {
            Error::new(Kind::Usage, "lab/suite.toml", e.to_string().replace('\n', " "))
        };
        let suite: Suite = toml::from_str(text).map_err(bad)?;
        suite.cases.iter().try_for_each(|case| case.scenario().map(|_| ()))?;
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

    /// Runs the case on a kernel.
    ///
    /// # Errors
    /// The case fails.
    pub fn run(&self, kernel_name: &str, kernel: &Tree) -> Result<()> {
        let scenario = self.scenario()?;
        let out =
            paths::cache().join("out").join(format!("{}-{kernel_name}", file_name(&self.name)));
        let _ = std::fs::remove_dir_all(&out);
        let options =
            Options { out: Some(out), la57: self.la57, pti: self.pti, ..Options::default() };
        let done = run::run(&scenario, kernel_name, kernel, &options)?;
        run::judge(&self.name, &done)?;
        if let Some(bar) = self.compare {
            bench::accuracy::check(&done.out, &self.compared(), bar)?;
        }
        if self.machine {
            machine::check(&done.out)?;
        }
        if self.place {
            bench::tiering::check(&done.out, &scenario)?;
        }
        if self.reclaim {
            bench::reclaim::check(&done.out, &scenario)?;
        }
        if self.simulated {
            bench::sim::check(&done.out, &scenario)?;
        }
        match self.accuracy {
            Some(bar) => accuracy::check(&done.out, bar),
            None => Ok(()),
        }
    }
}

/// File name for the name of a case: `smoke, 5 levels` becomes `smoke-5-levels`.
fn file_name(name: &str) -> String {
    name.split(|c: char| !c.is_alphanumeric())
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join("-")
}

/// Counts checks and prints their results, in lines that scripts can parse.
#[derive(Debug, Default)]
pub struct Tally {
    passed: u32,
    failed: u32,
}

impl Tally {
    /// Counts and prints the result of one check.
    pub fn count(&mut self, name: &str, result: Result<()>) {
        match result {
            Ok(()) => {
                self.passed += 1;
                println!("PASS {name}");
            }
            Err(error) => {
                self.failed += 1;
                println!("FAIL {name}: {error}");
            }
        }
    }

    /// Overall result.
    ///
    /// # Errors
    /// At least one check failed.
    pub fn verdict(&self) -> Result<()> {
        say(format!("{} checks passed, {} failed", self.passed, self.failed));
        match self.failed {
            0 => Ok(()),
            n => Err(Error::new(Kind::Job, "checks", format!("{n} of {} failed", self.passed + n))),
        }
    }
}

/// Runs all checks that need a kernel: its features, the build of our modules with sparse, and the
/// cases whose name contains `only`.
///
/// # Errors
/// A check failed, or there was nothing to check.
pub fn run_all(matrix: &Matrix, kernels: &[(String, Tree)], only: &str) -> Result<()> {
    let suite = Suite::load()?;
    let mut tally = Tally::default();
    for (name, tree) in kernels {
        if only.is_empty() {
            tally.count(
                &format!("kernel {name} is as kernels.toml says"),
                check_features(matrix, name, tree),
            );
            for module in kbuild::names() {
                let built = kbuild::build(module, tree, true).map(|_| ());
                tally.count(
                    &format!("module {module} builds for {name}, sparse and warnings clean"),
                    built,
                );
            }
        }
        for case in suite.cases.iter().filter(|case| case.runs_on(name) && case.name.contains(only))
        {
            say(format!("{} on {name}", case.name));
            let title = format!("{} on {name}", case.name);
            tally.count(&title, once_more_if_emulator(&title, || case.run(name, tree)));
        }
    }
    tally.verdict()
}

/// Repeats a check once if it failed because of a bug of the emulated processor; the second result
/// counts.
fn once_more_if_emulator(title: &str, mut check: impl FnMut() -> Result<()>) -> Result<()> {
    match check() {
        Err(error) if error.kind == Kind::Emulator => {
            say(format!("{title}: {error}: a fault that QEMU has before 8.1; once more"));
            check()
        }
        result => result,
    }
}

/// Compares kernels.toml with the kernel's configuration file.
///
/// # Errors
/// They differ.
pub fn check_features(matrix: &Matrix, name: &str, tree: &Tree) -> Result<()> {
    let config = std::fs::read_to_string(tree.config()).at(tree.config().display())?;
    match matrix.wrong_features(matrix.kernel(name)?, &config).as_slice() {
        [] => Ok(()),
        wrong => Err(Error::new(
            Kind::Job,
            format!("kernel {name}"),
            format!("kernels.toml is wrong about {}", wrong.join(", ")),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suite_in_the_tree_is_sound() {
        assert_eq!(Suite::load().unwrap().cases.len(), 35, "a case less is a check less");
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
    fn one_failure_fails_all() {
        let mut tally = Tally::default();
        tally.count("a", Ok(()));
        assert!(tally.verdict().is_ok());
        tally.count("b", Err(Error::new(Kind::Job, "b", "broke")));
        assert_eq!(tally.verdict().unwrap_err().to_string(), "checks: 1 of 2 failed");
    }

    #[test]
    fn only_the_emulators_fault_is_tried_again_and_only_once() {
        let runs = |kinds: &[Option<Kind>]| {
            let mut left = kinds.iter();
            let result = once_more_if_emulator("x", || match left.next().unwrap() {
                Some(kind) => Err(Error::new(*kind, "x", "broke")),
                None => Ok(()),
            });
            (result.is_ok(), kinds.len() - left.len())
        };
        assert_eq!(runs(&[None]), (true, 1));
        assert_eq!(runs(&[Some(Kind::Kernel), None]), (false, 1));
        assert_eq!(runs(&[Some(Kind::Emulator), None]), (true, 2));
        assert_eq!(runs(&[Some(Kind::Emulator), Some(Kind::Emulator), None]), (false, 2));
    }

    #[test]
    fn names_become_file_names() {
        assert_eq!(file_name("smoke, 5 levels"), "smoke-5-levels");
    }
}
