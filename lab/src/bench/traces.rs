//! `make bench-traces`, written to target/bench/traces.json: speed of readers of traces and of a
//! bus monitor's captures, recording of real programs compared with Valgrind's lackey, and misses
//! in captures compared with the simulated machine's own count; files of other tools through import
//! and export.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::Value;

use crate::bench::boot::{FAST_PLUGIN, boot, fast_plugin};
use crate::bench::outputs::{self, number, text, tierscope};
use crate::bench::rows::{Bar, Row, row};
use crate::bench::section::{Inputs, Section};
use crate::command::capture;
use crate::error::{Context, Error, Kind, Result};
use crate::paths;

pub(super) const SECTIONS: &[Section] = &[
    Section { name: "readers", measure: readers },
    Section { name: "capture", measure: captures },
    Section { name: "chosen", measure: chosen },
    Section { name: "guest", measure: guests },
    Section { name: "promise", measure: promise },
    Section { name: "record", measure: record },
    Section { name: "advice", measure: advice },
    Section { name: "foreign", measure: foreign },
];

fn broken(cause: impl std::fmt::Display) -> Error {
    Error::new(Kind::Job, "traces", cause)
}

/// Crate of a benchmark.
fn package(bench: &str) -> &'static str {
    if bench == "ptat" { "tierscope-tlb" } else { "tierscope-trace" }
}

/// Benchmarks of crates/tlb and crates/trace: file, group and function as in criterion's
/// directories, the counted items, and the threshold in millions a second.
const RATES: [(&str, &str, &str, &str, Bar); 7] = [
    ("ptat", "bus records", "1 boards", "bus records parsed, one board", Bar::Least(50.0)),
    ("ptat", "bus records", "2 boards", "bus records parsed, two boards", Bar::Least(50.0)),
    ("ptat", "bus records", "4 boards", "bus records parsed, four boards", Bar::Least(50.0)),
    ("ptat", "dump", "changes", "changes of mappings applied", Bar::None),
    ("read", "lackey text", "read", "records of lackey's text read", Bar::Least(10.0)),
    ("read", "compact, all", "read", "accesses of the compact format read", Bar::Least(50.0)),
    (
        "read",
        "compact, data",
        "read",
        "accesses to data of the compact format read",
        Bar::Least(50.0),
    ),
];

fn readers(_: &Inputs<'_>) -> Result<Vec<Row>> {
    for bench in ["ptat", "read"] {
        let words = ["bench", "--quiet", "--package", package(bench), "--bench", bench];
        capture(Command::new("cargo").args(words).current_dir(paths::root()))?;
    }
    let found = |(bench, group, function, what, bar): &(&str, &str, &str, &str, Bar)| {
        let at = paths::root().join("target/criterion").join(group).join(function).join("new");
        let of = |file: &str, pointer: &str| {
            let path = at.join(file);
            let text = fs::read_to_string(&path).at(path.display())?;
            number(&serde_json::from_str(&text).map_err(broken)?, pointer)
        };
        let nanos = of("estimates.json", "/median/point_estimate")?;
        let rate = of("benchmark.json", "/throughput/Elements")? / nanos * 1e3;
        let command = format!("cargo bench -p {} --bench {bench}", package(bench));
        Ok(row(format!("readers: {what}"), rate, "M/s", *bar, &command))
    };
    RATES.iter().map(found).collect()
}

/// JSON output of a `tierscope` command.
fn run_json(words: &[&str]) -> Result<Value> {
    let printed = capture(Command::new(tierscope()?).args(words).current_dir(paths::root()))?;
    Ok(outputs::figures(&printed))
}

/// Captures an experiment of experiments/ptat; returns the output of the capture and of the report.
fn captured(inputs: &Inputs<'_>, name: &str) -> Result<(Value, Value)> {
    let out = inputs.work.join(name);
    let _ = fs::remove_dir_all(&out);
    let file = format!("experiments/ptat/{name}.toml");
    let made = run_json(&["tlb", "capture", &file, "-o", text(&out)?, "--json"])?;
    let report = run_json(&["tlb", "report", text(&out)?, "--top", "50", "--json"])?;
    let _ = fs::remove_dir_all(&out);
    Ok((made, report))
}

