//! `make bench-place`: placement policies for the memory of real servers on an instrumented
//! machine, written to target/bench/place.json; also the checks of a run of the scenario `tier`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::bench::{Bar, Row, row};
use crate::chapters::{self, Chapter, Desk, median, number, tierscope};
use crate::command::capture;
use crate::error::{Context, Error, Kind, Result};
use crate::kernels::Matrix;
use crate::machine::bench::{boot, command_of};
use crate::progress::say;
use crate::scenario::Scenario;

const CHAPTERS: &[Chapter] = &[
    Chapter { name: "redis", measure: redis },
    Chapter { name: "memcached", measure: memcached },
    Chapter { name: "redis in turns", measure: redis_in_turns },
    Chapter { name: "memcached in turns", measure: memcached_in_turns },
    Chapter { name: "redis ycsb-b in turns", measure: ycsb_b_in_turns },
    Chapter { name: "ten minutes", measure: ten_minutes },
];

/// All policies that work live, and the kernel's own. By default HeMem ignores mappings below 1 GB.
const POLICIES: &[&str] = &[
    "static",
    "kernel",
    "hot_region",
    JUDGED,
    "hot_region:history=10s,hits=40,share=0.25",
    "multi_clock",
    "nimble-selection",
    "nimble",
    "hemem:least=2MiB",
    "memtis",
];
/// Disables recording, which costs time on an emulated machine.
const UNRECORDED: &str = "record=false";
/// The policy to which the thresholds apply. A page is hot if two of every five looks within five
/// seconds found it accessed. The paper's five accesses in 120 s, of 600 windows, do not separate
/// hot from cold here, where an emulated machine is sampled ten times a second: a fiftieth of some
/// 1,500 reads a second is spread over all memory, and every 2 MiB reaches five accesses within ten
/// seconds.
const JUDGED: &str = "hot_region:history=5s,hits=20";
/// Policies whose throughput is compared.
const COMPARED: &[&str] = &["static", "kernel", JUDGED];
/// Number of turns of each policy.
const TURNS: usize = 5;
/// Minimum time for a turn in seconds, including filling and checking.
const TURN_SECONDS: u64 = 180;
/// Number of intervals at the end of a phase that are compared; reads within an interval may belong
/// to the start or the end of a phase.
const LATE: usize = 10;

/// YCSB B (zipfian, 95 % reads, 5 % updates) with a tenth of it replaced by scans over all keys,
/// and without a TLB flusher other than the instrument's own: the default set-up. Windows have
/// their default length, which is short: a page's heat is known after a few looks.
const YCSB_B: [&str; 4] = [
    "mix=--zipf 0.99 --update-share 0.05 --scan-share 0.1",
    "flusher=off",
    "flags=--cpu 10%",
    "seconds=20",
];
/// The policy that is compared with those of `AGAINST` under YCSB B. Node 0 has room for the whole
/// server, and each policy may use all of it.
const PLACED: &str = JUDGED;
const AGAINST: &[&str] = &["static", "kernel", "kernel-damon", PLACED];

/// Runs the chapters that are not yet in the file and whose name contains `only`.
///
/// # Errors
/// At least one chapter could not be measured; the others were.
pub fn bench(matrix: &Matrix, only: &str) -> Result<()> {
    chapters::run("place", CHAPTERS, matrix, only)
}

fn redis(desk: &Desk<'_>) -> Result<Vec<Row>> {
    measure(desk, "redis")
}

fn memcached(desk: &Desk<'_>) -> Result<Vec<Row>> {
    measure(desk, "memcached")
}

fn redis_in_turns(desk: &Desk<'_>) -> Result<Vec<Row>> {
    in_turns(desk, "redis")
}

fn memcached_in_turns(desk: &Desk<'_>) -> Result<Vec<Row>> {
    in_turns(desk, "memcached")
}

/// Measures the operation rate under each policy in turns: every turn of ours must be faster than
/// all turns of the kernel's two policies.
fn ycsb_b_in_turns(desk: &Desk<'_>) -> Result<Vec<Row>> {
    let names = AGAINST.repeat(TURNS);
    let Placed { out, command, .. } = place(desk, "redis", "-ycsb-b", &names, &YCSB_B)?;
    let read = |turn: &String| Run::read(&out.join(turn));
    let runs = turns(&names).iter().map(read).collect::<Result<Vec<_>>>()?;
    Ok(ycsb_rows(&names, &runs, &command))
}

