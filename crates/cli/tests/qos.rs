//! `tierscope qos` as a process, on a machine of files: signals, kills and closed pipes.

use std::fs;
use std::io::{BufRead, BufReader, Lines};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::Value;

const TIERSCOPE: &str = env!("CARGO_BIN_EXE_tierscope");
/// Makes the counter of the first tenant in a monitoring group, as the kernel would, then becomes
/// `tierscope`.
const SCRIPT: &str = r#"
started=$(cut -d ' ' -f 22 /proc/$$/stat)
group="$1/sys/fs/resctrl/mon_groups/tierscope-$$-$started-0/mon_data/mon_L3_00"
mkdir -p "$group"
echo 0 >"$group/mbm_total_bytes"
root=$1 program=$2
shift 2
exec "$program" qos --root "$root" --by mbm "$@"
"#;

/// Four CPUs, and cgroup `a`, which its administrator limits to two.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        machine.put("sys/devices/system/cpu/online", "0-3\n");
        machine.put("sys/fs/resctrl/info/L3_MON/mon_features", "mbm_total_bytes\n");
        for (file, text) in [("cgroup.procs", ""), ("cgroup.controllers", "cpu")] {
            machine.put(&format!("sys/fs/cgroup/a/{file}"), text);
        }
        machine.put("sys/fs/cgroup/a/cpu.max", "200000 100000\n");
        machine
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    /// Replaces a file in one step.
    fn put(&self, file: &str, text: &str) {
        let path = self.path(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let new = self.path("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, path).unwrap();
    }

    /// The first line: a fake file is not truncated by a shorter write.
    fn limit(&self) -> String {
        let text = fs::read_to_string(self.path("sys/fs/cgroup/a/cpu.max")).unwrap();
        text.lines().next().unwrap_or_default().to_owned()
    }

    fn start(&self, more: &[&str]) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "sh"]).arg(self.0.path()).arg(TIERSCOPE);
        command.args(["--tenant", "a=1MiB"]).args(more);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    /// Starts it, and lets the tenant exceed its cap by far: the limit is then at its least.
    fn start_limited(&self) -> (Child, Lines<BufReader<ChildStdout>>) {
        let mut child = self.start(&["--json"]);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut cpus = || {
            let line = lines.next().expect("it runs").unwrap();
            serde_json::from_str::<Value>(&line).unwrap()["cpus"].as_f64().unwrap()
        };
        assert_eq!(cpus(), 2.0, "what the administrator allows, of four CPUs");
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        let started = stat.split(' ').nth(21).unwrap();
        let group = format!("sys/fs/resctrl/mon_groups/tierscope-{}-{started}-0", child.id());
        self.put(&format!("{group}/mon_data/mon_L3_00/mbm_total_bytes"), "1000000000000000\n");
        while cpus() > 0.01 {}
        assert_eq!(self.limit(), "1000 100000");
        (child, lines)
    }

    fn restore(&self) -> Output {
        let root = self.0.path().to_str().unwrap();
        Command::new(TIERSCOPE).args(["qos", "--restore", "--root", root]).output().unwrap()
    }

    fn journals(&self) -> usize {
        fs::read_dir(self.path("run/tierscope/qos")).map_or(0, Iterator::count)
    }
}

#[test]
fn what_a_kill_leaves_is_restored_on_request() {
    let machine = Machine::new();
    let (mut child, _lines) = machine.start_limited();
    let meanwhile = machine.restore();
    let said = String::from_utf8(meanwhile.stderr).unwrap();
    assert!(meanwhile.status.success() && said.contains(&child.id().to_string()), "{said}");
    assert_eq!(machine.limit(), "1000 100000", "its owner runs");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!((machine.limit(), machine.journals()), ("1000 100000".into(), 1));
    let restored = machine.restore();
    let said = String::from_utf8(restored.stdout).unwrap();
    assert!(restored.status.success() && said.ends_with("/a: limit restored\n"), "{said}");
    assert_eq!((machine.limit(), machine.journals()), ("200000 100000".into(), 0));
    let again = machine.restore();
    assert!(again.status.success() && again.stdout.is_empty());
}

