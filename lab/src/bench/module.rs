//! `make bench-module`: figures and their thresholds, written to target/bench/module.json.
//!
//! A chapter is one command and the rows that it produces. Chapters whose rows are already in the
//! file are not run again, so that an interrupted benchmark resumes where it stopped; rows that
//! miss their threshold are kept.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde::Deserialize;

use super::Choice;
use super::rows::{Bar, Row, Table, row};
use crate::accuracy;
use crate::error::{Context, Error, Kind, Result};
use crate::fetch::{self, Tree};
use crate::guest::holds::Holds;
use crate::guest::waits;
use crate::kernels::Matrix;
use crate::paths;
use crate::progress::say;
use crate::run::{self, Done, Options};
use crate::scenario::Scenario;

/// Number of probes in the stress row of each kernel.
const STRESS_PROBES: f64 = 1e8;

/// Runs the chapters that are not yet in the file.
///
/// # Errors
/// At least one chapter could not be measured; the others were.
pub(super) fn bench(matrix: &Matrix, _: &Choice) -> Result<()> {
    let path = super::path("module");
    let dir = path.parent().unwrap_or(&path);
    fs::create_dir_all(dir).at(dir.display())?;
    let mut table = Table::load(&path)?;
    let mut failed = Vec::new();
    for chapter in chapters(matrix) {
        let command = chapter.command();
        if table.has(&command) {
            say(format!("{command}: there already"));
            continue;
        }
        say(&command);
        match chapter.measure(matrix, &command) {
            Ok(rows) => table.add(rows, &path)?,
            Err(error) => {
                eprintln!("lab: {error}");
                failed.push(command);
            }
        }
    }
    match failed.as_slice() {
        [] => Ok(()),
        some => {
            Err(Error::new(Kind::Job, "bench module", format!("not measured: {}", some.join("; "))))
        }
    }
}

enum Chapter {
    Accuracy(String),
    Cost(String),
    Waits(String),
    Stress(String),
    Ci,
}

fn chapters(matrix: &Matrix) -> Vec<Chapter> {
    let each = |make: fn(String) -> Chapter| {
        matrix.names().into_iter().rev().map(move |name| make(name.to_owned()))
    };
    let mut all: Vec<Chapter> = each(Chapter::Accuracy).collect();
    all.extend(each(Chapter::Cost));
    all.extend(each(Chapter::Waits));
    all.extend(each(Chapter::Stress));
    all.push(Chapter::Ci);
    all
}

impl Chapter {
    fn command(&self) -> String {
        let lab = |job: &str, kernel: &str| format!("target/debug/lab run {job} --kernel {kernel}");
        match self {
            Chapter::Accuracy(kernel) => lab("first-light", kernel),
            Chapter::Cost(kernel) => lab("bench-probe", kernel),
            Chapter::Waits(kernel) => lab("lock-waits", kernel),
            Chapter::Stress(kernel) => {
                format!("{} --set probes={STRESS_PROBES} --timeout 7200", lab("stress", kernel))
            }
            Chapter::Ci => ".ci/run in a fresh clone".to_owned(),
        }
    }

    fn measure(&self, matrix: &Matrix, command: &str) -> Result<Vec<Row>> {
        match self {
            Chapter::Accuracy(kernel) => accuracy_rows(kernel, &tree(matrix, kernel)?, command),
            Chapter::Cost(kernel) => cost_rows(kernel, &tree(matrix, kernel)?, command),
            Chapter::Waits(kernel) => wait_rows(kernel, &tree(matrix, kernel)?, command),
            Chapter::Stress(kernel) => stress_rows(kernel, &tree(matrix, kernel)?, command),
            Chapter::Ci => ci_rows(command),
        }
    }
}

fn tree(matrix: &Matrix, kernel: &str) -> Result<Tree> {
    fetch::tree(matrix.kernel(kernel)?)
}

fn finished(scenario: &Scenario, kernel: &str, tree: &Tree) -> Result<Done> {
    let done = run::run(scenario, kernel, tree, &Options::default())?;
    run::judge(&scenario.name, &done)?;
    Ok(done)
}

fn accuracy_rows(kernel: &str, tree: &Tree, command: &str) -> Result<Vec<Row>> {
    let done = finished(&Scenario::load("first-light")?, kernel, tree)?;
    let figures = accuracy::measure(&done.out)?;
    let named = |what: &str| format!("Redis, hot bytes, {what}, Linux {kernel}");
    Ok(vec![
        row(named("recall"), figures.recall, "share", Bar::Least(0.9), command),
        row(named("precision"), figures.precision, "share", Bar::None, command),
        row(named("true"), figures.true_bytes as f64 / 1e6, "MB", Bar::None, command),
        row(named("reported"), figures.reported_bytes as f64 / 1e6, "MB", Bar::None, command),
        row(
            named("cold values reported"),
            figures.cold_reported_bytes as f64 / 1e6,
            "MB",
            Bar::None,
            command,
        ),
    ])
}

/// Output of probe-bench.
#[derive(Debug, Deserialize)]
struct Costs {
    rows: Vec<Cost>,
}

#[derive(Debug, Deserialize)]
struct Cost {
    name: String,
    value: f64,
    unit: String,
    mmap_lock: Holds,
    mapping_lock: Holds,
}