/// Operations per second of the second phase of each turn, after placement had time to act; and the
/// comparison with the other policies: our slowest turn over their fastest, and the ratio of
/// medians.
fn ycsb_rows(names: &[&str], runs: &[Run], command: &str) -> Vec<Row> {
    let rates = |policy: &str| -> Vec<f64> {
        let turns = names.iter().zip(runs).filter(|(name, _)| **name == policy);
        turns.map(|(_, run)| run.second.whole).collect()
    };
    let name = |what: &str| format!("redis ycsb-b in turns: {what}");
    let mut rows = Vec::new();
    for policy in AGAINST {
        for (turn, rate) in (1..).zip(rates(policy)) {
            let what = format!("{policy}: operations a second, turn {turn}");
            rows.push(row(name(&what), rate, "1/s", Bar::None, command));
        }
        let turns = names.iter().zip(runs).filter(|(name, _)| *name == policy);
        let moved = median(turns.map(|(_, run)| (run.promoted + run.demoted) / f64::from(1 << 20)));
        let what = format!("{policy}: moved, median of turns");
        rows.push(row(name(&what), moved.unwrap_or(0.0), "MiB", Bar::None, command));
    }
    let ours = rates(PLACED);
    let least = ours.iter().copied().fold(f64::INFINITY, f64::min);
    let middle = |rates: &[f64]| median(rates.iter().copied()).unwrap_or(0.0);
    for other in ["static", "kernel", "kernel-damon"] {
        let theirs = rates(other);
        let most = theirs.iter().copied().fold(0.0, f64::max);
        let bar = if other == "static" { Bar::None } else { Bar::Least(1.0) };
        let what = format!("{PLACED}: median over {other}'s");
        rows.push(row(name(&what), middle(&ours) / middle(&theirs), "ratio", Bar::None, command));
        let what = format!("{PLACED}: its slowest turn over {other}'s fastest");
        rows.push(row(name(&what), least / most, "ratio", bar, command));
    }
    let checked = runs.iter().map(|run| run.checked).fold(f64::INFINITY, f64::min);
    let what = "values read back whole in the end of each";
    rows.push(row(name(what), checked, "values", Bar::Least(1.0), command));
    rows
}

/// Limit of migrated bytes per second in the ten-minute run.
const ALLOWED: f64 = (4u64 << 20) as f64;

/// Keeps a given share of the resident bytes on node 0 for ten minutes, with migration limited to a
/// few MiB a second.
fn ten_minutes(desk: &Desk<'_>) -> Result<Vec<Row>> {
    let policy = "hot_region:history=10s,hits=40,share=0.25";
    let set = [
        format!("policies={policy}"),
        "seconds=300".to_owned(),
        format!("limits=bytes_per_second = '{ALLOWED:.0}'"),
        UNRECORDED.to_owned(),
    ];
    let out = boot(desk, "tier", "-ten-minutes", |scenario| {
        set.iter().try_for_each(|assignment| scenario.assign(assignment))
    })?;
    let run = Run::read(&out.join(policy))?;
    let sets: Vec<String> = set.iter().map(|set| format!(" --set '{set}'")).collect();
    let command = format!("lab run tier{}", sets.concat());
    let off = asked_share(policy).and_then(|share| run.off(share));
    let off = off.ok_or_else(|| broken("the server's pages were not counted"))?;
    let name = |what: &str| format!("ten minutes: {policy}: {what}");
    let add =
        |what: &str, value: f64, unit: &str, bar: Bar| row(name(what), value, unit, bar, &command);
    let seconds = run.resident.len() as f64;
    Ok(vec![
        add("counts of the server's pages, each second or later", seconds, "counts", Bar::None),
        add("share of its pages on node 0, off at most", 100.0 * off, "points", Bar::Most(1.0)),
        add(
            "moved in the fullest second, over what is allowed",
            run.fullest / ALLOWED,
            "ratio",
            Bar::Most(1.0),
        ),
        add("moved", (run.promoted + run.demoted) / f64::from(1 << 20), "MiB", Bar::None),
        add("values read back whole in the end", run.checked, "values", Bar::Least(1.0)),
    ])
}

/// Results of policies that ran one after the other in one machine, placing a server's memory.
struct Placed {
    out: PathBuf,
    /// Size of the hot set in bytes.
    hot: f64,
    command: String,
}

