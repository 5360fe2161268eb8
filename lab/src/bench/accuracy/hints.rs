//! The kernel's DAMON with and without the split hints of `patches/damon-split-hints`, one after
//! the other on one machine. Intervals are longer than on a real machine, for both: an emulated one
//! touches fewer pages in the same time.

use std::fs;
use std::path::Path;

use serde::Deserialize;

use super::measure_missing;
use crate::bench::rows::{Bar, Row, Table, row};
use crate::bench::section::Inputs;
use crate::error::{Context, Error, Kind, Result};
use crate::fetch;
use crate::paths;
use crate::run::{self, Options};
use crate::scenario::Scenario;

const KERNEL: &str = "newest-hints";
const SCENARIO: &str = "damon-hints";

/// A process with a hot set.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hints {
    /// Name, with which the names of its rows begin.
    pub(super) name: &'static str,
    gib: u64,
    memory_mb: u64,
    background: u32,
    /// Thresholds for DAMON with hints: precision and recall; oracle share.
    found: Bar,
    oracle: Bar,
    /// Parameters of the scenario that differ from its own.
    set: &'static [&'static str],
}

const TERABYTE: Hints = Hints {
    name: "",
    gib: 1024,
    memory_mb: 3584,
    background: 0,
    found: Bar::None,
    oracle: Bar::None,
    set: &[],
};
const QUARTER: Hints = Hints { gib: 256, memory_mb: 1536, ..TERABYTE };
const FIVE: Hints = Hints { gib: 5120, memory_mb: 11_776, ..TERABYTE };
const MOST: Bar = Bar::Least(0.9);

const CASES: &[Hints] = &[
    Hints { name: "hints 1 TiB, 0 %", found: MOST, ..TERABYTE },
    Hints { name: "hints 1 TiB, 5 %", background: 5, oracle: MOST, ..TERABYTE },
    Hints { name: "hints 1 TiB, 20 %", background: 20, ..TERABYTE },
    Hints { name: "hints 256 GiB, 0 %", ..QUARTER },
    Hints { name: "hints 256 GiB, 5 %", background: 5, ..QUARTER },
    Hints { name: "hints 256 GiB, 20 %", background: 20, ..QUARTER },
    Hints {
        name: "hints not needed, 64 MiB of 1 GiB",
        gib: 1,
        memory_mb: 1024,
        set: &["hot_mib=64", "sampling=5", "window=200", "seconds=60", "flush_us=5000"],
        ..TERABYTE
    },
    Hints { name: "hints 5 TiB, 0 %", ..FIVE },
    Hints { name: "hints 5 TiB, 5 %", background: 5, ..FIVE },
    Hints { name: "hints 5 TiB, 20 %", background: 20, ..FIVE },
];

/// What the guest program `kernel-damon` reports.
#[derive(Debug, Deserialize)]
struct Report {
    windows: usize,
    regions_mean: f64,
    recall: f64,
    precision: f64,
    oracle: f64,
    found_after: Option<usize>,
    window_ms: f64,
    kdamond_cpu: f64,
}

/// The cases whose names contain `only`.
pub(super) fn chosen(only: &str) -> Vec<Hints> {
    CASES.iter().copied().filter(|case| case.name.contains(only)).collect()
}

/// Measures the cases that are not yet in the table; returns the names of the failed ones.
pub(super) fn bench(
    cases: &[Hints],
    inputs: &Inputs<'_>,
    table: &mut Table,
    path: &Path,
) -> Result<Vec<String>> {
    let name = |case: &Hints| case.name.to_owned();
    measure_missing(cases, name, table, path, |case| measure(case, inputs))
}

fn measure(case: &Hints, inputs: &Inputs<'_>) -> Result<Vec<Row>> {
    let mut scenario = Scenario::load(SCENARIO)?;
    scenario.memory_mb = case.memory_mb;
    scenario.assign(&format!("gib={}", case.gib))?;
    scenario.assign(&format!("background={}", case.background))?;
    case.set.iter().try_for_each(|set| scenario.assign(set))?;
    let out = paths::cache().join("out").join(case.name.replace([' ', ',', '%'], "-"));
    let _ = fs::remove_dir_all(&out);
    let tree = fetch::tree(inputs.matrix.kernel(KERNEL)?)?;
    let options = Options { out: Some(out), quiet: true, ..Options::default() };
    let done = run::run(&scenario, KERNEL, &tree, &options)?;
    run::judge(case.name, &done)?;
    Ok(rows(case, &report(&done.out.join("off.json"))?, &report(&done.out.join("on.json"))?))
}

fn report(path: &Path) -> Result<Report> {
    let text = fs::read_to_string(path).at(path.display())?;
    serde_json::from_str(&text)
        .map_err(|error| Error::new(Kind::Job, path.display().to_string(), error))
}

fn rows(case: &Hints, off: &Report, on: &Report) -> Vec<Row> {
    let command = format!("target/debug/lab bench accuracy --only '{}'", case.name);
    let add = |what: &str, value: f64, unit: &str, bar: Bar| {
        row(format!("{}: {what}", case.name), value, unit, bar, &command)
    };
    let mut all = Vec::new();
    for (with, of, found, oracle) in
        [("plain", off, Bar::None, Bar::None), ("with hints", on, case.found, case.oracle)]
    {
        let seconds = of.window_ms / 1e3;
        let (after, until) = match of.found_after {
            Some(windows) => (windows, "found after"),
            None => (of.windows, "never found in"),
        };
        all.extend([
            add(&format!("{with}, precision"), of.precision, "share", found),
            add(&format!("{with}, recall"), of.recall, "share", found),
            add(&format!("{with}, oracle share"), of.oracle, "share", oracle),
            add(&format!("{with}, {until}"), after as f64 * seconds, "s", Bar::None),
            add(&format!("{with}, regions"), of.regions_mean, "regions", Bar::None),
            add(&format!("{with}, kdamond"), of.kdamond_cpu * 100.0, "% of a CPU", Bar::None),
        ]);
    }
    let ratio = on.kdamond_cpu / off.kdamond_cpu;
    all.push(add("CPU of kdamond, with hints over plain", ratio, "times", Bar::Most(1.1)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_can_be_given_to_the_scenario() {
        for case in CASES {
            let mut scenario = Scenario::load(SCENARIO).unwrap();
            for set in case.set {
                scenario.assign(set).unwrap();
            }
        }
        assert_eq!(chosen("1 TiB").len(), 3);
    }

    #[test]
    fn a_dearer_or_blind_damon_falls_short() {
        let report = |cpu, found| Report {
            windows: 10,
            regions_mean: 20.0,
            recall: found,
            precision: found,
            oracle: found,
            found_after: (found > 0.9).then_some(3),
            window_ms: 2000.0,
            kdamond_cpu: cpu,
        };
        let holds = |rows: &[Row]| rows.iter().all(|row| row.holds);
        assert!(holds(&rows(&CASES[0], &report(0.01, 0.0), &report(0.01, 1.0))));
        assert!(!holds(&rows(&CASES[0], &report(0.01, 0.0), &report(0.01, 0.5))));
        assert!(!holds(&rows(&CASES[0], &report(0.01, 0.0), &report(0.02, 1.0))));
        assert!(!holds(&rows(&CASES[1], &report(0.01, 0.0), &report(0.01, 0.5))));
        let never = &rows(&CASES[1], &report(0.01, 0.0), &report(0.01, 1.0))[3];
        assert_eq!((&*never.name, never.value), ("hints 1 TiB, 5 %: plain, never found in", 20.0));
    }
}
