//! `tierscope trace`: conversions between formats, summaries, and errors.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use serde_json::Value;
use tierscope_core::metrics::{HOT_FREQUENCY, hot};
use tierscope_core::{Rng, Target as _, Time};
use tierscope_hw::Machine as Hardware;
use tierscope_record::Recording;
use tierscope_sim::config::Costs;
use tierscope_sim::exact::{Machine, Process, Setup};
use tierscope_trace::compact::Writer;
use tierscope_trace::{Access, Kind, Replay};
use tierscope_workloads::{App, Work};

fn command(arguments: &[&str], dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tierscope"));
    command.arg("trace").args(arguments).current_dir(dir);
    command
}

fn trace(arguments: &[&str], dir: &Path, code: i32) -> Output {
    let output = command(arguments, dir).output().unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
    output
}

fn info(name: &str, dir: &Path) -> Value {
    serde_json::from_slice(&trace(&["info", name, "--json"], dir, 0).stdout).unwrap()
}

fn last_line(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    text.trim_end().lines().last().unwrap_or_default().to_owned()
}

const LACKEY: &str = "==7== Lackey\nI  04001000,3\n L 7000,8\n S 7008,4\n M 1fff0000,8\n==7==\n";

#[test]
fn there_and_back() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.lackey"), LACKEY).unwrap();
    trace(&["convert", "a.lackey", "a.trace"], dir.path(), 0);
    trace(&["convert", "a.trace", "a.csv"], dir.path(), 0);
    let text = fs::read_to_string(dir.path().join("a.csv")).unwrap();
    let expected = "time_ns,pid,thread,address,size,kind\n0,7,7,0x4001000,3,fetch\n0,7,7,0x7000,8,load\n\
                    0,7,7,0x7008,4,store\n0,7,7,0x1fff0000,8,modify\n";
    assert_eq!(text, expected);
    let output = trace(&["convert", "a.lackey", "-"], dir.path(), 0);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
    trace(&["convert", "a.csv", "b.trace", "--no-fetches"], dir.path(), 0);
    let (all, data) = (info("a.trace", dir.path()), info("b.trace", dir.path()));
    for (info, fetches) in [(&all, 1), (&data, 0)] {
        assert_eq!(info["total"], 3 + fetches);
        assert_eq!(info["accesses"]["fetch"], fetches);
        assert_eq!(info["accesses"]["modify"], 1);
        assert_eq!(info["bytes"]["load"], 8);
        assert_eq!(info["data_footprint"], 8192);
        assert_eq!((&info["whole"], &info["damages"]), (&Value::Bool(true), &0.into()));
    }
    assert_eq!(info("a.lackey", dir.path())["format"], "lackey");
    let text = trace(&["info", "a.trace"], dir.path(), 0).stdout;
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("accesses   4\n") && text.contains("8 KiB touched"), "{text}");
}

/// CSV of four threads over 64 MiB, each with 30,000 accesses; 500 lines of one, then of the next.
/// With times, the threads are up to 200,000 accesses apart.
fn four_threads(times: bool) -> String {
    let mut rng = Rng::seeded(7);
    let mut nows = [0, 5_000, 9_000_000, 40].map(|start: u64| start);
    let mut text = String::from(if times { "time_ns,tid,address\n" } else { "tid,address\n" });
    for block in 0..240 {
        let thread = block % 4;
        for _ in 0..500 {
            let address = rng.below(64 << 20) + (1 << 32);
            nows[thread] += 1 + rng.below(300);
            if times {
                text += &format!("{},", nows[thread]);
            }
            text += &format!("{},{address}\n", 9 - thread);
        }
    }
    text
}