fn place(
    desk: &Desk<'_>,
    server: &str,
    kind: &str,
    policies: &[&str],
    more: &[&str],
) -> Result<Placed> {
    let turns = policies.len() as u64;
    let policies = format!("policies={}", policies.join(" "));
    let set = format!("server={server}");
    let mut hot = 0.0;
    let out = boot(desk, "tier", &format!("-{server}{kind}"), |scenario| {
        let words = [&policies, &set, UNRECORDED].into_iter().chain(more.iter().copied());
        words.into_iter().try_for_each(|words| scenario.assign(words))?;
        hot = hot_bytes(scenario)?;
        scenario.timeout_s = scenario.timeout_s.max(TURN_SECONDS * turns);
        Ok(())
    })?;
    let more: String = more.iter().map(|words| format!(" --set '{words}'")).collect();
    let command =
        format!("{} --set '{policies}' --set {UNRECORDED}{more}", command_of("tier", &set));
    Ok(Placed { out, hot, command })
}

/// Runs each policy once.
fn measure(desk: &Desk<'_>, server: &str) -> Result<Vec<Row>> {
    let Placed { out, hot, command } = place(desk, server, "", POLICIES, &[])?;
    let runs: Vec<(&str, Run)> = POLICIES
        .iter()
        .map(|policy| Ok((*policy, Run::read(&out.join(policy))?)))
        .collect::<Result<_>>()?;
    let base = |name: &str| -> Result<f64> {
        let found = runs.iter().find(|(policy, _)| *policy == name);
        Ok(found.ok_or_else(|| broken(format!("{name} did not run")))?.1.second.rate)
    };
    let bases = [("static", base("static")?), ("the kernel's", base("kernel")?)];
    Ok(runs
        .iter()
        .flat_map(|(policy, run)| run.rows((server, policy), hot, &bases, &command))
        .collect())
}

/// Compares the server's speed under the judged policy with static placement and the kernel's
/// policy. Each runs several times in turns, because the speed of an emulated machine drifts by
/// more than placement gains.
fn in_turns(desk: &Desk<'_>, server: &str) -> Result<Vec<Row>> {
    let names = COMPARED.repeat(TURNS);
    let Placed { out, hot, command } = place(desk, server, "-in-turns", &names, &[])?;
    let read = |turn: &String| Run::read(&out.join(turn));
    let runs = turns(&names).iter().map(read).collect::<Result<Vec<_>>>()?;
    Ok(Turns { server, names: &names, runs: &runs, hot, command: &command }.rows())
}

/// Runs of policies in turns. The threshold applies to the reads of a whole phase, because a policy
/// that places memory sooner is better; each turn is compared with its neighbours, because the
/// machine's speed drifts.
struct Turns<'a> {
    server: &'a str,
    /// Policy of each run.
    names: &'a [&'a str],
    runs: &'a [Run],
    /// Size of the hot set in bytes.
    hot: f64,
    command: &'a str,
}

