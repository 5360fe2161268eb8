//! Accuracy of instruments, compared in density mode (`tierscope bench accuracy`).

use std::fs;
use std::process::Command;
use std::time::Instant;

use serde_json::Value;

use crate::bench::outputs::{number, text, tierscope};
use crate::bench::rows::{Bar, Row, row};
use crate::bench::section::Inputs;
use crate::command::capture;
use crate::error::{Context, Error, Kind, Result};
use crate::paths;

/// Threshold for the wall time in seconds of simulating a minute with all instruments.
const MINUTE: Bar = Bar::Most(60.0);
/// Threshold for the profiler CPU in per cent of one CPU: the paper's figure.
const PAPER_CPU: Bar = Bar::Most(0.9);
/// Recall below which DAMON is considered to find nothing.
const NOTHING: f64 = 0.001;

/// Reports of scenarios, and the command that produced them.
fn reports(arguments: &[&str]) -> Result<(Value, String)> {
    let words = [&["bench", "accuracy", "--json"], arguments].concat();
    let output = capture(Command::new(tierscope()?).args(&words))?;
    let value = serde_json::from_str(&output)
        .map_err(|e| Error::new(Kind::Job, "tierscope bench accuracy", e))?;
    Ok((value, format!("tierscope {}", words.join(" "))))
}

fn timed(name: &str, scenario: &str) -> Result<Vec<Row>> {
    let begun = Instant::now();
    let (report, command) = reports(&[scenario])?;
    let seconds = begun.elapsed().as_secs_f64();
    let all = report[0]["outcomes"].as_array().map_or(&[][..], Vec::as_slice);
    let simulated = number(&report, "/0/seconds")?;
    let name = |what: String| format!("density: {name}, {what}");
    let what = format!("{simulated} s of {} instruments", all.len());
    let mut rows = vec![row(name(what), seconds, "s", MINUTE, &command)];
    for outcome in all {
        let contender = outcome["contender"].as_str().unwrap_or_default();
        let wall = number(outcome, "/wall_seconds")?;
        rows.push(row(name(format!("of which {contender}")), wall, "s", Bar::None, &command));
    }
    Ok(rows)
}

/// Simulates a minute with 5 TiB.
pub(super) fn terabytes(_: &Inputs<'_>) -> Result<Vec<Row>> {
    timed("5 TiB", "contiguous-5tb")
}

/// Simulates a minute with 1 PiB.
pub(super) fn petabyte(_: &Inputs<'_>) -> Result<Vec<Row>> {
    timed("1 PiB", "contiguous-1pb")
}

/// A contender's outcome in a report.
fn outcome<'a>(report: &'a Value, contender: &str) -> Result<&'a Value> {
    let all = report[0]["outcomes"].as_array().map_or(&[][..], Vec::as_slice);
    let missing = || Error::new(Kind::Job, contender, "is not in the report");
    all.iter().find(|outcome| outcome["contender"] == contender).ok_or_else(missing)
}

/// Precision and recall to report: after detection, or over all windows if nothing was detected.
fn quoted(outcome: &Value) -> (f64, f64) {
    let shares = if outcome["settled"].is_null() { &outcome["all"] } else { &outcome["settled"] };
    let share = |key: &str| shares[key].as_f64().unwrap_or(0.0);
    (share("precision"), share("recall"))
}

fn percent(outcome: &Value, key: &str) -> f64 {
    outcome[key].as_f64().unwrap_or(0.0) * 100.0
}

/// Recall of the best window.
fn best_recall(outcome: &Value) -> f64 {
    let windows = outcome["windows"].as_array().map_or(&[][..], Vec::as_slice);
    let bytes = |window: &Value, key: &str| window[key].as_f64().unwrap_or(0.0);
    windows.iter().fold(0.0, |best, window| {
        best.max(bytes(window, "both_bytes") / bytes(window, "true_bytes").max(1.0))
    })
}

/// Rows of a scenario whose names begin with `accuracy: NAME`; `ours` is the minimum precision and
/// recall of `rates`.
fn accuracy(name: &str, scenario: &str, ours: f64) -> Result<Vec<Row>> {
    let (report, command) = reports(&[scenario])?;
    let mut rows = Vec::new();
    let mut add = |contender: &str, what: &str, value: f64, unit: &str, bar: Bar| {
        let name = format!("accuracy: {name} at 5 TiB, {contender}, {what}");
        rows.push(row(name, value, unit, bar, &command));
    };
    for (contender, least) in [("rates", ours), ("bounded", 0.9), ("flexible", 0.9)] {
        let outcome = outcome(&report, contender)?;
        let (precision, recall) = quoted(outcome);
        add(contender, "precision", precision, "share", Bar::Least(least));
        add(contender, "recall", recall, "share", Bar::Least(least));
        add(contender, "profiler CPU", percent(outcome, "profiler_cpu"), "% of a CPU", PAPER_CPU);
    }
    for contender in ["damon-moderate", "damon-aggressive"] {
        let best = best_recall(outcome(&report, contender)?);
        add(contender, "recall of the best window", best, "share", Bar::Most(NOTHING));
    }
    for contender in ["pebs-moderate", "pebs-aggressive"] {
        let outcome = outcome(&report, contender)?;
        add(contender, "recall", quoted(outcome).1, "share", Bar::None);
        add(contender, "profiler CPU", percent(outcome, "profiler_cpu"), "% of a CPU", Bar::None);
        add(contender, "time taken from the target", percent(outcome, "disturbed"), "%", Bar::None);
    }
    Ok(rows)
}

