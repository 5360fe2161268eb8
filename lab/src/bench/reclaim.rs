//! `make bench-reclaim`: reclaim of a real memcached's cold memory to zswap, by the kernel's own
//! MGLRU and by ours, written to target/bench/reclaim.json; also the checks of a run of the
//! scenario `reclaim`.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::bench::boot::boot;
use crate::bench::outputs::{self, figures, number, tierscope};
use crate::bench::rows::{Bar, Row, row};
use crate::bench::section::{Inputs, Section};
use crate::command::capture;
use crate::error::{Context, Error, Kind, Result};
use crate::scenario::Scenario;

pub(super) const SECTIONS: &[Section] = &[
    Section { name: "memcached", measure: memcached },
    Section { name: "scan cost", measure: scan_cost },
];

const POLICIES: &[&str] = &["kernel", "mglru", "mglru-linear", "mglru-telescope"];
/// The policy to which the thresholds apply.
const JUDGED: &str = "mglru-telescope";
/// Share of the cold memory whose reclaim is timed.
const MOST_OF_COLD: f64 = 0.8;
/// Page size in KiB, the unit of VmRSS.
const PAGE_KIB: f64 = 4.0;

fn memcached(inputs: &Inputs<'_>) -> Result<Vec<Row>> {
    let policies = format!("policies={}", POLICIES.join(" "));
    let (mut hot, mut keys) = (0.0, 0.0);
    let out = boot(inputs, "reclaim", "", |scenario| {
        scenario.assign(&policies)?;
        (hot, keys) = (share(scenario, "hot_keys")?, share(scenario, "keys")?);
        Ok(())
    })?;
    let command = format!("lab run reclaim --set '{policies}'");
    let read = |policy: &&'static str| Ok((*policy, Run::read(&out.join(policy), hot)?));
    let runs: Vec<(&str, Run)> = POLICIES.iter().map(read).collect::<Result<_>>()?;
    rows(&runs, keys, &command)
}

fn rows(runs: &[(&str, Run)], keys: f64, command: &str) -> Result<Vec<Row>> {
    let of = |name: &str| -> Result<&Run> {
        let found = runs.iter().find(|(policy, _)| *policy == name);
        found.map(|(_, run)| run).ok_or_else(|| broken(format!("{name} did not run")))
    };
    let mut rows = Vec::new();
    for (policy, run) in runs {
        let judged = |bar: Bar| if *policy == JUDGED { bar } else { Bar::None };
        let mut add = |what: &str, value: f64, unit: &str, bar: Bar| {
            rows.push(row(format!("memcached: {policy}: {what}"), value, unit, bar, command));
        };
        add("memory at first", run.first_kib / f64::from(1 << 20), "GiB", Bar::Least(8.0));
        match run.seconds {
            Some(seconds) => {
                add("80 % of the cold memory given back after", seconds, "s", Bar::None)
            }
            None => add(
                "of the cold memory given back in the end",
                run.reached,
                "share",
                Bar::Least(0.8),
            ),
        }
        add("CPU of looking at pages", run.scan_seconds, "s", Bar::None);
        add("hot pages that came back", 100.0 * run.hot_refaults, "%", judged(Bar::Most(1.0)));
        add("reads a second", run.rate, "1/s", Bar::None);
        add("P95 of a read", run.p95_us, "µs", Bar::None);
        if let Some(entries) = run.entries {
            add("entries looked at", entries, "entries", Bar::None);
        }
        if let Some(cpu) = run.cpu_seconds {
            add("CPU of tierscope, giving back included", cpu, "s", Bar::None);
        }
        if *policy == JUDGED {
            let ratio = |name: &str| Ok::<f64, Error>(run.scan_seconds / of(name)?.scan_seconds);
            add(
                "CPU of looking, over mglru-linear",
                ratio("mglru-linear")?,
                "ratio",
                Bar::Most(0.5),
            );
            add("CPU of looking, over mglru", ratio("mglru")?, "ratio", Bar::Most(1.0));
            let kernels = of("kernel")?.rate;
            add("reads a second, over the kernel's", run.rate / kernels, "ratio", Bar::Least(1.0));
        }
        add("values read back whole", run.checked, "values", Bar::Least(keys));
    }
    Ok(rows)
}

