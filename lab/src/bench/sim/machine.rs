//! The simulated machine compared with a naive one, with itself, and with its configuration.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::Value;

use crate::bench::outputs::{example, number, text, tierscope};
use crate::bench::rows::{Bar, Row, row};
use crate::bench::section::Inputs;
use crate::command::capture;
use crate::error::{Context, Error, Kind, Result};
use crate::paths;
use crate::progress::say;

/// Number of random operations that are compared with an oracle, and number of parts they are split
/// into.
const OPERATIONS: f64 = 1e9;
const PARTS: u32 = 50;

/// Thresholds for tiers: latency within half a percent, since lines that happen to share a unit or
/// a bank wait less or more; bandwidth within five percent.
const LATENCY: Bar = Bar::Most(0.005);
const BANDWIDTH: Bar = Bar::Most(0.05);

/// Compares the machine with a naive one. Parts that passed are recorded for this version of the
/// code, so that an interrupted benchmark continues with the next part.
pub(super) fn exactness(inputs: &Inputs<'_>) -> Result<Vec<Row>> {
    let notes = inputs.work.join(format!("exactness-{}.passed", code()?));
    let passed =
        |notes: &Path| fs::read_to_string(notes).unwrap_or_default().lines().count() as u32;
    let each = OPERATIONS / f64::from(PARTS);
    let words = ["test", "--quiet", "--package", "tierscope-sim", "--test", "exactness", "equals"];
    for part in passed(&notes) + 1..=PARTS {
        say(format!("exactness: part {part} of {PARTS}"));
        let begun = Instant::now();
        let mut cargo = Command::new("cargo");
        cargo.args(words).current_dir(paths::root());
        cargo.env("TIERSCOPE_OPERATIONS", each.to_string());
        cargo.env("TIERSCOPE_PART", part.to_string());
        if let Err(error) = capture(&mut cargo) {
            eprintln!("lab: part {part}: {error}");
            break;
        }
        let mut file = File::options().create(true).append(true).open(&notes).at(notes.display())?;
        writeln!(file, "{part} {:.0} s", begun.elapsed().as_secs_f64()).at(notes.display())?;
    }
    Ok(vec![row(
        "exactness: operations identical to the naive machine's".to_owned(),
        f64::from(passed(&notes)) * each,
        "operations",
        Bar::Least(OPERATIONS),
        &format!("TIERSCOPE_PART=1..{PARTS} TIERSCOPE_OPERATIONS={each} cargo {}", words.join(" ")),
    )])
}

/// Identifies the version of the machine's code.
fn code() -> Result<String> {
    let mut git = Command::new("git");
    git.args(["rev-parse", "HEAD:crates/hw", "HEAD:crates/sim"]);
    let trees = capture(git.current_dir(paths::root()))?;
    Ok(trees
        .split_whitespace()
        .map(|tree| tree.get(..9).unwrap_or(tree))
        .collect::<Vec<_>>()
        .join("-"))
}

/// Compares the two modes with each other; the tests define the tolerances.
pub(super) fn agreement(_: &Inputs<'_>) -> Result<Vec<Row>> {
    let words = ["test", "--package", "tierscope-sim", "--test", "agreement"];
    let command = format!("cargo {}", words.join(" "));
    let mut cargo = Command::new("cargo");
    cargo.args(words).current_dir(paths::root()).stdin(Stdio::null());
    let output = cargo.output().at("cargo")?;
    let output = String::from_utf8_lossy(&output.stdout);
    let Some((passed, failed)) = tally(&output) else {
        return Err(Error::new(Kind::Job, command, "it did not run any test"));
    };
    let name = |what: &str| format!("agreement: exact and density mode, {what}");
    let none = Bar::Most(0.0);
    Ok(vec![
        row(name("statements beyond their bounds"), failed, "tests", none, &command),
        row(name("statements within their bounds"), passed, "tests", Bar::Least(1.0), &command),
    ])
}

/// Numbers of passed and failed tests, from the output of `cargo test`.
fn tally(output: &str) -> Option<(f64, f64)> {
    let line = output.lines().find(|line| line.starts_with("test result:"))?;
    let count = |what: &str| {
        let before = line.split_once(what)?.0;
        before.split_whitespace().next_back()?.parse().ok()
    };
    Some((count(" passed")?, count(" failed")?))
}

