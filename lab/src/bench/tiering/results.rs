//! Results of a run of the scenario `tier`: what each policy left in its output directory.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::bench::outputs::{median, number};
use crate::error::{Context, Error, Kind, Result};

/// Number of intervals at the end of a phase that are compared; reads within an interval may belong
/// to the start or the end of a phase.
pub(super) const LATE: usize = 10;

pub(super) fn broken(cause: impl std::fmt::Display) -> Error {
    Error::new(Kind::Job, "placement", cause)
}

pub(super) fn json(path: &Path) -> Result<Value> {
    let text = fs::read_to_string(path).at(path.display())?;
    serde_json::from_str(&text).map_err(|e| broken(format!("{}: {e}", path.display())))
}

fn lines(path: &Path) -> Result<Vec<Value>> {
    let text = fs::read_to_string(path).at(path.display())?;
    let parse = |line: &str| {
        serde_json::from_str(line).map_err(|e| broken(format!("{}: {e}", path.display())))
    };
    text.lines().map(parse).collect()
}

/// Results of one phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Phase {
    /// Reads per second in the last seconds of the phase.
    pub(super) rate: f64,
    /// Reads per second in the whole phase.
    pub(super) whole: f64,
    pub(super) p95_us: f64,
    /// Share of the hot values on node 0 at the end of the phase.
    pub(super) share: Option<f64>,
    /// Share of the hot values on node 0 at the start and half-way through the phase.
    pub(super) over_time: [Option<f64>; 2],
}

impl Phase {
    pub(super) fn read(dir: &Path, name: &str) -> Result<Self> {
        let load = json(&dir.join(format!("{name}.json")))?;
        let intervals = load["intervals"].as_array().map(Vec::as_slice).unwrap_or_default();
        let late = &intervals[intervals.len().saturating_sub(LATE + 1)..];
        let (Some(first), Some(last)) = (late.first(), late.last()) else {
            return Err(broken(format!("{name}: nothing was read")));
        };
        let seconds = number(last, "/at")? - number(first, "/at")?;
        if seconds <= 0.0 {
            return Err(broken(format!("{name}: one interval is too little")));
        }
        let reads: f64 = late[1..].iter().filter_map(|part| part["operations"].as_f64()).sum();
        let p95 = median(late.iter().filter_map(|part| part["p95_us"].as_f64()));
        let nodes = dir.join(format!("{name}-nodes.txt"));
        let shares: Vec<f64> = match nodes.exists() {
            true => lines(&nodes)?.iter().filter_map(share_on_node_0).collect(),
            false => Vec::new(),
        };
        Ok(Self {
            rate: reads / seconds,
            whole: number(&load, "/operations_per_second")?,
            p95_us: p95.ok_or_else(|| broken(format!("{name}: no interval has a P95")))?,
            share: shares.last().copied(),
            over_time: [shares.first().copied(), shares.get(shares.len() / 2).copied()],
        })
    }
}

fn share_on_node_0(line: &Value) -> Option<f64> {
    let nodes = line["nodes"].as_object()?;
    let all: f64 = nodes.values().filter_map(Value::as_f64).sum();
    let fast = nodes.get("0").and_then(Value::as_f64).unwrap_or(0.0);
    (all > 0.0).then_some(fast / all)
}

/// Results of one run of a policy.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Run {
    pub(super) first: Phase,
    pub(super) second: Phase,
    pub(super) promoted: f64,
    pub(super) demoted: f64,
    pub(super) failed: f64,
    /// Share of the machine's cache misses served by node 0 in the last seconds of the run.
    pub(super) misses: f64,
    /// Number of values that were read back intact.
    pub(super) checked: f64,
    /// CPU usage of tierscope, or of the kernel's kdamonds, as a share of one CPU.
    pub(super) cpu: Option<f64>,
    /// Time, and bytes of the server on node 0 and elsewhere, about once a second.
    pub(super) resident: Vec<[f64; 3]>,
    /// Maximum bytes that the kernel migrated within a second.
    pub(super) fullest: f64,
}

/// Seconds after which a requested share must be held.
const SETTLED: f64 = 20.0;

/// The share that a policy's specification requests.
pub(super) fn requested_share(policy: &str) -> Option<f64> {
    policy.split([':', ',']).find_map(|word| word.strip_prefix("share=")?.parse().ok())
}