/// Cost of a page-table walk against mapped memory, simulated: half a GiB is accessed, of 1 GiB to
/// 1 TiB.
fn scan_cost(_: &Inputs<'_>) -> Result<Vec<Row>> {
    let words = ["bench", "scan-cost", "--json"];
    let report = figures(&capture(Command::new(tierscope()?).args(words))?);
    let command = format!("tierscope {}", words.join(" "));
    let curve = report["curve"].as_array().cloned().unwrap_or_default();
    let mut rows = Vec::new();
    for point in &curve {
        let gib = number(point, "/gib")?;
        for policy in ["mglru-linear", "mglru", "mglru-telescope"] {
            let ms = number(point, &format!("/ms/{policy}"))?;
            let name = format!("scan cost: {policy}: a walk of {gib} GiB, 0.5 GiB hot, simulated");
            rows.push(row(name, ms, "ms", Bar::None, &command));
        }
    }
    let growth = |policy: &str| number(&report, &format!("/growth/{policy}"));
    let largest = curve.last().ok_or_else(|| broken("no walk was measured"))?;
    let of_largest = |policy: &str| number(largest, &format!("/ms/{policy}"));
    let over = of_largest("mglru-telescope")? / of_largest("mglru")?;
    let mut add = |what: &str, value: f64, bar: Bar| {
        rows.push(row(format!("scan cost: {what}"), value, "ratio", bar, &command));
    };
    // 1024 times as much memory, of which the same bytes are accessed.
    add("mglru-linear: 1 TiB over 1 GiB", growth("mglru-linear")?, Bar::Least(256.0));
    add("mglru-telescope: 1 TiB over 1 GiB", growth("mglru-telescope")?, Bar::None);
    add("mglru-telescope: 1 TiB, over mglru", over, Bar::Most(1.0));
    Ok(rows)
}

/// A numeric parameter of the scenario.
fn share(scenario: &Scenario, key: &str) -> Result<f64> {
    scenario.number(key).ok_or_else(|| broken(format!("the scenario has no number {key}")))
}

fn broken(cause: impl std::fmt::Display) -> Error {
    Error::new(Kind::Job, "reclaim", cause)
}

fn json(path: &Path) -> Result<Value> {
    let text = fs::read_to_string(path).at(path.display())?;
    serde_json::from_str(&text).map_err(|e| broken(format!("{}: {e}", path.display())))
}

/// Results of one run of a policy.
#[derive(Clone, Debug, PartialEq)]
struct Run {
    first_kib: f64,
    /// Seconds until four fifths of the cold memory were reclaimed; `None` if that was never
    /// reached.
    seconds: Option<f64>,
    /// Share of the cold memory that was reclaimed in the end.
    reached: f64,
    /// CPU seconds spent on scanning pages.
    scan_seconds: f64,
    entries: Option<f64>,
    /// CPU seconds of tierscope in total.
    cpu_seconds: Option<f64>,
    /// Refaults from zswap while the server was read, over the number of hot pages: only hot values
    /// are read, so every refault is of a hot page.
    hot_refaults: f64,
    rate: f64,
    p95_us: f64,
    checked: f64,
    reclaimed: f64,
}