// Each trace is converted to the compact format, to CSV, and again to the compact format: `tlb
// report`, which depends on the order of accesses, says the same of all four.
#[test]
fn reports_do_not_depend_on_the_container() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("timed.csv"), four_threads(true)).unwrap();
    fs::write(dir.path().join("timeless.csv"), four_threads(false)).unwrap();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../trace/tests/fixtures");
    let files = fs::read_dir(fixtures).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|end| end != "md"));
    let own = ["timed.csv", "timeless.csv"].map(|name| dir.path().join(name));
    for (number, path) in (0..).zip(files.chain(own)) {
        let names = ["a.trace", "b.csv", "c.trace"].map(|name| format!("{number}-{name}"));
        let first = path.to_str().unwrap();
        let chain = [first, &names[0], &names[1], &names[2]];
        for pair in chain.windows(2) {
            trace(&["convert", pair[0], pair[1]], dir.path(), 0);
        }
        let report = |name: &str| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_tierscope"));
            let output = command.args(["tlb", "report", name, "--json"]).current_dir(dir.path());
            let output = output.output().unwrap();
            assert_eq!(output.status.code(), Some(0), "{output:?}");
            let mut report: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(report["trace"].take(), name);
            report
        };
        let expected = report(first);
        for name in &chain[1..] {
            assert_eq!(report(name), expected, "{name} of {first}");
        }
    }
}

#[test]
fn damage_is_reported_and_the_sound_part_kept() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| fs::write(dir.path().join(name), bytes).unwrap();
    file("a.lackey", format!("{LACKEY}hello\n").as_bytes());
    let output = trace(&["convert", "a.lackey", "a.trace", "--strict"], dir.path(), 9);
    let line = last_line(&output);
    assert!(
        line.contains("a.lackey: line 7, column 1 (byte 67)") && line.contains("--strict"),
        "{line}"
    );
    assert!(!dir.path().join("a.trace").exists());
    trace(&["convert", "a.lackey", "b.trace"], dir.path(), 0);
    assert_eq!(info("b.trace", dir.path())["total"], 4);
    let bytes = fs::read(dir.path().join("b.trace")).unwrap();
    file("cut.trace", &bytes[..bytes.len() - 1]);
    let line = last_line(&trace(&["info", "cut.trace", "--strict"], dir.path(), 9));
    assert!(line.contains("cut short"), "{line}");
    let line = last_line(&trace(&["convert", "cut.trace", "mended.trace"], dir.path(), 0));
    assert!(line.contains("the readable part is in mended.trace: ") && line.contains("cut short"));
    let kept = info("mended.trace", dir.path());
    assert_eq!((&kept["total"], &kept["whole"]), (&4.into(), &Value::Bool(false)));
    // Of three lines of CSV, one is damaged.
    file("a.csv", b"\xef\xbb\xbfaddress,size\n0x1000,4\nx,4\n0x2000,4\n");
    let line = last_line(&trace(&["info", "a.csv"], dir.path(), 0));
    assert!(line.contains("line 3"), "{line}");
    assert_eq!(info("a.csv", dir.path())["total"], 2);
    file("head.csv", b"address,size\n");
    let line = last_line(&trace(&["info", "head.csv"], dir.path(), 9));
    assert!(line.contains("no access in it"), "{line}");
    file("words", b"#!/bin/sh\necho\n");
    file("empty", b"");
    for (name, part) in [("words", "no known format"), ("empty", "it is empty")] {
        let line = last_line(&trace(&["convert", name, "x.trace"], dir.path(), 9));
        assert!(line.contains(part), "{line}");
    }
    let line = last_line(&trace(&["info", "nowhere"], dir.path(), 2));
    assert!(line.contains("nowhere"), "{line}");
    let line = last_line(&trace(&["convert", "a.lackey", "b.trace"], dir.path(), 2));
    assert!(line.contains("nothing is overwritten"), "{line}");
    trace(&["convert", "a.lackey", "-", "--json"], dir.path(), 2);
    assert!(!dir.path().join("x.trace").exists() && !dir.path().join("x.trace.partial").exists());
}

