//! `tierscope tlb` from the command line.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tierscope_core::{Backing, Time};
use tierscope_trace::compact::Writer;
use tierscope_trace::{Access, Event, Kind};

fn tlb(arguments: &[&str], dir: &Path, code: i32) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tierscope"));
    command.arg("tlb").args(arguments).current_dir(dir).stdin(Stdio::null());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
    output
}

fn json(arguments: &[&str], dir: &Path) -> Value {
    serde_json::from_slice(&tlb(&[arguments, &["--json"]].concat(), dir, 0).stdout).unwrap()
}

const TABLE: u64 = 0x4000_0000;
const CODE: u64 = 0x40_0000;
const PAGES: u64 = 4096;

/// A trace of two rounds over a table of 4096 pages, one word each; every step also accesses one
/// and the same small page. Fetches name the function.
fn recorded(path: &Path) {
    let mut writer = Writer::new("t", fs::File::create(path).unwrap()).unwrap();
    let name = |text: &str| -> std::sync::Arc<str> { text.into() };
    let thread = Event::Thread { number: 0, pid: 7, tid: 7, name: name("main") };
    writer.event(&thread).unwrap();
    for (start, bytes, called) in [(TABLE, PAGES << 12, "table"), (0x1000_0000, 8192, "")] {
        let (time, pid, backing) = (Time(0), 7, Backing::Heap);
        let name = name(called);
        writer
            .event(&Event::Map { time, pid, start, bytes, backing, writable: true, name })
            .unwrap();
    }
    writer.event(&Event::Symbol { pid: 7, start: CODE, bytes: 64, name: name("lookup") }).unwrap();
    let mut put = |address, kind| {
        let access = Access { address, time: Time(0), thread: 0, bytes: 8, kind };
        writer.access(&access).unwrap();
    };
    for step in 0..2 * PAGES {
        put(CODE, Kind::Fetch);
        put(TABLE + ((step % PAGES) << 12), Kind::Load);
        put(0x1000_0000, Kind::Load);
    }
    writer.finish(true).unwrap();
}

/// A trace with allocations of 1 MiB, 16 in all, alternately by two call sites; then two rounds
/// over all pages by a function with a symbol.
fn given(path: &Path) {
    let mut writer = Writer::new("t", fs::File::create(path).unwrap()).unwrap();
    let thread = Event::Thread { number: 0, pid: 7, tid: 7, name: "main".into() };
    writer.event(&thread).unwrap();
    let (time, pid, start, bytes) = (Time(0), 7, TABLE, PAGES << 12);
    let (backing, writable, name) = (Backing::Heap, true, "".into());
    writer.event(&Event::Map { time, pid, start, bytes, backing, writable, name }).unwrap();
    let symbol = Event::Symbol { pid: 7, start: CODE, bytes: 64, name: "lookup".into() };
    writer.event(&symbol).unwrap();
    for turn in 0..16 {
        let (start, bytes) = (TABLE + (turn << 20), 1 << 20);
        let site = if turn % 2 == 0 { "grow+0x5" } else { "main+0x9" }.into();
        writer.event(&Event::Given { thread: 0, start, bytes, site }).unwrap();
    }
    let access = Access { address: CODE, time, thread: 0, bytes: 0, kind: Kind::Fetch };
    writer.access(&access).unwrap();
    for step in 0..2 * PAGES {
        let address = TABLE + ((step % PAGES) << 12);
        writer.access(&Access { address, bytes: 8, kind: Kind::Load, ..access }).unwrap();
    }
    writer.finish(true).unwrap();
}