impl Run {
    fn read(dir: &Path, hot: f64) -> Result<Self> {
        let samples = samples(&dir.join("samples.txt"))?;
        let (first, last) = (samples[0], samples[samples.len() - 1]);
        let cold = (1.0 - hot) * first.kib;
        let out = |sample: &Sample| (first.kib - sample.kib) / cold;
        let there = samples.iter().find(|sample| out(sample) >= MOST_OF_COLD);
        let account = dir.join("account.json");
        let report = if account.exists() { Some(json(&account)?) } else { None };
        let (mut entries, mut cpu_seconds) = (None, None);
        let scan_seconds = match &report {
            Some(report) => {
                if report["account"]["adds_up"] != Value::Bool(true) {
                    return Err(broken(format!("{}: the account does not add up", dir.display())));
                }
                entries = report["scans"]["entries"].as_f64();
                cpu_seconds = report["profiler_cpu_seconds"].as_f64();
                number(report, "/scans/cpu_seconds")?
            }
            None => {
                (used(&dir.join("used-after.txt"))? - used(&dir.join("used-before.txt"))?) / 1e6
            }
        };
        let load = json(&dir.join("load.json"))?;
        let (rate, p95_us) = reads(&load)?;
        Ok(Self {
            first_kib: first.kib,
            seconds: there.map(|sample| sample.at - first.at),
            reached: out(&last),
            scan_seconds,
            entries,
            cpu_seconds,
            hot_refaults: (last.back - first.back) / (hot * first.kib / PAGE_KIB),
            rate,
            p95_us,
            checked: number(&json(&dir.join("check.json"))?, "/checked")?,
            reclaimed: (last.out - first.out) * 4096.0,
        })
    }
}

/// A line of the samples: time, resident KiB, cumulative refaults and pages swapped out.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sample {
    at: f64,
    kib: f64,
    back: f64,
    out: f64,
}

fn samples(path: &Path) -> Result<Vec<Sample>> {
    let text = fs::read_to_string(path).at(path.display())?;
    // The last line may be incomplete.
    let read = |line: &str| -> Option<Sample> {
        let words: Vec<f64> = line.split(' ').map_while(|word| word.parse().ok()).collect();
        let [at, kib, compressed, out, device] = words[..] else { return None };
        Some(Sample { at, kib, back: compressed + device, out })
    };
    let samples: Vec<Sample> = text.lines().filter_map(read).collect();
    match samples.len() {
        0 | 1 => Err(broken(format!("{}: no samples", path.display()))),
        _ => Ok(samples),
    }
}

/// CPU time of the kernel's aging in microseconds, without reclaim.
fn used(path: &Path) -> Result<f64> {
    let text = fs::read_to_string(path).at(path.display())?;
    let first = text.split_whitespace().next().and_then(|word| word.parse().ok());
    first.ok_or_else(|| broken(format!("{}: no time", path.display())))
}

/// Reads per second, and the median of the intervals' P95.
fn reads(load: &Value) -> Result<(f64, f64)> {
    let intervals = load["intervals"].as_array().map(Vec::as_slice).unwrap_or_default();
    let (Some(first), Some(last)) = (intervals.first(), intervals.last()) else {
        return Err(broken("nothing was read"));
    };
    let seconds = number(last, "/at")? - number(first, "/at")?;
    if seconds <= 0.0 {
        return Err(broken("one interval is too little"));
    }
    let reads: f64 = intervals[1..].iter().filter_map(|part| part["operations"].as_f64()).sum();
    let p95 = outputs::median(intervals.iter().filter_map(|part| part["p95_us"].as_f64()));
    let middle = p95.ok_or_else(|| broken("no interval has a P95"))?;
    Ok((reads / seconds, middle))
}

/// Most refaults for each hot page in the suite's case: giving back all memory takes one or more.
const MOST_REFAULTS: f64 = 0.2;