// The account is printed once the limits are as before, whatever signals still arrive.
#[test]
fn more_signals_do_not_keep_limits_from_being_restored() {
    let machine = Machine::new();
    let (mut child, mut lines) = machine.start_limited();
    let pid = libc::pid_t::try_from(child.id()).unwrap();
    let status = loop {
        // SAFETY: the process is a child of this one, and was not waited for.
        unsafe { libc::kill(pid, libc::SIGTERM) };
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        std::thread::yield_now();
    };
    // After the account, a signal may end the process before it ends by itself.
    assert!(status.success() || status.signal() == Some(libc::SIGTERM), "{status}");
    assert_eq!(machine.limit(), "200000 100000");
    let last = lines.by_ref().last().unwrap().unwrap();
    let account: Value = serde_json::from_str(&last).unwrap();
    assert_eq!(account["tenants"][0]["least_cpus"], 0.01);
    assert_eq!(machine.journals(), 0);
}

#[test]
fn a_closed_pipe_ends_it_like_a_signal() {
    let machine = Machine::new();
    let (child, lines) = machine.start_limited();
    drop(lines);
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &*output.stderr), (Some(0), &b""[..]));
    assert_eq!((machine.limit(), machine.journals()), ("200000 100000".into(), 0));
}

// A directory in the place of cpu.max can be neither read nor written.
#[test]
fn a_limit_that_cannot_be_restored_is_reported_with_its_command() {
    let machine = Machine::new();
    let (child, lines) = machine.start_limited();
    let file = fs::canonicalize(machine.path("sys/fs/cgroup/a/cpu.max")).unwrap();
    fs::create_dir(machine.path("other")).unwrap();
    let (other, flags) = (machine.path("other"), RenameFlags::EXCHANGE);
    renameat_with(CWD, &file, CWD, &other, flags).unwrap();
    let output = child.wait_with_output().unwrap();
    drop(lines);
    let said = String::from_utf8(output.stderr).unwrap();
    let command = format!("echo '200000 100000' > '{}'", file.display());
    assert!(output.status.code() == Some(8) && said.contains(&command), "{said}");
    assert_eq!(machine.restore().status.code(), Some(8), "the journal still has it");
}

#[test]
fn a_dry_run_changes_nothing() {
    let machine = Machine::new();
    let child = machine.start(&["--dry-run", "--duration", "100ms", "--epoch", "10ms"]);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.ends_with("; no limit was changed\n"), "{said}");
    assert_eq!((machine.limit(), machine.journals()), ("200000 100000".into(), 0));
    assert!(!machine.path("run").exists());
}

#[test]
fn damaged_journals_have_an_exit_code() {
    let machine = Machine::new();
    machine.put("run/tierscope/qos/4194304-1", "torn");
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    fs::set_permissions(machine.path("run/tierscope/qos"), private).unwrap();
    let output = machine.restore();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(9) && said.contains("4194304-1"), "{said}");
    assert!(output.stdout.is_empty());
}

#[test]
fn bad_input_is_reported_before_a_limit_is_changed() {
    let machine = Machine::new();
    let root = machine.0.path().to_str().unwrap();
    for (line, code) in [
        ("qos", 2),
        ("qos --restore --tenant a=1MiB", 2),
        ("qos --tenant a=0", 2),
        ("qos --tenant a=1MiB --epoch 0s", 2),
        ("qos --tenant b=1MiB", 5),
        ("qos --tenant a=1MiB --by nemo", 3),
    ] {
        let mut command = Command::new(TIERSCOPE);
        let output = command.args(line.split(' ')).args(["--root", root]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{line}: {said}");
    }
    assert_eq!((machine.limit(), machine.journals()), ("200000 100000".into(), 0));
}
