//! `tierscope record`, from its flags to a report, on a machine with virtual time.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use tierscope_cli::args::{Command, parse};
use tierscope_cli::plan::Plan;
use tierscope_cli::record::{Recorded, record};
use tierscope_cli::report::{self, Screen};
use tierscope_conformance::toy::{Event, Toy, random_touches};
use tierscope_core::drive::Ended;
use tierscope_core::{Range, SpaceId, Time};
use tierscope_record::Recording;
use tierscope_report::Style;

const MIB: u64 = 1 << 20;

/// 64 MiB mapped, of which 4 MiB from 16 MiB on are touched continuously.
fn machine() -> Toy {
    let space = SpaceId(0);
    let hot = Range::new(space, 16 * MIB, 20 * MIB);
    Toy::new(&[Range::new(space, 0, 64 * MIB)], random_touches(&[hot], 1_000_000, 1))
}

fn at(millis: u64) -> Time {
    Time(millis * 1_000_000)
}

fn command(line: &str, dir: &Path) -> Command {
    let words = line.split_whitespace().map(Into::into).chain([dir.as_os_str().to_owned()]);
    parse(words).unwrap().command
}

fn run(machine: &mut Toy, flags: &str, dir: &Path) -> Recorded {
    let line = format!("tierscope record -p 1 --instrument rates {flags} -o");
    let Command::Record(args) = command(&line, dir) else { panic!("it says record") };
    record(machine, &Plan::new(args, line).unwrap(), "6.12.0-toy", None).unwrap()
}

fn report(line: &str, dir: &Path) -> String {
    let Command::Report(command) = command(line, dir) else { panic!("it says report") };
    let mut out = Vec::new();
    let screen = Screen { style: Style::default(), height: 40 };
    report::write(&command, &screen, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

// 3 s in windows of 200 ms. The first window begins with the first probe.
#[test]
fn hot_memory_is_recorded_and_reported() {
    let dir = tempfile::tempdir().unwrap();
    let flags = "--duration 3s --seed 7 --annotate tlb-flush-period=20ms";
    let recorded = run(&mut machine(), flags, dir.path());
    assert_eq!(recorded.ended, Ended::Deadline);
    assert!((14..=15).contains(&recorded.tally.windows), "{recorded:?}");
    assert!((3 * MIB..6 * MIB).contains(&recorded.tally.hot), "{recorded:?}");

    let recording = Recording::open(dir.path()).unwrap();
    assert!(recording.is_ended());
    let meta = recording.meta();
    assert_eq!((meta.instrument.as_str(), meta.target.as_str()), ("rates", "toy[0]"));
    assert_eq!(meta.settings["seed"], "7");
    assert_eq!(meta.annotations["tlb-flush-period"], "20ms");
    assert_eq!(meta.machine.kernel, "6.12.0-toy");

    for kind in ["summary", "heatmap", "regions"] {
        assert!(!report(&format!("tierscope report {kind}"), dir.path()).trim().is_empty());
        let json = report(&format!("tierscope report {kind} --json"), dir.path());
        assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok(), "{kind}: {json}");
    }
    assert!(report("tierscope report summary", dir.path()).contains("toy[0]"));
}

// A retention of 4.8 s makes recordings of 200 ms: a window or two each.
#[test]
fn in_the_background_it_is_a_series() {
    let dir = tempfile::tempdir().unwrap();
    let recorded = run(&mut machine(), "--duration 3s --retention 4.8s", dir.path());
    let members = tierscope_record::series::members(dir.path()).unwrap();
    assert!(members.len() >= 5, "{members:?}");
    let windows = |member: &tierscope_record::series::Member| {
        let recording = Recording::open(&member.path).unwrap();
        assert!(!recording.layout(0).unwrap().mappings.is_empty());
        recording.commits().len() as u64
    };
    assert_eq!(members.iter().map(windows).sum::<u64>(), recorded.tally.windows);
    assert!(report("tierscope report summary", dir.path()).contains("toy[0]"));
    // A second run continues the series.
    run(&mut machine(), "--duration 1s --retention 4.8s", dir.path());
    assert!(tierscope_record::series::members(dir.path()).unwrap().len() > members.len());
}

// The group of this process, of which it is a member.
#[test]
fn a_group_reads_what_the_flag_shares() {
    let outside = tempfile::tempdir().unwrap();
    let group = std::process::Command::new("id").arg("-gn").output().unwrap().stdout;
    let group = format!("--group {}", String::from_utf8(group).unwrap().trim());
    for (flag, modes) in [("", [0o700, 0o600]), (group.as_str(), [0o750, 0o640])] {
        for (name, series) in [("one", ""), ("series", "--retention 1h")] {
            let dir = outside.path().join(format!("{name}{}", modes[0]));
            run(&mut machine(), &format!("--duration 1s {flag} {series}"), &dir);
            let file = if series.is_empty() { "windows.arrows" } else { "lock" };
            let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
            assert_eq!([mode(&dir), mode(&dir.join(file))], modes, "{name} {flag}");
        }
    }
    let Command::Record(args) = command("tierscope record -p 1 --group no-such -o", outside.path())
    else {
        panic!("it says record")
    };
    let error = Plan::new(args, String::new()).unwrap_err().to_string();
    assert!(error.contains("there is no such group; choose one"), "{error}");
}

#[test]
fn the_recording_of_an_ended_target_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let mut machine = machine().with_event(at(1100), Event::Layout(Vec::new()));
    let recorded = run(&mut machine, "--duration 3s", dir.path());
    assert_eq!(recorded.ended, Ended::TargetGone);
    let recording = Recording::open(dir.path()).unwrap();
    assert!(recording.is_ended());
    assert_eq!(recording.commits().len() as u64, recorded.tally.windows);
    assert!((4..=5).contains(&recorded.tally.windows), "{recorded:?}");
}

#[test]
fn a_signal_ends_it_in_good_order() {
    let dir = tempfile::tempdir().unwrap();
    let mut machine = machine().with_event(at(900), Event::Stop);
    let recorded = run(&mut machine, "", dir.path());
    assert_eq!(recorded.ended, Ended::Stopped);
    assert!(recorded.tally.covered() >= Duration::from_millis(800));
    assert!(Recording::open(dir.path()).unwrap().is_ended());
}

#[test]
fn the_same_seed_gives_the_same_recording() {
    let snapshots = || {
        let dir = tempfile::tempdir().unwrap();
        run(&mut machine(), "--duration 1s --seed 3", dir.path());
        let recording = Recording::open(dir.path()).unwrap();
        (0..recording.commits().len()).map(|i| recording.snapshot(i).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(snapshots(), snapshots());
}

#[test]
fn a_report_of_a_view_of_nothing_says_so() {
    let dir = tempfile::tempdir().unwrap();
    run(&mut machine(), "--duration 1s", dir.path());
    let line = "tierscope report summary --time 1h..2h";
    let Command::Report(command) = command(line, dir.path()) else { panic!("it says report") };
    let screen = Screen { style: Style::default(), height: 40 };
    let error = report::write(&command, &screen, &mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), tierscope_core::ErrorKind::Usage);
}