/// Compares the parser's misses with the simulated machine's own count.
fn captures(inputs: &Inputs<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for name in ["random-access-4k", "random-access-2m", "bfs-4k", "bfs-2m"] {
        let (made, report) = captured(inputs, name)?;
        let misses = number(&report, "/misses")?;
        let off = misses - number(&made, "/walks_of_the_machine")?;
        let command = format!("tierscope tlb capture experiments/ptat/{name}.toml -o DIR --json");
        let of = |what: &str| format!("capture: {name}, simulated: {what}");
        rows.push(row(of("misses"), misses, "misses", Bar::None, &command));
        let most = row(
            of("misses off the machine's own count"),
            off.abs(),
            "misses",
            Bar::Most(0.0),
            &command,
        );
        rows.push(most);
        let exact = report.pointer("/capture/exact").and_then(Value::as_bool) == Some(true);
        rows.push(row(of("exact by block"), f64::from(exact), "", Bar::Least(1.0), &command));
    }
    Ok(rows)
}

/// Compares the requests to a watched data structure with the accesses that the program made to it.
fn chosen(inputs: &Inputs<'_>) -> Result<Vec<Row>> {
    let out = inputs.work.join("chosen");
    let _ = fs::remove_dir_all(&out);
    let (file, set) =
        ("experiments/ptat/random-access-4k.toml", "process.0.workload=gups:table=8MiB,updates=1");
    let words =
        ["tlb", "capture", file, "-o", text(&out)?, "--set", set, "--watch", "table", "--json"];
    let made = run_json(&words)?;
    let report = run_json(&["tlb", "report", text(&out)?, "--json"])?;
    let _ = fs::remove_dir_all(&out);
    let seen = number(&report, "/watched/0/reads")? + number(&report, "/watched/0/writes")?;
    let off = seen - number(&made, "/accesses_of_the_machine")?;
    let command = format!("tierscope tlb capture {file} -o DIR --set {set} --watch table --json");
    let of = |what: &str| format!("chosen: RandomAccess's table, simulated: {what}");
    Ok(vec![
        row(of("accesses seen on the bus"), seen, "accesses", Bar::None, &command),
        row(of("off the machine's own count"), off.abs(), "accesses", Bar::Most(0.0), &command),
    ])
}

/// Compares misses of two-dimensional walks in a guest with the counts of its MMUs.
fn guests(inputs: &Inputs<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for pages in ["4K", "2M"] {
        let out = inputs.work.join("guest");
        let _ = fs::remove_dir_all(&out);
        let file = "experiments/ptat/guest.toml";
        let made =
            run_json(&["tlb", "capture", file, "-o", text(&out)?, "--guest", pages, "--json"])?;
        let report = run_json(&["tlb", "report", text(&out)?, "--top", "50", "--json"])?;
        let _ = fs::remove_dir_all(&out);
        let (guest, host) =
            (number(&made, "/walks_of_the_guest")?, number(&made, "/walks_of_the_hypervisor")?);
        let off = number(&report, "/misses")? - guest - host;
        let command = format!("tierscope tlb capture {file} -o DIR --guest {pages} --json");
        let of = |what: &str| format!("guest: pages of {pages} beneath, simulated: {what}");
        rows.push(row(of("walks of the guest"), guest, "walks", Bar::None, &command));
        rows.push(row(of("walks of the hypervisor's tables"), host, "walks", Bar::None, &command));
        rows.push(row(of("misses off both"), off.abs(), "misses", Bar::Most(0.0), &command));
    }
    Ok(rows)
}