fn cost_rows(kernel: &str, tree: &Tree, command: &str) -> Result<Vec<Row>> {
    let done = finished(&Scenario::load("bench-probe")?, kernel, tree)?;
    let costs: Costs = read_json(&done.out.join("probe.json"))?;
    let rows = costs.rows.iter().flat_map(|cost| {
        let name = |what: &str| format!("{}{what}, Linux {kernel}", cost.name);
        let mut rows = vec![row(name(""), cost.value, &cost.unit, Bar::None, command)];
        rows.extend(hold_rows(&name(""), (&cost.mmap_lock, &cost.mapping_lock), command));
        rows
    });
    Ok(rows.collect())
}

/// Holds of the mmap lock and, where there are any, of locks of single mappings.
fn hold_rows(name: &str, (mmap, mapping): (&Holds, &Holds), command: &str) -> Vec<Row> {
    let kinds = [("mmap lock", mmap), ("lock of a mapping", mapping)];
    let rows = kinds.into_iter().filter(|(_, holds)| holds.count > 0).flat_map(|(lock, holds)| {
        let named = |what: &str| format!("{name}, {lock}, {what}");
        [
            row(named("holds"), holds.count as f64, "holds", Bar::None, command),
            row(named("hold p99"), holds.p99_us, "µs", Bar::Most(1000.0), command),
            row(named("hold longest"), holds.max_us, "µs", Bar::None, command),
        ]
    });
    rows.collect()
}

/// What mmap() and munmap() of a watched process take, with the mmap lock alone and with locks of
/// single mappings.
fn wait_rows(kernel: &str, tree: &Tree, command: &str) -> Result<Vec<Row>> {
    let done = finished(&Scenario::load("lock-waits")?, kernel, tree)?;
    let mut rows = Vec::new();
    for file in ["waits-N.json", "waits-Y.json"] {
        let waiting: waits::Report = read_json(&done.out.join(file))?;
        let locks = if waiting.mapping_locks { "locks of mappings" } else { "the mmap lock" };
        for of in &waiting.rows {
            let name = format!("mmap and munmap, look: {}, {locks}, Linux {kernel}", of.look);
            let us = [
                ("median", of.waits.p50_us),
                ("p99", of.waits.p99_us),
                ("p99.9", of.waits.p999_us),
                ("longest", of.waits.max_us),
            ];
            rows.push(row(name.clone(), of.entries as f64, "entries", Bar::None, command));
            rows.extend(
                us.map(|(what, us)| row(format!("{name}, {what}"), us, "µs", Bar::None, command)),
            );
            rows.extend(hold_rows(&name, (&of.mmap_lock, &of.mapping_lock), command));
        }
    }
    Ok(rows)
}

fn stress_rows(kernel: &str, tree: &Tree, command: &str) -> Result<Vec<Row>> {
    let mut scenario = Scenario::load("stress")?;
    scenario.assign(&format!("probes={STRESS_PROBES}"))?;
    scenario.timeout_s = 7200;
    let done = run::run(&scenario, kernel, tree, &Options::default())?;
    let verdict = run::judge(&scenario.name, &done);
    if let Err(error) = &verdict {
        eprintln!("lab: {error}");
    }
    let report: serde_json::Value = read_json(&done.out.join("prober.json"))?;
    let count = |key: &str| report[key].as_f64().unwrap_or(0.0);
    let failures =
        report["failures"].as_array().map_or(1, Vec::len) + usize::from(verdict.is_err());
    let named = |what: &str| format!("stress, {what}, Linux {kernel}");
    Ok(vec![
        row(named("probes"), count("probes"), "probes", Bar::Least(STRESS_PROBES), command),
        row(named("scans"), count("scans"), "scans", Bar::None, command),
        row(
            named("targets that ended or executed while watched"),
            count("gone"),
            "targets",
            Bar::Least(1.0),
            command,
        ),
        row(
            named("oops, leak, wrong unload"),
            failures as f64,
            "failures",
            Bar::Most(0.0),
            command,
        ),
    ])
}

/// Runs `.ci/run` in a fresh clone without build results and downloads.
fn ci_rows(command: &str) -> Result<Vec<Row>> {
    let clone = paths::root().join("target/bench/clone");
    if clone.exists() {
        fs::remove_dir_all(&clone).at(clone.display())?;
    }
    crate::command::output(
        Command::new("git").args(["clone", "-q"]).arg(paths::root()).arg(&clone),
    )?;
    let log = clone.with_extension("log");
    let started = Instant::now();
    let passed = ci_run(&clone, &log)?;
    let minutes = started.elapsed().as_secs_f64() / 60.0;
    let failed = f64::from(u8::from(!passed));
    if passed {
        fs::remove_dir_all(&clone).at(clone.display())?;
    }
    Ok(vec![
        row(".ci/run from a bare clone".to_owned(), minutes, "minutes", Bar::Most(35.0), command),
        row(
            format!(".ci/run fails ({})", last_line(&log)),
            failed,
            "runs",
            Bar::Most(0.0),
            command,
        ),
    ])
}

fn ci_run(clone: &Path, log: &PathBuf) -> Result<bool> {
    let file = fs::File::create(log).at(log.display())?;
    let mut ci = Command::new(clone.join(".ci/run"));
    ci.current_dir(clone).env_remove("CARGO_TARGET_DIR").env_remove("TIERSCOPE_LAB_DIR");
    let errors = file.try_clone().at(log.display())?;
    let status = ci.stdin(Stdio::null()).stdout(file).stderr(errors).status().at(".ci/run")?;
    Ok(status.success())
}

fn last_line(log: &Path) -> String {
    fs::read_to_string(log).unwrap_or_default().lines().last().unwrap_or_default().to_owned()
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T> {
    let text = fs::read(path).at(path.display())?;
    serde_json::from_slice(&text).map_err(|e| Error::new(Kind::Job, path.display().to_string(), e))
}
