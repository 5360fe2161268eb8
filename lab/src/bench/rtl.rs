//! `make bench-rtl`, written to target/bench/rtl.json: the telemetry circuit (`rtl`) next to its
//! models. Requests on which circuit and cycle model are the same, seeded defects that are found,
//! rates, and resources by synthesis.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::bench::outputs::number;
use crate::bench::rows::{Bar, Row, row};
use crate::bench::section::{Inputs, Section};
use crate::command::capture;
use crate::error::{Context, Error, Kind, Result};
use crate::paths;

pub(super) const SECTIONS: &[Section] = &[
    Section { name: "equal", measure: equal },
    Section { name: "defects", measure: defects },
    Section { name: "rates", measure: rates },
    Section { name: "resources", measure: resources },
];

/// Requests that enter a lane of each of two channels.
const REQUESTS: u64 = 50_000_000;
const CHANNELS: u64 = 2;

fn broken(cause: impl std::fmt::Display) -> Error {
    Error::new(Kind::Job, "the telemetry circuit", cause)
}

/// Runs the example `figures` of `crates/cosim`; the objects that it printed, and its command.
fn figures(words: &[&str]) -> Result<(Vec<Value>, String)> {
    let fixed = [
        "run",
        "--release",
        "--quiet",
        "--package",
        "tierscope-cosim",
        "--example",
        "figures",
        "--",
    ];
    let mut command = Command::new("cargo");
    let output = capture(command.args(fixed).args(words).current_dir(paths::root()))?;
    let objects = output.lines().map(|line| serde_json::from_str(line).map_err(broken));
    Ok((objects.collect::<Result<_>>()?, format!("cargo {} {}", fixed.join(" "), words.join(" "))))
}

fn equal(_: &Inputs<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let (mut requests, mut differences) = (0.0, 0.0);
    for channel in 0..CHANNELS {
        let words = [channel, 1 + channel, REQUESTS].map(|word| word.to_string());
        let (objects, command) = figures(&["equal", &words[0], &words[1], &words[2]])?;
        let report = objects.first().ok_or_else(|| broken("it printed nothing"))?;
        let figure = |name: &str, of: &str, unit: &str| {
            let name = format!("equal: channel {channel}, {name}");
            Ok(row(name, number(report, of)?, unit, Bar::None, &command))
        };
        let unused = report["missing"].as_array().map_or(f64::NAN, |list| list.len() as f64);
        rows.push(figure("requests", "/requests", "requests")?);
        rows.push(figure("cycles", "/cycles", "cycles")?);
        rows.push(figure("programs", "/programs", "programs")?);
        let name = format!("equal: channel {channel}, options of table 1 that no program had");
        rows.push(row(name, unused, "options", Bar::Most(0.0), &command));
        requests += number(report, "/requests")?;
        differences += number(report, "/differences")?;
    }
    let command = "make bench-rtl";
    let least = Bar::Least((CHANNELS * REQUESTS) as f64);
    rows.push(row("equal: requests of both channels".into(), requests, "requests", least, command));
    let name = "equal: differences of states, notifications and their cycles";
    rows.push(row(name.into(), differences, "differences", Bar::Most(0.0), command));
    Ok(rows)
}

fn defects(_: &Inputs<'_>) -> Result<Vec<Row>> {
    let (objects, command) = figures(&["defects"])?;
    let mut rows = Vec::new();
    for defect in objects.iter().filter(|defect| defect["found"] == true) {
        let name = format!("defects: {}, found at", defect["defect"].as_str().unwrap_or_default());
        rows.push(row(name, number(defect, "/request")?, "requests", Bar::None, &command));
    }
    let (found, all) = (rows.len() as f64, objects.len() as f64);
    rows.push(row("defects: found".into(), found, "defects", Bar::Least(all), &command));
    Ok(rows)
}

