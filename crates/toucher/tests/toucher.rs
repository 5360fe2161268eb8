//! Tests of the program `toucher` as a child process.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use tierscope_core::Time;
use tierscope_workloads::truth_dir::{Replay, TruthDir};

fn toucher(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toucher"));
    command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(args: &[&str]) -> Output {
    toucher(args).output().unwrap()
}

fn error(args: &[&str]) -> (i32, String) {
    let output = run(args);
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

fn truth_of(dir: &Path) -> TruthDir {
    TruthDir::open(dir).unwrap()
}

/// Starts a toucher that prints its ready line first on standard output.
fn ready(args: &[&str]) -> (Child, BufReader<std::process::ChildStdout>, String) {
    let mut child = toucher(args).args(["--ready-fd", "1"]).spawn().unwrap();
    let mut from = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    (child, from, line)
}

fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
}

#[test]
fn every_backing_is_touched_as_the_truth_records() {
    for backing in ["anon", "memfd"] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_str().unwrap();
        let spec = "drift:space=32MiB,window=4MiB,step=4MiB,every=60ms,time=240ms,writes=0.5";
        let output = run(&[
            spec,
            "--backing",
            backing,
            "--threads",
            "2",
            "--grain",
            "20ms",
            "--truth",
            path,
        ]);
        assert!(output.status.success(), "{output:?}");
        let truth = truth_of(dir.path());
        let (first, last) = truth.span().unwrap();
        assert_eq!((last - first).as_millis(), 240);
        assert_eq!(truth.end().unwrap().cause, "the workload ended");
        assert_eq!(truth.changes().len(), 4);
        let mut replay = Replay::new(&truth);
        for piece in truth.pieces() {
            let (begin, end) = (Time(piece.begin_ns), Time(piece.end_ns));
            replay.until(end).unwrap();
            let hot = truth.hot(begin, end).unwrap().ranges;
            assert!(replay.touched(begin).minus(hot).is_empty());
        }
        let reported: u64 = truth.pieces().iter().flat_map(|piece| &piece.touches).sum();
        let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(summary["touches"], reported);
        assert!(reported > 0);
    }
}

#[test]
fn sigterm_ends_a_truth_cleanly() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("truth");
    let spec = "contiguous:space=8MiB,hot=1MiB";
    let (mut child, _out, line) = ready(&[
        spec,
        "--passes",
        "0",
        "--rate",
        "100000",
        "--grain",
        "10ms",
        "--truth",
        path.to_str().unwrap(),
    ]);
    let announced: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(announced["pid"], child.id());
    while std::fs::read_to_string(path.join("truth.jsonl")).unwrap().lines().count() < 4 {
        std::thread::yield_now();
    }
    signal(&child, "-TERM");
    assert!(child.wait().unwrap().success());
    let truth = truth_of(&path);
    assert_eq!(truth.end().unwrap().cause, "SIGTERM");
    assert_eq!(truth.begin().areas[0].start, announced["areas"][0]["start"].as_u64().unwrap());
    Replay::new(&truth).until(Time(u64::MAX)).unwrap();
}

#[test]
fn phases_wait_for_their_signal() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let (mut child, _out, _) =
        ready(&["zipf:space=1MiB,time=20ms", "--start", "signal", "--truth", path]);
    assert_eq!(truth_of(dir.path()).span(), None);
    signal(&child, "-USR1");
    assert!(child.wait().unwrap().success());
    let (first, last) = truth_of(dir.path()).span().unwrap();
    assert_eq!((last - first).as_millis(), 20);
}

#[test]
fn impossible_runs_are_refused_at_the_start() {
    let (code, text) = error(&["contiguous:space=100TiB"]);
    assert_eq!(code, 3);
    assert!(
        text.starts_with(
            "toucher: not enough memory: 100 TiB of data and 200 GiB of page tables are needed"
        ),
        "{text}"
    );
    let (code, text) = error(&["contiguous:space=100TiB", "--backing", "filler"]);
    assert_eq!(code, 3);
    assert!(text.contains("200 GiB of page tables are needed"), "{text}");
    let (code, text) = error(&["contiguous:space=1TiB,heat=1"]);
    assert_eq!(code, 2);
    assert!(text.contains("column 23: `contiguous` has no key `heat`"), "{text}");
    let (code, text) = error(&["/nowhere.toml"]);
    assert_eq!(code, 1);
    assert!(text.contains("cannot read workload /nowhere.toml"), "{text}");
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("truth.jsonl"), "").unwrap();
    let (code, text) = error(&["zipf:space=1MiB", "--truth", dir.path().to_str().unwrap()]);
    assert_eq!(code, 2);
    assert!(text.contains("never overwritten"), "{text}");
}