impl Turns<'_> {
    /// A figure of each turn of a policy.
    fn each(&self, policy: &str, figure: impl Fn(&Run) -> f64) -> Vec<f64> {
        let turns = self.names.iter().zip(self.runs).filter(|(name, _)| **name == policy);
        turns.map(|(_, run)| figure(run)).collect()
    }

    fn middle(&self, policy: &str, figure: impl Fn(&Run) -> f64) -> f64 {
        median(self.each(policy, figure).into_iter()).expect("each has its turns")
    }

    /// Median ratio of a figure of the judged policy to that of another policy, turn by turn.
    fn over(&self, other: &str, figure: impl Fn(&Run) -> f64) -> f64 {
        let turns = self.each(JUDGED, &figure).into_iter().zip(self.each(other, &figure));
        median(turns.map(|(ours, theirs)| ours / theirs)).expect("each has its turns")
    }

    fn row(&self, what: &str, value: f64, unit: &str, bar: Bar) -> Row {
        row(format!("{} in turns: {what}", self.server), value, unit, bar, self.command)
    }

    /// Rows for one phase of the turns.
    fn of_phase(&self, phase: impl Fn(&Run) -> &Phase, when: &str) -> Vec<Row> {
        let (whole, late) = (|run: &Run| phase(run).whole, |run: &Run| phase(run).rate);
        let mut rows = Vec::new();
        let mut add = |policy: &str, what: &str, value: f64, unit: &str, bar: Bar| {
            rows.push(self.row(&format!("{policy}: {what} after {when}"), value, unit, bar));
        };
        for policy in COMPARED {
            for (turn, rate) in (1..).zip(self.each(policy, whole)) {
                add(policy, &format!("reads a second, turn {turn},"), rate, "1/s", Bar::None);
            }
            let what = format!("reads a second, last {LATE} s, median of turns,");
            add(policy, &what, self.middle(policy, late), "1/s", Bar::None);
            let p95 = self.middle(policy, |run| phase(run).p95_us);
            add(policy, "P95 of sixteen reads, median of turns,", p95, "µs", Bar::None);
        }
        for (base, other) in [("static", "static"), ("the kernel's", "kernel")] {
            let what = format!("reads a second over {base}, median of turns,");
            add(JUDGED, &what, self.over(other, whole), "ratio", Bar::Least(1.0));
            let what = format!("reads a second over {base}, last {LATE} s, median of turns,");
            add(JUDGED, &what, self.over(other, late), "ratio", Bar::None);
        }
        let shares = self.each(JUDGED, |run| phase(run).share.unwrap_or(0.0));
        let what = "hot bytes on node 0 in the end, least of turns,";
        add(JUDGED, what, shares.into_iter().fold(1.0, f64::min), "share", Bar::Least(0.95));
        rows
    }

    fn rows(&self) -> Vec<Row> {
        let mut rows = self.of_phase(|run| &run.first, "start");
        rows.extend(self.of_phase(|run| &run.second, "shift"));
        let promoted = self.each(JUDGED, |run| run.promoted / (2.0 * self.hot));
        let most = promoted.into_iter().fold(0.0, f64::max);
        let what = format!("{JUDGED}: promoted, of both hot sets, most of turns");
        rows.push(self.row(&what, most, "ratio", Bar::Most(1.2)));
        let cpu = self.middle(JUDGED, |run| 100.0 * run.cpu.unwrap_or(0.0));
        let what = format!("{JUDGED}: CPU of tierscope, median of turns");
        rows.push(self.row(&what, cpu, "%", Bar::None));
        let checked = self.runs.iter().map(|run| run.checked).fold(f64::INFINITY, f64::min);
        let what = "values read back whole in the end of each";
        rows.push(self.row(what, checked, "values", Bar::Least(1.0)));
        rows
    }
}

/// Output directory names of the job for a list of policies, in which names may occur repeatedly.
fn turns(policies: &[&str]) -> Vec<String> {
    let before = |at: usize| policies[..at].iter().filter(|name| **name == policies[at]).count();
    let place = |at: usize| match before(at) {
        0 => policies[at].to_owned(),
        turns => format!("{}.{}", policies[at], turns + 1),
    };
    (0..policies.len()).map(place).collect()
}

/// Size of the hot set in bytes: of the values that are hot at the same time.
fn hot_bytes(scenario: &Scenario) -> Result<f64> {
    let of = |key: &str| set_number(scenario, key);
    Ok(of("keys")? * of("value_bytes")? * of("hot_keys")?)
}

/// A numeric parameter of the job; values set on the command line are strings.
fn set_number(scenario: &Scenario, key: &str) -> Result<f64> {
    scenario.number(key).ok_or_else(|| broken(format!("the scenario has no number {key}")))
}

fn broken(cause: impl std::fmt::Display) -> Error {
    Error::new(Kind::Job, "placement", cause)
}

