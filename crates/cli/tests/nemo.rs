//! `tierscope nemo`: estimates of plans and rules, and errors.

use std::fs;
use std::process::Command;

use serde_json::Value;

/// Runs a command that must end with `code`; returns stdout and stderr.
fn nemo(arguments: &[&str], code: i32) -> (String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tierscope"));
    let output = command.arg("nemo").args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr))
}

#[test]
fn a_sweep_of_the_prototype_takes_37_seconds() {
    let (text, _) = nemo(&["plan"], 0);
    assert!(text.contains("74 x 0.5 s = 37.00 s"), "{text}");
    let (json, _) = nemo(&["plan", "--memory", "1T", "--counter", "1", "--json"], 0);
    let plan: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&plan["regions"], &plan["periods"]), (&(1u64 << 28).into(), &4682.into()));
    let (_, error) = nemo(&["plan", "--counter", "9"], 2);
    assert!(error.contains("`counter`"), "{error}");
}

#[test]
fn a_rule_prints_its_resources() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("skew.rule");
    fs::write(&path, "key all >> 21   # huge pages\noffset 0x1fffff >> 12\n").unwrap();
    let (json, _) = nemo(&["rule", path.to_str().unwrap(), "--memory", "64M", "--json"], 0);
    let told: Value = serde_json::from_str(&json).unwrap();
    // 32 huge pages of 512 pages: 16,384 states in words need two pipelines of eight banks.
    let expected = [512, 2, 16, 2].map(Value::from);
    let names = ["states_per_key", "pipelines", "banks", "folds_over"];
    assert_eq!(names.map(|name| told[name].clone()), expected);
    let (text, _) = nemo(&["rule", "key all >> 21; update + 1", "--memory", "1G"], 0);
    assert!(text.contains("1 pipelines and 1 banks"), "{text}");
}

#[test]
fn a_rule_that_does_not_fit_names_the_missing_resource() {
    let (_, error) = nemo(&["rule", "key all >> 12", "--memory", "64M", "--pipelines", "3"], 3);
    assert!(error.contains("are missing") && error.contains("sweep"), "{error}");
    // No rule is registered, so the remedy must not suggest to unregister one.
    let (_, error) = nemo(&["rule", "key all >> 12", "--memory", "64G"], 3);
    assert!(!error.contains("unregister") && error.contains("sweep by `filter`"), "{error}");
    let (_, error) = nemo(&["rule", "key all >> 12; update * 3"], 2);
    assert!(error.contains('*'), "{error}");
}

// Without a telemetry device no target is watched and no command is started.
#[test]
fn recording_without_controllers_names_the_missing_parts() {
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("out");
    let touched = dir.path().join("touched");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tierscope"));
    command.args(["record", "--instrument", "nemo", "-o"]).arg(&output).args(["--", "touch"]);
    let ended = command.arg(&touched).output().unwrap();
    let error = String::from_utf8(ended.stderr).unwrap();
    if tierscope_linux::memory_controller::find_device(std::path::Path::new("/sys")).is_none() {
        assert_eq!(ended.status.code(), Some(3), "{error}");
        assert!(error.contains("telemetry device") && error.contains("start the"), "{error}");
        assert!(!touched.exists() && !output.exists());
    }
}