fn rates(_: &Inputs<'_>) -> Result<Vec<Row>> {
    let (objects, command) = figures(&["rates"])?;
    let report = objects.first().ok_or_else(|| broken("it printed nothing"))?;
    let figure = |name: &str, of: &str, unit: &str| {
        Ok(row(format!("rates: {name}"), number(report, of)?, unit, Bar::Least(1.0), &command))
    };
    Ok(vec![
        figure("requests of one state, a cycle and channel", "/requests", "requests")?,
        figure("lines of the region, a cycle and channel", "/lines", "lines")?,
    ])
}

/// Netlists by `rtl/resources.py`, which resumes; sums of controllers, and the models' geometry.
fn resources(inputs: &Inputs<'_>) -> Result<Vec<Row>> {
    let parts = inputs.work.join("resources.json");
    let script = paths::root().join("rtl/resources.py");
    capture(Command::new("/usr/bin/python3").arg(&script).arg(&parts))?;
    let text = fs::read_to_string(&parts).at(parts.display())?;
    let parts: Value = serde_json::from_str(&text).map_err(broken)?;
    let command = "rtl/resources.py target/bench/rtl/resources.json";
    let mut rows = lanes(&parts, command)?;
    rows.extend(controllers(&parts, command)?);
    rows.extend(accounting(&parts)?);
    Ok(rows)
}

fn part<'a>(parts: &'a Value, name: &str) -> Result<&'a Value> {
    parts.get(name).ok_or_else(|| broken(format!("there is no part {name}")))
}

/// Figures of a netlist: name, its place, unit.
const FIGURES: [(&str, &str, &str); 5] = [
    ("ALUTs", "/aluts", "ALUTs"),
    ("ALMs at least", "/alms_least", "ALMs"),
    ("ALMs at most", "/alms_most", "ALMs"),
    ("registers", "/registers", "registers"),
    ("M20K", "/m20k", "blocks"),
];

/// M20K of a pipeline and channel: of a line a cycle, and of half a line, which section 4 counts.
const BLOCKS: [(&str, f64); 2] = [("lane", 40.0), ("lane of the prototype", 36.0)];

fn lanes(parts: &Value, command: &str) -> Result<Vec<Row>> {
    let names = parts.as_object().into_iter().flat_map(|parts| parts.keys());
    let mut rows = Vec::new();
    for name in names.filter(|name| name.starts_with("lane")) {
        for (figure, at, unit) in FIGURES {
            let expected = BLOCKS.iter().find(|block| block.0 == name && figure == "M20K");
            let bar = expected.map_or(Bar::None, |block| Bar::Around(block.1, 0.0));
            let value = number(part(parts, name)?, at)?;
            rows.push(row(format!("resources: {name}: {figure}"), value, unit, bar, command));
        }
    }
    Ok(rows)
}

/// A controller's sum: its own parts, and a lane for each pipeline and channel.
fn controllers(parts: &Value, command: &str) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for pipelines in [1.0, 2.0, 4.0, 8.0] {
        let around = part(parts, &format!("controller of {pipelines} without lanes"))?;
        for (figure, at, unit) in FIGURES {
            let lanes = pipelines * CHANNELS as f64 * number(part(parts, "lane")?, at)?;
            let value = lanes + number(around, at)?;
            let name = format!("resources: {pipelines} pipelines of two channels: {figure}");
            rows.push(row(name, value, unit, Bar::None, command));
        }
    }
    Ok(rows)
}

/// Bits of SRAM: the models' geometry, and the netlist before it is mapped to blocks.
fn accounting(parts: &Value) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for pipelines in ["1", "8"] {
        let (objects, command) = figures(&["geometry", pipelines, "2"])?;
        let geometry = objects.first().ok_or_else(|| broken("it printed nothing"))?;
        let netlist = part(parts, &format!("memory bits of {pipelines}"))?;
        for of in ["table", "states", "capture"] {
            let off = number(netlist, &format!("/{of}"))? - number(geometry, &format!("/{of}"))?;
            let name =
                format!("resources: {pipelines} pipelines: bits of {of} beyond the geometry");
            rows.push(row(name, off, "bits", Bar::Around(0.0, 0.0), &command));
        }
    }
    Ok(rows)
}