fn json(path: &Path) -> Result<Value> {
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
struct Phase {
    /// Reads per second in the last seconds of the phase.
    rate: f64,
    /// Reads per second in the whole phase.
    whole: f64,
    p95_us: f64,
    /// Share of the hot values on node 0 at the end of the phase.
    share: Option<f64>,
    /// Share of the hot values on node 0 at the start and half-way through the phase.
    over_time: [Option<f64>; 2],
}

impl Phase {
    fn read(dir: &Path, name: &str) -> Result<Self> {
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
struct Run {
    first: Phase,
    second: Phase,
    promoted: f64,
    demoted: f64,
    failed: f64,
    /// Share of the machine's cache misses served by node 0 in the last seconds of the run.
    misses: f64,
    /// Number of values that were read back intact.
    checked: f64,
    /// CPU usage of tierscope, as a share of one CPU.
    cpu: Option<f64>,
    /// Time, and bytes of the server on node 0 and elsewhere, about once a second.
    resident: Vec<[f64; 3]>,
    /// Maximum bytes that the kernel migrated within a second.
    fullest: f64,
}

/// Seconds after which a requested share must be held.
const SETTLED: f64 = 20.0;

/// The share that a policy's specification requests.
fn asked_share(policy: &str) -> Option<f64> {
    policy.split([':', ',']).find_map(|word| word.strip_prefix("share=")?.parse().ok())
}

impl Run {
    fn read(dir: &Path) -> Result<Self> {
        let (mut promoted, mut demoted, mut failed, mut cpu) = (0.0, 0.0, 0.0, None);
        let account = dir.join("account.json");
        let damon = dir.join("damon.txt");
        if damon.exists() {
            promoted = vmstat(&damon, "promoted")?;
            demoted = vmstat(&damon, "demoted")?;
        } else if account.exists() {
            let told = json(&account)?;
            if told["account"]["adds_up"] != Value::Bool(true) {
                return Err(broken(format!("{}: the account does not add up", dir.display())));
            }
            promoted = number(&told, "/account/promoted")?;
            demoted = number(&told, "/account/demoted")?;
            let causes = told["account"]["failed"].as_object().into_iter().flatten();
            failed = causes.filter_map(|(_, bytes)| bytes.as_f64()).sum();
            cpu = told["profiler_cpu_share"].as_f64();
        } else {
            let count = |name: &str| -> Result<f64> {
                let of = |when: &str| vmstat(&dir.join(format!("vmstat-{when}.txt")), name);
                Ok((of("after")? - of("before")?) * 4096.0)
            };
            promoted += count("pgpromote_success")?;
            demoted += count("pgdemote_kswapd")? + count("pgdemote_direct")?;
        }
        let sights = lines(&dir.join("watched.txt"))?;
        Ok(Self {
            first: Phase::read(dir, "first")?,
            second: Phase::read(dir, "second")?,
            promoted,
            demoted,
            failed,
            misses: misses(&sights)?,
            checked: number(&json(&dir.join("check.json"))?, "/checked")?,
            cpu,
            resident: resident(&sights),
            fullest: fullest_second(&sights)? * 4096.0,
        })
    }

    /// Maximum deviation of the share of the server's pages on node 0, once it has settled.
    fn off(&self, share: f64) -> Option<f64> {
        let from = self.resident.first().map_or(0.0, |[at, ..]| at + SETTLED);
        let settled = self.resident.iter().filter(|[at, ..]| *at >= from);
        let off = settled.map(|[_, near, far]| (near / (near + far).max(1.0) - share).abs());
        off.max_by(f64::total_cmp)
    }

    fn rows(
        &self,
        (server, policy): (&str, &str),
        hot: f64,
        bases: &[(&str, f64)],
        command: &str,
    ) -> Vec<Row> {
        let judged = policy == JUDGED;
        let bar = |bar: Bar| if judged { bar } else { Bar::None };
        let name = |what: &str| format!("{server}: {policy}: {what}");
        let mut rows = Vec::new();
        let mut add = |what: &str, value: f64, unit: &str, bar: Bar| {
            rows.push(row(name(what), value, unit, bar, command));
        };
        for (phase, when) in [(&self.first, "start"), (&self.second, "shift")] {
            add(
                &format!("reads a second, last {LATE} s after {when}"),
                phase.rate,
                "1/s",
                Bar::None,
            );
            add(&format!("P95 of sixteen reads after {when}"), phase.p95_us, "µs", Bar::None);
            let times = [(phase.over_time[0], "at"), (phase.over_time[1], "half way after")];
            for (share, word) in times {
                if let Some(share) = share {
                    let what = format!("hot bytes on node 0 {word} {when}");
                    add(&what, share, "share", Bar::None);
                }
            }
            if let Some(share) = phase.share {
                let what = format!("hot bytes on node 0 30 s after {when}");
                add(&what, share, "share", bar(Bar::Least(0.95)));
            }
        }
        add(
            "misses answered by node 0, whole machine, at the end",
            self.misses,
            "share",
            Bar::None,
        );
        let sets = (self.promoted / (2.0 * hot), "promoted, of both hot sets");
        add(sets.1, sets.0, "ratio", bar(Bar::Most(1.2)));
        for (what, bytes) in
            [("promoted", self.promoted), ("demoted", self.demoted), ("not moved", self.failed)]
        {
            add(what, bytes / f64::from(1 << 20), "MiB", Bar::None);
        }
        add("moved in the fullest second", self.fullest / f64::from(1 << 20), "MiB", Bar::None);
        for (base, rate) in bases {
            let what = format!("reads a second after shift, over {base}");
            add(&what, self.second.rate / rate, "ratio", Bar::None);
        }
        if let Some(off) = asked_share(policy).and_then(|share| self.off(share)) {
            add("share of its pages on node 0, off at most", 100.0 * off, "points", Bar::Most(1.0));
        }
        if let Some(cpu) = self.cpu {
            add("CPU of tierscope", 100.0 * cpu, "%", Bar::None);
        }
        add("values read back whole in the end", self.checked, "values", Bar::Least(1.0));
        rows
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
fn fullest_second(sights: &[Value]) -> Result<f64> {
    let counts = figures(sights, ["at", "migrated"]);
    if counts.len() < 2 {
        return Err(broken("nobody counted migrated pages"));
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
        return Err(broken("nobody counted misses"));
    };
    let (near, far) = (last[0] - first[0], last[1] - first[1]);
    Ok(near / (near + far).max(1.0))
}

/// Checks each policy's results in `out`: pages were moved, the byte account adds up, the policy
/// stopped when requested and left the server running, and every value is intact.
///
/// # Errors
/// A check fails.
pub fn check(out: &Path, scenario: &Scenario) -> Result<()> {
    let text =
        |key: &str| scenario.set.get(key).and_then(|value| value.as_str()).unwrap_or_default();
    let keys = set_number(scenario, "keys")?;
    let policies: Vec<&str> = text("policies").split_whitespace().collect();
    for (policy, place) in policies.iter().copied().zip(turns(&policies)) {
        let dir = out.join(place);
        let run = Run::read(&dir)?;
        if run.checked < keys {
            return Err(broken(format!(
                "{policy}: {} of {keys} values were read back",
                run.checked
            )));
        }
        if policy == "kernel" || policy == "static" {
            continue;
        }
        let ended = &json(&dir.join("account.json"))?["ended"];
        if ended != "stopped" {
            return Err(broken(format!("{policy} ended by {ended}, not by being stopped")));
        }
        // On a busy host an emulated server shows its hot set late: one of both phases suffices.
        let gained = |phase: &Phase| phase.share > phase.over_time[0];
        let share = run.first.share.unwrap_or(0.0);
        if run.promoted == 0.0 || !(gained(&run.first) || gained(&run.second)) {
            return Err(broken(format!(
                "{policy} promoted {} bytes, and {share:.2} of the hot values are on node 0",
                run.promoted
            )));
        }
        replay(policy, &dir)?;
        say(format!(
            "{policy}: {:.0} MiB up, {:.0} down; {:.2} and {:.2} of the hot values on node 0",
            run.promoted / f64::from(1 << 20),
            run.demoted / f64::from(1 << 20),
            share,
            run.second.share.unwrap_or(0.0),
        ));
    }
    Ok(())
}

/// Checks that a region-based policy was recorded such that its windows can be replayed under it.
fn replay(policy: &str, dir: &Path) -> Result<()> {
    let recording = dir.join("recording");
    if !policy.starts_with("hot_region") || !recording.exists() {
        return Ok(());
    }
    let words = ["whatif", "--fast", "1G", "--policy", policy, "--json"];
    let printed = capture(Command::new(tierscope()?).args(words).arg(&recording))?;
    let told = chapters::figures(&printed);
    match number(&told, "/replays/0/moves/promoted_bytes") {
        Ok(bytes) if bytes > 0.0 => Ok(()),
        _ => Err(broken(format!(
            "{policy}: replayed from {} it promotes nothing",
            recording.display()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(dir: &Path, name: &str, text: &str) {
        fs::write(dir.join(name), text).unwrap();
    }

    /// Writes results of a run with phases of twelve seconds: 160 reads in each of the first six
    /// seconds, 240 in the others.
    fn run(dir: &Path) {
        let interval = |n: u64| {
            let operations = if n > 6 { 240 } else { 160 };
            format!("{{\"at\":{n}.0,\"operations\":{operations},\"p95_us\":{}.0}}", 100 + n)
        };
        let intervals: Vec<String> = (1..=12).map(interval).collect();
        let load =
            format!("{{\"operations_per_second\":190,\"intervals\":[{}]}}", intervals.join(","));
        let nodes = "{\"at\":0.0,\"nodes\":{\"1\":100}}\n{\"at\":1.0,\"nodes\":{\"0\":60,\"1\":40}}\n\
                     {\"at\":2.0,\"nodes\":{\"0\":96,\"1\":4}}\n";
        for phase in ["first", "second"] {
            file(dir, &format!("{phase}.json"), &load);
            file(dir, &format!("{phase}-nodes.txt"), nodes);
        }
        let sight = |n: u64| {
            format!(
                "{{\"at\":{n}.5,\"migrated\":{},\"near_misses\":{},\"far_misses\":{},\"near\":{},\"far\":{}}}\n",
                n / 2,
                30 * n,
                10 * n,
                20 + n / 5,
                80 - n / 5
            )
        };
        file(dir, "watched.txt", &(0..30).map(sight).collect::<String>());
        file(dir, "check.json", "{\"checked\":100,\"bytes\":9}");
        let account = "{\"ended\":\"stopped\",\"profiler_cpu_share\":0.02,\"account\":{\"adds_up\":true,\
                       \"promoted\":4096,\"demoted\":0,\"failed\":{\"busy\":8192}}}";
        file(dir, "account.json", account);
    }

    #[test]
    fn files_of_a_run_become_figures() {
        let dir = tempfile::tempdir().unwrap();
        run(dir.path());
        let run = Run::read(dir.path()).unwrap();
        // Seconds 3 to 12 of the phase: four with 160 reads and six with 240.
        assert_eq!((run.first.rate, run.first.p95_us), (208.0, 107.0));
        assert_eq!((run.first.share, run.first.over_time), (Some(0.96), [Some(0.0), Some(0.6)]));
        assert_eq!((run.misses, run.promoted, run.failed), (0.75, 4096.0, 8192.0));
        let bases = [("static", 104.0), ("the kernel's", 416.0)];
        let rows = run.rows(("redis", JUDGED), 4096.0, &bases, "x");
        let held = |what: &str| {
            rows.iter().find(|row| row.name.contains(what)).map(|row| (row.value, row.holds))
        };
        assert_eq!(held("promoted, of both"), Some((0.5, true)));
        assert_eq!(held("over static"), Some((2.0, true)));
        assert_eq!(held("over the kernel's"), Some((0.5, true)), "turns are held to a bar");
        assert_eq!(held("30 s after shift"), Some((0.96, true)));
    }

    #[test]
    fn turns_are_judged_by_their_medians() {
        let names = COMPARED.repeat(3);
        let places = turns(&names);
        assert_eq!(places[..4], ["static", "kernel", JUDGED, "static.2"]);
        assert_eq!(places[8], format!("{JUDGED}.3"));
        let dir = tempfile::tempdir().unwrap();
        run(dir.path());
        let base = Run::read(dir.path()).unwrap();
        let of = |whole| Run { second: Phase { whole, ..base.second }, ..base.clone() };
        // Ratios over static: 3, 0.5 and 1.6; over the kernel's: 0.75, 1/9 and 4.
        let rates = [1.0, 4.0, 3.0, 2.0, 9.0, 1.0, 5.0, 2.0, 8.0];
        let runs = rates.map(of);
        let turns =
            Turns { server: "redis", names: &names, runs: &runs, hot: 4096.0, command: "x" };
        let rows = turns.rows();
        let told = |what: &str| {
            let row = rows.iter().find(|row| row.name.ends_with(what)).expect(what);
            (row.value, row.holds)
        };
        assert_eq!(told("a second over static, median of turns, after shift"), (1.6, true));
        assert_eq!(told("a second over the kernel's, median of turns, after shift"), (0.75, false));
        assert_eq!(told("static: reads a second, turn 3, after shift"), (5.0, true));
        assert_eq!(told("in the end of each").0, base.checked);
    }

    // Rates: ours 12 and 16, the kernel's 8 and 10, its DAMON's 14 and 6. Our slowest is compared
    // with their fastest.
    #[test]
    fn ours_is_held_against_the_fastest_turn_of_the_kernel_s() {
        let dir = tempfile::tempdir().unwrap();
        run(dir.path());
        let base = Run::read(dir.path()).unwrap();
        let names = AGAINST.repeat(2);
        let runs: Vec<Run> = [7.0, 8.0, 14.0, 12.0, 9.0, 10.0, 6.0, 16.0]
            .map(|whole| Run { second: Phase { whole, ..base.second }, ..base.clone() })
            .into();
        let rows = ycsb_rows(&names, &runs, "x");
        let told = |what: &str| {
            let row = rows.iter().find(|row| row.name.ends_with(what)).expect(what);
            (row.value, row.holds)
        };
        assert_eq!(told("its slowest turn over kernel's fastest"), (1.2, true));
        assert_eq!(told("its slowest turn over kernel-damon's fastest"), (12.0 / 14.0, false));
        assert_eq!(told("kernel-damon: operations a second, turn 2"), (6.0, true));
    }

    #[test]
    fn what_the_kernel_s_damon_moved_is_read() {
        let dir = tempfile::tempdir().unwrap();
        run(dir.path());
        file(dir.path(), "damon.txt", "promoted 8192\ndemoted 4096\n");
        let run = Run::read(dir.path()).unwrap();
        assert_eq!((run.promoted, run.demoted, run.cpu), (8192.0, 4096.0, None));
    }

    #[test]
    fn what_a_case_sets_counts() {
        let mut scenario = Scenario::load("tier").unwrap();
        assert_eq!(set_number(&scenario, "keys").unwrap(), 1200.0);
        scenario.assign("keys=100").unwrap();
        let bytes = hot_bytes(&scenario).unwrap();
        assert!((bytes - 100.0 * 65000.0 * 0.1).abs() < 1e-6, "{bytes}");
        let dir = tempfile::tempdir().unwrap();
        let policy = dir.path().join("hot_region");
        fs::create_dir(&policy).unwrap();
        run(&policy);
        scenario.assign("policies=hot_region").unwrap();
        check(dir.path(), &scenario).unwrap();
        scenario.assign("keys=101").unwrap();
        let error = check(dir.path(), &scenario).unwrap_err().to_string();
        assert!(error.contains("100 of 101 values"), "{error}");
    }

    // 4 pages from 10.4 to 10.9 and 3 more until 11.5, which are 1.1 s apart; the 8 pages until 13
    // may have taken longer than a second.
    #[test]
    fn the_fullest_second_is_found() {
        let sights = |counts: &[(f64, u64)]| -> Vec<Value> {
            let sight =
                |(at, migrated): &(f64, u64)| serde_json::json!({ "at": at, "migrated": migrated });
            counts.iter().map(sight).collect()
        };
        let counts = [(10.0, 5), (10.4, 5), (10.9, 9), (11.5, 12), (13.0, 20)];
        assert_eq!(fullest_second(&sights(&counts)).unwrap(), 4.0);
        let counts = [(1.0, 5), (1.5, 6), (1.9, 9), (2.2, 20)];
        assert_eq!(fullest_second(&sights(&counts)).unwrap(), 14.0);
        assert!(fullest_second(&sights(&counts[..1])).is_err());
    }

    // From the twentieth second on, 24 and 25 of 100 pages are on node 0.
    #[test]
    fn a_share_is_judged_once_it_has_settled() {
        let dir = tempfile::tempdir().unwrap();
        run(dir.path());
        let run = Run::read(dir.path()).unwrap();
        assert!((run.off(0.25).unwrap() - 0.01).abs() < 1e-9);
        assert_eq!(asked_share("hot_region:hits=3,share=0.25"), Some(0.25));
        assert_eq!(asked_share("hot_region"), None);
    }

    #[test]
    fn an_account_that_does_not_add_up_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        run(dir.path());
        let text = fs::read_to_string(dir.path().join("account.json")).unwrap();
        file(dir.path(), "account.json", &text.replace("true", "false"));
        assert!(Run::read(dir.path()).unwrap_err().to_string().contains("does not add up"));
    }

    #[test]
    fn the_kernel_tells_by_its_counts() {
        let dir = tempfile::tempdir().unwrap();
        run(dir.path());
        fs::remove_file(dir.path().join("account.json")).unwrap();
        let counts =
            |up: u64| format!("pgpromote_success {up}\npgdemote_kswapd 1\npgdemote_direct {up}\n");
        file(dir.path(), "vmstat-before.txt", &counts(5));
        file(dir.path(), "vmstat-after.txt", &counts(8));
        let run = Run::read(dir.path()).unwrap();
        assert_eq!((run.promoted, run.demoted), (3.0 * 4096.0, 3.0 * 4096.0));
    }
}