/// Checks a run of the scenario: memory was reclaimed, the byte account adds up, every value was
/// read back.
///
/// # Errors
/// A check fails.
pub fn check(out: &Path, scenario: &Scenario) -> Result<()> {
    let hot = share(scenario, "hot_keys")?;
    let policies = scenario.text("policies").unwrap_or_default();
    for policy in policies.split(' ') {
        let run = Run::read(&out.join(policy), hot)?;
        if run.reached < 0.4 || run.reclaimed <= 0.0 {
            return Err(broken(format!("{policy} gave {:.2} of what is cold back", run.reached)));
        }
        if run.hot_refaults > MOST_REFAULTS {
            let share = run.hot_refaults;
            return Err(broken(format!("{policy}: {share:.2} refaults for each hot page")));
        }
        if run.checked < share(scenario, "keys")? {
            return Err(broken(format!("{policy}: {} values were read back", run.checked)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(dir: &Path, name: &str, text: &str) {
        fs::write(dir.join(name), text).unwrap();
    }

    // Of 1000 KiB, a tenth is hot: 720 of 900 cold KiB are reclaimed after 2 s; two of 25 hot pages
    // refault.
    fn run(dir: &Path) {
        file(dir, "samples.txt", "10 1000 5 0 0\n11 600 5 100 0\n12 280 6 180 1\n13 2");
        file(
            dir,
            "account.json",
            r#"{"account": {"adds_up": true}, "scans": {"entries": 7, "cpu_seconds": 0.25}, "profiler_cpu_seconds": 2}"#,
        );
        file(
            dir,
            "load.json",
            r#"{"intervals": [{"at": 1, "operations": 9, "p95_us": 5}, {"at": 2, "operations": 10, "p95_us": 7}, {"at": 3, "operations": 14, "p95_us": 6}]}"#,
        );
        file(dir, "check.json", r#"{"checked": 40}"#);
    }

    #[test]
    fn a_run_is_read() {
        let dir = tempfile::tempdir().unwrap();
        run(dir.path());
        let run = Run::read(dir.path(), 0.1).unwrap();
        assert_eq!((run.seconds, run.reached), (Some(2.0), 0.8));
        assert_eq!((run.scan_seconds, run.rate, run.p95_us), (0.25, 12.0, 6.0));
        assert!((run.hot_refaults - 0.08).abs() < 1e-9);
        assert_eq!((run.checked, run.entries, run.cpu_seconds), (40.0, Some(7.0), Some(2.0)));
    }

    #[test]
    fn the_kernel_s_scan_time_is_that_of_its_aging() {
        let dir = tempfile::tempdir().unwrap();
        run(dir.path());
        fs::remove_file(dir.path().join("account.json")).unwrap();
        file(dir.path(), "used-before.txt", "1000000 5\n");
        file(dir.path(), "used-after.txt", "1500000 90\n");
        assert_eq!(Run::read(dir.path(), 0.1).unwrap().scan_seconds, 0.5);
    }

    #[test]
    fn rows_have_their_thresholds() {
        let dir = tempfile::tempdir().unwrap();
        run(dir.path());
        let base = Run::read(dir.path(), 0.1).unwrap();
        let of = |scan_seconds| Run { scan_seconds, ..base.clone() };
        let runs =
            [("kernel", of(1.0)), ("mglru", of(0.5)), ("mglru-linear", of(1.0)), (JUDGED, of(0.6))];
        let rows = rows(&runs, 40.0, "x").unwrap();
        let figure = |what: &str| {
            let row = rows.iter().find(|row| row.name.ends_with(what)).expect(what);
            (row.value, row.holds)
        };
        assert_eq!(figure("over mglru-linear"), (0.6, false));
        assert_eq!(figure("over mglru"), (0.6 / 0.5, false));
        assert_eq!(figure("over the kernel's"), (1.0, true));
        assert!(!figure("mglru-telescope: hot pages that came back").1);
        assert!(figure("kernel: hot pages that came back").1, "it is not judged");
        assert_eq!(figure("values read back whole"), (40.0, true));
    }

    #[test]
    fn an_account_that_does_not_add_up_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        run(dir.path());
        file(dir.path(), "account.json", r#"{"account": {"adds_up": false}}"#);
        assert!(Run::read(dir.path(), 0.1).unwrap_err().to_string().contains("does not add up"));
    }
}
