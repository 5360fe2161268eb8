//! `docs/kernels.json`: what `make test-kernels` found on each kernel, with date and commit.

use std::collections::BTreeMap;
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::command::capture;
use crate::error::{Context, Error, Kind, Result};
use crate::fetch::{self, Tree};
use crate::kernels::{Kernel, Matrix};
use crate::paths;
use crate::progress::say;
use crate::suite::{self, Suite};

/// All results, in the order of `kernels.toml`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Results {
    /// One for each kernel that was asked for.
    pub kernels: Vec<Tested>,
}

/// What was found on a kernel.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tested {
    /// Its name in `kernels.toml`; of debug kernels also what was tested.
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
    /// What its cases counted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub figures: BTreeMap<String, u64>,
}

/// The results of `make test-kernels`, below the root.
const KERNELS: &str = "docs/kernels.json";

impl Results {
    /// Reads the stored results of `make test-kernels`; none are stored before the first test.
    ///
    /// # Errors
    /// The file is not of this form.
    pub fn load() -> Result<Self> {
        Self::read(KERNELS)
    }

    fn read(file: &str) -> Result<Self> {
        let path = paths::root().join(file);
        let Ok(text) = std::fs::read_to_string(&path) else { return Ok(Self::default()) };
        serde_json::from_str(&text)
            .map_err(|e| Error::new(Kind::Usage, path.display().to_string(), e))
    }

    /// The result of a kernel.
    #[must_use]
    pub fn of(&self, kernel: &str) -> Option<&Tested> {
        self.kernels.iter().find(|tested| tested.kernel == kernel)
    }

    /// Stores a result, in the order of `rows`.
    fn put(&mut self, file: &str, rows: &[(String, &Kernel)], tested: Tested) -> Result<()> {
        self.kernels.retain(|other| other.kernel != tested.kernel);
        self.kernels.push(tested);
        let place = |name: &str| rows.iter().position(|(row, _)| row == name);
        self.kernels.retain(|tested| place(&tested.kernel).is_some());
        self.kernels.sort_by_key(|tested| place(&tested.kernel));
        let text = serde_json::to_string_pretty(self).map_err(std::io::Error::from);
        let path = paths::root().join(file);
        let scratch = path.with_extension("new");
        std::fs::write(&scratch, text.at("results")? + "\n").at(scratch.display())?;
        std::fs::rename(&scratch, &path).at(path.display())
    }
}

/// Tests kernels and stores the results, each as soon as it is there; without names all kernels
/// that were not tested on this commit.
///
/// # Errors
/// A check failed.
pub fn test_kernels(matrix: &Matrix, names: &[String]) -> Result<()> {
    let suite = Suite::load()?;
    let rows: Vec<_> = matrix.all().map(|kernel| (kernel.name.clone(), kernel)).collect();
    test_each(KERNELS, &rows, names, |kernel, tree, tested| {
        tested.features = features(matrix, tree)?;
        let mut count = counting(&kernel.name, tested);
        suite::build_modules(tree, &mut count);
        if kernel.boots {
            suite::run_cases(&suite, &kernel.name, tree, "", &mut count);
        }
        Ok(())
    })
}

/// Calls `test` for each row, which has a name and a kernel, and stores in `file` what it adds to
/// the results, each as soon as it is there; without names, of rows or kernels, for all rows that
/// were not tested on this commit.
///
/// # Errors
/// A check failed.
pub(crate) fn test_each(
    file: &str,
    rows: &[(String, &Kernel)],
    names: &[String],
    test: impl Fn(&Kernel, &Tree, &mut Tested) -> Result<()>,
) -> Result<()> {
    let date = capture(Command::new("date").args(["-u", "+%F"]))?.trim().to_owned();
    let commit = commit()?;
    let mut results = Results::read(file)?;
    let done = |results: &Results, name: &str| {
        results.of(name).is_some_and(|tested| tested.commit == commit && tested.release.is_some())
    };
    let mut failed = 0;
    for (row, kernel) in rows {
        let asked = names.contains(row) || names.contains(&kernel.name);
        if !asked && (!names.is_empty() || done(&results, row)) {
            continue;
        }
        let mut tested = Tested {
            kernel: row.clone(),
            date: date.clone(),
            commit: commit.clone(),
            ..Tested::default()
        };
        match fetch::fetch(kernel) {
            Ok(tree) => {
                tested.release = Some(tree.release.clone());
                test(kernel, &tree, &mut tested)?;
            }
            Err(error) => say(format!("kernel {}: not available: {error}", kernel.name)),
        }
        failed += tested.failed.len();
        // Another process may have stored results of other rows.
        results = Results::read(file)?;
        results.put(file, rows, tested)?;
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
    let debug = format!(":!{}", crate::debug::RESULTS);
    let others = ["--", ".", ":!docs/kernels.json", ":!SUPPORT.md", &debug];
    let changed = git(&[&["status", "--porcelain", "-uno"][..], &others].concat())?;
    Ok(commit.trim().to_owned() + if changed.is_empty() { "" } else { "-dirty" })
}

/// Prints the result of each check on a kernel, and counts it.
pub(crate) fn counting(kernel: &str, tested: &mut Tested) -> impl FnMut(&str, Result<()>) {
    move |check, result| match result {
        Ok(()) => {
            tested.passed += 1;
            println!("PASS {check} on {kernel}");
        }
        Err(error) => {
            println!("FAIL {check} on {kernel}: {error}");
            tested.failed.insert(check.to_owned(), error.to_string());
        }
    }
}

/// Whether a kernel's configuration has each feature, by key of [`Matrix::features`].
pub(crate) fn features(matrix: &Matrix, tree: &Tree) -> Result<BTreeMap<String, bool>> {
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
