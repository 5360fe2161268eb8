//! `tierscope sim` from the command line.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn tierscope(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tierscope"));
    command.args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn report(arguments: &[&str]) -> Value {
    let output = tierscope(&[&["sim", "run", "--json"], arguments].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Clears the fields that depend on the host.
fn reproducible(mut report: Value) -> Value {
    for run in report["runs"].as_array_mut().unwrap() {
        run["wall_seconds"] = Value::Null;
        run["recording"] = Value::Null;
    }
    report
}

/// Two processes on two tiers, small enough for a debug build.
const SMALL: &str = r#"
name = "small"
about = "4 MiB hot in 32 MiB on the slow tier, next to stores past the caches"
source = "the test"
time = "60ms"
window = "20ms"
instruments = ["rates"]

[[instrument]]
name = "sampler"
instrument = "pebs"
samples = 5000

[[machine.tier]]
name = "dram"
size = "64MiB"

[[machine.tier]]
name = "optane"
size = "64MiB"

[[process]]
name = "store"
workload = "contiguous:space=32MiB,hot=4MiB,rate=2000000"
placement = { bind = "optane" }

[[process]]
name = "neighbour"
workload = "contiguous:space=8MiB,hot=8MiB,writes=1,rate=1000000"
non-temporal = true
"#;

fn written(dir: &Path, text: &str) -> String {
    let path = dir.join("small.toml");
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn every_instrument_has_a_machine_a_recording_and_an_account() {
    let dir = tempfile::tempdir().unwrap();
    let file = written(dir.path(), SMALL);
    let out = dir.path().join("out");
    let first = report(&[&file, "-o", out.to_str().unwrap()]);
    let runs = first["runs"].as_array().unwrap();
    let names: Vec<_> = runs.iter().map(|run| run["instrument"].as_str()).collect();
    assert_eq!(names, [None, Some("rates"), Some("sampler")]);
    for run in runs {
        assert_eq!(run["ended"], "deadline", "{run}");
        let account = &run["account"];
        let accesses = account["accesses"].as_u64().unwrap();
        // 3 M accesses per second for 60 ms.
        assert!((179_000..=181_000).contains(&accesses), "{account}");
        let [dram, optane] = [0, 1].map(|tier| account["tiers"][tier].clone());
        assert_eq!(
            (dram["name"].as_str(), optane["name"].as_str()),
            (Some("dram"), Some("optane"))
        );
        // The store's reads are served by its tier, the neighbour's stores go to the other one.
        assert!(optane["read_bytes"].as_u64() > Some(1 << 20), "{account}");
        assert!(dram["written_bytes"].as_u64() > Some(3 << 20), "{account}");
        assert!(optane["read_ns"].as_f64() >= Some(305.0), "{account}");
        let walks = account["second_tlb_misses"].as_u64();
        assert!(walks > Some(0) && account["first_tlb_misses"].as_u64() >= walks, "{account}");
    }
    assert_eq!(runs[0]["slowdown"], Value::Null);
    // A rate that the machine can sustain is also sustained with an instrument.
    assert!((runs[1]["slowdown"].as_f64().unwrap() - 1.0).abs() < 0.01, "{}", runs[1]);
    assert!(runs[1]["profiler_cpu"].as_f64() > Some(0.0));
    assert!(runs[2]["account"]["interrupt_seconds"].as_f64() > Some(0.0), "samples interrupt");
    for name in ["rates", "sampler"] {
        let recording = out.join(name);
        let said = tierscope(&["report", "summary", recording.to_str().unwrap()]);
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        let text = String::from_utf8(said.stdout).unwrap();
        assert!(text.contains("store"), "{text}");
    }
    let again = report(&[&file]);
    assert_eq!(reproducible(again.clone()), reproducible(first), "same seed, same account");
    let other = report(&[&file, "--seed", "2"]);
    assert_ne!(reproducible(other), reproducible(again), "another seed, other accesses");
}

#[test]
fn one_instrument_records_into_the_given_directory_alone() {
    let dir = tempfile::tempdir().unwrap();
    let file = written(dir.path(), SMALL);
    let out = dir.path().join("one");
    let path = out.to_str().unwrap();
    let flags = [&file, "--instrument", "bounded", "--no-baseline", "--time", "40ms", "-o", path];
    let report = report(&flags);
    assert_eq!(report["runs"].as_array().map(Vec::len), Some(1));
    // The instrument's probes take time: windows are a little longer than configured.
    assert_eq!(report["runs"][0]["windows"], 1);
    assert!(tierscope(&["report", "summary", path]).status.success());
    // An existing recording is never overwritten or appended to.
    let output = tierscope(&[&["sim", "run"], &flags[..]].concat());
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_table_names_runs_and_tiers() {
    let dir = tempfile::tempdir().unwrap();
    let file = written(dir.path(), SMALL);
    let output = tierscope(&["sim", "run", &file, "--instrument", "rates"]);
    let text = String::from_utf8(output.stdout).unwrap();
    for word in ["(nobody watches)", "rates", "optane", "slowdown", "exact"] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[test]
fn experiments_are_checked_before_anything_runs() {
    let dir = tempfile::tempdir().unwrap();
    let said = |from: &str, to: &str| {
        assert!(SMALL.contains(from), "the test edits what is there: {from}");
        let file = written(dir.path(), &SMALL.replacen(from, to, 1));
        let output = tierscope(&["sim", "run", &file]);
        assert!(output.stdout.is_empty());
        assert_eq!(output.status.code(), Some(9), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stderr).unwrap()
    };
    let cases = [
        ("time =", "tiem =", "small.toml:5:1: unknown field `tiem`"),
        ("time = \"60ms\"", "time = \"6ms\"", "small.toml:5:8: it does not hold a window"),
        ("[\"rates\"]", "[\"gilded\"]", "small.toml:7:16: no contender is called gilded"),
        ("instrument = \"pebs\"", "instrument = \"bebs\"", "no instrument is called bebs"),
        ("name = \"optane\"", "name = \"tape\"", "small.toml:19:8: xeon-gold-6238m has no tier"),
        ("space=32MiB", "space=320MiB", "small.toml:22:1: process store does not fit"),
        ("bind = \"optane\"", "bind = \"cxl\"", "has no tier `cxl`"),
        ("size = \"64MiB\"", "size = \"63MiB\"", "small.toml:16:8: a tier has whole blocks"),
        ("non-temporal = true", "cpu = 900", "of 176 cores"),
    ];
    for (from, to, says) in cases {
        let error = said(from, to);
        assert!(error.contains(says), "{to}: {error}");
        assert!(error.contains(": ") && error.contains("; "), "{error}");
    }
    assert_eq!(tierscope(&["sim", "run", "nowhere.toml"]).status.code(), Some(8));
    let file = written(dir.path(), SMALL);
    let unknown = tierscope(&["sim", "run", &file, "--instrument", "gilded"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert_eq!(tierscope(&["sim", "run", &file, "--time", "1ms"]).status.code(), Some(2));
}

/// The simulation is far too long to run to its end.
#[test]
fn ctrl_c_keeps_completed_measurements() {
    let dir = tempfile::tempdir().unwrap();
    let file = written(dir.path(), &SMALL.replace("\"60ms\"", "\"10000s\""));
    let out = dir.path().join("out");
    let child = Command::new(env!("CARGO_BIN_EXE_tierscope"))
        .args(["sim", "run", &file, "--json", "--no-baseline", "--instrument", "rates", "-o"])
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
    assert_eq!(report["runs"][0]["ended"], "stopped");
    assert!(summary());
}

#[test]
fn parameters_are_varied_one_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let file = written(dir.path(), SMALL);
    let vary = |arguments: &[&str]| {
        tierscope(
            &[&["sim", "vary", &file, "--instrument", "bounded", "--json"], arguments].concat(),
        )
    };
    let output = vary(&[
        "--key",
        "simulation.exact.tick=never,1ms",
        "--key",
        "costs.access_bits.probe_ns=660",
    ]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    let told: Vec<_> =
        rows.iter().map(|row| (row["key"].as_str(), row["value"].as_str())).collect();
    let tick = Some("simulation.exact.tick");
    assert_eq!(
        told,
        [
            (None, None),
            (tick, Some("never")),
            (tick, Some("1ms")),
            (Some("costs.access_bits.probe_ns"), Some("660"))
        ]
    );
    // Doubled cost of a probe, with everything else unchanged.
    let cpu = |row: &Value| row["profiler_cpu"].as_f64().unwrap();
    assert!(cpu(&rows[3]) > 1.2 * cpu(&rows[0]), "{rows:?}");
    let wrong = vary(&["--key", "simulation.exact.tock=1ms"]);
    let said = String::from_utf8(wrong.stderr).unwrap();
    assert!(said.contains("unknown field `tock`") && wrong.stdout.is_empty(), "{said}");
    assert_eq!(vary(&[]).status.code(), Some(2), "there is nothing to vary");
}

/// A store on one tier of 64 MiB.
const STORE: &str = r#"
name = "store"
about = "a store and its clients"
source = "the test"
time = "4ms"
window = "2ms"

[[machine.tier]]
name = "dram"
size = "64MiB"

[[process]]
workload = "silo:keys=10000,ycsb=a,threads=2"
"#;

#[test]
fn a_store_is_a_workload_whose_requests_take_their_time() {
    let dir = tempfile::tempdir().unwrap();
    let file = written(dir.path(), STORE);
    let first = report(&[&file]);
    let account = &first["runs"][0]["account"];
    let done = &account["processes"][0];
    assert_eq!((&done["unit"], account["killed"].as_u64()), (&"requests".into(), Some(0)));
    let latency = &done["latency"];
    let of = |key: &str| latency[key].as_u64().unwrap();
    assert!(of("operations") > 1000 && of("operations") <= done["operations"].as_u64().unwrap());
    let order = ["p50_ns", "p95_ns", "p99_ns", "p999_ns", "most_ns"].map(of);
    assert!(order.is_sorted() && order[0] > 0, "{latency}");
    assert_eq!(reproducible(report(&[&file])), reproducible(first));
    let text = tierscope(&["sim", "run", &file]).stdout;
    let text = String::from_utf8(text).unwrap();
    let line = format!("{}  requests of silo with 10000 keys", order[4]);
    assert!(text.contains("latency, ns") && text.contains(&line), "{text}");
}

#[test]
fn workloads_are_named_wherever_one_is_asked_for() {
    for command in [["sim", "run", "--help"], ["bench", "accuracy", "--help"]] {
        let text = String::from_utf8(tierscope(&command).stdout).unwrap();
        let words: Vec<&str> = text.split(|c: char| c.is_whitespace() || c == ',').collect();
        for name in tierscope_workloads::work::names().chain(["trace:FILE"]) {
            assert!(words.contains(&name), "{name} is not in {text}");
        }
    }
}

#[test]
fn a_workload_that_is_none_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let said = |workload: &str| {
        let line = STORE.replace("silo:keys=10000,ycsb=a,threads=2", workload);
        let output = tierscope(&["sim", "run", &written(dir.path(), &line)]);
        assert!(output.stdout.is_empty() && output.status.code() == Some(9), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let error = said("sylo:keys=1");
    assert!(
        error.contains("small.toml:13:12: ") && error.contains("no workload `sylo`"),
        "{error}"
    );
    tierscope_workloads::work::names().for_each(|name| assert!(error.contains(name), "{error}"));
    let error = said("silo:kees=1");
    assert!(error.contains("`silo` has no key `kees`, only ycsb, updates, dist, keys"), "{error}");
    let error = said("silo:keys=1000000");
    assert!(error.contains("small.toml:12:1: ") && error.contains("does not fit"), "{error}");
}

// CSV is converted to a trace, and the trace becomes a process of two threads: 2000 loads and 1000
// stores, none across the end of a line.
#[test]
fn a_trace_is_a_workload() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let mut text = "time_ns,pid,thread,address,size,kind\n".to_owned();
    for step in 0..1000u64 {
        for (thread, kind) in [(1, "load"), (1, "store"), (2, "load")] {
            let address = 0x7f00_0000_0000 + (step * 4096 + thread * 64) % (4 << 20);
            text += &format!("{},7,{thread},{address:#x},8,{kind}\n", step * 1000);
        }
    }
    std::fs::write(path("a.csv"), text).unwrap();
    let convert = tierscope(&["trace", "convert", &path("a.csv"), &path("a.trace")]);
    assert!(convert.status.success(), "{convert:?}");
    let workload =
        format!("trace:{}\"\nrepeats = false\ncpu = 0\nname = \"replay", path("a.trace"));
    let experiment = STORE.replace("silo:keys=10000,ycsb=a,threads=2", &workload);
    let told = report(&[&written(dir.path(), &experiment)]);
    let run = &told["runs"][0];
    let (account, done) = (&run["account"], &run["account"]["processes"][0]);
    assert_eq!((&run["ended"], account["accesses"].as_u64()), (&"target-gone".into(), Some(3000)));
    assert_eq!((&done["name"], done["operations"].as_u64()), (&"replay".into(), Some(3000)));
    assert!(done["latency"].is_null());
    // The last access is due 999 us after the first.
    let seconds = run["seconds"].as_f64().unwrap();
    assert!((0.000_999..0.002).contains(&seconds), "{seconds}");
    let said = |name: &str| {
        let line = STORE.replace("silo:keys=10000,ycsb=a,threads=2", &format!("trace:{name}"));
        let output = tierscope(&["sim", "run", &written(dir.path(), &line)]);
        assert!(output.stdout.is_empty() && output.status.code() == Some(9), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let error = said(&path("nowhere.trace"));
    assert!(error.contains("small.toml:13:12: ") && error.contains("nowhere.trace"), "{error}");
    let error = said(&path("a.csv"));
    assert!(error.contains("a.csv") && error.contains("trace convert"), "{error}");
    let mut bytes = std::fs::read(path("a.trace")).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(path("bad.trace"), bytes).unwrap();
    let error = said(&path("bad.trace"));
    assert!(error.contains("bad.trace") && error.contains("byte"), "{error}");
}