/// Compares the predicted savings of misses by larger pages with the actual savings.
fn promise(inputs: &Inputs<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for name in ["random-access", "bfs"] {
        let (_, small) = captured(inputs, &format!("{name}-4k"))?;
        let (_, large) = captured(inputs, &format!("{name}-2m"))?;
        let advice = small["larger_pages"].as_array().cloned().unwrap_or_default();
        let of_2m = advice.iter().filter(|advice| advice["pages"] == "2M");
        let promised: f64 = of_2m.filter_map(|advice| advice["misses_saved"].as_f64()).sum();
        let kept = number(&small, "/misses")? - number(&large, "/misses")?;
        let off = (promised / kept - 1.0).abs();
        let what = format!("promise: {name}, simulated: misses saved by 2 MiB, promised off kept");
        let command = format!(
            "tierscope tlb report of captures of experiments/ptat/{name}-4k.toml and -2m.toml"
        );
        rows.push(row(what, off, "share", Bar::Most(0.1), &command));
    }
    Ok(rows)
}

/// Captures the page walks of a real program in the instrumented virtual machine; returns the
/// report, and the number of walks of the process with most walks.
fn walked(inputs: &Inputs<'_>, huge: bool) -> Result<(Value, f64)> {
    let label = if huge { "-huge" } else { "-small" };
    let out = boot(inputs, "thp", label, |scenario| {
        scenario.set.insert("huge".into(), i64::from(huge).into());
        Ok(())
    })?;
    let made = fs::read_to_string(out.join("thp.json")).at("thp.json")?;
    let made: Value = serde_json::from_str(made.trim()).map_err(broken)?;
    let pages = number(&made, "/huge_pages")?;
    if (pages > 0.0) != huge {
        return Err(broken(format!("{pages} pages of 2 MiB were made, huge = {huge}")));
    }
    let capture = inputs.work.join(format!("thp{label}"));
    let _ = fs::remove_dir_all(&capture);
    let files = (0..2).map(|cpu| out.join(format!("tlb-{cpu}.bin"))).filter(|path| path.exists());
    let files: Vec<String> = files.map(|path| path.display().to_string()).collect();
    let mut line = vec!["tlb", "import", "--no-kernel", "-o", text(&capture)?];
    line.extend(files.iter().map(String::as_str));
    run(&line)?;
    let machine = ["--machine", "qemu-two-tiers", "--top", "1000", "--json"];
    let report = run_json(&[&["tlb", "report", text(&capture)?][..], &machine].concat())?;
    let _ = fs::remove_dir_all(&capture);
    let mut by_process = std::collections::BTreeMap::<u64, f64>::new();
    for object in report["objects"].as_array().into_iter().flatten() {
        let pid = object["pid"].as_u64().unwrap_or(0);
        *by_process.entry(pid).or_default() += object["misses"].as_f64().unwrap_or(0.0);
    }
    let most = by_process.values().copied().fold(0.0, f64::max);
    Ok((report, most))
}

/// Runs a `tierscope` command and discards its output.
fn run(words: &[&str]) -> Result<()> {
    capture(Command::new(tierscope()?).args(words).current_dir(paths::root())).map(drop)
}

/// Compares the walks that 2 MiB pages are predicted to save in a real program with those saved
/// once it requests such pages.
fn advice(inputs: &Inputs<'_>) -> Result<Vec<Row>> {
    let (report, small) = walked(inputs, false)?;
    let (_, large) = walked(inputs, true)?;
    let advice = report["larger_pages"].as_array().cloned().unwrap_or_default();
    let of_2m = advice.iter().filter(|advice| advice["pages"] == "2M");
    let promised: f64 = of_2m.filter_map(|advice| advice["misses_saved"].as_f64()).sum();
    let kept = small - large;
    let command =
        "lab run thp [--set huge=1]; tierscope tlb import, tlb report --machine qemu-two-tiers";
    let of = |what: &str| format!("advice: sort in the instrumented virtual machine: {what}");
    Ok(vec![
        row(of("walks, pages of 4 KiB"), small, "walks", Bar::None, command),
        row(of("walks, as it asks for pages of 2 MiB"), large, "walks", Bar::None, command),
        row(of("walks promised to go"), promised, "walks", Bar::None, command),
        row(
            of("promised off kept"),
            (promised / kept - 1.0).abs(),
            "share",
            Bar::Most(0.1),
            command,
        ),
    ])
}

