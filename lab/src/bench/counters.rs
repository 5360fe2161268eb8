//! `make bench-counters`: telemetry in the memory controller, written to
//! target/bench/counters.json: its speed, tenants' traffic on a real kernel, and a neighbour
//! limited to its bandwidth cap.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::bench::boot::boot;
use crate::bench::outputs::{self, number};
use crate::bench::rows::{Bar, Row, row};
use crate::bench::section::{Inputs, Section};
use crate::command::capture;
use crate::error::{Context, Error, Kind, Result};
use crate::paths;

pub(super) const SECTIONS: &[Section] = &[
    Section { name: "speed", measure: speed },
    Section { name: "simulated", measure: simulated },
    Section { name: "models", measure: models },
    Section { name: "driver", measure: driver },
    Section { name: "tenants", measure: tenants },
    Section { name: "qos", measure: qos },
];

fn broken(cause: impl std::fmt::Display) -> Error {
    Error::new(Kind::Job, "telemetry in the memory controller", cause)
}

fn json(path: &Path) -> Result<Value> {
    let text = fs::read_to_string(path).at(path.display())?;
    // Programs that report continuously print the complete figures in their last line.
    let last = text.lines().rfind(|line| line.starts_with('{')).unwrap_or_default();
    serde_json::from_str(last).map_err(|e| broken(format!("{}: {e}", path.display())))
}

/// Benchmarks of the functional model: name of criterion's directory, and minimum rate in M/s.
const CASES: [(&str, f64); 3] = [
    ("one pipeline", 100.0),
    ("eight pipelines, every request counts in each", 25.0),
    ("eight pipelines as for skewness", 25.0),
];

fn speed(_: &Inputs<'_>) -> Result<Vec<Row>> {
    let words = ["bench", "--quiet", "--package", "tierscope-nemo", "--bench", "pipelines"];
    capture(Command::new("cargo").args(words).current_dir(paths::root()))?;
    let found = |(case, bar): &(&str, f64)| {
        let at = paths::root().join("target/criterion/functional").join(case).join("new");
        let of = |file: &str, pointer: &str| {
            let path = at.join(file);
            let text = fs::read_to_string(&path).at(path.display())?;
            let value = serde_json::from_str(&text).map_err(broken)?;
            number(&value, pointer)
        };
        let nanos = of("estimates.json", "/median/point_estimate")?;
        let rate = of("benchmark.json", "/throughput/Elements")? / nanos * 1e3;
        let name = format!("speed: functional model, {case}");
        let command = format!("cargo {}", words.join(" "));
        Ok(row(name, rate, "M/s", Bar::Least(*bar), &command))
    };
    CASES.iter().map(found).collect()
}

/// Slowdown of the simulated machine by a controller in front of its memory (example
/// `counted_speed`).
fn simulated(_: &Inputs<'_>) -> Result<Vec<Row>> {
    let words =
        ["run", "--release", "--quiet", "--package", "tierscope-sim", "--example", "counted_speed"];
    let output = capture(Command::new("cargo").args(words).current_dir(paths::root()))?;
    let command = format!("cargo {}", words.join(" "));
    let figure = |line: &str| {
        let report: Value = serde_json::from_str(line).map_err(broken)?;
        let counting = report["counting"].as_str().ok_or_else(|| broken(line))?.to_owned();
        let name = format!("simulated: slower with a controller, counting: {counting}");
        Ok(row(name, number(&report, "/percent")?, "%", Bar::Most(30.0), &command))
    };
    output.lines().filter(|line| line.starts_with('{')).map(figure).collect()
}

/// Numbers of operations on both models, and of telemetries that are registered and removed.
const OPERATIONS: u64 = 100_000_000;
const REGISTRATIONS: u64 = 1_000_000;

/// Runs a test of `tierscope-nemo` with more rounds than in CI. The test panics at any difference,
/// so the row reports that none occurred in that number of rounds.
fn long(
    name: &str,
    unit: &str,
    (variable, rounds): (&str, u64),
    test: [&str; 2],
) -> Result<Vec<Row>> {
    let words = ["test", "--release", "--quiet", "--package", "tierscope-nemo", "--test"];
    let mut command = Command::new("cargo");
    command.args(words).args(test).env(variable, rounds.to_string()).current_dir(paths::root());
    let output = capture(&mut command)?;
    let passed = passed(&output).filter(|tests| *tests > 0);
    let command = format!("{variable}={rounds} cargo {} {}", words.join(" "), test.join(" "));
    passed.ok_or_else(|| broken(format!("`{command}` ran no test: {output}")))?;
    Ok(vec![row(name.into(), rounds as f64, unit, Bar::Least(rounds as f64), &command)])
}

/// Number of passed tests in the output of `cargo test`.
fn passed(output: &str) -> Option<u64> {
    let report = output.lines().filter_map(|line| line.strip_prefix("test result: ok. "));
    let each = report.map(|line| line.split(' ').next()?.parse::<u64>().ok());
    each.reduce(|sum, one| Some(sum? + one?)).flatten()
}

/// Compares the cycle model with the functional one, including hazards and control operations.
fn models(_: &Inputs<'_>) -> Result<Vec<Row>> {
    let name = "models: operations on which cycle and functional model are the same";
    long(name, "operations", ("TIERSCOPE_OPERATIONS", OPERATIONS), ["models", "lanes"])
}

