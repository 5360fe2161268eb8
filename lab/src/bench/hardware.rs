//! `make bench-hardware`: telemetries at one budget, written to target/bench/hardware.json: PEBS,
//! ACCESSED bits, hint faults, hot lists of CXL and NEMO's counters, on the same simulated
//! machines, quiet and with accesses anywhere; then one policy that places memory by each.
//! docs/hardware.md says what decides.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::bench::outputs::{number, tierscope};
use crate::bench::rows::{Bar, Row, row};
use crate::bench::section::Section;
use crate::command::capture;
use crate::error::{Context, Error, Kind, Result};
use crate::paths;

pub(super) const SECTIONS: &[Section] = &[
    Section { name: "scattered, quiet", measure: |_| seen("scattered", false) },
    Section { name: "scattered, background", measure: |_| seen("scattered", true) },
    Section { name: "zipf, quiet", measure: |_| seen("zipf", false) },
    Section { name: "zipf, background", measure: |_| seen("zipf", true) },
    Section { name: "stairs, quiet", measure: |_| seen("stairs", false) },
    Section { name: "stairs, background", measure: |_| seen("stairs", true) },
    Section { name: "placed: scattered, quiet", measure: |_| placed("scattered", false) },
    Section { name: "placed: scattered, background", measure: |_| placed("scattered", true) },
    Section { name: "placed: zipf, quiet", measure: |_| placed("zipf", false) },
    Section { name: "placed: zipf, background", measure: |_| placed("zipf", true) },
    Section { name: "placed: stairs, quiet", measure: |_| placed("stairs", false) },
    Section { name: "placed: stairs, background", measure: |_| placed("stairs", true) },
];

/// Seeds of each figure.
const SEEDS: u64 = 5;
/// Seconds of a run; figures are taken at each half of one.
const SECONDS: u64 = 12;
/// Oracle share from which an instrument has reacted.
const REACTED: f64 = 0.8;
/// Share of the accesses that go to a hot set if others go anywhere.
const SHARE: &str = "share=0.9";
/// The budget, with what one step of an instrument may exceed it by.
const CPU: Bar = Bar::Most(0.55);
const STATE: Bar = Bar::Most(65_536.0);

/// Arguments that name an experiment, with accesses anywhere or without.
fn experiment(name: &str, background: bool) -> Result<Vec<String>> {
    let file = format!("experiments/hardware/hardware-{name}.toml");
    let path = paths::root().join(&file);
    let text = fs::read_to_string(&path).at(path.display())?;
    let line = text.lines().find_map(|line| line.strip_prefix("workload = \""));
    let workload = line.and_then(|line| line.strip_suffix('"')).filter(|w| w.contains("share=1.0"));
    let missing = || Error::new(Kind::Job, &file, "no workload with share=1.0");
    let changed = workload.ok_or_else(missing)?.replace("share=1.0", SHARE);
    let mut words = vec![file];
    if background {
        words.extend(["--set".to_owned(), format!("process.0.workload={changed}")]);
    }
    Ok(words)
}

fn run(words: &[String]) -> Result<(Value, String)> {
    let output = capture(Command::new(tierscope()?).current_dir(paths::root()).args(words))?;
    let command = format!("tierscope {}", words.join(" "));
    let value = serde_json::from_str(&output).map_err(|e| Error::new(Kind::Job, &command, e))?;
    Ok((value, command))
}

/// What the instruments see.
fn seen(name: &str, background: bool) -> Result<Vec<Row>> {
    let times: Vec<String> = (1..2 * SECONDS).map(|half| format!("{}ms", half * 500)).collect();
    let mut words: Vec<String> = ["bench", "accuracy"].map(str::to_owned).into();
    words.extend(experiment(name, background)?);
    words.extend(["--seeds".into(), SEEDS.to_string(), "--at".into(), times.join(",")]);
    words.push("--json".into());
    let (reports, command) = run(&words)?;
    let outcomes = reports[0]["outcomes"].as_array().map_or(&[][..], Vec::as_slice);
    let mut rows = Vec::new();
    for contender in contenders(outcomes) {
        let mine: Vec<&Value> = of(outcomes, &contender);
        let mut add = |what: &str, value: f64, unit: &str, bar: Bar| {
            let kind = if background { "background" } else { "quiet" };
            let name = format!("{name}, {kind}: {contender}: {what}");
            rows.push(row(name, value, unit, bar, &command));
        };
        let shares: Vec<f64> = mine.iter().map(|one| oracle(one)).collect();
        add("oracle share", mean(&shares), "share", Bar::None);
        add("oracle share, least of the seeds", least(&shares), "share", Bar::None);
        let reactions: Vec<f64> = mine.iter().map(|one| reaction(one)).collect();
        add("time to react", mean(&reactions), "s", Bar::None);
        let figure = |pointer: &str| -> Result<Vec<f64>> {
            mine.iter().map(|one| number(one, pointer)).collect()
        };
        let cpu: Vec<f64> = figure("/profiler_cpu")?.iter().map(|share| share * 100.0).collect();
        add("CPU, most of the seeds", most(&cpu), "% of a CPU", CPU);
        add("state of devices", most(&figure("/state_bytes")?), "bytes", STATE);
        add("traffic", mean(&figure("/traffic_bytes")?) / 1e3, "kB/s", Bar::None);
        if mine[0]["overflows"].is_number() {
            add("overflows of the hot list", mean(&figure("/overflows")?), "", Bar::None);
        }
    }
    Ok(rows)
}