/// Files that other tools wrote, through import, all reports, export and import.
fn foreign(_: &Inputs<'_>) -> Result<Vec<Row>> {
    let words = ["test", "--workspace", "--test", "foreign", "--", "--nocapture"];
    let mut cargo = Command::new("cargo");
    let printed = capture(cargo.args(words).current_dir(paths::root()))?;
    let line = printed.lines().find(|line| line.ends_with(" differences"));
    let totals: Vec<f64> = line
        .unwrap_or_default()
        .split(", ")
        .filter_map(|part| part.split_once(' ')?.0.parse().ok())
        .collect();
    let [files, facts, differences] = totals[..] else {
        return Err(broken("the test of foreign files printed no totals"));
    };
    let of = |what: &str, value, unit, bar| {
        row(format!("foreign: {what}"), value, unit, bar, &format!("cargo {}", words.join(" ")))
    };
    Ok(vec![
        of("files of other tools", files, "files", Bar::Least(40.0)),
        of("regions, samples and accesses in them", facts, "", Bar::None),
        of("differences that no warning names", differences, "", Bar::Most(0.0)),
    ])
}

/// Programs to record, by absolute path: Debian's, not others of the same name in PATH.
const PROGRAMS: &[(&str, &[&str])] = &[
    ("sort", &["/usr/bin/sort", "-o", "/dev/null", "{lines}"]),
    ("python3", &["/usr/bin/python3", "-S", "-c", "sum(i * i for i in range(200000))"]),
];

/// Records real programs as compact traces, and runs lackey on the same input for comparison.
fn record(inputs: &Inputs<'_>) -> Result<Vec<Row>> {
    let plugin = paths::root().join(fast_plugin()?);
    let lines = inputs.work.join("lines.txt");
    write_lines(&lines)?;
    let mut rows = Vec::new();
    for (name, words) in PROGRAMS {
        let lines = text(&lines)?;
        let words: Vec<String> = words.iter().map(|word| word.replace("{lines}", lines)).collect();
        rows.extend(recorded(inputs, name, &words, &plugin)?);
    }
    Ok(rows)
}

fn recorded(inputs: &Inputs<'_>, name: &str, words: &[String], plugin: &Path) -> Result<Vec<Row>> {
    let out = inputs.work.join("record.trace");
    let _ = fs::remove_file(&out);
    let mut line = vec!["tlb", "record", "--no-model", "--compare", "--json", "-o", text(&out)?];
    line.extend(["--plugin", text(plugin)?, "--"]);
    line.extend(words.iter().map(String::as_str));
    let made = run_json(&line)?;
    let begun = Instant::now();
    let lackey = ["--tool=lackey", "--trace-mem=yes", "--log-file=/dev/null"];
    let status = Command::new("valgrind").args(lackey).args(words).stdout(Stdio::null()).status();
    if !status.at("valgrind")?.success() {
        return Err(broken("lackey failed"));
    }
    let lackey = begun.elapsed().as_secs_f64();
    let _ = fs::remove_file(&out);
    let of = |what: &str| format!("record: {name}: {what}");
    let command = format!(
        "tierscope tlb record --no-model --compare -o FILE --plugin {FAST_PLUGIN} -- {}",
        words.join(" ")
    );
    let figure = |pointer| number(&made, pointer);
    let seconds = figure("/seconds")?;
    Ok(vec![
        row(of("accesses"), figure("/accesses")? / 1e6, "M", Bar::None, &command),
        row(of("accesses lost"), figure("/lost")?, "", Bar::Most(0.0), &command),
        row(of("allocations"), figure("/allocations")?, "", Bar::None, &command),
        row(of("bytes an access"), figure("/bytes_per_access")?, "bytes", Bar::Most(2.0), &command),
        row(of("recorded, over by itself"), figure("/slowdown")?, "x", Bar::None, &command),
        row(of("time over lackey's"), seconds / lackey, "ratio", Bar::Most(0.2), &command),
    ])
}

/// Writes 50,000 lines in random order, 750 kB: with more, lackey would take many minutes.
fn write_lines(path: &Path) -> Result<()> {
    let mut state = 1u64;
    let mut line = |_| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        format!("{:014x}\n", state >> 8)
    };
    fs::write(path, (0..50_000).map(&mut line).collect::<String>()).at(path.display())
}