// Lines are written until the program exits; after half a million of them it is sent SIGINT.
#[test]
fn ctrl_c_leaves_a_valid_file() {
    let dir = tempfile::tempdir().unwrap();
    let mut convert = command(&["convert", "-", "stopped.trace"], dir.path());
    let mut child = convert.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let lines = " L 04222c4c,4\n S 1fff000748,8\n".repeat(5000);
    for round in 0..100_000 {
        if round == 50 {
            let pid = rustix::process::Pid::from_child(&child);
            rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        }
        if input.write_all(lines.as_bytes()).is_err() {
            break;
        }
    }
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let stopped = info("stopped.trace", dir.path());
    assert!(stopped["total"].as_u64().unwrap() > 0);
    assert_eq!((&stopped["whole"], &stopped["damages"]), (&Value::Bool(false), &0.into()));
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.lackey"), " L 04222c4c,4\n".repeat(100_000)).unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut convert = command(&["convert", "a.lackey", "-"], dir.path());
    let output = convert.stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
    let output = output.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}

const MIB: u64 = 1 << 20;

/// A trace of two seconds: after a store to every page of 256 MiB, loads from 8 MiB in the middle,
/// every 5 us.
fn recorded(path: &Path) {
    let mut writer = Writer::new("t", fs::File::create(path).unwrap()).unwrap();
    let mut put = |nanos: u64, offset: u64, kind| {
        let address = 0x7f00_0000_0000 + offset;
        let time = Time(nanos);
        writer.access(&Access { address, time, thread: 0, bytes: 8, kind }).unwrap();
    };
    (0..256 * MIB).step_by(4096).for_each(|offset| put(0, offset, Kind::Store));
    let mut rng = Rng::seeded(3);
    (0..400_000).for_each(|step| put(step * 5000, 128 * MIB + rng.below(8 * MIB), Kind::Load));
    writer.finish(true).unwrap();
}

// The default instrument on the simulated machine finds the hot memory that the trace contains; all
// times are simulated.
#[test]
fn instruments_run_on_a_trace() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.trace");
    recorded(&path);
    let app = Arc::new(Replay::open(&path).unwrap());
    let hardware = Hardware::ready_made("xeon-gold-6238m").unwrap();
    // 8 MiB are four level 2 entries, which without flushes would stay in the paging-structure
    // caches forever.
    let flush = Some(std::time::Duration::from_millis(5));
    let setup = Setup { flush, ..Setup::new(hardware, Costs::ready_made("linux").unwrap()) };
    let mut machine = Machine::new(&setup).unwrap();
    let process = Process { repeats: false, ..Process::new(Work::Computed(app.clone())) };
    let space = machine.start(&process).unwrap();
    let output = dir.path().join("recording");
    let line = ["tierscope", "record", "-p", "1", "--duration", "1900ms", "-o"];
    let line = line.iter().map(Into::into).chain([output.as_os_str().to_owned()]);
    let tierscope_cli::args::Command::Record(args) =
        tierscope_cli::args::parse(line).unwrap().command
    else {
        panic!("it says record")
    };
    let plan = tierscope_cli::plan::Plan::new(args, String::new()).unwrap();
    tierscope_cli::record::record(&mut machine, &plan, "", None).unwrap();
    assert_eq!(app.failed(), None);
    let recording = Recording::open(&output).unwrap();
    let snapshot = recording.snapshot(recording.commits().len() - 1).unwrap();
    let hot = hot(&snapshot, HOT_FREQUENCY);
    let hot: Vec<_> = hot.as_slice().iter().filter(|range| range.space == space).collect();
    // The machine places the area, here at a multiple of 2 MiB.
    let mapped = machine.mappings(std::time::Duration::ZERO).unwrap();
    let base = mapped.mappings[0].range.start;
    let bytes: u64 = hot.iter().map(|range| range.bytes()).sum();
    let wanted = tierscope_core::Range::new(space, base + 128 * MIB, base + 136 * MIB);
    let found: u64 = hot.iter().filter_map(|r| r.intersect(&wanted)).map(|r| r.bytes()).sum();
    println!("{} MiB hot, {} of the 8 MiB: {hot:x?}", bytes / MIB, found / MIB);
    assert!(found >= 7 * MIB, "recall: {hot:x?}");
    assert!(bytes <= 10 * MIB, "precision: {hot:x?}");
}
