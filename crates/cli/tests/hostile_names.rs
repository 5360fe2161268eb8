//! Names that would steer a terminal, mislead its reader, or be a formula in a spreadsheet: they
//! pass into nothing that is printed or served.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use tierscope_cli::args;
use tierscope_core::drive::{Sink, Window};
use tierscope_core::{
    Backing, Mapping, Mappings, Range, Region, Snapshot, Space, SpaceId, Time, names,
};
use tierscope_record::{Meta, Recorder, Recording, Table};
use tierscope_report::live::{Key, Live, Start};
use tierscope_report::{Color, html, metrics};
use tierscope_trace::compact::Writer;
use tierscope_trace::{Access, Event, Kind};

/// C0, DEL, C1, bidirectional marks, and ends of lines and paragraphs.
const HOSTILE: &str = "\0\u{1}\u{7}\u{8}\t\n\u{b}\u{c}\r\u{e}\u{1a}\u{1b}\u{1f}\u{7f}\u{80}\u{85}\
    \u{90}\u{9b}\u{9d}\u{9f}\u{61c}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202b}\u{202c}\u{202d}\
    \u{202e}\u{2066}\u{2067}\u{2068}\u{2069}";

/// Any characters, many of them hostile or special in one of the formats.
fn name() -> impl Strategy<Value = String> {
    let of = |text: &str| prop::sample::select(text.chars().collect::<Vec<_>>());
    let letter = prop_oneof![of(HOSTILE), of("=+-@\"'<>&,;|/\\[]{}a"), any::<char>()];
    prop::collection::vec(letter, 1..12).prop_map(String::from_iter)
}

/// A recording with `name` wherever a name can be.
fn recorded(dir: &Path, name: &str) {
    let named = || [(name.to_owned(), name.to_owned())].into();
    let meta = Meta {
        target: name.into(),
        instrument: name.into(),
        settings: named(),
        annotations: named(),
        command: name.into(),
        version: name.into(),
        machine: tierscope_record::Machine { kernel: name.into(), ..Default::default() },
        ..Meta::default()
    };
    let range = |space: u32, from: u64| Range::new(SpaceId(space), from << 21, (from + 1) << 21);
    let mapping = |(at, backing)| Mapping {
        range: range(at, 1),
        backing,
        name: name.into(),
        writable: true,
        object: None,
    };
    let space = |id| Space { id: SpaceId(id), name: name.into() };
    let layout = Mappings {
        spaces: (0..2).map(space).collect(),
        mappings: [(0, Backing::File), (1, Backing::Heap)].map(mapping).into(),
        ..Mappings::default()
    };
    let mut recorder = Recorder::create(dir, &meta).unwrap();
    for index in 0..4 {
        let at = |index: u64| Time(index * 200_000_000);
        let regions =
            vec![Region::sampled(range(0, 1), 40.0, 40), Region::sampled(range(1, 1), 1.0, 40)];
        let snapshot = Snapshot { start: at(index), end: at(index + 1), samples: 40, regions };
        let mappings = (index == 0).then_some(&layout);
        recorder.window(&Window { mappings, ..Window::of(&snapshot) }).unwrap();
    }
    recorder.finish().unwrap();
}

/// A trace with `name` wherever a name can be.
fn traced(path: &Path, name: &str) {
    let mut writer = Writer::new("t", fs::File::create(path).unwrap()).unwrap();
    let map = |start, backing| Event::Map {
        time: Time(0),
        pid: 7,
        start,
        bytes: 8 << 12,
        backing,
        writable: true,
        name: name.into(),
    };
    let events = [
        Event::Thread { number: 0, pid: 7, tid: 7, name: name.into() },
        map(1 << 30, Backing::File),
        map(1 << 31, Backing::Heap),
        Event::Symbol { pid: 7, start: 1 << 22, bytes: 64, name: name.into() },
        Event::Given { thread: 0, start: 1 << 31, bytes: 4096, site: name.into() },
    ];
    events.iter().for_each(|event| writer.event(event).unwrap());
    for page in 0..8u64 {
        let mut put = |address, kind| {
            writer.access(&Access { address, time: Time(0), thread: 0, bytes: 8, kind }).unwrap();
        };
        put(1 << 22, Kind::Fetch);
        put((1 << 30) + (page << 12), Kind::Load);
        put((1 << 31) + (page << 12), Kind::Load);
    }
    writer.finish(true).unwrap();
}

