//! Files that perf, damo, trace-cmd, tracefs and lackey wrote (`files/`, made by
//! `scripts/foreign-files`): what a naive reader finds in one is in the recording that is imported
//! from it, in its exports, and in the import of these; or a warning names the field, with the
//! number of what is lost. Prints the totals, for `make bench-traces`.

mod naive;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use naive::{Said, Samples};
use serde_json::Value;

/// Differences by field.
type Differences = BTreeMap<String, u64>;

fn tierscope(line: &[&str], dir: &Path) -> Vec<u8> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tierscope"));
    let output = command.args(line).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{line:?}: {output:?}");
    output.stdout
}

fn json(line: &[&str], dir: &Path) -> Value {
    serde_json::from_slice(&tierscope(line, dir)).unwrap()
}

fn files() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/foreign/files");
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_none_or(|end| end != "tsv")).collect()
}

fn name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

fn add(to: &mut Differences, field: &str, count: usize) {
    if count > 0 {
        *to.entry(field.to_owned()).or_default() += count as u64;
    }
}

/// Fields in which an export differs from what its source said.
fn differences(source: &Said, export: &Said) -> Differences {
    let mut found = Differences::new();
    add(&mut found, "windows", source.windows.len().abs_diff(export.windows.len()));
    let intervals =
        source.intervals.iter().filter(|(key, all)| export.intervals.get(key) != Some(*all));
    add(&mut found, "intervals", intervals.count());
    // Window by window of each target.
    for (old, new) in source.windows.iter().zip(&export.windows) {
        let ((target, end), (start, regions)) = old;
        let ((new_target, new_end), (new_start, new_regions)) = new;
        add(&mut found, "target", usize::from(target != new_target));
        add(&mut found, "end_time", usize::from(end != new_end));
        add(&mut found, "start_time", usize::from(start.is_some() && start != new_start));
        let ranges =
            |regions: &[naive::Seen]| regions.iter().map(|seen| seen.range).collect::<Vec<_>>();
        if ranges(regions) != ranges(new_regions) {
            add(&mut found, "regions", regions.len());
            continue;
        }
        let pairs = || regions.iter().zip(new_regions);
        add(
            &mut found,
            "accesses",
            pairs().filter(|(old, new)| old.accesses != new.accesses).count(),
        );
        add(
            &mut found,
            "age",
            pairs().filter(|(old, new)| old.age.is_some() && old.age != new.age).count(),
        );
    }
    for (field, count) in &source.others {
        add(&mut found, field, *count as usize);
    }
    found
}

/// Blocks of an export of memory samples.
fn blocks(export: &Said, first_window: u64) -> BTreeMap<(u64, u64, u64), u64> {
    let mut blocks = BTreeMap::new();
    for (((pid, _), end), (_, regions)) in &export.windows {
        let window = (end - first_window) / 200_000_000;
        for seen in regions {
            for block in seen.range[0] >> 21..seen.range[1] >> 21 {
                blocks.insert((*pid, window, block), seen.accesses as u64);
            }
        }
    }
    blocks
}

fn sample_differences((source, unused): &Samples, export: &Said) -> Differences {
    let mut found = Differences::new();
    add(&mut found, "unused_samples", *unused as usize);
    let first = export.windows.keys().map(|(_, end)| *end).min().unwrap();
    let first_source = source.keys().map(|(_, window, _)| *window).min().unwrap();
    let export = blocks(export, first - first_source * 200_000_000);
    let keys = |blocks: &BTreeMap<_, _>| blocks.keys().copied().collect::<BTreeSet<_>>();
    add(&mut found, "blocks", keys(source).symmetric_difference(&keys(&export)).count());
    let counts =
        source.iter().filter(|(key, count)| export.get(key).is_some_and(|new| new != *count));
    add(&mut found, "accesses", counts.count());
    found
}

/// What the warnings of an import name, by field.
fn named(imported: &Value) -> Differences {
    let mut named: Differences =
        serde_json::from_value(imported["dropped_fields"].clone()).unwrap();
    for field in ["incomplete_windows", "unused_samples", "flaws"] {
        add(&mut named, field, imported[field].as_u64().unwrap() as usize);
    }
    named
}

