//! `make bench-chaos`, written to target/bench/chaos.json: programs are killed at every system call
//! that changes a file, and at random times; what they leave is judged. On this host, with a fake
//! kernel module and fake cgroups; and in a machine (scenario `chaos`).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use tierscope_core::Rng;

use crate::bench::boot::boot;
use crate::bench::outputs::{self, number, text, tierscope};
use crate::bench::rows::{Bar, Row, row};
use crate::bench::section::{Inputs, Section};
use crate::error::{Context, Error, Kind, Result};
use crate::paths;
use crate::progress::say;
use crate::scenario::Scenario;

pub(super) const SECTIONS: &[Section] = &[
    Section { name: "record", measure: |inputs| recordings(inputs, "record", &[]) },
    Section {
        name: "series",
        measure: |inputs| {
            recordings(inputs, "series", &["--retention", "1h", "--max-size", "200MB"])
        },
    },
    Section { name: "qos", measure: limits },
    Section { name: "machine", measure: machine },
    Section { name: "calls", measure: calls },
    Section { name: "lives", measure: lives },
    Section { name: "hotplug", measure: hotplug },
];

/// Kills at random times, besides those at every call.
const RANDOM: u64 = 200;

fn broken(cause: impl std::fmt::Display) -> Error {
    Error::new(Kind::Job, "chaos", cause)
}

/// A point at which a program is killed.
#[derive(Clone, Debug)]
enum Kill {
    /// At the n-th time that a thread makes a call.
    At(String, u32),
    After(Duration),
}

/// Runs a command until it is killed, or ends; returns what it printed.
fn killed(command: &[String], kill: &Kill) -> Result<Output> {
    let mut killer = match kill {
        Kill::At(call, n) => {
            let mut strace = Command::new("strace");
            strace.args(["-f", "-qq", "-o", "/dev/null", "-e"]).arg(format!("trace={call}"));
            strace.arg("-e").arg(format!("inject={call}:signal=KILL:when={n}"));
            strace
        }
        Kill::After(time) => {
            let mut timeout = Command::new("timeout");
            // Otherwise it kills itself too, and does not wait until the command has ended.
            let seconds = format!("{:.3}", time.as_secs_f64());
            timeout.args(["--foreground", "-s", "KILL", &seconds]);
            timeout
        }
    };
    killer.args(command).stdin(Stdio::null()).output().map_err(broken)
}

/// The calls that change a file, as in the scenario.
fn calls_that_change_a_file() -> Result<Vec<String>> {
    let scenario = Scenario::load("chaos")?;
    let calls = scenario.text("calls").ok_or_else(|| broken("chaos.toml lists no calls"))?;
    Ok(calls.split(',').map(String::from).collect())
}

/// How often a thread of a command makes each call, at most.
fn count(command: &[String], log: &Path) -> Result<Vec<(String, u32)>> {
    let calls = calls_that_change_a_file()?;
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-o", text(log)?, "-e"]).arg(format!("trace={}", calls.join(",")));
    strace.args(command).stdin(Stdio::null()).output().map_err(broken)?;
    let lines = fs::read_to_string(log).at(log.display())?;
    let mut counts = BTreeMap::<(&str, &str), u32>::new();
    for line in lines.lines() {
        let mut words = line.split_whitespace();
        let (Some(thread), Some(call)) = (words.next(), words.next()) else { continue };
        let is_it = |known: &&String| call.starts_with(&format!("{known}("));
        let Some(call) = calls.iter().find(is_it) else { continue };
        *counts.entry((thread, call)).or_default() += 1;
    }
    let most = |call: &String| {
        let of = counts.iter().filter(|((_, known), _)| known == call).map(|(_, count)| *count);
        Some((call.clone(), of.max()?))
    };
    Ok(calls.iter().filter_map(most).collect())
}

/// All points at which a command is killed: at every call, and at random times before its end.
fn points(command: &[String], log: &Path, lasts: Duration) -> Result<Vec<Kill>> {
    let counts = count(command, log)?;
    let calls =
        counts.iter().flat_map(|(call, count)| (1..=*count).map(|n| Kill::At(call.clone(), n)));
    let mut rng = Rng::seeded(1);
    let random = (0..RANDOM)
        .map(|_| Kill::After(Duration::from_micros(rng.below(lasts.as_micros() as u64))));
    let points: Vec<Kill> = calls.collect::<Vec<_>>().into_iter().chain(random).collect();
    say(format!(
        "{} kills, {} of them at calls: {counts:?}",
        points.len(),
        points.len() as u64 - RANDOM
    ));
    Ok(points)
}

