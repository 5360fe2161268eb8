//! `tierscope sim tier`, `tierscope whatif` and `tierscope list` from the command line.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn tierscope(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tierscope"));
    command.args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn json(arguments: &[&str]) -> Value {
    let output = tierscope(&[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn refused(arguments: &[&str], code: i32) -> String {
    let output = tierscope(arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(output.stdout.is_empty() && said.contains(": ") && said.contains("; "), "{said}");
    said
}

/// 4 MiB of 64 MiB are hot, all in the slow tier; the fast tier has room for them.
const SMALL: &str = r#"
name = "small"
about = "4 MiB hot in 64 on the slow tier"
source = "the test"
time = "3s"
warm-up = "2s"
policies = ["static", "amp-lru", "hot-region"]

[machine]
flush = "5ms"

[[machine.tier]]
name = "dram"
size = "32MiB"

[[machine.tier]]
name = "optane"
size = "128MiB"

[[process]]
name = "store"
workload = "contiguous:space=64MiB,hot=4MiB,at=40MiB,rate=100000"
placement = { bind = "optane" }
"#;

fn written(dir: &Path, text: &str) -> String {
    let path = dir.join("small.toml");
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Clears the fields that depend on the host.
fn reproducible(mut report: Value) -> Value {
    for outcome in report["outcomes"].as_array_mut().unwrap() {
        outcome["wall_seconds"] = Value::Null;
    }
    report
}

#[test]
fn policies_run_side_by_side_and_the_same_seed_gives_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let file = written(dir.path(), SMALL);
    let [svg, html] = ["a.svg", "a.html"].map(|name| dir.path().join(name));
    let flags = ["--svg", svg.to_str().unwrap(), "--html", html.to_str().unwrap()];
    let report = json(&[&["sim", "tier", &file], &flags[..]].concat());
    let outcomes = report["outcomes"].as_array().unwrap();
    let names: Vec<_> = outcomes.iter().map(|o| o["policy"].as_str().unwrap()).collect();
    let bounds = ["all-fast", "all-slow", "interleave", "oracle", "clairvoyant"];
    assert_eq!(names, [&["static", "amp-lru", "hot-region"][..], &bounds].concat());
    let share = |at: usize| outcomes[at]["fast_tier_share"].as_f64().unwrap();
    let moved = |at: usize, what: &str| outcomes[at]["moves"][what].as_u64().unwrap();
    assert_eq!((share(0), moved(0, "promoted_bytes")), (0.0, 0));
    for at in [1, 2] {
        assert!(share(at) > 0.9, "{}", outcomes[at]);
        assert!(moved(at, "promoted_bytes") >= 4 << 20, "{}", outcomes[at]["moves"]);
        assert!(outcomes[at]["cpu"]["policy"].as_f64() > Some(0.0), "work is charged");
        assert!(outcomes[at]["cpu"]["mover"].as_f64() > Some(0.0), "and so are moves");
        let rows = outcomes[at]["rows"].as_array().unwrap();
        assert!(rows.len() >= 14, "{} rows", rows.len());
    }
    // A rate that the machine can sustain is sustained.
    let rate = outcomes[0]["operations_per_second"].as_f64().unwrap();
    assert!((rate / 1e5 - 1.0).abs() < 0.02, "{rate}");
    for (path, word) in [(svg, "</svg>"), (html, "amp-lru")] {
        let text = std::fs::read_to_string(path).unwrap();
        assert!(text.contains(word) && text.contains("hot-region"), "{text:.200}");
    }
    let again = json(&["sim", "tier", &file]);
    assert_eq!(reproducible(again), reproducible(report));
}

// 2 MB of values are loaded in the first tenth of a second, in which memory grows, and read in the
// next two.
#[test]
fn workloads_in_turn_have_a_rate_each() {
    let dir = tempfile::tempdir().unwrap();
    let workload = "redis:keys=2000,value=1000,ycsb=load+c+b,phase=100ms";
    let text = SMALL.replace("contiguous:space=64MiB,hot=4MiB,at=40MiB,rate=100000", workload);
    let text = text.replace("\"3s\"", "\"300ms\"").replace("\"2s\"", "\"0s\"");
    let text = text.replace("\"static\", \"amp-lru\", \"hot-region\"", "\"static\"");
    let text = text.replace("placement = { bind = \"optane\" }", "populate = false");
    let file = written(dir.path(), &text);
    let report = json(&["sim", "tier", &file]);
    let still = &report["outcomes"][0];
    let phases = still["phases"].as_array().unwrap();
    let names: Vec<_> = phases.iter().map(|phase| phase["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["load", "c", "b"]);
    let number = |phase: &Value, what: &str| phase[what].as_f64().unwrap();
    for (phase, end) in phases.iter().zip([0.1, 0.2, 0.3]) {
        assert!((number(phase, "end_seconds") - end).abs() < 0.001, "{phase}");
    }
    // 2000 keys in a tenth of a second; the clients then wait.
    assert!((number(&phases[0], "operations_per_second") - 20_000.0).abs() < 1.0, "{phases:?}");
    assert!(number(&phases[1], "operations_per_second") > 20_000.0, "{phases:?}");
    let printed = String::from_utf8(tierscope(&["sim", "tier", &file]).stdout).unwrap();
    assert!(printed.contains("Phases: rate over that of the reference"), "{printed}");
}

#[test]
fn flags_alone_are_enough_and_the_table_has_moved_bytes() {
    let workload = "contiguous:space=64MiB,hot=4MiB,at=40MiB,rate=100000";
    let output = tierscope(&[
        "sim",
        "tier",
        "--workload",
        workload,
        "--tier",
        "dram=32M",
        "--tier",
        "optane=128M",
        "--policy",
        "static",
        "--policy",
        "memtis:adapt=1000",
        "--time",
        "1s",
        "--density",
    ]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for word in
        ["static", "memtis:adapt=1000", "promoted", "to and fro", "32 MiB of dram", "seed 1"]
    {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[test]
fn contradictory_flags_are_refused_before_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let file = written(dir.path(), SMALL);
    let tier = |more: &[&str], code| refused(&[&["sim", "tier", &file], more].concat(), code);
    assert!(tier(&["--policy", "multiclock"], 2).contains("no policy is called `multiclock`"));
    assert!(tier(&["--policy", "multi-clock@rates"], 2).contains("leave @rates out"));
    assert!(tier(&["--policy", "hot-region@demon"], 2).contains("no instrument is called demon"));
    assert!(tier(&["--policy", "multi-clock:scan=x"], 2).contains("column"));
    assert!(tier(&["--warm-up", "3s"], 2).contains("nothing is left to measure"));
    assert!(tier(&["--tier", "dram=1G"], 2).contains("cannot be used with"));
    refused(&["sim", "tier"], 2);
    refused(&["sim", "tier", "nowhere.toml"], 8);
    let text = SMALL.replacen("\"amp-lru\"", "\"amp-lrv\"", 1);
    let file = written(dir.path(), &text);
    let said = refused(&["sim", "tier", &file], 9);
    assert!(said.contains("small.toml:7:23: no policy is called `amp-lrv`"), "{said}");
    let text = SMALL.replacen("warm-up = \"2s\"", "warm-up = \"4s\"", 1);
    let file = written(dir.path(), &text);
    assert!(refused(&["sim", "tier", &file], 9).contains("small.toml:6:11: nothing is left"));
    let file = written(dir.path(), &SMALL.replacen("policies =", "#", 1));
    assert!(refused(&["sim", "tier", &file], 2).contains("no placement policy to run"));
}

/// The simulation is far too long to run to its end.
#[test]
fn ctrl_c_keeps_completed_measurements() {
    let dir = tempfile::tempdir().unwrap();
    let file = written(dir.path(), &SMALL.replace("\"3s\"", "\"10000s\""));
    let out = dir.path().join("out");
    let child = Command::new(env!("CARGO_BIN_EXE_tierscope"))
        .args(["sim", "tier", &file, "--json", "--policy", "amp-lru", "-o"])
        .arg(&out)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Wait until it has recorded a window, however slow the host is.
    let summary = || tierscope(&["report", "summary", out.to_str().unwrap()]).status.success();
    while !summary() {}
    let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("stopped; completed measurements are kept"), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["outcomes"][0]["ended"], "stopped");
}

// `rates` has recorded the slow tier's hot set, and its replay promotes only that set, for any size
// of the fast tier; policies that need more than regions are refused by name.
#[test]
fn a_recording_feeds_policies_of_regions_and_refuses_others() {
    let dir = tempfile::tempdir().unwrap();
    let file = written(dir.path(), SMALL);
    let out = dir.path().join("rec");
    let out = out.to_str().unwrap();
    let ran =
        tierscope(&["sim", "run", &file, "--instrument", "rates", "--no-baseline", "-o", out]);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let report = json(&["whatif", out, "--fast", "2M,32M"]);
    let refused_names: Vec<_> = report["refused"].as_array().unwrap().iter().collect();
    let named = |name: &str| refused_names.iter().any(|r| r["policy"] == name);
    assert!(named("multi-clock") && named("hemem") && !named("hot-region"));
    let find = |policy: &str, mib: u64| {
        let all = report["replays"].as_array().unwrap();
        let is = |r: &&Value| r["policy"] == policy && r["fast_bytes"] == mib << 20;
        all.iter().find(is).unwrap_or_else(|| panic!("{policy} {mib}: {report}")).clone()
    };
    assert_eq!(find("static", 32)["fast_tier_share"], 0.0);
    let (small, large) = (find("hot-region", 2), find("hot-region", 32));
    let share = |replay: &Value| replay["fast_tier_share"].as_f64().unwrap();
    assert!(share(&large) > 0.5 && share(&small) < share(&large), "{small} {large}");
    let moved = large["moves"]["promoted_bytes"].as_u64().unwrap();
    assert!((3 << 20..12 << 20).contains(&moved), "{large}");
    let said = refused(&["whatif", out, "--fast", "32M", "--policy", "multi-clock"], 3);
    assert!(
        said.contains("multi-clock cannot be judged") && said.contains("access bits"),
        "{said}"
    );
    let text = tierscope(&["whatif", out, "--fast", "32M"]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("not judged") && text.contains("hot-region"), "{text}");
}

#[test]
fn a_trace_runs_under_any_policy() {
    let dir = tempfile::tempdir().unwrap();
    let [lines, trace] = ["t.csv", "t.trace"].map(|name| dir.path().join(name));
    // 3 MiB once, then one hot MiB repeatedly.
    let line = |n: u64| {
        let page = if n < 768 { n } else { 512 + n % 256 };
        format!(
            "{:#x},{}\n",
            0x1000_0000 + page * 4096,
            if n.is_multiple_of(4) { "w" } else { "r" }
        )
    };
    let text: String =
        std::iter::once("address,access\n".to_owned()).chain((0..60_000).map(line)).collect();
    std::fs::write(&lines, text).unwrap();
    let [lines, trace] = [&lines, &trace].map(|path| path.to_str().unwrap());
    let made = tierscope(&["trace", "convert", lines, trace]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let reports = json(&["whatif", trace, "--fast", "4M,64M", "--policy", "all", "--time", "2s"]);
    let reports = reports.as_array().unwrap();
    assert_eq!(reports.len(), 2);
    for report in reports {
        let outcomes = report["outcomes"].as_array().unwrap();
        assert!(outcomes.len() >= 20, "{}", outcomes.len());
        for outcome in outcomes {
            assert_eq!(outcome["ended"], "target-gone", "a trace ends: {outcome}");
            assert!(outcome["operations"].as_u64() > Some(0), "{outcome}");
        }
    }
}

#[test]
fn whatif_reports_bad_input() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    refused(&["whatif", path, "--fast", "64M"], 9);
    assert!(refused(&["whatif", "nowhere", "--fast", "64M"], 8).contains("nowhere"));
    assert!(refused(&["whatif", path, "--fast", "0"], 2).contains("does not hold 2 MiB"));
    refused(&["whatif", path], 2);
    refused(&["whatif", path, "--fast", "much"], 2);
}

#[test]
fn lists_are_tables_and_json() {
    let text = String::from_utf8(tierscope(&["list", "policies"]).stdout).unwrap();
    for word in ["multi-clock", "hint faults", "promotes", "demotes", "B/page"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let all = json(&["list", "policies"]);
    assert!(all.as_array().unwrap().iter().all(|p| p["source"].as_str() > Some("")));
    let all = json(&["list", "instruments"]);
    assert!(all.as_array().unwrap().iter().any(|i| i["name"] == "rates"));
    let text = String::from_utf8(tierscope(&["list", "instruments"]).stdout).unwrap();
    assert!(text.contains("grows with what is mapped") && text.contains("bounded"));
}