/// What one policy makes of it.
fn placed(name: &str, background: bool) -> Result<Vec<Row>> {
    let mut all: Vec<Value> = Vec::new();
    let mut first = String::new();
    for seed in 1..=SEEDS {
        let mut words: Vec<String> = ["sim", "tier"].map(str::to_owned).into();
        words.extend(experiment(name, background)?);
        words.extend(["--seed".into(), seed.to_string(), "--json".into()]);
        let (report, command) = run(&words)?;
        all.extend(report["outcomes"].as_array().cloned().unwrap_or_default());
        first = if seed == 1 { command } else { first };
    }
    let mut rows = Vec::new();
    for policy in names(&all, "policy") {
        let mine: Vec<&Value> = all.iter().filter(|one| one["policy"] == *policy).collect();
        let by = policy.split('@').next_back().unwrap_or(&policy);
        let kind = if background { "background" } else { "quiet" };
        let mut add = |what: &str, value: f64, unit: &str| {
            let name = format!("placed: {name}, {kind}: {by}: {what}");
            rows.push(row(name, value, unit, Bar::None, &first));
        };
        let figure = |pointer: &str| -> Vec<f64> {
            mine.iter().map(|one| number(one, pointer).unwrap_or(0.0)).collect()
        };
        let shares = figure("/fast_tier_share");
        add("fast-tier share", mean(&shares), "share");
        add("fast-tier share, least of the seeds", least(&shares), "share");
        add("promoted", mean(&figure("/moves/promoted_bytes")) / 1e9, "GB");
        add("demoted", mean(&figure("/moves/demoted_bytes")) / 1e9, "GB");
    }
    Ok(rows)
}

/// Distinct values of a key, in order.
fn names(all: &[Value], key: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in all.iter().filter_map(|one| one[key].as_str()) {
        if names.iter().all(|known| known != name) {
            names.push(name.to_owned());
        }
    }
    names
}

fn contenders(outcomes: &[Value]) -> Vec<String> {
    names(outcomes, "contender")
}

fn of<'a>(outcomes: &'a [Value], contender: &str) -> Vec<&'a Value> {
    outcomes.iter().filter(|outcome| outcome["contender"] == *contender).collect()
}

/// Oracle shares at the size of the hot set, with the second of each.
fn shares(outcome: &Value) -> Vec<(f64, f64)> {
    let times = outcome["times"].as_array().map_or(&[][..], Vec::as_slice);
    let share =
        |time: &Value| Some((time["at_seconds"].as_f64()?, time["values"]["oracle_hot"].as_f64()?));
    times.iter().filter_map(share).collect()
}

/// The mean oracle share over the last third of the run.
fn oracle(outcome: &Value) -> f64 {
    let from = SECONDS as f64 * 2.0 / 3.0;
    let last: Vec<f64> =
        shares(outcome).into_iter().filter(|(at, _)| *at > from).map(|(_, share)| share).collect();
    mean(&last)
}

/// Seconds from the attach or the change of the hot set until the oracle share is [`REACTED`]; the
/// longest, and the whole time to the next change where it is not reached.
fn reaction(outcome: &Value) -> f64 {
    let detections = outcome["detections"].as_array().map_or(&[][..], Vec::as_slice);
    let starts: Vec<f64> = detections.iter().filter_map(|d| d["from_seconds"].as_f64()).collect();
    let ends = starts.iter().skip(1).copied().chain([SECONDS as f64]);
    let shares = shares(outcome);
    let time = |(start, end): (&f64, f64)| {
        let reached =
            shares.iter().find(|(at, share)| at > start && *at <= end && *share >= REACTED);
        reached.map_or(end, |(at, _)| *at) - start
    };
    starts.iter().zip(ends).map(time).fold(0.0, f64::max)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    // The share is 0.9 at 1 s, and after the change at 4 s again at 6 s: 1 s and 2 s. The last
    // third: 0.9 at 9 s.
    #[test]
    fn reactions_are_counted_from_each_change() {
        let at = |second: f64, share: f64| json!({"at_seconds": second, "values": {"oracle_hot": share}});
        let outcome = json!({
            "times": [at(0.5, 0.1), at(1.0, 0.9), at(5.0, 0.2), at(6.0, 0.85), at(9.0, 0.9)],
            "detections": [{"from_seconds": 0.0}, {"from_seconds": 4.0}],
        });
        assert_eq!((reaction(&outcome), oracle(&outcome)), (2.0, 0.9));
        let never = json!({"times": [at(1.0, 0.1)], "detections": [{"from_seconds": 0.0}]});
        assert_eq!(reaction(&never), 12.0);
    }

    #[test]
    fn every_experiment_has_a_quiet_workload() {
        for name in ["scattered", "zipf", "stairs"] {
            let words = experiment(name, true).expect("it has one");
            assert!(words[2].contains("share=0.9"), "{words:?}");
            assert_eq!(experiment(name, false).expect("it has one").len(), 1);
        }
    }
}
