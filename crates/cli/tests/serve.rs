//! `tierscope serve`: requests to the binary over the loopback interface.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tierscope_cli::args::{self, parse};
use tierscope_cli::plan::Plan;
use tierscope_cli::record::record;
use tierscope_conformance::toy::{Toy, random_touches};
use tierscope_core::{Range, SpaceId};

/// Makes a recording of a toy machine: 64 MiB, of which 4 MiB are touched continuously.
fn recorded(dir: &Path) {
    recorded_with(&[], dir);
}

fn recorded_with(flags: &[&str], dir: &Path) {
    let range = |end: u64| Range::new(SpaceId(0), 0, end << 20);
    let mut toy = Toy::new(&[range(64)], random_touches(&[range(4)], 1_000_000, 1));
    let line = ["tierscope", "record", "-p", "1", "--duration", "2s", "-o"];
    let line = line.iter().map(Into::into).chain([dir.as_os_str().to_owned()]);
    let line = line.chain(flags.iter().map(Into::into));
    let args::Command::Record(args) = parse(line).unwrap().command else { panic!("record") };
    let made_by = "tierscope record -- redis --password s3cret".to_owned();
    record(&mut toy, &Plan::new(args, made_by).unwrap(), "", None).unwrap();
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
        Self::with(&[], dir)
    }

    fn with(flags: &[&str], dir: &Path) -> Self {
        let line = [&["serve", "--listen", "127.0.0.1:0"], flags].concat();
        let mut child = tierscope(&line).arg(dir).spawn().unwrap();
        let line = first_line(&mut child);
        let address = line.split("http://").nth(1).and_then(|rest| rest.split('/').next());
        let address = address.unwrap_or_else(|| panic!("no address in {line}")).to_owned();
        Self { child, address }
    }

    fn ask(&self, line: &str, more: &str) -> (String, String) {
        self.ask_as(&self.address, line, more)
    }

    /// Asks for `line` as a client does that knows the server by the name `host`.
    fn ask_as(&self, host: &str, line: &str, more: &str) -> (String, String) {
        let mut client = TcpStream::connect(&self.address).unwrap();
        write!(client, "{line} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n").unwrap();
        received(client)
    }
}

fn first_line(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
    line
}

fn received(mut client: impl Read) -> (String, String) {
    let mut got = String::new();
    client.read_to_string(&mut got).unwrap();
    let (head, body) = got.split_once("\r\n\r\n").unwrap();
    (head.into(), body.into())
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

// DNS rebinding: the name of a web site resolves to this server.
#[test]
fn a_request_for_another_server_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    recorded(dir.path());
    let served = Served::with(&["--host", "box.example"], dir.path());
    for path in ["/", "/data", "/metrics", "/healthz", "/recordings", "/nowhere"] {
        for host in ["evil.example", "evil.example:9464", "127.0.0.1.evil.example", ""] {
            let (head, body) = served.ask_as(host, &format!("GET {path}"), "");
            assert!(head.starts_with("HTTP/1.1 421 "), "{host}{path}: {head}");
            assert_eq!(body.lines().count(), 1, "{body}");
        }
        for host in ["localhost", "LOCALHOST:9464", "[::1]:1", "10.0.0.1", "Box.Example"] {
            let (head, _) = served.ask_as(host, &format!("GET {path}"), "");
            assert!(!head.starts_with("HTTP/1.1 421 "), "{host}{path}: {head}");
        }
    }
}

#[test]
fn only_clients_with_the_token_are_answered() {
    let dir = tempfile::tempdir().unwrap();
    let (recording, token) = (dir.path().join("d"), dir.path().join("token"));
    recorded(&recording);
    std::fs::write(&token, "a-token\n").unwrap();
    let flags = ["--token-file", token.to_str().unwrap()];
    let mode = |mode| std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(&token, mode(0o644)).unwrap();
    let text = refusal(&[&["serve", recording.to_str().unwrap()], &flags[..]].concat(), 4);
    assert!(text.contains("chmod o="), "{text}");
    std::fs::set_permissions(&token, mode(0o640)).unwrap();
    let served = Served::with(&flags, &recording);
    for path in ["/", "/data", "/metrics", "/healthz", "/nowhere"] {
        let ask = |more: &str| served.ask(&format!("GET {path}"), more).0;
        for wrong in ["", "Authorization: Bearer a-tokem\r\n", "Authorization: Basic a-token\r\n"] {
            assert!(ask(wrong).starts_with("HTTP/1.1 401 "), "{path}: {wrong}");
        }
        let right = ask("Authorization: Bearer a-token\r\n");
        assert!(!right.starts_with("HTTP/1.1 401 "), "{path}: {right}");
    }
}