/// Path of a cargo example, built.
fn example(package: &str, name: &str) -> Result<PathBuf> {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--quiet", "--workspace", "--example", name]).current_dir(paths::root());
    let status = cargo.status().map_err(broken)?;
    if !status.success() {
        return Err(broken(format!("example {name} of {package} cannot be built")));
    }
    Ok(paths::root().join("target/debug/examples").join(name))
}

/// What became of a recording.
#[derive(Debug, Default)]
struct Lost {
    kills: u32,
    /// Windows that were committed and that no report reads.
    windows: u64,
    /// Reports that fail, although a window was committed, or that panic.
    reports: u32,
    /// Recordings that a next start does not go on with, or files that it leaves.
    starts: u32,
}

/// Windows that a program reported as committed.
fn committed(printed: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(printed);
    text.lines().filter_map(|line| line.strip_prefix("window ")?.parse().ok()).max().unwrap_or(0)
}

/// Windows that a report reads; `None` if it fails, with its exit code.
fn read(dir: &Path) -> Result<(Option<u64>, Option<i32>)> {
    let mut report = Command::new(tierscope()?);
    let output =
        report.args(["report", "summary", text(dir)?, "--json"]).output().map_err(broken)?;
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    Ok((summary["windows"].as_u64(), output.status.code()))
}

fn recordings(inputs: &Inputs<'_>, name: &str, flags: &[&str]) -> Result<Vec<Row>> {
    let dir = inputs.work.join(name);
    let recorder = example("tierscope-cli", "record_fake")?;
    let command = |out: &Path| -> Result<Vec<String>> {
        let words = [text(&recorder)?, "--duration", "600ms", "--window", "50ms", "-o", text(out)?];
        Ok(words.iter().chain(flags).map(|word| (*word).to_owned()).collect())
    };
    let _ = fs::remove_dir_all(&dir);
    let log = inputs.work.join("strace.txt");
    let points = points(&command(&dir)?, &log, Duration::from_millis(900))?;
    let mut lost = Lost::default();
    for kill in points {
        let _ = fs::remove_dir_all(&dir);
        let output = killed(&command(&dir)?, &kill)?;
        judge(&dir, committed(&output.stdout), &kill, &mut lost)?;
        if !flags.is_empty() {
            go_on(&dir, &command(&dir)?, &kill, &mut lost)?;
        }
    }
    let _ = fs::remove_dir_all(&dir);
    let repeat = format!("lab bench chaos --only {name}");
    let of = |what: &str| format!("{name}, killed: {what}");
    Ok(vec![
        row(of("kills"), f64::from(lost.kills), "kills", Bar::Least(RANDOM as f64), &repeat),
        row(of("lost windows"), lost.windows as f64, "windows", Bar::Most(0.0), &repeat),
        row(of("reports that fail"), f64::from(lost.reports), "reports", Bar::Most(0.0), &repeat),
        row(of("next starts that fail"), f64::from(lost.starts), "starts", Bar::Most(0.0), &repeat),
    ])
}

/// Judges what a killed recorder left. Before the first window there need not be a recording, but
/// a report must say so.
fn judge(dir: &Path, committed: u64, kill: &Kill, lost: &mut Lost) -> Result<()> {
    lost.kills += 1;
    let (windows, code) = read(dir)?;
    let is_explained = matches!(code, Some(0 | 5 | 8 | 9 | 2));
    let fails = !is_explained || windows.is_none() && committed > 0;
    let missing = committed.saturating_sub(windows.unwrap_or(0));
    if fails || missing > 0 {
        say(format!("{kill:?}: {committed} committed, {windows:?} read, exit {code:?}"));
    }
    lost.reports += u32::from(fails);
    lost.windows += missing;
    Ok(())
}

/// A series goes on after a kill: the next start adds its windows, and leaves no recording without
/// one.
fn go_on(dir: &Path, command: &[String], kill: &Kill, lost: &mut Lost) -> Result<()> {
    let output = Command::new(&command[0]).args(&command[1..]).output().map_err(broken)?;
    let (windows, _) = read(dir)?;
    let entries = fs::read_dir(dir).at(dir.display())?.flatten();
    let left = entries.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"."));
    let (left, ok) = (left.count(), output.status.success());
    if !ok || windows.is_none() || left > 0 {
        say(format!(
            "{kill:?}: the next start: {}, {windows:?} windows, {left} left",
            output.status
        ));
        lost.starts += 1;
    }
    Ok(())
}

