//! `tierscope … | head`: a reader that ends early is no error, and never a panic.

use std::fs;
use std::io::pipe;
use std::path::Path;
use std::process::{Command, Stdio};

use tierscope_core::drive::{Sink, Window};
use tierscope_core::{Range, Region, Snapshot, SpaceId, Time};
use tierscope_record::{Meta, Recorder};

/// Thousands of regions: more text than a pipe or a buffer holds.
fn recorded(dir: &Path) {
    let mut recorder = Recorder::create(dir, &Meta::default()).unwrap();
    let region = |at: u64| {
        let range = Range::new(SpaceId(0), at << 13, (at << 13) + 4096);
        Region::sampled(range, (at % 41) as f32, 40)
    };
    let regions = (0..20_000).map(region).collect();
    let snapshot = Snapshot { end: Time(200_000_000), samples: 40, regions, ..Snapshot::default() };
    recorder.window(&Window::of(&snapshot)).unwrap();
    recorder.finish().unwrap();
}

/// Which of the outputs is a pipe without a reader.
#[derive(Clone, Copy, Debug)]
enum Closed {
    Stdout,
    Stderr,
}

fn run(line: &str, dir: &Path, closed: Closed) -> (Option<i32>, String) {
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_tierscope"));
    command.args(line.split_whitespace()).current_dir(dir).stdin(Stdio::null());
    match closed {
        Closed::Stdout => command.stdout(writer).stderr(Stdio::piped()),
        Closed::Stderr => command.stdout(Stdio::piped()).stderr(writer),
    };
    let output = command.output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn commands_that_print_end_in_silence() {
    let dir = tempfile::tempdir().unwrap();
    recorded(&dir.path().join("d"));
    fs::write(dir.path().join("t.csv"), "address,kind\n0x1000,load\n0x2000,store\n").unwrap();
    fs::write(dir.path().join("r"), "key all >> 21; update + 1").unwrap();
    for line in [
        "--help",
        "--version",
        "report summary d",
        "report regions d",
        "report regions --json d",
        "report regions --html d",
        "report heatmap d",
        "report heatmap --svg d",
        "report wss d",
        "report ages --json d",
        "export --csv --table regions -o - d",
        "export --damo -o - d",
        "list policies",
        "list policies --json",
        "list instruments",
        "trace info t.csv",
        "trace convert t.csv -",
        "tlb report t.csv",
        "nemo plan",
        "nemo plan --json",
        "nemo rule r --memory 1G",
    ] {
        let (code, said) = run(line, dir.path(), Closed::Stdout);
        assert_eq!(code, Some(0), "{line}: {said}");
        assert!(!said.contains("pipe") && !said.contains("panicked"), "{line}: {said}");
    }
}

#[test]
fn exit_codes_are_those_of_the_command_if_stderr_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    recorded(&dir.path().join("d"));
    for (line, code) in [
        ("report regions", 2),
        ("report regions nowhere", 9),
        ("report regions d --range nothing", 2),
        ("export --csv d -o csv", 0),
        ("import nowhere -o i", 2),
        ("trace info d", 9),
        ("serve d --listen 127.0.0.1:1 --token-file nowhere", 8),
    ] {
        assert_eq!(run(line, dir.path(), Closed::Stderr).0, Some(code), "{line}");
    }
}
