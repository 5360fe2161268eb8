//! `make bench-accuracy`: accuracy of instruments, which run one after the other on one machine,
//! against the truth.
//!
//! A case is one boot of the scenario `accuracy`: one toucher, whose hot set is known, and one
//! instrument after the other. Rows are identified by case and instrument: those already in
//! target/bench/accuracy.json are not measured again. Comparisons and charts are in
//! target/bench/accuracy/CASE. Simulated scenarios run first, with names `noise ...` and `resident
//! ...`; then DAMON with split hints, `hints ...`; the kernel's DAMON_STAT, `idle percentiles ...`;
//! then ordinary targets, with names `shared ...` and `target ...`; real servers and programs last,
//! with names `served ...` and `program ...`.

mod case;
mod claims;
mod figures;
mod hints;
mod idle;
mod programs;
mod rows;
mod scenarios;
mod served;
mod simulated;
mod targets;

use std::fs;
use std::path::{Path, PathBuf};

use crate::bench::Choice;
use crate::bench::rows::{Bar, Row, Table, row as new_row};
use crate::bench::section::Inputs;
use crate::error::{Context, Error, Kind, Result};
use crate::fetch;
use crate::kernels::{Kernel, Matrix};
use crate::paths;
use crate::progress::say;
use crate::run::{self, Done, Options};
use crate::scenario::Scenario;

use case::{CASES, Case};
pub use figures::check;

/// The kernel whose DAMON is compared with: one that tunes its intervals.
const KERNEL: &str = "newest";

/// Memory of the host that must stay available for other programs.
const HOST_RESERVE_MB: u64 = 1024;

/// Measures the rows that are not yet in target/bench/accuracy.json.
///
/// # Errors
/// At least one case could not be measured; the others were.
pub(super) fn bench(matrix: &Matrix, choice: &Choice) -> Result<()> {
    let path = super::path("accuracy");
    fs::create_dir_all(results(&path)).at(path.display())?;
    let mut table = Table::load(&path)?;
    let mut failed = Vec::new();
    let chosen: Vec<&Case> = CASES.iter().filter(|case| case.is_chosen(&choice.only)).collect();
    let simulated = simulated::chosen(&choice.only);
    let served = served::SERVED.iter().filter(|(name, _)| name.contains(&choice.only));
    let served: Vec<_> = served.collect();
    let programs = programs::chosen(&choice.only);
    let hints = hints::chosen(&choice.only);
    let targets = targets::chosen(&choice.only);
    let idle: &[&str] = if idle::NAME.contains(&choice.only) { &[idle::NAME] } else { &[] };
    let others =
        [simulated.len(), served.len(), programs.len(), targets.len(), hints.len(), idle.len()];
    if chosen.is_empty() && others == [0; 6] {
        let mut names: Vec<&str> = CASES.iter().map(|case| case.name).collect();
        names.extend([
            "noise",
            "resident",
            "hints",
            idle::NAME,
            "shared",
            "target",
            "served",
            "program",
        ]);
        return Err(Error::new(Kind::Usage, format!("--only {}", choice.only), "no such case")
            .remedy(format!("one of: {}", names.join(", "))));
    }
    if !simulated.is_empty() {
        failed.extend(simulated::bench(&simulated, &mut table, &path)?);
    }
    for case in chosen {
        if let Err(error) = measure(case, matrix, choice, &mut table, &path) {
            eprintln!("lab: {error}");
            failed.push(case.name.to_owned());
        }
    }
    let inputs = Inputs { matrix, work: &results(&path) };
    failed.extend(hints::bench(&hints, &inputs, &mut table, &path)?);
    let name = |name: &&str| (*name).to_owned();
    failed.extend(measure_missing(idle, name, &mut table, &path, |_| idle::measure(&inputs))?);
    failed.extend(targets::bench(&targets, &inputs, &mut table, &path)?);
    for (name, server) in served {
        if let Err(error) = served::bench(name, server, &inputs, &mut table, &path) {
            eprintln!("lab: {error}");
            failed.push((*name).to_owned());
        }
    }
    failed.extend(programs::bench(&programs, &inputs, &mut table, &path)?);
    if !targets.is_empty() || !programs.is_empty() {
        claims::sum_up(&mut table, &path)?;
    }
    match failed.as_slice() {
        [] => Ok(()),
        some => Err(Error::new(
            Kind::Job,
            "bench accuracy",
            format!("not measured: {}", some.join(", ")),
        )),
    }
}

