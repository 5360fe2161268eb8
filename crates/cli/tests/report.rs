//! `tierscope report` from the command line: outputs and errors.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tierscope_cli::args::{self, parse};
use tierscope_cli::plan::Plan;
use tierscope_cli::record::record;
use tierscope_conformance::toy::{Toy, random_touches};
use tierscope_core::{Range, SpaceId};

/// Makes a recording of a toy machine: 64 MiB, of which 4 MiB are touched continuously.
fn recorded(dir: &Path) {
    let range = |end: u64| Range::new(SpaceId(0), 0, end << 20);
    let mut toy = Toy::new(&[range(64)], random_touches(&[range(4)], 1_000_000, 1));
    let line = ["tierscope", "record", "-p", "1", "--duration", "2s", "-o"];
    let line = line.iter().map(Into::into).chain([dir.as_os_str().to_owned()]);
    let args::Command::Record(args) = parse(line).unwrap().command else { panic!("record") };
    record(&mut toy, &Plan::new(args, String::new()).unwrap(), "", None).unwrap();
}

fn report(dir: &Path, line: &str) -> Output {
    let mut words: Vec<OsString> = line.split(' ').map(Into::into).collect();
    words.insert(1, dir.into());
    let mut command = Command::new(env!("CARGO_BIN_EXE_tierscope"));
    command.arg("report").args(words).stdin(Stdio::null()).output().unwrap()
}

fn text(output: &Output) -> &str {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::str::from_utf8(&output.stdout).unwrap()
}

#[test]
fn every_report_in_every_format() {
    let dir = tempfile::tempdir().unwrap();
    let recording = dir.path().join("recording");
    recorded(&recording);
    for name in ["summary", "heatmap", "regions", "wss", "ages"] {
        let json = report(&recording, &format!("{name} --json --time 1s..2s --range 0..4M"));
        let json: serde_json::Value = serde_json::from_str(text(&json)).unwrap();
        assert!(json.is_object(), "{name}");
        assert!(text(&report(&recording, name)).lines().count() > 4, "{name}");
        let page = report(&recording, &format!("{name} --html"));
        assert!(text(&page).starts_with("<!doctype html>"), "{name}");
    }
    for name in ["heatmap", "wss", "ages"] {
        let drawing = report(&recording, &format!("{name} --svg"));
        let drawing = text(&drawing);
        assert!(drawing.starts_with("<svg ") && drawing.trim_end().ends_with("</svg>"), "{name}");
    }
}

#[test]
fn a_file_instead_of_stdout() {
    let dir = tempfile::tempdir().unwrap();
    let recording = dir.path().join("recording");
    recorded(&recording);
    let path = dir.path().join("wss.txt");
    let output = report(&recording, &format!("wss -o {}", path.display()));
    assert!(text(&output).is_empty());
    assert_eq!(fs::read_to_string(path).unwrap(), text(&report(&recording, "wss")));
}

#[test]
fn impossible_requests_are_refused_with_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let recording = dir.path().join("recording");
    recorded(&recording);
    for (line, code, said) in [
        ("summary --svg", 2, "cannot draw this report"),
        ("wss --json --svg", 2, "cannot be used with"),
        ("ages --range libc.so.6", 2, "no mapping is called libc.so.6"),
        ("ages --range 2..1", 2, "ends before it begins"),
        ("wss --time 1h..2h", 2, "no window from 1 h 0 min"),
        ("heatmap --html -o /no/such/file.html", 8, "cannot write /no/such/file.html"),
    ] {
        let output = report(&recording, line);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains(said) && error.contains("; "), "{line}: {error}");
        assert_eq!(output.status.code(), Some(code), "{line}: {error}");
        assert!(output.stdout.is_empty() && error.lines().count() == 1, "{line}: {error}");
    }
}