/// A hot set of 10 GiB that moves up through 5 TiB.
pub(super) fn stairs(_: &Inputs<'_>) -> Result<Vec<Row>> {
    accuracy("stairs", "stairs-5tb", 0.95)
}

/// A hot set of 5 MB in 5 TiB.
pub(super) fn needle(_: &Inputs<'_>) -> Result<Vec<Row>> {
    accuracy("needle 5 MB", "needle-5mb", 0.9)
}

/// Control experiment: recall of DAMON on 1 GB. Without it, finding nothing in 5 TiB would prove
/// nothing.
pub(super) fn damon_where_it_works(inputs: &Inputs<'_>) -> Result<Vec<Row>> {
    let path = inputs.work.join("damon-1gb.toml");
    let scenario = "name = \"damon-1gb\"\nabout = \"100 MB hot in 1 GB\"\n\
        source = \"layout: the authors' posting of Telescope to the kernel list\"\n\
        time = \"10s\"\n[machine]\nflush = \"5ms\"\n[simulation]\nmode = \"density\"\n\
        [[process]]\nworkload = \"contiguous:space=1GB,hot=100MB,at=300MB,rate=3000000\"\n";
    fs::write(&path, scenario).at(path.display())?;
    let (report, command) = reports(&[text(&path)?, "--only", "damon-moderate"])?;
    let recall = quoted(outcome(&report, "damon-moderate")?).1;
    let name = "accuracy: DAMON at 1 GB, damon-moderate, recall".to_owned();
    Ok(vec![row(name, recall, "share", Bar::Least(0.9), &command)])
}

/// Page of Telescope's claims.
const PAGE: &str = "experiments/telescope/REPRODUCTION.md";

/// Telescope's claims about instruments. Their verdicts have no thresholds; only the agreement of
/// the stored figures with the code is checked.
pub(super) fn claims(_: &Inputs<'_>) -> Result<Vec<Row>> {
    let path = paths::root().join(PAGE);
    let page = fs::read_to_string(&path).at(path.display())?;
    let mut check = Command::new(tierscope()?);
    check.args(["reproduce", "telemetry", "--check"]).arg(paths::root());
    let stale = match capture(&mut check) {
        Ok(_) => 0.0,
        Err(error) => {
            eprintln!("lab: {error}");
            1.0
        }
    };
    let command = "tierscope reproduce telemetry --check .";
    let name = |what: &str| format!("claims: {what}");
    let what = "stored figures differ from a rerun";
    let mut rows = vec![row(name(what), stale, "papers", Bar::Most(0.0), command)];
    for verdict in ["reproduced", "direction only", "not reproduced", "not testable here"] {
        let count = verdicts(&page, verdict) as f64;
        rows.push(row(name(verdict), count, "claims", Bar::None, command));
    }
    Ok(rows)
}

/// Number of table lines on the page whose last cell begins with `verdict`.
fn verdicts(page: &str, verdict: &str) -> usize {
    let last = |line: &str| {
        let cell = line.trim_end().strip_suffix('|')?.rsplit('|').next()?.trim().to_owned();
        Some(cell)
    };
    let cells = page.lines().filter(|line| line.starts_with('|')).filter_map(last);
    cells.filter(|cell| cell.split(':').next() == Some(verdict)).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn verdicts_are_counted_by_their_last_cell() {
        let page = "| claim | verdict |\n|---|---|\n| reproduced | not reproduced: why |\n\
                    | a | reproduced |\n| b | reproduced |\n";
        assert_eq!((verdicts(page, "reproduced"), verdicts(page, "not reproduced")), (2, 1));
    }

    // Recall 1/4 in the first window, 3/4 in the second.
    #[test]
    fn the_best_window_and_the_quoted_one() {
        let window = |both: u64| json!({"both_bytes": both, "true_bytes": 4});
        let some = json!({
            "windows": [window(1), window(3)],
            "settled": null,
            "all": {"precision": null, "recall": 0.5},
        });
        assert_eq!((best_recall(&some), quoted(&some)), (0.75, (0.0, 0.5)));
    }
}
