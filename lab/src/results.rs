//! `docs/kernels.json`: what `make test-kernels` found on each kernel, with date and commit.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::command::capture;
use crate::error::{Context, Error, Kind, Result};
use crate::fetch::{self, Tree};
use crate::kernels::{Kernel, Matrix};
use crate::paths;
use crate::progress::say;
use crate::suite;

/// All results, in the order of `kernels.toml`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Results {
    /// One for each kernel that was asked for.
    pub kernels: Vec<Tested>,
}

/// What was found on a kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tested {
    /// Its name in `kernels.toml`.
    pub kernel: String,
    /// Its release; None: it is not available.
    pub release: Option<String>,
    /// Day of the test.
    pub date: String,
    /// Commit of tierscope, with `-dirty` if other files were changed since.
    pub commit: String,
    /// Whether its configuration has each feature, by key of [`Matrix::features`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub features: BTreeMap<String, bool>,
    /// Number of checks that passed.
    pub passed: u32,
    /// Each check that failed, with its error.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub failed: BTreeMap<String, String>,
}

fn file() -> PathBuf {
    paths::root().join("docs/kernels.json")
}

impl Results {
    /// Reads the stored results; none are stored before the first test.
    ///
    /// # Errors
    /// The file is not of this form.
    pub fn load() -> Result<Self> {
        let Ok(text) = std::fs::read_to_string(file()) else { return Ok(Self::default()) };
        serde_json::from_str(&text)
            .map_err(|e| Error::new(Kind::Usage, file().display().to_string(), e))
    }

    /// The result of a kernel.
    #[must_use]
    pub fn of(&self, kernel: &str) -> Option<&Tested> {
        self.kernels.iter().find(|tested| tested.kernel == kernel)
    }

    fn put(&mut self, matrix: &Matrix, tested: Tested) -> Result<()> {
        self.kernels.retain(|other| other.kernel != tested.kernel);
        self.kernels.push(tested);
        let place = |name: &str| matrix.all().position(|kernel| kernel.name == name);
        self.kernels.retain(|tested| place(&tested.kernel).is_some());
        self.kernels.sort_by_key(|tested| place(&tested.kernel));
        let text = serde_json::to_string_pretty(self).map_err(std::io::Error::from);
        let scratch = file().with_extension("new");
        std::fs::write(&scratch, text.at("results")? + "\n").at(scratch.display())?;
        std::fs::rename(&scratch, file()).at(file().display())
    }
}

/// Tests kernels and stores the results, each as soon as it is there; without names all kernels
/// that were not tested on this commit.
///
/// # Errors
/// A check failed.
pub fn test_kernels(matrix: &Matrix, names: &[String]) -> Result<()> {
    let date = capture(Command::new("date").args(["-u", "+%F"]))?.trim().to_owned();
    let commit = commit()?;
    let mut results = Results::load()?;
    let done = |results: &Results, name: &str| {
        results.of(name).is_some_and(|tested| tested.commit == commit && tested.release.is_some())
    };
    let mut failed = 0;
    for kernel in matrix.all() {
        let asked = names.contains(&kernel.name);
        if !asked && (!names.is_empty() || done(&results, &kernel.name)) {
            continue;
        }
        let tested = test(matrix, kernel, (&date, &commit))?;
        failed += tested.failed.len();
        results.put(matrix, tested)?;
    }
    match failed {
        0 => Ok(()),
        n => Err(Error::new(Kind::Job, "checks", format!("{n} failed"))),
    }
}

/// The commit, with `-dirty` if files other than the results differ from it.
fn commit() -> Result<String> {
    let git = |words: &[&str]| capture(Command::new("git").args(words).current_dir(paths::root()));
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let others = ["--", ".", ":!docs/kernels.json", ":!SUPPORT.md"];
    let changed = git(&[&["status", "--porcelain", "-uno"][..], &others].concat())?;
    Ok(commit.trim().to_owned() + if changed.is_empty() { "" } else { "-dirty" })
}