/// Starts `qos` on fake cgroups, below the directory `$1`, with the program `$2`.
const QOS: &str = r#"
started=$(cut -d ' ' -f 22 /proc/$$/stat)
group="$1/sys/fs/resctrl/mon_groups/tierscope-$$-$started-0/mon_data/mon_L3_00"
mkdir -p "$group"
echo 0 >"$group/mbm_total_bytes"
(n=0; while [ -e "$1/sys" ] && kill -0 $$ 2>/dev/null; do
    n=$((n + 1000000000)); echo $n >"$1/new"; mv "$1/new" "$group/mbm_total_bytes"; sleep 0.02
done) &
exec "$2" qos --root "$1" --by mbm --tenant a=1MiB --epoch 50ms --duration 500ms
"#;
const ALLOWED: &str = "200000 100000";

fn fake_machine(root: &Path) -> Result<()> {
    let _ = fs::remove_dir_all(root);
    for (file, text) in [
        ("sys/devices/system/cpu/online", "0-3\n"),
        ("sys/fs/resctrl/info/L3_MON/mon_features", "mbm_total_bytes\n"),
        ("sys/fs/cgroup/a/cgroup.procs", ""),
        ("sys/fs/cgroup/a/cgroup.controllers", "cpu"),
        ("sys/fs/cgroup/a/cpu.max", "200000 100000\n"),
    ] {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap_or(root)).at(path.display())?;
        fs::write(&path, text).at(path.display())?;
    }
    Ok(())
}

fn limit(root: &Path) -> String {
    let text = fs::read_to_string(root.join("sys/fs/cgroup/a/cpu.max")).unwrap_or_default();
    text.lines().next().unwrap_or_default().to_owned()
}

fn limits(inputs: &Inputs<'_>) -> Result<Vec<Row>> {
    let root = inputs.work.join("qos");
    let program = tierscope()?;
    let script = ["sh", "-c", QOS, "sh", text(&root)?, &program].map(str::to_owned);
    fake_machine(&root)?;
    let points = points(&script, &inputs.work.join("strace.txt"), Duration::from_millis(700))?;
    let (mut kills, mut changed, mut left, mut failed) = (0, 0, 0, 0);
    for kill in points {
        fake_machine(&root)?;
        killed(&script, &kill)?;
        kills += 1;
        changed += u32::from(limit(&root) != ALLOWED);
        let restored = Command::new(&program)
            .args(["qos", "--root", text(&root)?, "--restore"])
            .output()
            .map_err(broken)?;
        if !restored.status.success() || limit(&root) != ALLOWED {
            let said = String::from_utf8_lossy(&restored.stderr);
            say(format!("{kill:?}: {}, the limit is {}: {said}", restored.status, limit(&root)));
            left += u32::from(limit(&root) != ALLOWED);
            failed += u32::from(!restored.status.success());
        }
    }
    let _ = fs::remove_dir_all(&root);
    let of = |what: &str| format!("qos, killed: {what}");
    let repeat = "lab bench chaos --only qos";
    Ok(vec![
        row(of("kills"), f64::from(kills), "kills", Bar::Least(RANDOM as f64), repeat),
        row(of("kills that left a limit"), f64::from(changed), "kills", Bar::Least(1.0), repeat),
        row(of("limits left after --restore"), f64::from(left), "limits", Bar::Most(0.0), repeat),
        row(of("restores that fail"), f64::from(failed), "restores", Bar::Most(0.0), repeat),
    ])
}

/// Kills programs in a machine, on a real kernel, while a server's memory is recorded, moved and
/// reclaimed: at random times, and then moves pages under load.
fn machine(inputs: &Inputs<'_>) -> Result<Vec<Row>> {
    let (mut rows, figures) = in_machine(inputs, "random", 5.0 * RANDOM as f64)?;
    let moved = number(&figures, "/moved")?;
    let of = |what: &str, value, least| {
        let name = format!("machine, killed at random: {what}");
        row(name, value, "pages", Bar::Least(least), "lab run chaos --kernel 6.12")
    };
    rows.push(of("pages moved", moved, 1e6));
    rows.push(of("pages swapped out", number(&figures, "/swapped")?, 1.0));
    Ok(rows)
}

/// Kills them at every call that changes a file.
fn calls(inputs: &Inputs<'_>) -> Result<Vec<Row>> {
    Ok(in_machine(inputs, "calls", 100.0)?.0)
}

