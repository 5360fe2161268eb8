//! Starts on a full disk: files can be created, but nothing can be written.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use tierscope_core::ErrorKind;
use tierscope_record::Recorder;
use tierscope_record::series::{Retention, SeriesRecorder, members};

use crate::common::meta;
use crate::series::{Wall, keep, run, set_written};

/// Set for the process that runs on a full disk.
const DIR: &str = "TIERSCOPE_TEST_FULL_DISK";
const NOW: u64 = 1_000_000_000;

fn start(dir: &Path, retention: Retention) {
    let wall = || UNIX_EPOCH + Duration::from_secs(NOW);
    let error = SeriesRecorder::create(dir, &meta(), retention, wall).err().expect("no room");
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
}

/// Runs this test again as a process whose files may have no byte.
fn on_a_full_disk(dir: &Path) {
    let script = "trap '' XFSZ; ulimit -f 0; exec \"$0\" \"$@\"";
    let test = "full_disk::a_failed_start_removes_what_expired_and_leaves_nothing";
    let test_program = std::env::current_exe().unwrap();
    let mut run = Command::new("sh");
    run.args(["-c", script]).arg(test_program).args(["--exact", test]);
    let done = run.env(DIR, dir).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
    assert!(String::from_utf8_lossy(&done.stdout).contains("1 passed"));
}

fn names(dir: &Path) -> Vec<PathBuf> {
    let mut names: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    names.sort();
    names
}

// Eight recordings, of which five are older than 48 s.
#[test]
fn a_failed_start_removes_what_expired_and_leaves_nothing() {
    if let Some(dir) = std::env::var_os(DIR).map(PathBuf::from) {
        for _ in 0..5 {
            start(&dir.join("series"), keep(48));
            start(&dir.join("new/series"), keep(48));
            let one = Recorder::create(dir.join("one"), &meta()).err().expect("no room");
            assert_eq!(one.kind(), ErrorKind::Io);
        }
        return;
    }
    let outside = tempfile::tempdir().unwrap();
    let dir = outside.path().join("series");
    run(&dir, &Wall::at(NOW - 1000), keep(48), 0..16);
    let all = members(&dir).unwrap();
    for (index, member) in all.iter().enumerate() {
        set_written(&member.path, if index < 5 { NOW - 100 } else { NOW - 10 });
    }
    let before = names(&dir);
    on_a_full_disk(outside.path());
    assert_eq!(names(outside.path()), std::slice::from_ref(&dir));
    let kept: Vec<PathBuf> =
        before.into_iter().filter(|name| !all[..5].iter().any(|m| m.path == *name)).collect();
    assert_eq!(names(&dir), kept);
    let written = |seconds| {
        members(&dir).unwrap().iter().for_each(|member| set_written(&member.path, seconds));
    };
    // A disk that has been full for a day.
    written(NOW - 86_400);
    on_a_full_disk(outside.path());
    assert_eq!(members(&dir).unwrap().len(), 1, "the newest stays");
}