/// Measures the cases that have no rows in the table yet, each by its name; returns the names of
/// the cases that failed.
///
/// # Errors
/// The table cannot be written.
fn measure_missing<C>(
    cases: &[C],
    name_of: impl Fn(&C) -> String,
    table: &mut Table,
    path: &Path,
    measure: impl Fn(&C) -> Result<Vec<Row>>,
) -> Result<Vec<String>> {
    let mut failed = Vec::new();
    for case in cases {
        let name = name_of(case);
        if table.begins(&format!("{name}:")) {
            say(format!("{name}: there already"));
            continue;
        }
        say(&name);
        match measure(case) {
            Ok(rows) => table.add(rows, path)?,
            Err(error) => {
                eprintln!("lab: {name}: {error}");
                failed.push(name);
            }
        }
    }
    Ok(failed)
}

/// Directory for results: `target/bench/accuracy` for `target/bench/accuracy.json`.
fn results(json: &Path) -> PathBuf {
    json.with_extension("")
}

fn measure(
    case: &Case,
    matrix: &Matrix,
    choice: &Choice,
    table: &mut Table,
    path: &Path,
) -> Result<()> {
    let missing: Vec<&str> =
        case.instruments().filter(|each| !table.begins(&rows::begin(case, each))).collect();
    let pairs = if table.begins(&rows::slowdown_name(case)) { 0 } else { case.pairs };
    if missing.is_empty() && pairs == 0 {
        say(format!("{}: there already", case.name));
        return Ok(());
    }
    let results = results(path).join(case.name);
    fs::create_dir_all(&results).at(results.display())?;
    let done = turns(case, matrix.kernel(KERNEL)?, choice, &missing, pairs)?;
    for each in missing {
        match rows::of(case, each, &done.out, &results) {
            Ok(rows) => table.add(rows, path)?,
            Err(error) => eprintln!("lab: {}, {each}: {error}", case.name),
        }
    }
    if pairs > 0 {
        table.add(rows::slowdown(case, &done.out)?, path)?;
    }
    let ratio: Vec<Row> = rows::ratio(case, table).into_iter().collect();
    table.add(ratio, path)
}

/// Boots a case's machine and runs some of its instruments.
fn turns(
    case: &Case,
    kernel: &Kernel,
    choice: &Choice,
    instruments: &[&str],
    pairs: u32,
) -> Result<Done> {
    check_room(case)?;
    let tree = fetch::tree(kernel)?;
    let mut scenario = Scenario::load("accuracy")?;
    scenario.memory_mb = case.memory_mb;
    for (key, value) in [
        ("scenario", case.name.to_owned()),
        ("workload", case.workload.to_owned()),
        ("instruments", instruments.join(" ")),
        ("seconds", choice.seconds.unwrap_or(case.seconds).to_string()),
        ("pass", case.pass.to_string()),
        ("turns", (pairs * rows::TURNS).to_string()),
        ("look", case.look.to_string()),
        ("flush_us", case.flush_us.to_string()),
        ("cpu", case.cpu.to_owned()),
    ] {
        scenario.assign(&format!("{key}={value}"))?;
    }
    scenario.timeout_s += u64::from(case.seconds) * instruments.len() as u64;
    let out = paths::cache().join("out").join(format!("accuracy-{}-{}", case.name, kernel.name));
    let _ = fs::remove_dir_all(&out);
    say(format!("{} on {}: {}", case.name, kernel.name, instruments.join(", ")));
    let options = Options { out: Some(out), ..Options::default() };
    let done = run::run(&scenario, &kernel.name, &tree, &options)?;
    run::judge(case.name, &done)?;
    Ok(done)
}

/// Checks that the host has enough memory: the results of a machine that swaps would be useless.
fn check_room(case: &Case) -> Result<()> {
    let text = fs::read_to_string("/proc/meminfo").at("/proc/meminfo")?;
    let available = available_mb(&text).unwrap_or(u64::MAX);
    if available >= case.memory_mb + HOST_RESERVE_MB {
        return Ok(());
    }
    let cause = format!("its machine takes {} MiB, {available} are available", case.memory_mb);
    Err(Error::new(Kind::Environment, case.name, cause).remedy("free some memory"))
}

fn available_mb(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? / 1024)
}

/// The command that measures a case.
fn command(case: &Case) -> String {
    format!("target/debug/lab bench accuracy --only {}", case.name)
}

fn row(case: &Case, name: String, value: f64, unit: &str, bar: Bar) -> Row {
    new_row(name, value, unit, bar, &command(case))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_can_be_given_to_the_scenario() {
        for case in CASES {
            let mut scenario = Scenario::load("accuracy").unwrap();
            scenario.assign(&format!("workload={}", case.workload)).unwrap();
            assert!(
                tierscope_workloads::file::load(
                    case.workload,
                    tierscope_workloads::masim::Mode::Correct
                )
                .is_ok(),
                "{}",
                case.name
            );
        }
    }

    #[test]
    fn memory_is_read_in_mib() {
        assert_eq!(available_mb("MemTotal: 9 kB\nMemAvailable:    2048 kB\n"), Some(2));
    }
}