/// Checks that text is plain, apart from ends of lines.
fn check(text: &[u8], what: &str) {
    let text = std::str::from_utf8(text).unwrap_or_else(|e| panic!("{what}: {e}"));
    let bad = text.char_indices().find(|(_, letter)| *letter != '\n' && !names::is_plain(*letter));
    if let Some((at, letter)) = bad {
        let before = text[..at].chars().rev().take(60).collect::<Vec<_>>();
        let before: String = before.into_iter().rev().collect();
        panic!("{what}: {letter:?} after {before:?}");
    }
}

fn run<S: AsRef<OsStr>>(arguments: &[S], dir: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tierscope"));
    command.args(arguments).current_dir(dir).stdin(Stdio::null());
    let output = command.output().unwrap();
    let what = format!("{:?}", arguments.iter().map(AsRef::as_ref).collect::<Vec<&OsStr>>());
    check(&output.stdout, &what);
    check(&output.stderr, &what);
    output
}

fn words(line: &str) -> Vec<OsString> {
    line.split_whitespace().map(Into::into).collect()
}

/// Runs every report and every export as text of a recording.
fn report_all(dir: &Path, recording: &OsStr) {
    let report = args::command().find_subcommand("report").unwrap().clone();
    for report in report.get_subcommands().map(clap::Command::get_name) {
        for form in ["", "--json", "--html", "--svg"] {
            let mut line = words(&format!("report {report} {form}"));
            line.push(recording.into());
            let output = run(&line, dir);
            let drawn = form != "--svg" || !matches!(report, "summary" | "regions" | "help");
            assert!(output.status.success() || !drawn || report == "help", "{output:?}");
        }
    }
    for table in Table::ALL {
        let mut line = words(&format!("export --csv --table {} -o -", table.name()));
        line.push(recording.into());
        let output = run(&line, dir);
        assert!(output.status.success(), "{output:?}");
        if matches!(table, Table::Spaces) {
            check_sheet(std::str::from_utf8(&output.stdout).unwrap());
        }
    }
    let mut damo = words("export --damo -o -");
    damo.push(recording.into());
    let output = run(&damo, dir);
    assert!(output.status.success(), "{output:?}");
    fs::write(dir.join("damo.json"), output.stdout).unwrap();
    assert!(run(&words("import damo.json -o imported"), dir).status.success());
    assert!(run(&words("report summary imported"), dir).status.success());
    fs::remove_dir_all(dir.join("imported")).unwrap();
}

/// Checks that no name in the third column is a formula.
fn check_sheet(text: &str) {
    let cell = |line: &str| line.splitn(3, ',').nth(2).map(|cell| cell.replace('"', ""));
    for cell in text.lines().skip(1).filter_map(cell) {
        assert!(!cell.starts_with(['=', '+', '-', '@']), "{cell:?}");
    }
}

/// What is served, and the live screen.
fn show_all(dir: &Path) {
    let open = || Recording::open(dir).unwrap();
    check(metrics::Collector::default().render(&open()).unwrap().as_bytes(), "metrics");
    let options = html::Options::live();
    let page = html::page(&open(), &options, html::Data::Url("data")).unwrap();
    check(page.as_bytes(), "page");
    check(html::data(&open(), &options).unwrap().as_bytes(), "data");
    let mut live = Live::new(open(), Start::Newest, Color::None);
    let mut terminal = Terminal::new(TestBackend::new(100, 40)).unwrap();
    for key in [Key::Char('x'), Key::Char('p'), Key::Enter, Key::Char('r'), Key::Char('?')] {
        live.update(key);
        while !live.prepare(100, 40) {}
        terminal.draw(|frame| live.draw(frame)).unwrap();
        let cells = terminal.backend().buffer().content();
        cells.iter().for_each(|cell| check(cell.symbol().as_bytes(), "live screen"));
    }
}

