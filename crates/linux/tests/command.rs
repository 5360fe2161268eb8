//! Commands as targets. A separate test program: a machine that runs a command adopts every orphan
//! of the process, so that only one test may do so at a time.

mod fake;

use std::ffi::OsString;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fake::Fake;
use tierscope_core::{Clock as _, ErrorKind, Target as _, Time, Wake};
use tierscope_linux::{LiveMachine, Selection};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open(command: &[&str]) -> tierscope_core::Result<LiveMachine> {
    let command = command.iter().map(OsString::from).collect();
    LiveMachine::open(&Selection::Command(command), Fake::default().module())
}

fn wait_till_gone(machine: &mut LiveMachine) {
    while machine.wait(Time::NEVER) != Wake::Gone {
        machine.mappings(Duration::ZERO).unwrap();
    }
}

#[test]
fn the_command_does_not_run_before_the_first_wait() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("ran");
    let mut machine = open(&["touch", mark.to_str().unwrap()]).unwrap();
    let mappings = machine.mappings(Duration::ZERO).unwrap();
    assert!(mappings.spaces[0].name.starts_with("touch["), "{:?}", mappings.spaces);
    assert!(!mark.exists());
    wait_till_gone(&mut machine);
    assert!(mark.exists());
    assert!(machine.finish().unwrap().unwrap().success());
}

#[test]
fn the_exit_status_is_returned() {
    let _alone = alone();
    let mut machine = open(&["sh", "-c", "exit 3"]).unwrap();
    wait_till_gone(&mut machine);
    assert_eq!(machine.finish().unwrap().unwrap().code(), Some(3));
}

#[test]
fn a_command_that_still_runs_is_terminated() {
    use std::os::unix::process::ExitStatusExt as _;
    let _alone = alone();
    let mut machine = open(&["sleep", "1000"]).unwrap();
    assert_eq!(machine.wait(Time(0)), Wake::Deadline);
    assert_eq!(machine.finish().unwrap().unwrap().signal(), Some(libc::SIGTERM));
}

#[test]
fn a_command_that_was_never_released_is_killed() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("ran");
    drop(open(&["touch", mark.to_str().unwrap()]).unwrap());
    assert!(!mark.exists());
}

// The shell starts a child and exits: such a daemon is still part of the command.
#[test]
fn daemons_are_still_watched() {
    let _alone = alone();
    let (reader, writer) = std::io::pipe().unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&reader);
    // SAFETY: the descriptor is owned by this test; the child has to inherit it.
    unsafe { libc::fcntl(fd, libc::F_SETFD, 0) };
    let script = format!("cat <&{fd} >/dev/null & exit 0");
    let mut machine = open(&["sh", "-c", &script]).unwrap();
    let shell = machine.mappings(Duration::ZERO).unwrap().spaces[0].clone();
    while machine.mappings(Duration::ZERO).unwrap().spaces.contains(&shell) {
        assert_ne!(machine.wait(Time::NEVER), Wake::Gone, "the daemon was lost");
    }
    assert_eq!(machine.mappings(Duration::ZERO).unwrap().spaces.len(), 1);
    drop(writer);
    drop(reader);
    wait_till_gone(&mut machine);
    assert!(machine.finish().unwrap().unwrap().success());
}

#[test]
fn a_command_that_cannot_run_is_refused_with_the_cause() {
    let _alone = alone();
    let missing = open(&["/no/such/program"]).err().unwrap();
    assert_eq!(missing.kind(), ErrorKind::NoTarget);
    assert!(missing.to_string().contains("there is no such program"));
    assert_eq!(open(&["/etc"]).err().unwrap().kind(), ErrorKind::Permission);
}