/// All reports of a recording, without its name.
fn reports(recording: &str, dir: &Path) -> Vec<(String, Value)> {
    let report = |kind: &str| {
        tierscope(&["report", kind, recording], dir);
        let mut report = json(&["report", kind, recording, "--json"], dir);
        report.as_object_mut().map(|object| object.remove("recording"));
        if let Some(notes) = report.get_mut("annotations").and_then(Value::as_object_mut) {
            notes.retain(|key, _| !key.contains("import"));
        }
        (format!("report {kind}"), report)
    };
    ["summary", "heatmap", "regions", "wss", "ages"].map(report).to_vec()
}

/// Everything that a recording exports, without what names the import.
fn exports(recording: &str, dir: &Path) -> (Said, Vec<(String, Vec<u8>)>) {
    let damo = tierscope(&["export", recording, "--damo", "-o", "-"], dir);
    let said = Said::json(&damo);
    let mut records: Value = serde_json::from_slice(&damo).unwrap();
    for record in records.as_array_mut().unwrap() {
        if let Some(facts) = record["tierscope"]["recording"].as_object_mut() {
            facts.retain(|key, _| !key.contains("import"));
        }
    }
    let mut all = vec![("export --damo".to_owned(), records.to_string().into_bytes())];
    for table in ["regions", "windows", "spaces", "tiles"] {
        let line = ["export", recording, "--csv", "--table", table, "-o", "-"];
        all.push((format!("export --csv --table {table}"), tierscope(&line, dir)));
    }
    (said, all)
}

