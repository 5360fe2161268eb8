//! `tierscope compare` from the command line: a recording and a truth made by hand.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use tierscope_core::drive::{Sink, Window};
use tierscope_core::{
    Backing, CpuTime, Mapping, Mappings, Range, Region, Snapshot, Space, SpaceId, Time,
};
use tierscope_record::{Meta, Recorder};
use tierscope_workloads::truth_dir::{
    AreaLine, Begin, CLOCK, End, FORMAT, Piece, Pieces, SegmentLine, Tally, Writer,
};
use tierscope_workloads::{Program, Stream, Touch, file, generate};

const BASE: u64 = 1 << 40;
const MIB: u64 = 1 << 20;
/// Start of the workload.
const BEGIN: Time = Time(5_000_000_000);
const WINDOW: Duration = Duration::from_millis(200);

/// Two steps of 1 s: 1 MiB of 8 MiB is hot, at 1.5 MiB, then at 5.5 MiB.
fn truth(dir: &Path, pid: u32) {
    let workload = generate::from_spec("stairs:space=8MiB,hot=1MiB,steps=2,every=1s").unwrap();
    let begin = Begin {
        format: FORMAT,
        version: "0".into(),
        pid,
        boot: "b".into(),
        clock: CLOCK.into(),
        at_ns: 0,
        command: "toucher".into(),
        workload: file::to_toml(&workload),
        seed: 1,
        threads: 1,
        grain_ns: 50_000_000,
        backing: "anon".into(),
        areas: vec![AreaLine { name: "stairs".into(), start: BASE, end: BASE + 8 * MIB }],
    };
    let mut writer = Writer::create(dir, begin).unwrap();
    let mut stream = Stream::new(&Arc::new(Program::new(&workload)), &[BASE], 1, 0, 1);
    let mut segment = None;
    for span in Pieces::new(&workload, Duration::from_millis(50), workload.duration()) {
        if segment.replace(span.number) != Some(span.number) {
            stream.enter(&span.segment);
            let hot = workload.hot_at(&span.segment, &[BASE], SpaceId(0));
            let line = SegmentLine {
                begin_ns: (BEGIN + span.begin).0,
                pass: 0,
                phase: span.segment.phase,
                name: workload.phase(&span.segment).name.clone(),
                into_ns: 0,
                hot: hot.as_slice().iter().map(|r| [r.start, r.end]).collect(),
            };
            writer.segment(line).unwrap();
        }
        // Enough accesses to touch each of the 256 hot pages in every window.
        let mut batch = vec![Touch::default(); 10_000];
        stream.fill(&mut batch);
        let mut tally = Tally::default();
        tally.add(&batch);
        let piece = Piece {
            begin_ns: (BEGIN + span.begin).0,
            end_ns: (BEGIN + span.end).0,
            segment: span.number,
            touches: vec![tally.touches],
            sums: vec![tally.checksum()],
            late_ns: 0,
        };
        writer.piece(piece).unwrap();
    }
    writer.end(End { at_ns: (BEGIN + workload.duration()).0, cause: "done".into() }).unwrap();
}

/// Eleven windows. The first hot range is reported from the second window on, half as large again
/// as the true one; the second exactly, from the second window after the change on. Nothing is
/// reported in the last window, which ends after the truth does.
fn recording(dir: &Path, space: &str) {
    let mut recorder =
        Recorder::create(dir, &Meta { target: space.into(), ..Meta::default() }).unwrap();
    let space_id = SpaceId(3);
    let mappings = Mappings {
        taken: BEGIN,
        spaces: vec![Space { id: space_id, name: space.into() }],
        mappings: vec![Mapping {
            range: Range::new(space_id, BASE, BASE + 8 * MIB),
            backing: Backing::Anonymous,
            name: "".into(),
            writable: true,
            object: None,
        }],
        ..Mappings::default()
    };
    for index in 0..11u32 {
        let (start, bytes) = match index {
            1..=4 => (BASE + 3 * MIB / 2, 3 * MIB / 2),
            6..=9 => (BASE + 11 * MIB / 2, MIB),
            _ => (BASE, 0),
        };
        let region = Region::sampled(Range::new(space_id, start, start + bytes), 40.0, 40);
        let snapshot = Snapshot {
            start: BEGIN + WINDOW * index,
            end: BEGIN + WINDOW * (index + 1),
            samples: 40,
            regions: if bytes > 0 { vec![region] } else { Vec::new() },
        };
        let window = Window {
            mappings: (index == 0).then_some(&mappings),
            cpu: CpuTime { profiler: Duration::from_millis(10) * index, target: Duration::ZERO },
            ..Window::of(&snapshot)
        };
        recorder.window(&window).unwrap();
    }
    recorder.finish().unwrap();
}