#[test]
fn printed_toml_is_the_same_workload() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("w.toml");
    let first = run(&["scattered:space=1GiB,ranges=7,share=0.9", "--toml"]).stdout;
    std::fs::write(&file, &first).unwrap();
    assert_eq!(run(&[file.to_str().unwrap(), "--toml"]).stdout, first);
}

/// All configurations shipped with tierscope are valid.
#[test]
fn ready_made_configurations_are_whole() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../workloads/configs");
    let mut seen = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "cfg" || e == "toml") {
            let output = run(&[path.to_str().unwrap(), "--toml"]);
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            seen += 1;
        }
    }
    assert!(seen >= 10, "{seen}");
}

/// Runs a program; returns the lines of its truth, and the summary that it printed.
fn truth_of_a_program(args: &[&str]) -> (Vec<serde_json::Value>, serde_json::Value) {
    let dir = tempfile::tempdir().unwrap();
    let output = run(&[args, &["--truth", dir.path().to_str().unwrap()]].concat());
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(dir.path().join("pages.jsonl")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (lines, serde_json::from_slice(&output.stdout).unwrap())
}

/// Pages of an area that were touched at any time.
fn pages_of(lines: &[serde_json::Value], area: usize) -> std::collections::BTreeSet<u64> {
    let runs = lines.iter().filter_map(|line| line["pages"]["areas"][area].as_array()).flatten();
    let run = |run: &serde_json::Value| (run[0].as_u64().unwrap(), run[1].as_u64().unwrap());
    runs.map(run).flat_map(|(first, count)| first..first + count).collect()
}

// 2^14 words in 32 pages, four updates per word: every page is touched.
#[test]
fn a_program_touches_the_memory_of_its_computation() {
    let (lines, summary) = truth_of_a_program(&["gups:table=128KiB,threads=3", "--grain", "1ms"]);
    assert_eq!(lines[0]["begin"]["threads"], 3);
    assert!(lines[0]["begin"]["regions"].is_null(), "nothing is declared hot");
    assert_eq!(pages_of(&lines, 0), (0..32).collect());
    assert_eq!((&summary["operations"], &summary["unit"]), (&65_536.into(), &"updates".into()));
    assert_eq!(summary["touches"], 65_536);
    assert_eq!(lines.last().unwrap()["end"]["cause"], "the program ended");
}

// 2^10 vertices: 4 KiB of parents, and 8 KiB and a word of the index. Threads wait for each other.
#[test]
fn lanes_on_threads_wait_for_each_other() {
    for backing in ["anon", "memfd"] {
        let spec = "bfs:scale=10,degree=8,trials=2";
        let (lines, summary) = truth_of_a_program(&[spec, "--backing", backing, "--threads", "3"]);
        assert_eq!((pages_of(&lines, 0), pages_of(&lines, 2)), ((0..3).collect(), [0].into()));
        assert!(summary["operations"].as_u64().unwrap() > 1000, "{summary}");
    }
}

#[test]
fn a_program_ends_at_its_time_limit_and_refuses_other_options() {
    let (lines, _) = truth_of_a_program(&["gups:table=64KiB", "--time", "30ms", "--grain", "5ms"]);
    assert_eq!(lines.last().unwrap()["end"]["cause"], "its time is over");
    let (code, text) = error(&["bfs:scale=5", "--toml"]);
    assert!(code == 2 && text.contains("a program has no description"), "{text}");
    let (code, text) = error(&["bfs:scale=5", "--rate", "1000"]);
    assert!(code == 2 && text.contains("as fast as it can"), "{text}");
    let (code, text) = error(&["bfs:scale=99"]);
    assert!(
        code == 2 && text.contains("column 5: scale: `99` is no number from 1 to 31"),
        "{text}"
    );
}