// Each page walks twice, and half of the pages belong to each call site. The allocations of one
// call site are within eight pages of 2 MiB, each of which walks once; half of each of these pages
// belongs to the other call site.
#[test]
fn memory_is_grouped_by_the_call_sites_of_allocations() {
    let dir = tempfile::tempdir().unwrap();
    given(&dir.path().join("t.trace"));
    let report = json(&["report", "t.trace"], dir.path());
    let objects = report["objects"].as_array().unwrap();
    assert_eq!(objects.len(), 2, "{objects:?}");
    for object in objects {
        assert_eq!(object["misses"], 4096.0);
        assert_eq!(
            (&object["allocations"], &object["allocated_bytes"]),
            (&8.into(), &(8 << 20).into())
        );
        assert_eq!(
            (&object["bytes_in_use"], &object["bloat_2m"]),
            (&(8 << 20).into(), &(8 << 20).into())
        );
    }
    assert_eq!(report["functions"][0]["name"], "lookup");
    let advice = report["larger_pages"].as_array().unwrap();
    let of = |name: &str| {
        advice.iter().find(|row| row["object"] == name && row["pages"] == "2M").unwrap()
    };
    for name in ["grow+0x5", "main+0x9"] {
        assert_eq!(
            (&of(name)["misses_left"], &of(name)["misses_saved"]),
            (&4104.into(), &4088.into())
        );
    }
    let text = String::from_utf8(tlb(&["report", "t.trace"], dir.path(), 0).stdout).unwrap();
    assert!(text.contains("grow+0x5 (asked 8 times for 8 MiB, process 7)"), "{text}");
    assert!(!text.contains("no function") && !text.contains("no call sites"), "{text}");
}

// The second-level TLB holds 512 pages: every step of the table walks, the small page walks once.
// On pages of 2 MiB the table has eight pages.
#[test]
fn objects_functions_and_larger_pages() {
    let dir = tempfile::tempdir().unwrap();
    recorded(&dir.path().join("t.trace"));
    let report = json(&["report", "t.trace"], dir.path());
    assert_eq!((&report["misses"], &report["accesses"]), (&8193.0.into(), &16_384.into()));
    let objects = report["objects"].as_array().unwrap();
    let row = |at: usize| (objects[at]["name"].as_str().unwrap(), objects[at]["misses"].as_f64());
    assert_eq!([row(0), row(1)], [("table", Some(8192.0)), ("[heap]", Some(1.0))]);
    assert_eq!(objects[0]["bytes_in_use"], PAGES << 12);
    assert_eq!(
        (&objects[0]["bloat_2m"], &objects[0]["bloat_1g"]),
        (&0.into(), &(1008u64 << 20).into())
    );
    assert_eq!(report["functions"][0]["name"], "lookup");
    assert_eq!(report["functions"][0]["misses"], 8193.0);
    let advice = &report["larger_pages"][0];
    assert_eq!((&advice["object"], &advice["pages"]), (&"table".into(), &"2M".into()));
    assert_eq!((&advice["misses_left"], &advice["misses_saved"]), (&9.into(), &8184.into()));
    assert_eq!(report["spread"]["pages"], PAGES + 1);
    let text = String::from_utf8(tlb(&["report", "t.trace"], dir.path(), 0).stdout).unwrap();
    assert!(
        text.contains("8184   99.9%") && text.contains("table (0x40000000, process 7)"),
        "{text}"
    );
}