fn test(matrix: &Matrix, kernel: &Kernel, (date, commit): (&str, &str)) -> Result<Tested> {
    let mut tested = Tested {
        kernel: kernel.name.clone(),
        release: None,
        date: date.to_owned(),
        commit: commit.to_owned(),
        features: BTreeMap::new(),
        passed: 0,
        failed: BTreeMap::new(),
    };
    let tree = match fetch::fetch(kernel) {
        Ok(tree) => tree,
        Err(error) => {
            say(format!("kernel {}: not available: {error}", kernel.name));
            return Ok(tested);
        }
    };
    tested.release = Some(tree.release.clone());
    tested.features = features(matrix, &tree)?;
    let mut count = |check: &str, result: Result<()>| match result {
        Ok(()) => {
            tested.passed += 1;
            println!("PASS {check} on {}", kernel.name);
        }
        Err(error) => {
            println!("FAIL {check} on {}: {error}", kernel.name);
            tested.failed.insert(check.to_owned(), error.to_string());
        }
    };
    suite::build_modules(&tree, &mut count);
    if kernel.boots {
        suite::run_cases(&kernel.name, &tree, "", &mut count)?;
    }
    Ok(tested)
}

fn features(matrix: &Matrix, tree: &Tree) -> Result<BTreeMap<String, bool>> {
    let config = std::fs::read_to_string(tree.config()).at(tree.config().display())?;
    let has = |(key, feature): (&String, &crate::kernels::Feature)| {
        (key.clone(), feature.in_config(&config))
    };
    Ok(matrix.features.iter().map(has).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed() -> Vec<String> {
        let results = Results::load().unwrap().kernels;
        let good = results.into_iter().filter(|tested| tested.failed.is_empty());
        good.filter_map(|tested| tested.release).collect()
    }

    #[test]
    fn doctor_knows_the_series_that_passed() {
        let known = |release: &String| {
            let mut starts =
                tierscope_linux::doctor::TESTED.iter().map(|(a, b)| format!("{a}.{b}"));
            starts.any(|start| release.starts_with(&format!("{start}.")))
        };
        let unknown: Vec<String> = passed().into_iter().filter(|r| !known(r)).collect();
        assert!(
            unknown.is_empty(),
            "TESTED in crates/linux/src/doctor/kernel.rs lacks {unknown:?}"
        );
    }

    /// What DKMS reads of dkms.conf for a kernel: whether it builds, and by itself.
    fn dkms(kernel: &str, looking: bool) -> (bool, bool) {
        const SCRIPT: &str = r#"safe_source() { . "$conf"; }
            read_conf() { local kernelver=$1; safe_source; }
            conf=$0 kernelver=$1; read_conf "$2"
            [[ $1 =~ $BUILD_EXCLUSIVE_KERNEL ]]; echo "$?$AUTOINSTALL""#;
        let conf = paths::root().join("kmod/dkms.conf");
        let mut bash = Command::new("bash");
        bash.args(["-c", SCRIPT])
            .arg(conf)
            .args([kernel, if looking { "6.1.0-1-amd64" } else { kernel }]);
        let said = capture(&mut bash).unwrap();
        (said.starts_with('0'), said.trim().ends_with("yes"))
    }

    #[test]
    fn dkms_builds_for_kernels_that_passed_and_leaves_others_out() {
        for release in passed().iter().map(String::as_str).chain(["6.5.0-1-amd64", "7.3-amd64"]) {
            assert_eq!(dkms(release, true), (true, true), "{release}");
        }
        for release in ["5.10.0-1-amd64", "6.0.7", "7.30.1", "99.0.1-amd64"] {
            assert_eq!(dkms(release, true), (false, false), "{release}");
            assert_eq!(dkms(release, false), (false, false), "{release}");
        }
    }
}
