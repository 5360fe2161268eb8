//! `tierscope bench accuracy` from the command line.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn tierscope(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tierscope")).args(arguments).output().unwrap()
}

fn reports(arguments: &[&str]) -> Value {
    let output = tierscope(&[&["bench", "accuracy", "--json"], arguments].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Clears the fields that depend on the host.
fn reproducible(mut report: Value) -> Value {
    for scenario in report.as_array_mut().unwrap() {
        for outcome in scenario["outcomes"].as_array_mut().unwrap() {
            outcome["wall_seconds"] = Value::Null;
        }
    }
    report
}

// Two seconds of 5 TiB: `rates` finds the ten hot GiB, DAMON finds nothing.
#[test]
fn rates_and_damon_differ_on_five_terabytes() {
    let of = ["contiguous-5tb", "--time", "2s", "--only", "rates", "--only", "damon-moderate"];
    let report = reports(&of);
    assert_eq!(reproducible(report.clone()), reproducible(reports(&of)), "same seed, same report");
    let outcomes = &report[0]["outcomes"];
    let share = |index: usize, key: &str| outcomes[index]["all"][key].as_f64().unwrap_or(0.0);
    assert!(share(0, "precision") >= 0.95, "{}", outcomes[0]["all"]);
    // From the end of the first second on.
    let windows = outcomes[0]["windows"].as_array().unwrap();
    let late = windows.iter().filter(|window| window["end_seconds"].as_f64() >= Some(0.99));
    assert!(late.clone().count() >= 5, "{windows:?}");
    for window in late {
        let bytes = |key: &str| window[key].as_f64().unwrap();
        assert!(bytes("both_bytes") >= 0.95 * bytes("true_bytes"), "{window}");
        assert!(bytes("both_bytes") >= 0.95 * bytes("reported_bytes"), "{window}");
    }
    assert!(outcomes[0]["settled"]["recall"].as_f64() >= Some(0.95));
    assert_eq!(share(1, "recall"), 0.0);
    // The instrument's probes take time: windows are a little longer than configured.
    assert_eq!(outcomes[0]["windows"].as_array().map(Vec::len), Some(9));
}

// With a hundredth of a CPU, reading all entries of 1 GiB takes several seconds: detection takes
// longer at the same CPU cost.
#[test]
fn a_petabyte_takes_longer_and_no_more_cpu() {
    let report = reports(&["contiguous-1pb", "--time", "20s", "--only", "rates"]);
    assert_eq!(report[0]["mapped_bytes"], 1u64 << 50);
    let outcome = &report[0]["outcomes"][0];
    assert!(outcome["settled"]["recall"].as_f64() >= Some(0.95), "{}", outcome["settled"]);
    assert!(outcome["settled"]["precision"].as_f64() >= Some(0.95), "{}", outcome["settled"]);
    assert!(outcome["profiler_cpu"].as_f64() <= Some(0.01), "{}", outcome["profiler_cpu"]);
}

// The same scenario, 2 GiB hot of 64 GiB, in exact and in density mode: `rates` finds the hot
// memory in both.
#[test]
fn an_exact_machine_takes_the_same_scenario() {
    let dir = tempfile::tempdir().unwrap();
    let report = |mode: &str| {
        let path = dir.path().join(format!("{mode}.toml"));
        let text = format!(
            "name = \"toy\"\nabout = \"a\"\nsource = \"b\"\ntime = \"2s\"\n\
             [machine]\nflush = \"5ms\"\n[simulation]\nmode = \"{mode}\"\n[[process]]\n\
             workload = \"contiguous:space=16GiB,hot=2GiB,at=9GiB,rate=1000000\"\n"
        );
        std::fs::write(&path, text).unwrap();
        reports(&[path.to_str().unwrap(), "--only", "rates"])
    };
    for mode in ["exact", "density"] {
        let report = report(mode);
        let outcome = &report[0]["outcomes"][0];
        assert_eq!(report[0]["mode"], mode);
        let share = |key: &str| outcome["settled"][key].as_f64().unwrap_or(0.0);
        assert!(share("precision") >= 0.95 && share("recall") >= 0.95, "{mode}: {outcome}");
    }
}

// A store's hot keys follow from its description, in both modes; the accesses of a graph search are
// not known in advance.
#[test]
fn a_store_is_judged_by_the_pages_of_hot_keys() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.toml");
    let written = |mode: &str, workload: &str| {
        let text = format!(
            "name = \"toy\"\nabout = \"a\"\nsource = \"b\"\ntime = \"40ms\"\n\
             window = \"20ms\"\n[simulation]\nmode = \"{mode}\"\n[[process]]\nworkload = \"{workload}\"\n"
        );
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap()
    };
    let store = "redis:keys=50000,value=4096,dist=hotspot:keys=0.02:ops=0.98";
    let truths = ["exact", "density"].map(|mode| {
        let report = reports(&[written(mode, store), "--only", "rates"]);
        assert!(report[0]["mapped_bytes"].as_u64() > Some(50_000 * 4096));
        report[0]["outcomes"][0]["windows"][0]["true_bytes"].as_u64().unwrap()
    });
    // A thousand values, and the equally hot part of the index.
    assert!(truths[0] == truths[1] && truths[0] >= 1000 * 4096, "{truths:?}");
    let output = tierscope(&["bench", "accuracy", written("exact", "bfs:scale=8")]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("no hot ranges are declared"), "{said}");
}

#[test]
fn every_contender_has_a_line_and_drawings_are_written() {
    let dir = tempfile::tempdir().unwrap();
    let (svg, html) = (dir.path().join("f1.svg"), dir.path().join("f1.html"));
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    let output = tierscope(&[
        "bench",
        "accuracy",
        "needle-5mb",
        "--time",
        "400ms",
        "--svg",
        &path(&svg),
        "--html",
        &path(&html),
    ]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let names = ["rates", "bounded", "flexible", "damon-moderate", "scan"];
    let more = ["pebs-moderate", "pebs-aggressive", "pebs-patient", "scan-pruned", "hint-fault"];
    let more = more.iter().chain(&["damon-aggressive", "damon-levels"]);
    for name in names.iter().chain(more) {
        assert!(
            text.lines().any(|line| line.split_whitespace().next() == Some(name)),
            "{name}\n{text}"
        );
    }
    let drawn = std::fs::read_to_string(svg).unwrap();
    assert_eq!(drawn.matches("<polyline").count(), 12);
    assert!(std::fs::read_to_string(html).unwrap().contains("<h2>needle-5mb</h2>"));
}

#[test]
fn scenarios_are_checked_before_anything_runs() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.toml");
    std::fs::write(&path, "name = \"x\"\ncolour = \"red\"\n").unwrap();
    let output = tierscope(&["bench", "accuracy", "contiguous-1pb", path.to_str().unwrap()]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(9), "{said}");
    assert!(
        said.contains("s.toml:2:1: unknown field `colour`") && output.stdout.is_empty(),
        "{said}"
    );
    let output = tierscope(&["bench", "accuracy", "nowhere"]);
    assert_eq!(output.status.code(), Some(8));
    let output = tierscope(&["bench", "accuracy", "needle-4kb", "stairs-5tb", "--svg", "x.svg"]);
    assert_eq!(output.status.code(), Some(2));
}

// Four times the memory: a walk over all tables takes longer, a walk that is pruned at upper levels
// does not; the chart names both policies.
#[test]
fn walks_are_measured_against_memory() {
    let dir = tempfile::tempdir().unwrap();
    let svg = dir.path().join("walks.svg");
    let output = tierscope(&[
        "bench",
        "scan-cost",
        "64M,256M",
        "--hot=8M",
        "--policy=mglru-linear",
        "--policy=mglru-telescope",
        "--json",
        "--svg",
        svg.to_str().unwrap(),
    ]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let growth = |policy: &str| report["growth"][policy].as_f64().unwrap();
    assert!(growth("mglru-linear") > growth("mglru-telescope"), "{report}");
    let ms = |point: usize, policy: &str| report["curve"][point]["ms"][policy].as_f64().unwrap();
    for point in 0..2 {
        assert!(ms(point, "mglru-telescope") < 0.1 * ms(point, "mglru-linear"), "{report}");
    }
    assert!(growth("mglru-linear") > 2.0, "{report}");
    assert_eq!(report["curve"].as_array().map(Vec::len), Some(2));
    let svg = std::fs::read_to_string(svg).unwrap();
    assert!(svg.contains("mglru-telescope") && svg.contains("256 MiB"), "{svg}");
}

#[test]
fn policies_without_walks_have_no_scan_cost() {
    let output = tierscope(&["bench", "scan-cost", "1G", "--policy=static"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("walks over no tables"), "{said}");
}

// Each figure at a requested time is the worst over the seeds.
#[test]
fn figures_at_a_time_are_the_worst_of_all_seeds() {
    let workload = "process.0.workload=contiguous:space=64GiB,hot=2GiB,at=9GiB,share=0.9,\
                    hot_share=0.4,rate=3000000";
    let with = |more: &[&str]| {
        let of = ["noise", "--time", "3s", "--at", "2s", "--only", "rates", "--set", workload];
        reports(&[&of, more].concat())[0].clone()
    };
    let report = with(&["--seeds", "2"]);
    let outcomes = report["outcomes"].as_array().unwrap();
    assert_eq!(outcomes.iter().map(|o| o["seed"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2]);
    assert_ne!(outcomes[0]["windows"], outcomes[1]["windows"], "seeds make a difference");
    let worst = &report["worst"][0];
    assert_eq!((&worst["seeds"], &report["flush_seconds"]), (&2.into(), &Value::Null));
    let times = worst["times"].as_array().unwrap();
    assert_eq!(
        times.iter().map(|t| t["at_seconds"].as_f64().unwrap()).collect::<Vec<_>>(),
        [2.0, 3.0]
    );
    let each = |name: &str| {
        let value = |o: &Value| o["times"][1]["values"][name].as_f64().unwrap();
        outcomes.iter().map(value).collect::<Vec<f64>>()
    };
    let spread = |name: &str| times[1]["figures"][name]["worst"].as_f64().unwrap();
    assert_eq!(spread("recall"), each("recall").into_iter().fold(1.0, f64::min));
    assert_eq!(spread("unknown"), each("unknown").into_iter().fold(0.0, f64::max));
    // The flags for CPU budget and flush interval take effect.
    let frugal = with(&["--cpu", "0.1%", "--flush", "5ms"]);
    assert_eq!(frugal["flush_seconds"].as_f64(), Some(0.005));
    let cpu = |report: &Value| report["outcomes"][0]["profiler_cpu"].as_f64().unwrap();
    assert!(cpu(&frugal) < cpu(&report), "{} {}", cpu(&frugal), cpu(&report));
}

#[test]
fn a_change_that_makes_no_sense_is_refused_before_anything_runs() {
    for change in ["process.0.workload=nonsense", "machine.flus=5ms", "costs.no.such=1"] {
        let output = tierscope(&["bench", "accuracy", "noise", "--set", change]);
        assert!(!output.status.success() && output.stdout.is_empty(), "{change}");
    }
}

// 512 huge pages, each accessed 5,300 times per second and cached by the TLBs: probes of their
// leaves would clear the same bits, and hide accesses for tens of milliseconds. At least 85 % of
// the 90 % intervals must contain the truth, as a mean over eight seeds: the hot memory is about
// one region, whose interval contains it or not (0.34 while leaves of huge pages were probed).
#[test]
fn rates_of_huge_pages_hold_the_truth() {
    let workload = "process.0.workload=contiguous:space=16GiB,hot=1GiB,at=5123MiB,share=0.9,\
                    hot_share=0.4,rate=3000000";
    let of = ["resident", "--time", "6s", "--at", "6s", "--only", "rates", "--seeds", "8"];
    let changes = ["--set", workload, "--set", "process.0.pages=2M"];
    let report = reports(&[&of[..], &changes].concat())[0].clone();
    let covered = &report["worst"][0]["times"][0]["figures"]["cover_hot"];
    println!("{covered}");
    assert!(covered["mean"].as_f64().unwrap() >= 0.85, "{covered}");
}

// A terabyte of scrambled keys makes a hundred thousand regions: windows take longer, and the CPU
// budget is kept.
#[test]
fn windows_are_longer_where_regions_are_many() {
    let workload = "process.0.workload=zipf:space=1TiB,item=4KiB,theta=0.99,rate=3000000,\
                    scrambled=true";
    let of = ["noise", "--time", "8s", "--only", "rates", "--set", workload];
    let report = reports(&of)[0].clone();
    let outcome = &report["outcomes"][0];
    let ends = outcome["windows"].as_array().unwrap();
    let ends: Vec<f64> = ends.iter().map(|w| w["end_seconds"].as_f64().unwrap()).collect();
    let longest = ends.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max);
    println!("{ends:?}");
    assert!(longest > 0.5 && ends[0] < 0.3, "{ends:?}");
    assert!(outcome["profiler_cpu"].as_f64().unwrap() <= 0.01);
}