/// Registers and removes random telemetries, after which all resources must be free.
fn driver(_: &Inputs<'_>) -> Result<Vec<Row>> {
    let name = "driver: telemetries registered and removed of which nothing is left";
    long(name, "telemetries", ("TIERSCOPE_REGISTRATIONS", REGISTRATIONS), ["drivers", "leaks"])
}

/// Traffic of two tenants on a real kernel, as counted by the controllers.
fn tenants(inputs: &Inputs<'_>) -> Result<Vec<Row>> {
    let out = boot(inputs, "controllers", "", |_| Ok(()))?;
    let report = json(&out.join("tenants.json"))?;
    let command = "lab run controllers";
    let mut rows = Vec::new();
    for tenant in 0..2 {
        let of = |what: &str| number(&report, &format!("/{what}/{tenant}"));
        let name = |what: &str| format!("tenants: {tenant}: {what}");
        rows.push(row(name("lines loaded"), of("made")?, "lines", Bar::None, command));
        let off = (of("counted")? / of("made")? - 1.0).abs();
        rows.push(row(name("counts off the traffic"), off, "share", Bar::Most(0.001), command));
    }
    Ok(rows)
}

/// Seconds at the start of a load that are ignored, while the regulator learns the neighbour's duty
/// cycle.
const SETTLING: usize = 3;

/// A Redis server next to a neighbour with non-temporal stores: unlimited, and limited by
/// `tierscope qos`.
fn qos(inputs: &Inputs<'_>) -> Result<Vec<Row>> {
    let mut cap = 0.0;
    let out = boot(inputs, "qos", "", |scenario| {
        let text = scenario.text("cap").unwrap_or_default();
        cap = mib(text).ok_or_else(|| broken(format!("cap = {text} is no number of MiB")))?;
        Ok(())
    })?;
    let command = "lab run qos";
    let name = |what: &str| format!("qos: {what}");
    let mut rows = Vec::new();
    for phase in ["alone", "free", "held"] {
        let load = json(&out.join(format!("{phase}.json")))?;
        let rate = number(&load, "/operations_per_second")?;
        for percentile in ["p95", "p99"] {
            let latency = median(&load, &format!("{percentile}_us"))
                .ok_or_else(|| broken(format!("no intervals in {phase}.json")))?;
            let what = format!("neighbour {phase}: {percentile} of sixteen reads of the victim");
            rows.push(row(name(&what), latency, "µs", Bar::None, command));
        }
        let what = format!("neighbour {phase}: the victim's reads");
        rows.push(row(name(&what), rate, "/s", Bar::None, command));
    }
    for (phase, bar) in [("free", Bar::None), ("held", Bar::Most(1.1))] {
        let path = out.join(format!("stores-{phase}.txt"));
        let text = fs::read_to_string(&path).at(path.display())?;
        let rate =
            stored(&text).ok_or_else(|| broken(format!("{} is no figure", path.display())))?;
        let what = format!("neighbour {phase}: its stores a second over its cap");
        rows.push(row(name(&what), rate / (cap * f64::from(1 << 20)), "ratio", bar, command));
    }
    let account = json(&out.join("qos.jsonl"))?;
    for (what, pointer) in [
        ("notifications", "/tenants/0/notifications"),
        ("CPUs of the neighbour at least", "/tenants/0/least_cpus"),
    ] {
        rows.push(row(name(what), number(&account, pointer)?, "", Bar::None, command));
    }
    let cpu = number(&account, "/cpu")? * 100.0;
    rows.push(row(name("what tierscope takes, emulated"), cpu, "% of a CPU", Bar::None, command));
    Ok(rows)
}

fn mib(text: &str) -> Option<f64> {
    text.strip_suffix("MiB")?.parse().ok()
}

/// Median of a figure over the seconds of a load, except the first [`SETTLING`].
fn median(load: &Value, figure: &str) -> Option<f64> {
    let seconds = load["intervals"].as_array()?.iter().skip(SETTLING);
    outputs::median(seconds.filter_map(|second| second[figure].as_f64()))
}

/// Stored bytes per second, from the text `LINES_BEFORE LINES_AFTER SECONDS`.
fn stored(text: &str) -> Option<f64> {
    let words: Vec<f64> = text.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let [before, after, seconds] = words.try_into().ok()?;
    Some((after - before) * 64.0 / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_the_scenario_s_files() {
        assert_eq!(mib("16MiB"), Some(16.0));
        assert_eq!(stored("100 300 2\n"), Some(6400.0));
        assert_eq!(stored("100 300"), None);
        let ran = "running 2 tests\n..\ntest result: ok. 2 passed; 0 failed\n";
        assert_eq!((passed(ran), passed("nothing")), (Some(2), None));
        let second = |p95: f64| serde_json::json!({ "p95_us": p95 });
        let seconds = [9.0, 9.0, 9.0, 1.0, 3.0, 2.0].map(second);
        let load = serde_json::json!({ "intervals": seconds });
        assert_eq!((median(&load, "p95_us"), median(&load, "p99_us")), (Some(2.0), None));
    }
}