/// Runs a report twice in each mode and compares the results.
pub(super) fn same_seed(inputs: &Inputs<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for mode in ["exact", "density"] {
        let path = inputs.work.join(format!("same-seed-{mode}.toml"));
        let scenario = format!(
            "name = \"same-seed\"\nabout = \"2 GiB hot in 16 GiB\"\nsource = \"any\"\n\
             time = \"2s\"\nseed = 7\n[machine]\nflush = \"5ms\"\n[simulation]\nmode = \"{mode}\"\n\
             [[process]]\nworkload = \"contiguous:space=16GiB,hot=2GiB,at=9GiB,rate=3000000\"\n"
        );
        fs::write(&path, scenario).at(path.display())?;
        let words = ["bench", "accuracy", "--json", text(&path)?];
        let command = format!("tierscope {}", words.join(" "));
        let hash = || Ok(hash(&reproducible(&capture(Command::new(tierscope()?).args(words))?)?));
        let hashes: Vec<u64> = [hash(), hash()].into_iter().collect::<Result<_>>()?;
        let differ = f64::from(u8::from(hashes[0] != hashes[1]));
        let name = format!("same seed: {mode} mode, second reports that differ from the first");
        rows.push(row(name, differ, "reports", Bar::Most(0.0), &command));
        let name = format!("same seed: {mode} mode, hash of the report");
        rows.push(row(name, hashes[0] as f64, "FNV-1a, 48 bits", Bar::None, &command));
    }
    Ok(rows)
}

/// A report without its host-dependent parts.
fn reproducible(report: &str) -> Result<String> {
    let mut report: Value =
        serde_json::from_str(report).map_err(|e| Error::new(Kind::Job, "report", e))?;
    let outcomes = report[0]["outcomes"].as_array_mut();
    for outcome in outcomes.map_or(&mut [][..], Vec::as_mut_slice) {
        outcome["wall_seconds"] = Value::Null;
    }
    Ok(report.to_string())
}

/// FNV-1a, folded to a number that JSON represents exactly.
fn hash(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    (hash >> 48) ^ (hash & ((1 << 48) - 1))
}

/// Unloaded latency and loaded bandwidth of every tier of every ready-made machine.
pub(super) fn tiers(_: &Inputs<'_>) -> Result<Vec<Row>> {
    let (figures, command) = example("tierscope-sim", "tiers", &[], &[])?;
    let Some(tiers) = figures.as_object() else {
        return Err(Error::new(Kind::Job, "tiers", "no figures"));
    };
    let mut rows = Vec::new();
    for (tier, figures) in tiers {
        for (key, what, bar) in [
            ("latency_ns", "unloaded latency", LATENCY),
            ("read_mib_s", "loaded read bandwidth", BANDWIDTH),
            ("write_mib_s", "loaded write bandwidth", BANDWIDTH),
        ] {
            let configured = format!("/configured_{key}");
            if figures.pointer(&configured).is_some_and(Value::is_null) {
                continue;
            }
            let configured = number(figures, &configured)?;
            let off = (number(figures, &format!("/{key}"))? / configured - 1.0).abs();
            let name = format!("tiers: {tier}, {what}, off the configured");
            rows.push(row(name, off, "share", bar, &command));
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    // The published value of FNV-1a 64 for "a" is af63dc4c8601ec8c.
    #[test]
    fn hashes_are_fnv() {
        assert_eq!(hash("a"), 0xaf63 ^ 0xdc4c_8601_ec8c);
        assert_ne!(hash("a"), hash("b"));
    }

    #[test]
    fn tests_are_counted() {
        let output =
            "running 3 tests\ntest result: FAILED. 2 passed; 1 failed; 0 ignored; 9 filtered\n";
        assert_eq!(tally(output), Some((2.0, 1.0)));
        assert_eq!(tally("error: no test target"), None);
    }

    #[test]
    fn the_hosts_time_is_no_part_of_a_report() {
        let report = |wall: &str| {
            reproducible(&format!(r#"[{{"outcomes": [{{"wall_seconds": {wall}, "x": 1}}]}}]"#))
                .unwrap()
        };
        assert_eq!(report("1.5"), report("2.5"));
        assert!(report("1.5").contains("\"x\":1"));
    }
}
