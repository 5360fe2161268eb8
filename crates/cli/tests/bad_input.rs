//! The binary with invalid input: one line on stderr with cause and remedy, and the documented exit
//! code. No kernel module is needed; where one is loaded, the tests that need it absent are skipped
//! with a message.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

fn tierscope(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tierscope"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Checks exit code and form of an error; returns its text.
fn refusal(output: &Output, code: i32) -> String {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert!(output.stdout.is_empty(), "results are no place for errors");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.starts_with("tierscope: ") && text.contains(": "), "{text}");
    assert!(text.contains("; "), "no remedy: {text}");
    text
}

/// A process to watch, which ends with the test.
struct Idle(Child);

impl Idle {
    fn start() -> Self {
        Self(Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

/// Path of a directory that does not exist yet.
fn fresh(dir: &tempfile::TempDir) -> String {
    dir.path().join("recording").display().to_string()
}

fn has_module() -> bool {
    let there = Path::new("/dev/tierscope").exists();
    if there {
        tierscope_conformance::skip::skipped(
            "the kernel module is loaded; unload it with `rmmod tierscope`",
        );
    }
    there
}

#[test]
fn help_names_exit_codes_and_is_on_stdout() {
    for arguments in [&["--help"][..], &["record", "--help"], &["report", "summary", "--help"]] {
        let output = tierscope(arguments);
        assert_eq!(output.status.code(), Some(0));
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("Exit codes:") && text.contains("disk full"), "{text}");
    }
}

#[test]
fn arguments_that_make_no_sense() {
    let dir = tempfile::tempdir().unwrap();
    let out = fresh(&dir);
    for arguments in [
        &["record"][..],
        &["record", "-p", "1"],
        &["record", "-p", "x", "-o", &out],
        &["record", "--all", "--cgroup", "/x", "-o", &out],
        &["record", "--all", "--children", "-o", &out],
        &["record", "--name", "", "-o", &out],
        &["record", "--name", "x", "-o", &out, "--", "true"],
        &["serve", &out, "--all"],
        &["reclaim", "--policy", "kernel", "--cgroup", "/x", "--cgroup", "/y"],
        &["record", "-p", "1", "-o", &out, "--sampling", "5"],
        &["record", "-p", "1", "-o", &out, "--sampling", "0s"],
        &["record", "-p", "1", "-o", &out, "--window", "1ms"],
        &["record", "-p", "1", "-o", &out, "--window", "2h"],
        &["record", "-p", "1", "-o", &out, "--duration", "10ms"],
        &["record", "-p", "1", "-o", &out, "--variant", "loose"],
        &["record", "-p", "1", "-o", &out, "--annotate", "x"],
        &["report", "summary"],
        &["report", "summary", &out, "--time", "9s..1s"],
        &["report", "poem", &out],
        &["frobnicate"],
    ] {
        refusal(&tierscope(arguments), 2);
        assert!(!Path::new(&out).exists(), "{arguments:?} left something behind");
    }
}

#[test]
fn no_such_target() {
    let dir = tempfile::tempdir().unwrap();
    let out = fresh(&dir);
    let text = refusal(&tierscope(&["record", "-p", "4194305", "-o", &out]), 5);
    assert!(text.contains("no such process") && text.contains("ps -p 4194305"), "{text}");
    let text = refusal(&tierscope(&["record", "--cgroup", "/no/such", "-o", &out]), 5);
    assert!(text.contains("no such cgroup"), "{text}");
    let text = refusal(&tierscope(&["record", "--name", "no-such-*", "-o", &out]), 5);
    assert!(text.contains("no process has such a name") && text.contains("ps -A"), "{text}");
    let idle = Idle::start();
    let one_of_two = ["record", "-p", &idle.pid(), "-p", "4194305", "-o", &out];
    let text = refusal(&tierscope(&one_of_two), 5);
    assert!(text.contains("cannot watch process 4194305"), "{text}");
    let text = refusal(&tierscope(&["doctor", "--name", "no-such-*"]), 5);
    assert!(text.contains("no process has such a name"), "{text}");
    assert!(!Path::new(&out).exists());
}

#[test]
fn kernel_threads_are_no_target() {
    let stat = fs::read_to_string("/proc/2/stat").unwrap_or_default();
    if !stat.contains("(kthreadd)") {
        tierscope_conformance::skip::skipped("no kernel thread is to be seen here (pid namespace)");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let text = refusal(&tierscope(&["record", "-p", "2", "-o", &fresh(&dir)]), 2);
    assert!(text.contains("thread of the kernel"), "{text}");
}

#[test]
fn no_module() {
    if has_module() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (out, idle) = (fresh(&dir), Idle::start());
    let text = refusal(&tierscope(&["record", "-p", &idle.pid(), "-o", &out]), 3);
    assert!(text.contains("module is not loaded") && text.contains("insmod"), "{text}");
    assert!(!Path::new(&out).exists());
}

#[test]
fn a_command_is_not_started_without_a_module() {
    if has_module() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("ran").display().to_string();
    refusal(&tierscope(&["record", "-o", &fresh(&dir), "--", "touch", &mark]), 3);
    assert!(!Path::new(&mark).exists());
}

#[test]
fn a_recording_is_never_appended_to() {
    let dir = tempfile::tempdir().unwrap();
    let idle = Idle::start();
    fs::write(dir.path().join("precious"), "data").unwrap();
    let out = dir.path().display().to_string();
    let text = refusal(&tierscope(&["record", "-p", &idle.pid(), "-o", &out]), 2);
    assert!(text.contains("not empty"), "{text}");
    assert_eq!(fs::read_to_string(dir.path().join("precious")).unwrap(), "data");
}

#[test]
fn damaged_or_missing_recordings_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().display().to_string();
    refusal(&tierscope(&["report", "summary", &empty]), 9);
    refusal(&tierscope(&["report", "summary", &fresh(&dir)]), 9);
    fs::write(dir.path().join("windows.arrows"), b"not arrow at all").unwrap();
    for report in ["summary", "heatmap", "regions"] {
        refusal(&tierscope(&["report", report, &empty]), 9);
    }
}

/// Makes a recording of a toy machine.
fn recorded(dir: &Path) {
    use tierscope_conformance::toy::{Toy, random_touches};
    use tierscope_core::{Range, SpaceId};
    let all = Range::new(SpaceId(0), 0, 64 << 20);
    let hot = Range::new(SpaceId(0), 0, 4 << 20);
    let mut toy = Toy::new(&[all], random_touches(&[hot], 100_000, 1));
    let line = ["tierscope", "record", "-p", "1", "--duration", "2s", "-o"];
    let line = line.iter().map(Into::into).chain([dir.as_os_str().to_owned()]);
    let parsed = tierscope_cli::args::parse(line).unwrap().command;
    let tierscope_cli::args::Command::Record(args) = parsed else { panic!("it says record") };
    let plan = tierscope_cli::plan::Plan::new(args, String::new()).unwrap();
    tierscope_cli::record::record(&mut toy, &plan, "", None).unwrap();
}

#[test]
fn a_recording_cut_short_is_read_up_to_the_cut() {
    let dir = tempfile::tempdir().unwrap();
    recorded(dir.path());
    let path = dir.path().join("windows.arrows");
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() * 3 / 4]).unwrap();
    let output = tierscope(&["report", "summary", "--json", dir.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    fs::write(&path, &whole[..20]).unwrap();
    refusal(&tierscope(&["report", "summary", dir.path().to_str().unwrap()]), 9);
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let dir = tempfile::tempdir().unwrap();
    recorded(dir.path());
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut report = command(&["report", "regions", "--json", dir.path().to_str().unwrap()]);
    let output = report.stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
    let output = output.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}

#[test]
fn no_permission_to_read_a_recording() {
    use std::os::unix::fs::PermissionsExt as _;
    const NOBODY: u32 = 65534;
    let dir = tempfile::tempdir().unwrap();
    let recording = dir.path().join("recording");
    recorded(&recording);
    // The unprivileged user may have no access to the build directory, so the binary is copied.
    let binary = dir.path().join("tierscope");
    fs::copy(env!("CARGO_BIN_EXE_tierscope"), &binary).unwrap();
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    mode(dir.path(), 0o755).unwrap();
    mode(&recording, 0o755).unwrap();
    mode(&recording.join("windows.arrows"), 0).unwrap();
    let mut report = Command::new(&binary);
    report.args(["report", "summary"]).arg(&recording);
    if rustix::process::geteuid().is_root() {
        report.uid(NOBODY).gid(NOBODY);
    }
    let output = report.output().unwrap();
    assert!(refusal(&output, 4).contains("ermission denied"), "{output:?}");
}
