//! `export` and `import`: round trips, and errors.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tierscope_record::Recording;

fn command(arguments: &[&str], dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tierscope"));
    command.args(arguments).current_dir(dir);
    command
}

fn tierscope(arguments: &[&str], dir: &Path) -> Output {
    command(arguments, dir).output().unwrap()
}

fn done(arguments: &[&str], dir: &Path) {
    let output = tierscope(arguments, dir);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
}

/// Runs a command that must end with `code`; returns its stderr.
fn refused(arguments: &[&str], dir: &Path, code: i32) -> String {
    let output = tierscope(arguments, dir);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
    assert_eq!(text.trim_end().lines().count(), 1, "{text}");
    text
}

/// A recording of a toy machine, called `redis`, in its own directory.
fn recorded() -> (tempfile::TempDir, PathBuf) {
    use tierscope_conformance::toy::{Toy, random_touches};
    use tierscope_core::{Range, SpaceId};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("redis");
    let all = Range::new(SpaceId(0), 0, 64 << 20);
    let hot = Range::new(SpaceId(0), 0, 4 << 20);
    let mut toy = Toy::new(&[all], random_touches(&[hot], 100_000, 1));
    let line = ["tierscope", "record", "-p", "1", "--duration", "2s", "-o"];
    let line = line.iter().map(Into::into).chain([path.as_os_str().to_owned()]);
    let parsed = tierscope_cli::args::parse(line).unwrap().command;
    let tierscope_cli::args::Command::Record(args) = parsed else { panic!("it says record") };
    let plan = tierscope_cli::plan::Plan::new(args, String::new()).unwrap();
    tierscope_cli::record::record(&mut toy, &plan, "", None).unwrap();
    (dir, path)
}

fn snapshots(path: &Path) -> Vec<tierscope_core::Snapshot> {
    let recording = Recording::open(path).unwrap();
    (0..recording.commits().len()).map(|index| recording.snapshot(index).unwrap()).collect()
}

#[test]
fn damo_out_and_in_is_equal() {
    let (dir, path) = recorded();
    done(&["export", "redis", "--damo", "-o", "redis.damo"], dir.path());
    let text = command(&["export", "redis", "--damo", "-o", "-"], dir.path()).output().unwrap();
    fs::write(dir.path().join("redis.json"), text.stdout).unwrap();
    for name in ["redis.damo", "redis.json"] {
        let again = dir.path().join(name.replace('.', "-"));
        done(&["import", name, "-o", again.to_str().unwrap()], dir.path());
        assert_eq!(snapshots(&again), snapshots(&path));
        done(&["report", "summary", again.to_str().unwrap()], dir.path());
        done(&["report", "heatmap", again.to_str().unwrap()], dir.path());
        done(&["report", "regions", again.to_str().unwrap()], dir.path());
    }
    assert!(fs::read(dir.path().join("redis.damo")).unwrap().starts_with(&[0x78]));
    assert!(fs::read(dir.path().join("redis.json")).unwrap().starts_with(b"["));
}

#[test]
fn tables_go_out_as_files() {
    let (dir, path) = recorded();
    done(&["export", "redis", "--csv"], dir.path());
    let regions: usize = snapshots(&path).iter().map(|snapshot| snapshot.regions.len()).sum();
    let text = fs::read_to_string(dir.path().join("redis-csv/regions.csv")).unwrap();
    assert_eq!(text.lines().count(), regions + 1);
    assert_eq!(fs::read_dir(dir.path().join("redis-csv")).unwrap().count(), 8);
    done(&["export", "redis", "--csv", "--table", "windows", "-o", "-"], dir.path());
    if cfg!(feature = "parquet") {
        done(&["export", "redis", "--parquet", "--table", "regions", "-o", "p"], dir.path());
        let bytes = fs::read(dir.path().join("p/regions.parquet")).unwrap();
        assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
    }
}

#[test]
fn nothing_is_overwritten_and_nothing_half_is_left() {
    let (dir, _) = recorded();
    fs::write(dir.path().join("precious"), "data").unwrap();
    let text = refused(&["export", "redis", "--damo", "-o", "precious"], dir.path(), 2);
    assert!(text.contains("nothing is overwritten"), "{text}");
    refused(&["export", "redis", "--csv", "-o", "precious"], dir.path(), 2);
    refused(&["import", "precious", "-o", "redis"], dir.path(), 2);
    refused(&["export", "redis", "--csv", "-o", "-"], dir.path(), 2);
    refused(&["export", "redis", "--csv", "--damo"], dir.path(), 2);
    refused(&["export", "precious", "--csv"], dir.path(), 9);
    let names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert_eq!(fs::read(dir.path().join("precious")).unwrap(), b"data");
}

#[test]
fn foreign_files_are_refused_with_their_place() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    file("text", "#!/bin/sh\necho\n");
    file("cut.json", "[{\"target_id\": 1,\n \"snapshots\": [{\"start_time\": 1, ");
    file("trace", "k 1 [0] 1.5: damon:damon_aggregated: target_id=0 nr_regions=1 4096\n");
    file("empty", "");
    for (name, part) in
        [("text", "line 1"), ("cut.json", "line 2"), ("trace", "line 1"), ("empty", "it is empty")]
    {
        let text = refused(&["import", name, "-o", "out"], dir.path(), 9);
        assert!(text.contains(name) && text.contains(part), "{text}");
    }
    let text = refused(&["import", "nowhere", "-o", "out"], dir.path(), 2);
    assert!(text.contains("nowhere"), "{text}");
    refused(&["import", "text", "-o", "out", "--block", "3K"], dir.path(), 2);
    refused(&["import", "text", "-o", "out", "--sampling", "0s"], dir.path(), 2);
    assert!(!dir.path().join("out").exists() && !dir.path().join("out.partial").exists());
}

