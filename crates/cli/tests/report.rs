//! `tierscope report` from the command line: outputs and errors.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tierscope_cli::args::{self, parse};
use tierscope_cli::plan::Plan;
use tierscope_cli::record::record;
use tierscope_conformance::toy::{Toy, random_touches};
use tierscope_core::{
    AccessBits, Clock, CpuTime, Mappings, Missing, Ports, Range, Region, RegionSource, Result,
    Samples, Snapshot, SpaceId, Target, Time, Wake,
};

/// A part of space 0, in MiB.
fn range(start: u64, end: u64) -> Range {
    Range::new(SpaceId(0), start << 20, end << 20)
}

/// A toy machine of 64 MiB, of which 4 MiB are touched continuously, with a source of regions that
/// reports just that.
struct Machine {
    toy: Toy,
    /// End of the last window of the source.
    reported: Time,
}

impl Clock for Machine {
    fn now(&self) -> Time {
        self.toy.now()
    }

    fn wait(&mut self, until: Time) -> Wake {
        self.toy.wait(until)
    }
}

impl Target for Machine {
    fn mappings(&mut self, max_age: Duration) -> Result<Arc<Mappings>> {
        self.toy.mappings(max_age)
    }

    fn cpu_time(&self) -> CpuTime {
        self.toy.cpu_time()
    }
}

impl RegionSource for Machine {
    fn next(&mut self) -> Result<Option<Snapshot>> {
        let (start, end) = (self.reported, self.reported + Duration::from_millis(200));
        if self.now() < end {
            return Ok(None);
        }
        self.reported = end;
        let region = |of, hits| Region::sampled(of, hits, 40);
        let regions = vec![region(range(0, 4), 40.0), region(range(4, 64), 0.0)];
        Ok(Some(Snapshot { start, end, samples: 40, regions }))
    }
}

impl Ports for Machine {
    fn access_bits(&mut self) -> Result<&mut dyn AccessBits, Missing> {
        self.toy.access_bits()
    }

    fn samples(&mut self) -> Result<&mut dyn Samples, Missing> {
        self.toy.samples()
    }

    fn region_source(&mut self) -> Result<&mut dyn RegionSource, Missing> {
        Ok(self)
    }
}

/// Makes a recording of the machine with an instrument.
fn recorded_by(instrument: &str, dir: &Path) {
    let touches = random_touches(&[range(0, 4)], 1_000_000, 1);
    let mut machine = Machine { toy: Toy::new(&[range(0, 64)], touches), reported: Time(0) };
    let line = ["tierscope", "record", "-p", "1", "--duration", "2s", "--instrument", instrument];
    let line = line.iter().map(Into::into).chain(["-o".into(), dir.as_os_str().to_owned()]);
    let args::Command::Record(args) = parse(line).unwrap().command else { panic!("record") };
    record(&mut machine, &Plan::new(args, String::new()).unwrap(), "", None).unwrap();
}

fn recorded(dir: &Path) {
    recorded_by("rates", dir);
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

// Each instrument that `auto` takes: all find the 4 MiB, and no more than a block next to it.
#[test]
fn every_report_in_every_format_of_every_way_to_record() {
    for way in &tierscope_linux::doctor::WAYS {
        let dir = tempfile::tempdir().unwrap();
        let recording = dir.path().join("recording");
        recorded_by(way.instrument, &recording);
        every_report_in_every_format(&recording);
        let summary = report(&recording, "summary --json");
        let summary: serde_json::Value = serde_json::from_str(text(&summary)).unwrap();
        assert_eq!(summary["instrument"], way.instrument, "{summary:#}");
        let hot = summary["hot_bytes"]["now"].as_u64().unwrap();
        assert!((4 << 20..=6 << 20).contains(&hot), "{}: {hot} bytes are hot", way.instrument);
    }
}

fn every_report_in_every_format(recording: &Path) {
    for name in ["summary", "heatmap", "regions", "wss", "ages"] {
        let json = report(recording, &format!("{name} --json --time 1s..2s --range 0..4M"));
        let json: serde_json::Value = serde_json::from_str(text(&json)).unwrap();
        assert!(json.is_object(), "{name}");
        assert!(text(&report(recording, name)).lines().count() > 4, "{name}");
        let page = report(recording, &format!("{name} --html"));
        assert!(text(&page).starts_with("<!doctype html>"), "{name}");
    }
    for name in ["heatmap", "wss", "ages"] {
        let drawing = report(recording, &format!("{name} --svg"));
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
