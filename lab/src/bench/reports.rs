//! `make bench-reports`: performance and correctness of reports, the live view, the exporter,
//! exports and the package, written to target/bench/reports.json.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::bench::outputs::{example, number, text, tierscope};
use crate::bench::rows::{Bar, Row, Table, row};
use crate::bench::section::{Inputs, Section};
use crate::command;
use crate::error::{Context, Error, Kind, Result};
use crate::fetch;
use crate::paths;
use crate::suite::Suite;

/// Number of runs of a timed command; the median counts.
const RUNS: usize = 5;

/// The sections, in order of execution.
pub(super) const SECTIONS: &[Section] = &[
    Section { name: "an hour", measure: hour },
    Section { name: "live", measure: live },
    Section { name: "metrics", measure: metrics },
    Section { name: "round trip", measure: round_trips },
    Section { name: "package", measure: package },
];

/// Time to open a recording of an hour with 10,000 regions a window.
fn hour(inputs: &Inputs<'_>) -> Result<Vec<Row>> {
    let work = inputs.work;
    let dir = work.join("hour");
    let page = work.join("hour.html");
    example("tierscope-report", "hour", &[], &[dir.display().to_string()])?;
    let mut rows = Vec::new();
    for report in ["summary", "heatmap", "wss"] {
        let words = ["report", report, text(&dir)?];
        let (seconds, command) = median_seconds(&words)?;
        let name = format!("an hour: report {report}, command to end");
        rows.push(row(name, seconds, "s", Bar::Most(2.0), &command));
    }
    let words = ["report", "heatmap", text(&dir)?, "--html", "-o", text(&page)?];
    let (seconds, command) = median_seconds(&words)?;
    rows.push(row("an hour: page written".to_owned(), seconds, "s", Bar::Most(2.0), &command));
    let megabytes = fs::metadata(&page).at(page.display())?.len() as f64 / 1e6;
    let name = "an hour: size of the page".to_owned();
    rows.push(row(name, megabytes, "MB", Bar::Most(10.0), &command));
    rows.extend(browsed(&page)?);
    Ok(rows)
}

/// Maximum frame time that counts as smooth, in ms: two frames of a display with 60 a second.
const SMOOTH_MS: f64 = 34.0;

fn browsed(page: &Path) -> Result<Vec<Row>> {
    let (figures, command) =
        example("tierscope-report", "browse", &[], &[page.display().to_string()])?;
    let of = |name: &str, pointer: &str, unit: &str, bar| {
        number(&figures, pointer).map(|value| row(name.to_owned(), value, unit, bar, &command))
    };
    Ok(vec![
        of("an hour: page opened, to the map", "/first_seconds", "s", Bar::Most(2.0))?,
        of("an hour: page opened, to all of its data", "/open_seconds", "s", Bar::Most(2.0))?,
        of("an hour: a frame while panning, median", "/frame_ms/all/median", "ms", Bar::None)?,
        of("an hour: a frame while panning, p95", "/frame_ms/all/p95", "ms", Bar::Most(SMOOTH_MS))?,
        of("an hour: same, zoomed in, p95", "/frame_ms/zoomed/p95", "ms", Bar::Most(SMOOTH_MS))?,
    ])
}

/// Latency from a window's end to the screen.
fn live(_: &Inputs<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (regions, bar) in [("1000", 100.0), ("100000", 1000.0)] {
        let arguments = [regions.to_owned(), "100".to_owned()];
        let (figures, command) = example("tierscope-report", "live_latency", &[], &arguments)?;
        for (what, pointer) in
            [("median", "/median_ms"), ("p95", "/p95_ms"), ("longest", "/max_ms")]
        {
            let name = format!("live: a window of {regions} regions, end to screen, {what}");
            rows.push(row(name, number(&figures, pointer)?, "ms", Bar::Most(bar), &command));
        }
    }
    Ok(rows)
}

/// Scrapes during a recording of 100,000 regions a window.
fn metrics(_: &Inputs<'_>) -> Result<Vec<Row>> {
    let arguments = [tierscope()?, "100000".to_owned(), "20".to_owned()];
    let (figures, command) = example("tierscope-cli", "scrape", &[], &arguments)?;
    let of = |what: &str, pointer: &str, bar| {
        let name = format!("metrics: a scrape during 100,000 regions a window, {what}");
        number(&figures, pointer).map(|value| row(name, value, "ms", bar, &command))
    };
    Ok(vec![
        of("median", "/median_ms", Bar::None)?,
        of("p99", "/p99_ms", Bar::Most(50.0))?,
        of("longest", "/max_ms", Bar::Most(50.0))?,
    ])
}

/// Compares the data that other programs read from an export with the recording.
fn round_trips(inputs: &Inputs<'_>) -> Result<Vec<Row>> {
    let work = inputs.work;
    let dir = work.join("short");
    let (windows, regions) = ("100".to_owned(), "1000".to_owned());
    example("tierscope-report", "hour", &[], &[dir.display().to_string(), windows, regions])?;
    let out = work.join("round-trips.json");
    let _ = fs::remove_file(&out);
    let mut script = Command::new(paths::root().join("scripts/round-trips"));
    script.arg(tierscope()?).arg(&dir).arg(&out);
    // The script fails if a figure misses its threshold; the rows contain the details.
    let _ = script.stdin(Stdio::null()).status().at("scripts/round-trips")?;
    let table = Table::load(&out)?;
    let mut rows = table.into_rows();
    for row in &mut rows {
        row.name = format!("round trip: {}", row.name);
    }
    Ok(rows)
}

/// Runs the suite's case for the package on every kernel that it applies to.
fn package(inputs: &Inputs<'_>) -> Result<Vec<Row>> {
    let matrix = inputs.matrix;
    let suite = Suite::load()?;
    let missing = || Error::new(Kind::Usage, "lab/suite.toml", "has no case `package`");
    let case = suite.cases.iter().find(|case| case.name == "package").ok_or_else(missing)?;
    let mut rows = Vec::new();
    for kernel in matrix.names().into_iter().filter(|kernel| case.runs_on(kernel)) {
        let result = case.run(kernel, &fetch::tree(matrix.kernel(kernel)?)?);
        if let Err(error) = &result {
            eprintln!("lab: {error}");
        }
        let name = format!("package: installs, runs, upgrades, purges on Linux {kernel}, failures");
        let failures = f64::from(u8::from(result.is_err()));
        rows.push(row(
            name,
            failures,
            "failures",
            Bar::Most(0.0),
            "target/debug/lab test --only package",
        ));
    }
    Ok(rows)
}

/// The median duration of [`RUNS`] runs of `tierscope`, and the command.
fn median_seconds(words: &[&str]) -> Result<(f64, String)> {
    let tierscope = tierscope()?;
    let mut all = Vec::with_capacity(RUNS);
    for _ in 0..RUNS {
        let begun = Instant::now();
        command::output(Command::new(&tierscope).args(words).stdin(Stdio::null()))?;
        all.push(begun.elapsed().as_secs_f64());
    }
    all.sort_by(f64::total_cmp);
    Ok((all[RUNS / 2], format!("tierscope {}", words.join(" "))))
}
