//! `make test-debug-kernel`, stored in `docs/debug-kernels.json`: on kernels built here with checks
//! of their own, the cases of `lab/debug.toml` and deliberate faults; on a stock kernel the cases
//! that name it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::console::Scanner;
use crate::error::Result;
use crate::faults;
use crate::fetch::Tree;
use crate::kernels::{Built, Kernel, Matrix, Source};
use crate::results::{self, Tested};
use crate::suite::{self, Suite};

/// The stock kernel.
const STOCK: &str = "6.12";

/// File of the results, below the root.
pub const RESULTS: &str = "docs/debug-kernels.json";

/// Ends the names of rows of faults; those of cases have the names of their kernels.
const FAULTS: &str = ", faults";

/// Tests kernels, faults and cases apart, each unless it was tested on this commit; names: only
/// these, in any case.
///
/// # Errors
/// A check failed, or a name is not known.
pub fn run(matrix: &Matrix, names: &[String]) -> Result<()> {
    let mut rows = Vec::new();
    for kernel in &matrix.built {
        rows.extend([(kernel.name.clone() + FAULTS, kernel), (kernel.name.clone(), kernel)]);
    }
    let stock = matrix.kernel(STOCK)?;
    rows.push((stock.name.clone(), stock));
    let is_row = |name: &&String| rows.iter().any(|(row, _)| row == *name);
    names.iter().filter(|name| !is_row(name)).try_for_each(|name| matrix.kernel(name).map(drop))?;
    results::test_each(RESULTS, &rows, names, |kernel, tree, tested| {
        tested.features = results::features(matrix, tree)?;
        let of_faults = tested.kernel.ends_with(FAULTS);
        match &kernel.source {
            Source::Built(built) if of_faults => test_faults(kernel, tree, built, tested),
            _ => test_cases(kernel, tree, tested)?,
        }
        Ok(())
    })
}

fn test_faults(kernel: &Kernel, tree: &Tree, built: &Built, tested: &mut Tested) {
    let mut count = results::counting(&kernel.name, tested);
    suite::build_modules(tree, &mut count);
    faults::test(&kernel.name, tree, built.flavour(), &mut count);
}

fn test_cases(kernel: &Kernel, tree: &Tree, tested: &mut Tested) -> Result<()> {
    let suite = Suite::read("debug.toml")?;
    let mut count = results::counting(&kernel.name, tested);
    suite::run_cases(&suite, &kernel.name, tree, "", &mut count);
    drop(count);
    tested.figures = figures_of(&suite, &kernel.name);
    Ok(())
}

/// What the probers of a kernel's cases counted: probes, probes that each kind of mutation
/// overlapped, and mutations that had their effect; and races between functions of the kernel.
fn figures_of(suite: &Suite, kernel: &str) -> BTreeMap<String, u64> {
    let mut figures = BTreeMap::new();
    for case in suite.cases.iter().filter(|case| case.runs_on(kernel)) {
        add_figures(&mut figures, &case.out(kernel));
    }
    figures
}

fn add_figures(figures: &mut BTreeMap<String, u64>, out: &Path) {
    let text = |name| fs::read_to_string(out.join(name)).unwrap_or_default();
    let mut add = |name: String, count: u64| *figures.entry(name).or_default() += count;
    let report: Value = serde_json::from_str(&text("prober.json")).unwrap_or_default();
    if let Some(probes) = report["probes"].as_u64() {
        add("probes".to_owned(), probes);
    }
    for (key, title) in [("overlaps", "probes during"), ("mutations", "mutations:")] {
        for (kind, count) in report[key].as_object().into_iter().flatten() {
            add(format!("{title} {kind}"), count.as_u64().unwrap_or(0));
        }
    }
    let mut scanner = Scanner::default();
    text("console.txt").lines().for_each(|line| scanner.line(line));
    if scanner.others_races() > 0 {
        add("races of the kernel's own".to_owned(), scanner.others_races().into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cases_are_sound_and_the_bars_are_those_of_the_issue() {
        let suite = Suite::read("debug.toml").unwrap();
        let matrix = Matrix::load().unwrap();
        let probes = |kernel: &str| {
            let cases = suite.cases.iter().filter(|case| case.runs_on(kernel));
            let set = cases.flat_map(|case| &case.set);
            set.filter_map(|set| set.strip_prefix("probes=")?.parse::<u64>().ok()).sum::<u64>()
        };
        // A kernel with patches is built to be measured.
        let is_patched = |source: &Source| match source {
            Source::Built(built) => built.patches.is_some(),
            _ => false,
        };
        let mut checked = matrix.built.iter().filter(|kernel| !is_patched(&kernel.source));
        assert!(checked.all(|kernel| probes(&kernel.name) >= 10_000_000));
        assert!(probes(STOCK) >= 100_000_000);
    }

    #[test]
    fn figures_come_from_the_prober_and_the_console() {
        let out = tempfile::tempdir().unwrap();
        let report = r#"{"probes": 7, "overlaps": {"swap": 3}, "mutations": {"swap": 1}}"#;
        fs::write(out.path().join("prober.json"), report).unwrap();
        let console = "BUG: KCSAN: data-race in f / g\n==================\n";
        fs::write(out.path().join("console.txt"), console).unwrap();
        let mut figures = BTreeMap::new();
        add_figures(&mut figures, out.path());
        add_figures(&mut figures, out.path());
        let got: Vec<_> = figures.iter().map(|(name, count)| (name.as_str(), *count)).collect();
        assert_eq!(
            got,
            [
                ("mutations: swap", 2),
                ("probes", 14),
                ("probes during swap", 6),
                ("races of the kernel's own", 2)
            ]
        );
    }
}
