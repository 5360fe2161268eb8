//! `tierscope serve`: requests to the binary over the loopback interface.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

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

fn tierscope(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tierscope"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// A server process, killed at the end of the test.
struct Served {
    child: Child,
    address: String,
}

impl Served {
    fn start(dir: &Path) -> Self {
        let mut child = tierscope(&["serve", "--listen", "127.0.0.1:0"]).arg(dir).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.split("http://").nth(1).and_then(|rest| rest.split('/').next());
        let address = address.unwrap_or_else(|| panic!("no address in {line}")).to_owned();
        Self { child, address }
    }

    fn ask(&self, line: &str, more: &str) -> (String, String) {
        let mut client = TcpStream::connect(&self.address).unwrap();
        write!(client, "{line} HTTP/1.1\r\nHost: {}\r\n{more}\r\n", self.address).unwrap();
        let mut got = String::new();
        client.read_to_string(&mut got).unwrap();
        let (head, body) = got.split_once("\r\n\r\n").unwrap();
        (head.into(), body.into())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_scrape_is_whole_and_in_the_words_of_openmetrics() {
    let dir = tempfile::tempdir().unwrap();
    recorded(dir.path());
    let served = Served::start(dir.path());
    let (head, body) = served.ask("GET /metrics", "");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(
        head.contains("\r\nContent-Type: application/openmetrics-text; version=1.0.0;"),
        "{head}"
    );
    assert!(body.ends_with("\n# EOF\n"), "{body}");
    for line in [
        "# UNIT tierscope_memory_bytes bytes",
        "# TYPE tierscope_windows counter",
        "tierscope_windows_late_total 0",
    ] {
        assert!(body.lines().any(|one| one == line), "no `{line}` in {body}");
    }
    let of = |start: &str| {
        let line = body.lines().find(|line| line.starts_with(start) && line.contains("\"hot\""));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).unwrap()
    };
    assert!((3 << 20..6 << 20).contains(&of("tierscope_memory_bytes")), "{body}");
}

#[test]
fn a_client_with_a_current_copy_gets_no_body() {
    let dir = tempfile::tempdir().unwrap();
    recorded(dir.path());
    let served = Served::start(dir.path());
    for path in ["/metrics", "/", "/data"] {
        let (head, body) = served.ask(&format!("GET {path}"), "");
        assert!(head.starts_with("HTTP/1.1 200 ") && !body.is_empty(), "{path}: {head}");
        let tag = head.lines().find_map(|line| line.strip_prefix("ETag: ")).unwrap();
        let (head, body) = served.ask(&format!("GET {path}"), &format!("If-None-Match: {tag}\r\n"));
        assert!(head.starts_with("HTTP/1.1 304 ") && body.is_empty(), "{path}: {head}");
        let (head, body) = served.ask(&format!("HEAD {path}"), "");
        assert!(head.starts_with("HTTP/1.1 200 ") && body.is_empty(), "{path}: {head}");
    }
}

#[test]
fn unknown_paths_and_methods_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    recorded(dir.path());
    let served = Served::start(dir.path());
    for path in ["/nowhere", "/recordings/x/", "/recordings/../data", "/recordings/x", "//"] {
        let (head, _) = served.ask(&format!("GET {path}"), "");
        assert!(head.starts_with("HTTP/1.1 404 "), "{path}: {head}");
    }
    assert!(served.ask("POST /metrics", "").0.contains("\r\nAllow: GET, HEAD"));
    assert_eq!(served.ask("GET /healthz", "").1, "ok\n");
    assert_eq!(served.ask("GET /recordings", "").1, "[]\n");
}

#[test]
fn a_signal_ends_it_in_good_order() {
    let dir = tempfile::tempdir().unwrap();
    recorded(dir.path());
    let mut served = Served::start(dir.path());
    let pid = rustix::process::Pid::from_child(&served.child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(served.child.wait().unwrap().code(), Some(0));
}

fn refusal(arguments: &[&str], code: i32) -> String {
    let output = tierscope(arguments).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.starts_with("tierscope: ") && text.contains("; "), "{text}");
    text
}

#[test]
fn recordings_that_cannot_be_served() {
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().to_str().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().to_string();
    let text = refusal(&["serve", empty, "--listen", &port], 8);
    assert!(text.contains("another port"), "{text}");
    refusal(&["serve", empty, "--listen", "127.0.0.1:0"], 9);
    refusal(&["serve", empty, "--listen", "nonsense"], 2);
    refusal(&["serve"], 2);
    refusal(&["serve", empty, "-p", "1"], 2);
    refusal(&["serve", empty, "-o", empty], 2);
    refusal(&["serve", "-p", "4194305", "--listen", "127.0.0.1:0"], 5);
    refusal(&["serve", "-p", "1", "--retention", "1s", "--listen", "127.0.0.1:0"], 2);
    refusal(&["record", "-p", "1", "--max-size", "1K", "-o", empty], 2);
}