#[test]
fn a_unix_socket_admits_those_who_may_open_it() {
    let dir = tempfile::tempdir().unwrap();
    let (recording, socket) = (dir.path().join("d"), dir.path().join("socket"));
    recorded(&recording);
    for (flags, mode) in [(&[][..], 0o660), (&["--socket-mode", "600"], 0o600)] {
        let listen = format!("unix:{}", socket.display());
        let line = [&["serve", "--listen", &listen], flags].concat();
        let mut served = tierscope(&line).arg(&recording).spawn().unwrap();
        let line = first_line(&mut served);
        assert!(line.contains(&format!("at {listen}, ")), "{line}");
        assert_eq!(socket.metadata().unwrap().permissions().mode() & 0o7777, mode);
        let mut client = UnixStream::connect(&socket).unwrap();
        client.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let (head, body) = received(client);
        assert!(head.starts_with("HTTP/1.1 200 ") && body.ends_with("# EOF\n"), "{head}");
        let text = refusal(&["serve", recording.to_str().unwrap(), "--listen", &listen], 8);
        assert!(text.contains("another path"), "{text}");
        let pid = rustix::process::Pid::from_child(&served);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert_eq!(served.wait().unwrap().code(), Some(0));
        assert!(!socket.exists());
    }
    let dir = recording.to_str().unwrap();
    refusal(&["serve", dir, "--listen", "unix:relative"], 2);
    refusal(&["serve", dir, "--socket-mode", "1660"], 2);
    refusal(&["serve", dir, "--socket-mode", "rw"], 2);
}

#[test]
fn command_lines_are_not_on_the_page() {
    let dir = tempfile::tempdir().unwrap();
    recorded(dir.path());
    let served = Served::start(dir.path());
    for path in ["/", "/data", "/metrics", "/recordings"] {
        let (head, body) = served.ask(&format!("GET {path}"), "");
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert!(!body.contains("s3cret"), "{path}: {body}");
    }
    let mut summary = tierscope(&["report", "summary"]);
    let summary = summary.arg(dir.path()).stdout(Stdio::piped()).output().unwrap();
    assert!(String::from_utf8(summary.stdout).unwrap().contains("s3cret"), "its owner sees it");
}

#[test]
fn hostile_paths_find_nothing() {
    let dir = tempfile::tempdir().unwrap();
    recorded(&dir.path().join("d"));
    std::fs::write(dir.path().join("secret"), "s3cret").unwrap();
    let served = Served::start(&dir.path().join("d"));
    for path in [
        "/../secret",
        "/recordings/../../secret/",
        "/recordings/..%2f..%2fsecret/data",
        "/recordings/%2e%2e/data",
        "/recordings//data",
        "/recordings/\u{1b}[2J\u{202e}/",
        "/recordings/.//",
        "/windows.arrows",
        "/data/",
        "/metrics/",
    ] {
        let (head, body) = served.ask(&format!("GET {path}"), "");
        assert!(head.starts_with("HTTP/1.1 404 "), "{path}: {head}");
        assert!(!body.contains("s3cret") && body.is_ascii() && !body.contains('\u{1b}'), "{body}");
    }
}

// Clients that alternate between two recordings, and clients that send nothing: they are one client
// to the limits, and so is the scraper, which never gets a 503.
#[test]
fn scrapes_are_answered_while_pages_are_requested() {
    let dir = tempfile::tempdir().unwrap();
    (0..2).for_each(|_| recorded_with(&["--retention", "1h"], dir.path()));
    let served = Served::start(dir.path());
    let names: Vec<String> = tierscope_record::series::members(dir.path())
        .unwrap()
        .iter()
        .map(|member| member.path.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    assert!(names.len() >= 2, "{names:?}");
    let silent: Vec<_> = (0..40).map(|_| TcpStream::connect(&served.address).unwrap()).collect();
    std::thread::scope(|scope| {
        for client in 0..2 {
            let (served, names) = (&served, &names);
            scope.spawn(move || {
                for turn in 0..20 {
                    let name = &names[(client + turn) % names.len()];
                    let (head, _) = served.ask(&format!("GET /recordings/{name}/data"), "");
                    assert!(head.contains(" 200 ") || head.contains(" 503 "), "{head}");
                }
            });
        }
        for _ in 0..20 {
            let (head, body) = served.ask("GET /metrics", "");
            assert!(head.starts_with("HTTP/1.1 200 ") && body.ends_with("# EOF\n"), "{head}");
        }
    });
    drop(silent);
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