/// Lines of a kernel before 5.17: without ages, and with a kernel address for a target's id. Each
/// window of 100 ms has two regions, the first one accessed in all of 20 samples.
fn lines_of_an_old_kernel(windows: u64) -> String {
    let regions = [(4096, 1 << 20, 20), (1 << 20, 8 << 20, 0)];
    let line = |window: u64, (start, end, hits): (u64, u64, u64)| {
        format!(
            "kdamond.0 44 [000] 82877.{}00000: damon:damon_aggregated: target_id=18446623435582458880 \
             nr_regions=2 {start}-{end}: {hits}\n",
            window + 1
        )
    };
    (0..windows).flat_map(|window| regions.map(|region| line(window, region))).collect()
}

// What the file does not have is in no report and no export; the id of its target goes through
// both.
#[test]
fn what_a_file_lacks_is_not_invented() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("old"), lines_of_an_old_kernel(5)).unwrap();
    let run = |line: &str| {
        let output = tierscope(&line.split(' ').collect::<Vec<_>>(), dir.path());
        assert!(output.status.success(), "{line}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let printed: serde_json::Value = serde_json::from_str(&run("import old -o a --json")).unwrap();
    assert_eq!(printed["absent"], serde_json::json!(["ages", "intervals", "mappings", "start"]));
    run("export a --damo -o damo");
    run("import damo -o b");
    for recording in ["a", "b"] {
        let summary = run(&format!("report summary {recording}"));
        for fact in ["started", "intervals", "mappings"] {
            let of = |line: &&str| line.starts_with(fact) && line.contains("not in this recording");
            assert!(summary.lines().any(|line| of(&line)), "{fact}: {summary}");
        }
        assert!(
            summary.contains("windows of 100 ms") && summary.contains("CPU: profiler not measured")
        );
        assert!(!summary.contains("\nmapped"), "{summary}");
        let regions = run(&format!("report regions {recording}"));
        let row = regions.lines().find(|line| line.contains("0x1000")).unwrap();
        assert!(row.contains("100.0 %    -") && row.ends_with("not in this recording"), "{row}");
        assert!(run(&format!("report ages {recording}")).contains("age: not in this recording"));
        let csv = run(&format!("export {recording} --csv --table regions -o -"));
        assert!(csv.lines().nth(1).unwrap().starts_with("0,0,4096,1044480,20,20,,"), "{csv}");
        let json = run(&format!("export {recording} --damo -o -"));
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json[0]["target_id"], serde_json::json!(18_446_623_435_582_458_880u64));
        assert_eq!(json[0]["intervals"], serde_json::Value::Null);
    }
}

// A region overlaps the one before, a line is far too long, one is damaged, and the last one is
// cut: the windows without them are imported, and 0 is returned; with --strict, nothing is.
#[test]
fn one_flaw_does_not_lose_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let text = lines_of_an_old_kernel(5);
    let text = text.replacen("1048576-8388608", "1040000-8388608", 1);
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines[4] = lines[4].replace("nr_regions=2", "nr_regions=?");
    lines[9].truncate(90);
    lines.insert(2, "x".repeat(1 << 18));
    fs::write(dir.path().join("flawed"), lines.join("\n")).unwrap();
    let output = tierscope(&["import", "flawed", "-o", "a", "--json"], dir.path());
    assert!(output.status.success(), "{output:?}");
    let printed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&printed["flaws"], &printed["windows"]), (&4.into(), &3.into()), "{printed}");
    assert!(printed["first_flaw"].as_str().unwrap().contains("overlaps the one before"));
    let text = refused(&["import", "flawed", "-o", "b", "--strict"], dir.path(), 9);
    assert!(text.contains("overlaps the one before"), "{text}");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let (dir, _) = recorded();
    for arguments in [
        &["export", "redis", "--csv", "--table", "regions", "-o", "-"][..],
        &["export", "redis", "--damo", "-o", "-"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut export = command(arguments, dir.path());
        let output = export.stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        let output = output.wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
    }
}

// The input is a pipe, so that the import cannot be complete before the signal arrives.
#[test]
fn a_stopped_import_leaves_nothing_behind() {
    use std::io::Write as _;
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("samples");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
    let child = command(&["import", "samples", "-o", "out"], dir.path())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Blocks until the import has opened the pipe, which it does after it has created the
    // directory.
    let mut pipe = fs::File::options().write(true).open(&fifo).unwrap();
    let line = "redis  4711  1.000000: cpu/mem-loads/:  7f0000001000 \n";
    pipe.write_all(line.as_bytes()).unwrap();
    let unfinished = || {
        let names = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().starts_with("out.partial")).count()
    };
    assert_eq!(unfinished(), 1);
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&child),
        rustix::process::Signal::INT,
    )
    .unwrap();
    // The write may fail: the import may end before it has read everything.
    let _ = pipe.write_all(line.repeat(40_000).as_bytes());
    drop(pipe);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("stopped the import"), "{said}");
    let left: Vec<_> = dir.path().read_dir().unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["samples"]);
}