#[test]
fn other_tlbs_pages_and_tables() {
    let dir = tempfile::tempdir().unwrap();
    recorded(&dir.path().join("t.trace"));
    let line = ["whatif", "t.trace", "--machine", "xeon-e5-2620v2,xeon-gold-6430-cxl"];
    let all = json(
        &[&line[..], &["--tables", "cached,uncached", "--pages", "4K,2M"]].concat(),
        dir.path(),
    );
    let rows = all["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 8);
    let of = |machine: &str, pages: &str, tables: &str, key: &str| {
        let fits = |row: &&Value| {
            row["machine"] == machine && row["pages"] == pages && row["tables"] == tables
        };
        rows.iter().find(fits).unwrap()[key].as_u64().unwrap()
    };
    let old = "xeon-e5-2620v2";
    assert_eq!(of(old, "4K", "cached", "misses"), 8193);
    assert_eq!(of(old, "2M", "cached", "misses"), 9);
    assert!(of(old, "4K", "cached", "entries_from_memory") < 1000);
    assert!(of(old, "4K", "uncached", "entries_from_memory") >= 8193);
    // 2048 entries hold half of the table; rounds in order still rarely hit them.
    assert!(of("xeon-gold-6430-cxl", "4K", "cached", "misses") <= 8193);
    let error = tlb(&["whatif", "t.trace", "--machine", "abacus"], dir.path(), 2);
    assert!(String::from_utf8_lossy(&error.stderr).contains("no ready-made machine abacus"));
}

/// An experiment whose program ends, on pages of the given size.
fn experiment(dir: &Path, pages: &str) -> String {
    let text = format!(
        r#"
name = "updates"
about = "RandomAccess in 16 MiB until it ends"
source = "the test"
time = "1s"
window = "20ms"

[machine]
hardware = "xeon-e5-2620v2"

[[machine.tier]]
name = "dram"
size = "256MiB"

[[process]]
workload = "gups:table=16MiB,updates=1"
pages = "{pages}"
populate = false
repeats = false
"#
    );
    let path = dir.join(format!("updates-{pages}.toml"));
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

// The savings that a report predicts for larger pages are compared with the same machine on larger
// pages; both captures report exactly the walks that the machine counted.
#[test]
fn predicted_savings_match_the_measured_ones() {
    let dir = tempfile::tempdir().unwrap();
    let mut misses = Vec::new();
    let mut promised = 0.0;
    for pages in ["4K", "2M"] {
        let file = experiment(dir.path(), pages);
        let made = json(&["capture", &file, "-o", pages], dir.path());
        let report = json(&["report", pages], dir.path());
        assert_eq!(report["capture"]["exact"], true, "{:#}", report["capture"]);
        assert_eq!(report["capture"]["misses"], made["walks_of_the_machine"]);
        misses.push(report["misses"].as_f64().unwrap());
        if pages == "4K" {
            let table = report["larger_pages"].as_array().unwrap();
            let row = table.iter().find(|row| row["pages"] == "2M").unwrap();
            assert_eq!(row["object"], "table");
            promised = row["misses_saved"].as_f64().unwrap();
        }
    }
    let kept = misses[0] - misses[1];
    println!(
        "{} misses, with 2 MiB pages {}; promised {promised}, kept {kept}",
        misses[0], misses[1]
    );
    assert!((promised / kept - 1.0).abs() < 0.1, "{promised} {kept}");
}

/// Sends SIGINT once the program has written to a file of this name, in its final or its temporary
/// directory.
fn interrupt_once_it_writes(child: &mut std::process::Child, dir: &Path, name: &str) {
    let holds = |path: &Path| {
        let there = |at: &Path| fs::metadata(at).is_ok_and(|file| file.len() > 100_000);
        there(&path.join(name)) || there(path)
    };
    while !fs::read_dir(dir).unwrap().flatten().any(|entry| holds(&entry.path())) {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::yield_now();
    }
    // SAFETY: sends a signal to a child that was not waited for, so its pid is still valid.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGINT) }, 0);
}

// An hour of simulated time, far too long to wait for: the part before Ctrl-C is a valid capture.
#[test]
fn ctrl_c_leaves_a_whole_capture() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("long.toml");
    let text = fs::read_to_string(experiment(dir.path(), "4K")).unwrap();
    let text =
        text.replace("time = \"1s\"", "time = \"3600s\"").replace("updates=1", "updates=1000000");
    fs::write(&file, text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tierscope"));
    let out = dir.path().join("out");
    fs::create_dir(&out).unwrap();
    command.args(["tlb", "capture"]).arg(&file).arg("-o").arg(out.join("c")).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    interrupt_once_it_writes(&mut child, &out, "board-0.bus");
    assert!(child.wait().unwrap().success());
    let report = json(&["report", "out/c"], dir.path());
    assert_eq!(report["capture"]["exact"], true, "{:#}", report["capture"]);
    assert!(report["misses"].as_f64().unwrap() > 1000.0);
}

#[test]
fn damage_of_a_capture_is_reported_and_the_rest_used() {
    let dir = tempfile::tempdir().unwrap();
    let file = experiment(dir.path(), "4K");
    tlb(&["capture", &file, "-o", "c", "--time", "20ms", "--boards", "1"], dir.path(), 0);
    let whole = json(&["report", "c", "--csv", "pages.csv"], dir.path());
    let text = fs::read_to_string(dir.path().join("pages.csv")).unwrap();
    let head = "pid,address,bytes,exact,mean,mixed,made_writable,made_read_only\n1,0x";
    assert!(text.starts_with(head), "{}", &text[..80]);
    let board = dir.path().join("c/board-0.bus");
    let bytes = fs::read(&board).unwrap();
    fs::write(&board, &bytes[..bytes.len() / 2]).unwrap();
    let output = tlb(&["report", "c", "--json"], dir.path(), 9);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("byte ") && error.contains("cut short"), "{error}");
    let half: Value = serde_json::from_slice(&output.stdout).unwrap();
    let share = half["misses"].as_f64().unwrap() / whole["misses"].as_f64().unwrap();
    assert!((0.1..0.9).contains(&share), "{share}");
    let again = tlb(&["capture", &file, "-o", "c"], dir.path(), 2);
    assert!(String::from_utf8_lossy(&again.stderr).contains("c"));
    let error = tlb(&["report", "c/dump.ptat"], dir.path(), 9);
    assert!(String::from_utf8_lossy(&error.stderr).contains("name the directory"));
}

// Tables of two machines in one directory; `make test-spark` compares their contents with our own
// sums.
#[test]
fn machines_share_a_directory_of_tables() {
    let dir = tempfile::tempdir().unwrap();
    let file = experiment(dir.path(), "4K");
    tlb(&["capture", &file, "-o", "c", "--time", "20ms"], dir.path(), 0);
    for host in ["alpha", "beta"] {
        tlb(&["report", "c", "--parquet", "tables", "--host", host], dir.path(), 0);
        for table in ["misses", "settled", "owners", "pages", "objects"] {
            let part = dir.path().join(format!("tables/{table}/machine={host}/part-0.parquet"));
            let bytes = fs::read(&part).unwrap();
            assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"), "{}", part.display());
        }
    }
    let said =
        |arguments: &[&str]| String::from_utf8(tlb(arguments, dir.path(), 2).stderr).unwrap();
    let again = said(&["report", "c", "--parquet", "tables", "--host", "beta"]);
    assert!(again.contains("it is there already"), "{again}");
    assert!(said(&["report", "c", "--parquet", "tables"]).contains("--host"));
    assert!(said(&["report", "c", "--parquet", "tables", "--host", "../x"]).contains("machine"));
    recorded(&dir.path().join("t.trace"));
    tlb(&["report", "t.trace", "--parquet", "tables", "--host", "gamma"], dir.path(), 0);
    assert!(dir.path().join("tables/objects/machine=gamma/part-0.parquet").exists());
    assert!(!dir.path().join("tables/settled/machine=gamma").exists());
}

// A guest on host pages of 4 KiB: every walk has a second dimension; host pages of 2 MiB avoid most
// of it.
#[test]
fn guests_walk_in_two_dimensions() {
    let dir = tempfile::tempdir().unwrap();
    recorded(&dir.path().join("t.trace"));
    let line = ["whatif", "t.trace", "--machine", "xeon-e5-2620v2", "--pages", "4K"];
    let all = json(&[&line[..], &["--nested", "4K,2M"]].concat(), dir.path());
    let of = |at: usize, key: &str| all["rows"][at][key].as_u64();
    assert_eq!([0, 1, 2].map(|at| of(at, "misses")), [Some(8193); 3]);
    assert_eq!(of(0, "nested_walks"), None);
    assert!(
        of(1, "nested_walks").unwrap() > 8193 && of(2, "nested_walks").unwrap() < 500,
        "{all:#}"
    );
    let text = tlb(&[&line[..], &["--nested", "2M"]].concat(), dir.path(), 0).stdout;
    assert!(String::from_utf8(text).unwrap().contains("host walks"));
}

#[test]
fn a_capture_is_a_trace() {
    let dir = tempfile::tempdir().unwrap();
    let file = experiment(dir.path(), "4K");
    tlb(&["capture", &file, "-o", "c", "--time", "20ms", "--grain", "32"], dir.path(), 0);
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tierscope"));
        let output = command.arg("trace").args(arguments).current_dir(dir.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        output.stdout
    };
    run(&["convert", "c", "misses.trace"]);
    let info: Value = serde_json::from_slice(&run(&["info", "misses.trace", "--json"])).unwrap();
    let report = json(&["report", "c"], dir.path());
    let total = info["total"].as_f64().unwrap();
    let misses = report["misses"].as_f64().unwrap();
    let announced = report["capture"]["announced_reads"].as_f64().unwrap();
    assert!(total >= misses && total <= misses + announced, "{total} {misses} {announced}");
    let other =
        json(&["whatif", "c", "--machine", "xeon-gold-6430-cxl", "--pages", "2M"], dir.path());
    assert!(other["rows"][0]["misses"].as_f64().unwrap() < misses);
}

/// Path of the plugin: from the environment, otherwise in the build directory.
fn plugin() -> Option<std::path::PathBuf> {
    let told = std::env::var_os("TIERSCOPE_PLUGIN").map(std::path::PathBuf::from);
    let beside = || {
        let program = Path::new(env!("CARGO_BIN_EXE_tierscope"));
        Some(program.parent()?.join("libtierscope_plugin.so"))
    };
    told.or_else(beside).filter(|path| path.is_file())
}

// Records `true` under QEMU: all its accesses are in the trace, and its loader is named.
#[test]
fn an_unmodified_program_is_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let Some(plugin) = plugin() else {
        tierscope_conformance::skip::skipped(
            "there is no libtierscope_plugin.so next to the program; `make build` makes it",
        );
        return;
    };
    let plugin = plugin.to_str().unwrap();
    let line = ["record", "-o", "t.trace", "--plugin", plugin, "--json", "--", "true"];
    let output = tlb(&line, dir.path(), 0);
    let made: Value = serde_json::from_slice(&output.stdout).unwrap();
    let accesses = made["accesses"].as_u64().unwrap();
    assert!(accesses > 10_000, "{made:#}");
    assert_eq!((&made["seen"], &made["lost"]), (&accesses.into(), &0.into()));
    let bytes = made["bytes_per_access"].as_f64().unwrap();
    println!("{accesses} accesses, {bytes} bytes each");
    // A program that only starts up keeps moving from page to page; `make bench-traces` requires 2
    // bytes of larger programs.
    assert!(bytes <= 3.0, "{bytes}");
    let report = json(&["report", "t.trace"], dir.path());
    assert_eq!(
        (&report["accesses"], &report["misses"]),
        (&accesses.into(), &made["misses"].as_f64().into())
    );
    let named = report["objects"].as_array().unwrap();
    let name = |object: &Value| object["name"].as_str().unwrap_or_default().to_owned();
    assert!(named.iter().any(|object| name(object).contains(".so")), "{named:?}");
}

#[test]
fn a_missing_plugin_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let line = ["record", "--plugin", "nowhere.so", "--", "true"];
    let output = tlb(&line, dir.path(), 3);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("nowhere.so") && error.contains("--plugin"), "{error}");
}