/// Rows of a run, and its figures.
fn in_machine(inputs: &Inputs<'_>, at: &str, least: f64) -> Result<(Vec<Row>, serde_json::Value)> {
    let out = boot(inputs, "chaos", &format!("-{at}"), |scenario| {
        scenario.set.insert("at".into(), at.into());
        Ok(())
    })?;
    let path = out.join("chaos.json");
    let figures = outputs::figures(&fs::read_to_string(&path).at(path.display())?);
    let repeat = format!("lab run chaos --set at={at}");
    let of = |what: &str, key: &str, unit: &str, bar: Bar| -> Result<Row> {
        let value = number(&figures, key)?;
        Ok(row(format!("machine, killed at {at}: {what}"), value, unit, bar, &repeat))
    };
    let rows = vec![
        of("kills", "/kills", "kills", Bar::Least(least))?,
        of("reports that fail", "/reports_failed", "reports", Bar::Most(0.0))?,
        of("values with wrong bytes", "/values_wrong", "checks", Bar::Most(0.0))?,
        of("objects left", "/left", "objects", Bar::Most(0.0))?,
    ];
    Ok((rows, figures))
}

/// A CPU and a memory node go and come back, and the node is removed, while programs record, move
/// and serve.
fn hotplug(inputs: &Inputs<'_>) -> Result<Vec<Row>> {
    let path = boot(inputs, "hotplug", "", |_| Ok(()))?.join("hotplug.json");
    let figures = outputs::figures(&fs::read_to_string(&path).at(path.display())?);
    let of = |what: &str, key: &str, unit: &str, bar: Bar| -> Result<Row> {
        let value = number(&figures, key)?;
        Ok(row(format!("hotplug: {what}"), value, unit, bar, "lab run hotplug --kernel 6.12"))
    };
    Ok(vec![
        of("CPUs taken offline", "/cpus", "times", Bar::Least(5.0))?,
        of("nodes removed", "/removed", "nodes", Bar::Least(1.0))?,
        of("programs that end", "/ended", "programs", Bar::Most(0.0))?,
        of("reports that fail", "/reports_failed", "reports", Bar::Most(0.0))?,
        of("values with wrong bytes", "/values_wrong", "checks", Bar::Most(0.0))?,
    ])
}

/// Descriptors and memory of a recorder whose target executes and forks: on this host, with a fake
/// module, and for a shorter time in a machine.
fn lives(inputs: &Inputs<'_>) -> Result<Vec<Row>> {
    let example = example("tierscope-linux", "long_life")?;
    let here = Command::new(example).stdin(Stdio::null()).output().map_err(broken)?;
    let here = String::from_utf8_lossy(&here.stdout);
    let mut rows = Vec::new();
    for (what, line, least) in [("execs", 0, 1e5), ("forks", 1, 1e6)] {
        let figures = outputs::figures(here.lines().nth(line).unwrap_or_default());
        rows.extend(flat(
            &format!("host, {what}"),
            &figures,
            least,
            "lab bench chaos --only lives",
        )?);
    }
    let path = boot(inputs, "long-life", "", |_| Ok(()))?.join("long-life.json");
    let there: serde_json::Value = outputs::figures(&fs::read_to_string(&path).at(path.display())?);
    for (what, least) in [("execs", 5e3), ("forks", 2e4)] {
        let repeat = "lab run long-life --kernel 6.12";
        rows.extend(flat(&format!("machine, {what}"), &there[what], least, repeat)?);
    }
    Ok(rows)
}

/// Rows of a number of events, and of what is held after them, more than after the first of them.
fn flat(name: &str, figures: &serde_json::Value, least: f64, repeat: &str) -> Result<Vec<Row>> {
    let more = |key: &str| -> Result<f64> {
        Ok(number(figures, &format!("/{key}/1"))? - number(figures, &format!("/{key}/0"))?)
    };
    let of = |what: &str| format!("{name}: {what}");
    let count = number(figures, "/count")?;
    let (descriptors, kib) = (more("descriptors")?, more("kib")?);
    Ok(vec![
        row(of("count"), count, "events", Bar::Least(least), repeat),
        row(of("descriptors more than at first"), descriptors, "files", Bar::Most(2.0), repeat),
        row(of("memory more than at first"), kib, "KiB", Bar::Most(2048.0), repeat),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_compared_with_the_beginning() {
        let figures = serde_json::json!({"count": 9, "descriptors": [3, 4], "kib": [100, 90]});
        let rows = flat("toy", &figures, 9.0, "").unwrap();
        assert_eq!(rows.iter().map(|row| row.value).collect::<Vec<_>>(), [9.0, 1.0, -10.0]);
        assert!(rows.iter().all(|row| row.holds));
    }

    #[test]
    fn the_last_window_that_was_printed_counts() {
        assert_eq!(committed(b"window 1\nwindow 2\nwin"), 2);
        assert_eq!(committed(b"window 1\nwindow 2"), 2);
        assert_eq!(committed(b""), 0);
    }
}