impl Run {
    pub(super) fn read(dir: &Path) -> Result<Self> {
        let (mut promoted, mut demoted, mut failed) = (0.0, 0.0, 0.0);
        let (mut cpu, mut ticks) = (None, None);
        let account = dir.join("account.json");
        let damon = dir.join("damon.txt");
        if damon.exists() {
            promoted = vmstat(&damon, "promoted")?;
            demoted = vmstat(&damon, "demoted")?;
            ticks = Some(vmstat(&damon, "ticks")?);
        } else if account.exists() {
            let report = json(&account)?;
            if report["account"]["adds_up"] != Value::Bool(true) {
                return Err(broken(format!("{}: the account does not add up", dir.display())));
            }
            promoted = number(&report, "/account/promoted")?;
            demoted = number(&report, "/account/demoted")?;
            let causes = report["account"]["failed"].as_object().into_iter().flatten();
            failed = causes.filter_map(|(_, bytes)| bytes.as_f64()).sum();
            cpu = report["profiler_cpu_share"].as_f64();
        } else {
            let count = |name: &str| -> Result<f64> {
                let of = |when: &str| vmstat(&dir.join(format!("vmstat-{when}.txt")), name);
                Ok((of("after")? - of("before")?) * 4096.0)
            };
            promoted += count("pgpromote_success")?;
            demoted += count("pgdemote_kswapd")? + count("pgdemote_direct")?;
        }
        let sights = lines(&dir.join("watched.txt"))?;
        let resident = resident(&sights);
        // A hundred ticks a second, over the time of both phases.
        if let (Some(ticks), Some([from, ..]), Some([to, ..])) =
            (ticks, resident.first(), resident.last())
        {
            cpu = Some(ticks / 100.0 / (to - from).max(1.0));
        }
        Ok(Self {
            first: Phase::read(dir, "first")?,
            second: Phase::read(dir, "second")?,
            promoted,
            demoted,
            failed,
            misses: misses(&sights)?,
            checked: number(&json(&dir.join("check.json"))?, "/checked")?,
            cpu,
            resident,
            fullest: fullest_second(&sights)? * 4096.0,
        })
    }

    /// Maximum deviation of the share of the server's pages on node 0, once it has settled.
    pub(super) fn off(&self, share: f64) -> Option<f64> {
        let from = self.resident.first().map_or(0.0, |[at, ..]| at + SETTLED);
        let settled = self.resident.iter().filter(|[at, ..]| *at >= from);
        let off = settled.map(|[_, near, far]| (near / (near + far).max(1.0) - share).abs());
        off.max_by(f64::total_cmp)
    }
}

/// A counter from a copy of `/proc/vmstat`.
fn vmstat(path: &Path, name: &str) -> Result<f64> {
    let text = fs::read_to_string(path).at(path.display())?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    line.ok_or_else(|| broken(format!("{}: no {name}", path.display())))
}

/// The figures called `names` from each sample that has all of them.
fn figures<const N: usize>(sights: &[Value], names: [&str; N]) -> Vec<[f64; N]> {
    let of = |sight: &Value| {
        let mut found = [0.0; N];
        for (figure, name) in found.iter_mut().zip(names) {
            *figure = sight[name].as_f64()?;
        }
        Some(found)
    };
    sights.iter().filter_map(of).collect()
}

/// Time, and the server's bytes on node 0 and elsewhere, from each sample that has them.
fn resident(sights: &[Value]) -> Vec<[f64; 3]> {
    figures(sights, ["at", "near", "far"])
}

/// Maximum number of pages migrated within a second (at least; the counter is sampled).
pub(super) fn fullest_second(sights: &[Value]) -> Result<f64> {
    let counts = figures(sights, ["at", "migrated"]);
    if counts.len() < 2 {
        return Err(broken("migrated pages were not counted"));
    }
    let (mut most, mut from) = (0.0_f64, 0);
    for [time, count] in &counts {
        while counts[from][0] + 1.0 < *time {
            from += 1;
        }
        most = most.max(count - counts[from][1]);
    }
    Ok(most)
}

/// Node 0's share of cache misses over the last seconds.
fn misses(sights: &[Value]) -> Result<f64> {
    let counts = figures(sights, ["near_misses", "far_misses"]);
    let late = &counts[counts.len().saturating_sub(LATE + 1)..];
    let (Some(first), Some(last)) = (late.first(), late.last()) else {
        return Err(broken("misses were not counted"));
    };
    let (near, far) = (last[0] - first[0], last[1] - first[1]);
    Ok(near / (near + far).max(1.0))
}