struct Case {
    dir: tempfile::TempDir,
}

impl Case {
    fn new(space: &str, pid: u32) -> Self {
        let case = Case { dir: tempfile::tempdir().unwrap() };
        truth(&case.dir.path().join("truth"), pid);
        recording(&case.dir.path().join("recording"), space);
        case
    }

    fn compare(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_tierscope"))
            .current_dir(self.dir.path())
            .args(["compare", "recording", "truth"])
            .args(args)
            .output()
            .unwrap()
    }
}

// Reported: 4 x 1.5 + 4 x 1 = 10 MiB; true: 10 x 1; both: 4 + 4 = 8.
#[test]
fn figures_by_hand() {
    let case = Case::new("toucher[7]", 7);
    let output = case.compare(&["--json", "--bar", "0.6", "--svg", "chart.svg"]);
    assert!(output.status.success(), "{output:?}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["uncovered_windows"], 1);
    assert_eq!(json["windows"].as_array().unwrap().len(), 10);
    let region = &json["all"]["region"];
    assert_eq!(
        (&region["reported_bytes"], &region["both_bytes"]),
        (&(10 * MIB).into(), &(8 * MIB).into())
    );
    assert_eq!((&region["precision"], &region["recall"]), (&0.8.into(), &0.8.into()));
    assert_eq!(region["false_hot_share"], 0.2);
    let detected: Vec<_> =
        json["detections"].as_array().unwrap().iter().map(|d| &d["seconds"]).collect();
    assert_eq!(detected, [&serde_json::json!(0.4), &serde_json::json!(0.4)]);
    assert_eq!(json["detections"][1]["cause"], "stairs 1");
    assert_eq!(json["settled"]["region"]["recall"], 1.0);
    assert_eq!(json["settled"]["region"]["precision"], 0.8);
    // All hot pages are touched in each window, so the page truth gives the same figures.
    assert_eq!(json["all"]["pages"], json["all"]["region"]);
    assert_eq!(json["windows"][3]["touches_per_second"], 200_000.0);
    // 10 ms of CPU time in each window of 200 ms.
    assert_eq!(json["profiler_cpu"], 0.05);
    let svg = std::fs::read_to_string(case.dir.path().join("chart.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("stairs 1") && svg.contains("polyline"));
}

#[test]
fn a_missed_bar_is_reported() {
    let output = Case::new("toucher[7]", 7).compare(&["--bar", "0.9", "--no-pages"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("attach     never"), "{text}");
    assert!(text.contains("stairs 1  0.40 s"), "{text}");
    assert!(text.contains("profiler: 5.00 % of one CPU"), "{text}");
    assert!(!text.contains("pages"), "{text}");
}

#[test]
fn strangers_are_refused() {
    let case = Case::new("toucher[7]", 8);
    let output = case.compare(&[]);
    assert_eq!(output.status.code(), Some(9));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("the truth is of process 8, the recording saw toucher[7]"), "{text}");
    std::fs::remove_file(case.dir.path().join("truth/truth.jsonl")).unwrap();
    let text = String::from_utf8(case.compare(&[]).stderr).unwrap();
    assert!(text.contains("cannot read truth truth/truth.jsonl"), "{text}");
}

#[test]
fn a_damaged_truth_is_refused() {
    let case = Case::new("toucher[7]", 7);
    let path = case.dir.path().join("truth/truth.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replacen("\"touches\":[10000]", "\"touches\":[9999]", 1)).unwrap();
    let output = case.compare(&[]);
    assert_eq!(output.status.code(), Some(9));
    assert!(String::from_utf8(output.stderr).unwrap().contains("the checksum of thread 0 differs"));
    assert!(case.compare(&["--no-pages"]).status.success());
}
