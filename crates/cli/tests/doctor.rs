//! `tierscope doctor` on the machine that runs the tests.

use std::process::{Command, Output};

fn doctor(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tierscope"));
    command.arg("doctor").args(arguments).output().unwrap()
}

#[test]
fn the_exit_code_says_whether_recording_can_work() {
    let output = doctor(&["--json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let code = output.status.code().unwrap();
    assert_eq!(json["can_record"] == true, code == 0, "{output:?}");
    assert!([0, 3, 4].contains(&code), "{output:?}");
    let machine = json["machine"].as_array().unwrap();
    assert!(machine.len() > 25);
    for check in machine {
        let filled = |key: &str| !check[key].as_str().unwrap().is_empty();
        assert!(filled("id") && filled("verdict") && filled("found"), "{check}");
        assert!(check["verdict"] != "missing" || filled("remedy"), "{check}");
    }
}

#[test]
fn a_process_is_looked_at() {
    let pid = std::process::id().to_string();
    let output = doctor(&["-p", &pid]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(&format!("process {pid}")) && text.contains("can be watched"), "{text}");
    let output = doctor(&["-p", "4194305", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let target = &json["processes"][0]["checks"][0];
    assert_eq!((&target["id"], &target["verdict"]), (&"target".into(), &"missing".into()));
    assert_ne!(output.status.code(), Some(0));
}

#[test]
fn no_such_cgroup() {
    assert_eq!(doctor(&["--cgroup", "/no/such"]).status.code(), Some(5));
}