fn trace_all(dir: &Path) {
    for line in [
        "trace info t.trace",
        "trace info --json t.trace",
        "trace convert t.trace -",
        "tlb report t.trace",
        "tlb report --json t.trace",
    ] {
        run(&words(line), dir);
    }
    let output = run(&words("tlb report t.trace"), dir);
    assert!(output.status.success(), "{output:?}");
}

/// A file name out of `name`.
fn file_name(name: &str) -> PathBuf {
    PathBuf::from(format!("d{}", name.replace(['/', '\0'], "_")))
}

fn all(name: &str) {
    let dir = tempfile::tempdir().unwrap();
    let recording = file_name(name);
    recorded(&dir.path().join(&recording), name);
    report_all(dir.path(), recording.as_os_str());
    show_all(&dir.path().join(&recording));
    traced(&dir.path().join("t.trace"), name);
    trace_all(dir.path());
}

#[test]
fn all_hostile_characters_at_once() {
    all(HOSTILE);
    all(&format!("={HOSTILE}"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, max_shrink_iters: 50, ..ProptestConfig::default() })]

    #[test]
    fn no_name_passes_unchanged(name in name()) {
        all(&name);
    }
}

#[test]
fn errors_are_one_plain_line() {
    let dir = tempfile::tempdir().unwrap();
    recorded(&dir.path().join("d"), HOSTILE);
    fs::create_dir(dir.path().join(file_name(HOSTILE))).unwrap();
    let escape = OsStr::from_bytes(b"\x1b]0;x\x07\xe2\x80\xae");
    let file = file_name(HOSTILE);
    let lines: [&[&OsStr]; 6] = [
        &["report".as_ref(), "regions".as_ref(), "d".as_ref(), "--range".as_ref(), escape],
        &["report".as_ref(), "regions".as_ref(), file.as_os_str()],
        &["report".as_ref(), escape],
        &["record".as_ref(), "--name".as_ref(), escape],
        &["record".as_ref(), "--cgroup".as_ref(), escape],
        &["trace".as_ref(), "info".as_ref(), file.as_os_str()],
    ];
    for line in lines {
        let output = run(line, dir.path());
        assert!(!output.status.success(), "{line:?}");
        assert_eq!(output.stderr.iter().filter(|byte| **byte == b'\n').count(), 1, "{output:?}");
    }
}

// The process waits for its input, which never comes.
#[test]
fn doctor_prints_the_name_of_a_process_plainly() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("\u{1b}]0;x\u{7}\u{9b}2J");
    fs::copy("/bin/cat", &program).unwrap();
    let mut child =
        Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // Once it repeats its input, its name is that of the program.
    child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let pid = child.id().to_string();
    let outputs = [vec!["doctor", "-p", &pid], vec!["doctor", "--json", "-p", &pid]]
        .map(|line| run(&line, dir.path()));
    drop(child.stdin.take());
    child.wait().unwrap();
    for output in outputs {
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("u{1b}]0;x") && text.contains("u{9b}"), "{text}");
    }
}

#[test]
fn a_server_sends_names_plainly() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(file_name(HOSTILE));
    recorded(&path, HOSTILE);
    let mut command = Command::new(env!("CARGO_BIN_EXE_tierscope"));
    command.args(["serve", "--listen", "127.0.0.1:0"]).arg(path).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    check(line.as_bytes(), "announcement");
    let address = line.split("http://").nth(1).and_then(|rest| rest.split('/').next()).unwrap();
    for path in ["/", "/data", "/metrics", "/recordings", "/recordings/%1b\u{202e}/", "/healthz"] {
        let mut client = TcpStream::connect(address).unwrap();
        write!(client, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut got = Vec::new();
        client.read_to_end(&mut got).unwrap();
        let text = String::from_utf8(got).unwrap().replace("\r\n", "\n");
        check(text.as_bytes(), path);
    }
    child.kill().unwrap();
    child.wait().unwrap();
}