/// Text of a perf.data file.
fn perf_script(path: &Path, with_addresses: bool) -> String {
    let fields: &[&str] =
        if with_addresses { &["-F", "comm,pid,tid,time,event,addr"] } else { &[] };
    let mut perf = Command::new("perf");
    let output = perf.arg("script").args(fields).args(["--force", "-i"]).arg(path).output();
    let output = output.expect("perf is there (scripts/setup.sh)");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Takes one file of regions or samples through import, reports, export, import; returns the
/// number of facts, and the differences that no warning names.
fn recording(path: &Path) -> (u64, Differences) {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let bytes = fs::read(path).unwrap();
    let imported = json(&["import", path.to_str().unwrap(), "-o", "a", "--json"], dir);
    let (said, all) = exports("a", dir);
    let mut facts = said.windows.values().map(|(_, regions)| regions.len() as u64).sum();
    let text = if bytes.starts_with(b"PERFILE2") {
        perf_script(path, name(path).starts_with("faults"))
    } else {
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let mut found = if bytes.starts_with(b"damon_recfmt_ver") {
        differences(&Said::record_file(&bytes), &said)
    } else if matches!(bytes[0], b'[' | 0x78) {
        differences(&Said::json(&bytes), &said)
    } else if text.contains("page-faults") {
        let samples = naive::samples(&text);
        facts = samples.0.values().sum::<u64>() + samples.1;
        sample_differences(&samples, &said)
    } else {
        let (source, incomplete) = Said::events(&text);
        let mut found = differences(&source, &said);
        add(&mut found, "incomplete_windows", incomplete as usize);
        found
    };
    assert!(facts > 0, "{}: nothing in it", path.display());
    let named = named(&imported);
    found.retain(|field, count| named.get(field) != Some(count));
    // What is named is there.
    tierscope(&["export", "a", "--damo", "-o", "a.json"], dir);
    let again = json(&["import", "a.json", "-o", "b", "--json"], dir);
    add(&mut found, "absent", usize::from(again["absent"] != imported["absent"]));
    assert!(self::named(&again).is_empty(), "{again}");
    let both = |a: Vec<(String, Vec<u8>)>, b: Vec<(String, Vec<u8>)>, found: &mut Differences| {
        for (a, b) in a.into_iter().zip(b) {
            assert_eq!(a.0, b.0);
            add(found, &a.0, usize::from(a.1 != b.1));
        }
    };
    both(all, exports("b", dir).1, &mut found);
    let (a, b) = (reports("a", dir), reports("b", dir));
    for ((kind, a), (_, b)) in a.into_iter().zip(b) {
        add(&mut found, &kind, usize::from(a != b));
    }
    (facts, found)
}

/// Takes one trace through CSV, the compact format and CSV again, and all reports of each.
fn trace(path: &Path) -> (u64, Differences) {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let first = path.to_str().unwrap();
    let mut found = Differences::new();
    for pair in [first, "a.csv", "b.trace", "c.csv"].windows(2) {
        tierscope(&["trace", "convert", pair[0], pair[1]], dir);
    }
    let table = |name: &str| fs::read_to_string(dir.join(name)).unwrap();
    let text = table("a.csv");
    let same = from_the_first(&text) == from_the_first(&table("c.csv"));
    add(&mut found, "trace convert", usize::from(!same));
    add(&mut found, "accesses", usize::from(!has_all(path, &text)));
    // CSV cannot hold names of threads, and what else the compact format has besides accesses.
    let copies = match path.extension() {
        Some(end) if end == "xz" => vec![first, "a.csv", "b.trace", "c.csv"],
        _ => {
            tierscope(&["trace", "convert", first, "copy.trace"], dir);
            vec![first, "copy.trace"]
        }
    };
    for kind in [["trace", "info"], ["tlb", "report"]] {
        let reports: Vec<Value> = copies.iter().map(|name| trace_report(kind, name, dir)).collect();
        let other = reports.iter().filter(|report| **report != reports[0]);
        add(&mut found, &kind.join(" "), other.count());
    }
    (text.lines().count() as u64 - 1, found)
}

/// Whether a trace's CSV has the accesses that a naive reader finds in it.
fn has_all(path: &Path, csv: &str) -> bool {
    let rows = csv.lines().skip(1).map(|line| line.split(',').collect::<Vec<_>>());
    let address = |word: &str| u64::from_str_radix(&word[2..], 16).unwrap();
    match path.extension() {
        Some(end) if end == "xz" => {
            let kind = |word: &str| match word {
                "fetch" => 'I',
                word => word.to_ascii_uppercase().remove(0),
            };
            let rows = rows.map(|row| (kind(row[5]), address(row[3]), row[4].parse().unwrap()));
            rows.eq(naive::lackey(&unpacked(path)))
        }
        Some(_) => true, // our own format
        None => {
            let faults = naive::faults(&fs::read_to_string(path).unwrap());
            let addresses = faults.into_iter().map(|(_, _, address)| address);
            rows.map(|row| address(row[3])).eq(addresses.filter(|at| naive::is_of_process(*at)))
        }
    }
}

/// A report of a trace, without what its container says.
fn trace_report(kind: [&str; 2], name: &str, dir: &Path) -> Value {
    let mut report = json(&[kind[0], kind[1], name, "--json"], dir);
    let container = ["trace", "format", "file_bytes", "bytes_per_access"];
    report.as_object_mut().unwrap().retain(|key, _| !container.contains(&key.as_str()));
    report
}

/// Rows of CSV, with their times since that of the first row: what was before it is not kept.
fn from_the_first(text: &str) -> Vec<(u64, &str)> {
    let rows = text.lines().skip(1).map(|line| line.split_once(',').unwrap());
    let rows: Vec<(u64, &str)> = rows.map(|(time, rest)| (time.parse().unwrap(), rest)).collect();
    rows.iter().map(|(time, rest)| (time - rows[0].0, *rest)).collect()
}

/// Text of an .xz file.
fn unpacked(path: &Path) -> String {
    let output = Command::new("xz").arg("-dc").arg(path).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn nothing_of_a_foreign_file_is_lost_without_a_warning() {
    let files = files();
    let judge = |path: &PathBuf| match path.extension() {
        Some(end) if end == "xz" || end == "trace" => trace(path),
        // Memory samples are both: a recording, and a trace.
        None if name(path).starts_with("faults") => {
            let ((facts, mut found), (_, other)) = (recording(path), trace(path));
            other.iter().for_each(|(field, count)| add(&mut found, field, *count as usize));
            (facts, found)
        }
        _ => recording(path),
    };
    // One file that is refused does not hide what is wrong with others.
    let judged = |path: &PathBuf| {
        let refused = |_| (0, Differences::from([("refused".to_owned(), 1)]));
        std::panic::catch_unwind(|| judge(path)).unwrap_or_else(refused)
    };
    let half = files.len().div_ceil(2);
    let results: Vec<_> = std::thread::scope(|scope| {
        let parts = files
            .chunks(half)
            .map(|part| scope.spawn(move || part.iter().map(judged).collect::<Vec<_>>()));
        let parts: Vec<_> = parts.collect();
        parts.into_iter().flat_map(|part| part.join().unwrap()).collect()
    });
    let facts: u64 = results.iter().map(|(facts, _)| facts).sum();
    let wrong = files.iter().zip(&results).filter(|(_, (_, found))| !found.is_empty());
    let wrong: Vec<_> =
        wrong.map(|(path, (_, found))| format!("{}: {found:?}", path.display())).collect();
    let differences: u64 = results.iter().flat_map(|(_, found)| found.values()).sum();
    println!("{} files, {facts} facts, {differences} differences", files.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(files.len() >= 40);
}
