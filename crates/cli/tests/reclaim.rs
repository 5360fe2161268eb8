//! `tierscope reclaim` from the command line: errors, and reclaim on the simulated machine.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn tierscope(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tierscope"));
    command.args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn refused(line: &str, code: i32) -> String {
    let arguments: Vec<&str> = line.split(' ').collect();
    let output = tierscope(&arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{line}: {said}");
    assert!(output.stdout.is_empty() && said.contains(": "), "{line}: {said}");
    said
}

#[test]
fn bad_input_is_reported_before_memory_is_reclaimed() {
    refused("reclaim", 2);
    assert!(refused("reclaim -p 1 --target 130%", 2).contains("100% at most"));
    refused("reclaim -p 1 --rate fast", 2);
    refused("reclaim -p 1 --all", 2);
    assert!(refused("reclaim -p 1 --policy hot-region", 2).contains("tierscope tier"));
    assert!(refused("reclaim -p 1 --policy kernel", 2).contains("--cgroup PATH"));
    assert!(refused("reclaim --cgroup /x --policy kernel --dry-run", 2).contains("at once"));
    refused("reclaim --cgroup /no/such/cgroup --policy kernel", 5);
    refused("reclaim -p 4194304", 5);
    assert!(refused("tier -p 1 --policy mglru", 2).contains("tierscope reclaim"));
}

/// 8 MiB of 64 MiB are touched; the cold rest is reclaimed within a few seconds.
const SMALL: &str = r#"
name = "small"
about = "8 MiB hot in 64"
source = "the test"
time = "12s"
policies = ["mglru:interval=1s", "mglru-telescope:interval=1s"]

[machine]
flush = "5ms"

[[process]]
workload = "contiguous:space=64MiB,hot=8MiB,at=16MiB,rate=300000"

[simulation]
mode = "density"

[simulation.density]
swap = "zswap"
"#;

#[test]
fn simulated_reclaim_is_reported_over_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("small.toml");
    std::fs::write(&path, SMALL).unwrap();
    let path = path.to_str().unwrap();
    let output = tierscope(&["sim", "tier", path, "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    for outcome in report["outcomes"].as_array().unwrap() {
        let mib = |value: &Value| value.as_f64().unwrap() / f64::from(1 << 20);
        let rows = outcome["rows"].as_array().unwrap();
        let [first, last] =
            [&rows[0], &rows[rows.len() - 1]].map(|row| mib(&row["resident_bytes"]));
        assert!(first > 63.0 && last < 16.0, "{first} MiB, then {last}: {outcome}");
        assert!(mib(&outcome["moves"]["reclaimed_bytes"]) > 48.0);
        assert!(mib(&outcome["moves"]["refaulted_bytes"]) < 1.0);
    }
    let text = tierscope(&["sim", "tier", path]).stdout;
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("given back") && text.contains("in memory"), "{text}");
}
