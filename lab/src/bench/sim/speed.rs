//! Speed of the exact machine, and its memory use on the host (example `exact_speed`).

use std::fs;
use std::process::Command;

use serde::Deserialize;

use crate::bench::rows::{Bar, Row, row};
use crate::bench::section::Inputs;
use crate::command::capture;
use crate::error::{Context, Error, Kind, Result};
use crate::paths;

/// Share of the host's bound from which on a rate holds.
const NEAR: f64 = 0.5;

/// A line of the example's output.
#[derive(Debug, Deserialize)]
struct Figure {
    pattern: String,
    part: String,
    value: f64,
    unit: String,
    /// The value relative to that of a naive loop in the same run.
    ratio: Option<f64>,
    /// The value relative to the host's own bound in the same run.
    of_bound: Option<f64>,
    bar: Option<f64>,
    /// Whether the threshold `bar` is an upper limit.
    at_most: bool,
}

impl Figure {
    fn bar(&self) -> Bar {
        match self.bar {
            Some(bar) if self.at_most => Bar::Most(bar),
            Some(bar) => Bar::Least(bar),
            None => Bar::None,
        }
    }

    /// A rate with a bar holds as well if it is near the host's bound: that row has the bar then.
    fn rows(&self, command: &str) -> Vec<Row> {
        let name = format!("speed: {}, {}", self.pattern, self.part);
        let near = self.bar.is_some() && self.of_bound.is_some_and(|ratio| ratio >= NEAR);
        let (bar, near) =
            if near { (Bar::None, Bar::Least(NEAR)) } else { (self.bar(), Bar::None) };
        let times = |what: &str, ratio: f64, bar: Bar| {
            row(format!("{name}, to the {what}"), ratio, "times", bar, command)
        };
        let mut rows = vec![row(name.clone(), self.value, &self.unit, bar, command)];
        rows.extend(self.ratio.map(|ratio| times("loop", ratio, Bar::None)));
        rows.extend(self.of_bound.map(|ratio| times("bound", ratio, near)));
        rows
    }
}

fn measure(pattern: &str) -> Result<(Vec<Figure>, String)> {
    let words = ["run", "--release", "--quiet", "--package", "tierscope-sim", "--example"];
    let words = [&words[..], &["exact_speed", "--", "--json", pattern]].concat();
    let output = capture(Command::new("cargo").args(&words).current_dir(paths::root()))?;
    let parse = |line: &str| {
        serde_json::from_str(line)
            .map_err(|e| Error::new(Kind::Job, "exact_speed", format!("{e} in {line}")))
    };
    let figures = output.lines().map(parse).collect::<Result<Vec<Figure>>>()?;
    let quoted = format!("'{pattern}'");
    Ok((figures, format!("cargo {} {quoted}", words[..words.len() - 1].join(" "))))
}

fn speed(pattern: &str) -> Result<Vec<Row>> {
    let (figures, command) = measure(pattern)?;
    Ok(figures.iter().flat_map(|figure| figure.rows(&command)).collect())
}

pub(super) fn friendly(_: &Inputs<'_>) -> Result<Vec<Row>> {
    speed("TLB-friendly")
}

pub(super) fn hotspot(_: &Inputs<'_>) -> Result<Vec<Row>> {
    speed("1 TiB hotspot")
}

pub(super) fn uniform(_: &Inputs<'_>) -> Result<Vec<Row>> {
    speed("1 TiB uniform")
}

pub(super) fn four(_: &Inputs<'_>) -> Result<Vec<Row>> {
    speed("4 TiB uniform")
}

/// Measures 5 TiB and the memory that they take on this host.
pub(super) fn five(_: &Inputs<'_>) -> Result<Vec<Row>> {
    let (figures, command) = measure("5 TiB uniform")?;
    let mut rows: Vec<Row> = figures.iter().flat_map(|figure| figure.rows(&command)).collect();
    if let Some(memory) = figures.iter().find(|figure| figure.part == "memory") {
        let text = fs::read_to_string("/proc/meminfo").at("/proc/meminfo")?;
        let name = "speed: 5 TiB uniform, memory of the host".to_owned();
        let all = Bar::Most(total_mib(&text).unwrap_or(0.0));
        rows.push(row(name, memory.value * 5.0, "MiB", all, &command));
    }
    Ok(rows)
}

fn total_mib(meminfo: &str) -> Option<f64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some((line.split_whitespace().next()?.parse::<f64>().ok()? / 1024.0).floor())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_becomes_a_row_with_its_bar_and_one_with_its_ratio() {
        let line = r#"{"pattern": "1 TiB uniform", "part": "whole", "value": 14.0, "unit": "M/s",
            "ratio": 0.5, "of_bound": 0.3, "bar": 15.0, "at_most": false, "holds": false}"#;
        let mut figure: Figure = serde_json::from_str(line).unwrap();
        let rows = figure.rows("c");
        assert_eq!((rows[0].target.as_str(), rows[0].holds), (">= 15", false));
        assert_eq!((rows[1].value, rows[1].unit.as_str()), (0.5, "times"));
        assert_eq!((rows[2].value, rows[2].target.as_str()), (0.3, ""));
        figure.of_bound = Some(0.6);
        let rows = figure.rows("c");
        assert_eq!((rows[0].target.as_str(), rows[2].target.as_str()), ("", ">= 0.5"));
        assert!(rows[2].holds);
    }

    #[test]
    fn memory_is_read_in_mib() {
        assert_eq!(total_mib("MemTotal:  2049 kB\n"), Some(2.0));
    }
}
