//! `tierscope tier` with invalid input: cause and remedy in one line, the documented exit codes,
//! and a target that keeps running undisturbed.

use std::process::{Child, Command, Output, Stdio};

fn tierscope(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tierscope"))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Checks exit code and form of an error; returns its text.
fn refusal(arguments: &[&str], code: i32) -> String {
    let output = tierscope(arguments);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
    assert!(output.stdout.is_empty() && text.lines().count() == 1, "{text}");
    assert!(text.starts_with("tierscope: ") && text.contains("; "), "no remedy: {text}");
    text
}

/// A process to place, which ends with the test.
struct Idle(Child);

impl Idle {
    fn start() -> Self {
        Self(Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

/// Number of NUMA nodes with memory.
fn nodes() -> usize {
    let list = std::fs::read_to_string("/sys/devices/system/node/has_memory").unwrap_or_default();
    let count = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(last.parse::<usize>().ok()? + 1 - first.parse::<usize>().ok()?)
    };
    list.trim().split(',').filter_map(count).sum()
}

#[test]
fn arguments_that_make_no_sense() {
    for (arguments, cause) in [
        (&["tier", "-p", "1"][..], "no policy is given"),
        (&["tier", "--policy", "static"], "no target is given"),
        (&["tier", "-p", "1", "--policy", "poem"], "no policy is called `poem`"),
        (&["tier", "-p", "1", "--policy", "hot-region:share=7"], "share"),
        (&["tier", "-p", "1", "--policy", "static", "--config", "/no/such"], "/no/such"),
        (&["tier", "-p", "1", "--all", "--policy", "static"], "cannot be used with"),
    ] {
        let text = refusal(arguments, 2);
        assert!(text.contains(cause), "{text}");
    }
    let text = refusal(&["tier", "-p", "1", "--policy", "tpp"], 3);
    assert!(text.contains("hint faults") && text.contains("choose from static"), "{text}");
    let text = refusal(&["tier", "-p", "4194305", "--policy", "static"], 5);
    assert!(text.contains("no such process"), "{text}");
}

#[test]
fn mistakes_in_a_configuration_are_reported_with_their_place() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tier.toml");
    for (text, cause) in [
        ("policy = \"static\"\n[limits]\nspeed = 1\n", "line 3: unknown field `speed`"),
        (
            "policy = \"static\"\n[tiers]\nnodes = [[0], [777]]\n",
            "memory node 777: it is not there",
        ),
        ("policy = \"static\"\n[tiers]\nnodes = [[0], [0]]\n", "it is in two tiers"),
        ("policy = \"static\"\n[limits]\nbytes-per-second = \"0\"\n", "2 MiB moves whole"),
    ] {
        std::fs::write(&file, text).unwrap();
        let message = refusal(&["tier", "--check", "--config", file.to_str().unwrap()], 2);
        assert!(message.contains(cause), "{message}");
    }
}

#[test]
fn without_a_second_tier_nothing_is_touched() {
    if nodes() != 1 {
        tierscope_conformance::skip::skipped(format!("this machine has {} memory nodes", nodes()));
        return;
    }
    let mut target = Idle::start();
    let pid = target.0.id().to_string();
    for policy in ["static", "hot-region"] {
        let text = refusal(&["tier", "-p", &pid, "--policy", policy], 3);
        assert!(text.contains("one memory node") && text.contains("[tiers] nodes"), "{text}");
    }
    assert!(target.0.try_wait().unwrap().is_none(), "the target runs on");
}
