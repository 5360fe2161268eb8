//! Cost of tracing unmodified programs under user emulation, compared with Valgrind's lackey on the
//! same input.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::bench::boot::{FAST_PLUGIN, fast_plugin};
use crate::bench::outputs::{number, text};
use crate::bench::rows::{Bar, Row, row};
use crate::bench::section::Inputs;
use crate::command::{capture, missing};
use crate::error::{Context, Result};
use crate::instrumented::Outcome;
use crate::machine::broken;
use crate::paths;
use crate::user::Program;

/// Numbers of lines to sort and to compress: with more, lackey would take many minutes.
const SORTED: usize = 10_000;
const COMPRESSED: usize = 4000;

/// lackey tracing every access, with its log discarded.
const LACKEY: [&str; 4] = ["valgrind", "--tool=lackey", "--trace-mem=yes", "--log-file=/dev/null"];

/// Traces sort(1).
pub(super) fn sort(inputs: &Inputs<'_>) -> Result<Vec<Row>> {
    let lines = lines(inputs, SORTED)?;
    traced(inputs, "sort", &["sort", "-o", "/dev/null", &lines])
}

/// Traces an interpreter.
pub(super) fn python(inputs: &Inputs<'_>) -> Result<Vec<Row>> {
    let program = "print(sum(i * i for i in range(200000)))";
    // Debian's python3: the one in PATH may be a wrapper script.
    traced(inputs, "python3", &["/usr/bin/python3", "-S", "-c", program])
}

/// Traces a program with two threads.
pub(super) fn xz(inputs: &Inputs<'_>) -> Result<Vec<Row>> {
    let lines = lines(inputs, COMPRESSED)?;
    traced(inputs, "xz of two threads", &["xz", "-T2", "--block-size=16384", "-k", "-c", &lines])
}

/// Writes a file of `count` lines of 14 digits in random order; returns its path.
fn lines(inputs: &Inputs<'_>, count: usize) -> Result<String> {
    let mut state = 1u64;
    let mut line = |_| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        format!("{:014x}\n", state >> 8)
    };
    let path = inputs.work.join(format!("lines-{count}.txt"));
    fs::write(&path, (0..count).map(&mut line).collect::<String>()).at(path.display())?;
    text(&path).map(str::to_owned)
}

fn program(words: &[String], parts: &[&str]) -> Program {
    Program {
        words: words.to_vec(),
        parts: parts.iter().map(|part| (*part).to_owned()).collect(),
        quiet: true,
        plugin: Some(paths::root().join(FAST_PLUGIN)),
        ..Program::default()
    }
}

fn command(words: &[impl AsRef<str>]) -> Command {
    let mut command = Command::new(words[0].as_ref());
    command.args(words[1..].iter().map(AsRef::as_ref));
    command
}

/// A command line that runs `words` under lackey.
fn under_lackey(words: &[String]) -> Vec<String> {
    LACKEY.iter().map(|word| (*word).to_owned()).chain(words.iter().cloned()).collect()
}

/// Numbers of records and of lost records.
fn records(outcome: Option<Outcome>) -> (f64, f64) {
    let counts = outcome.map(|outcome| outcome.counts).unwrap_or_default();
    let of = |name: &str| counts.get(name).copied().unwrap_or(0) as f64;
    (of("records"), of("records_lost"))
}

fn traced(inputs: &Inputs<'_>, name: &str, words: &[&str]) -> Result<Vec<Row>> {
    fast_plugin()?;
    let words: &[String] = &words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let out = inputs.work.join("user");
    let seconds_of = |words: &[String]| -> Result<f64> {
        let begun = Instant::now();
        capture(&mut command(words))?;
        Ok(begun.elapsed().as_secs_f64())
    };
    let native = seconds_of(words)?;
    let emulated = |parts: &[&str]| {
        let ended = program(words, parts).run(&out)?;
        match ended.status.success() {
            true => Ok(ended),
            false => Err(broken(format!("{name}, emulated, ended with {}", ended.status))),
        }
    };
    let plain = emulated(&[])?.seconds;
    let ended = emulated(&["raw"])?;
    let lackey = seconds_of(&under_lackey(words))?;
    let seconds = ended.seconds;
    let (records, lost) = records(ended.outcome);
    let command = format!("lab trace --plugin {FAST_PLUGIN} -- {}", words.join(" "));
    let of = |what: &str| format!("user mode: {name}: {what}");
    Ok(vec![
        row(of("by itself"), native, "s", Bar::None, &words.join(" ")),
        row(of("emulated, over by itself"), plain / native, "x", Bar::None, &command),
        row(of("traced, over by itself"), seconds / native, "x", Bar::None, &command),
        row(of("records"), records / 1e6, "M", Bar::None, &command),
        row(of("records a second"), records / 1e6 / seconds, "M/s", Bar::None, &command),
        row(of("records lost"), lost, "records", Bar::Most(0.0), &command),
        row(of("Valgrind lackey, over by itself"), lackey / native, "x", Bar::None, &command),
        row(of("lackey's time over ours"), lackey / seconds, "x", Bar::None, &command),
    ])
}

/// Load for the server: number of keys, size of a value in bytes, and duration in seconds.
const KEYS: &str = "2000";
const VALUE_BYTES: &str = "1000";
const SECONDS: &str = "5";
/// Time limit for the server's start: under lackey it takes seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// Measures the request rate of redis-server: native, emulated, traced, and under lackey.
pub(super) fn served(inputs: &Inputs<'_>) -> Result<Vec<Row>> {
    fast_plugin()?;
    let server = inputs.work.join("redis-server");
    let _ = fs::remove_file(&server);
    // In Debian, redis-check-rdb is the same binary as redis-server, which behaves according to its
    // name.
    symlink("/usr/bin/redis-check-rdb", &server).at(server.display())?;
    let socket = inputs.work.join("redis.sock");
    let options =
        ["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket", text(&socket)?];
    let words: Vec<String> =
        std::iter::once(text(&server)?).chain(options).map(str::to_owned).collect();
    let out = inputs.work.join("user");
    let by_itself = |words: &[String]| {
        let mut server = Killed(spawn(words)?);
        let rate = request_rate(&socket)?;
        server.0.wait().at(&words[0])?;
        Ok(rate)
    };
    let emulated = |parts: &[&str]| {
        let running = program(&words, parts).start(&out)?;
        let rate = request_rate(&socket)?;
        Ok((rate, running.wait(&out)?))
    };
    let native: f64 = by_itself(&words)?;
    let (plain, _) = emulated(&[])?;
    let (traced, ended) = emulated(&["raw"])?;
    let lackey: f64 = by_itself(&under_lackey(&words))?;
    let seconds = ended.seconds;
    let (records, lost) = records(ended.outcome);
    let command = &format!("lab trace --plugin {FAST_PLUGIN} -- redis-server; redis-load load");
    let of = |what: &str| format!("user mode: redis-server: {what}");
    Ok(vec![
        row(of("requests by itself"), native, "/s", Bar::None, command),
        row(of("emulated, slow-down"), native / plain, "x", Bar::None, command),
        row(of("traced, slow-down"), native / traced, "x", Bar::None, command),
        row(
            of("records a second, its whole life"),
            records / 1e6 / seconds,
            "M/s",
            Bar::None,
            command,
        ),
        row(of("records lost"), lost, "records", Bar::Most(0.0), command),
        row(of("Valgrind lackey, slow-down"), native / lackey, "x", Bar::None, command),
        row(
            of("requests traced over requests under lackey"),
            traced / lackey,
            "x",
            Bar::None,
            command,
        ),
    ])
}

fn spawn(words: &[String]) -> Result<Child> {
    let mut command = command(words);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map_err(|e| missing(&words[0], e))
}

/// A server process that is killed on drop.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Fills the server, reads from it for a while and shuts it down. Returns requests per second.
fn request_rate(socket: &Path) -> Result<f64> {
    let begun = Instant::now();
    while !socket.exists() {
        if begun.elapsed() > PATIENCE {
            return Err(broken(format!("no server answers at {}", socket.display())));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let programs =
        paths::programs().ok_or_else(|| broken("redis-load is not in lab's directory"))?;
    let path = text(socket)?;
    let load = |verb: &str, more: &[&str]| {
        let mut load = Command::new(programs.join("redis-load"));
        load.args([verb, "--server", path, "--keys", KEYS, "--value-bytes", VALUE_BYTES])
            .args(more);
        capture(&mut load)
    };
    load("fill", &[])?;
    let done = load("load", &["--seconds", SECONDS, "--hot-operations", "0.9"])?;
    let done: Value = serde_json::from_str(&done).map_err(broken)?;
    capture(Command::new("redis-cli").args(["-s", path, "shutdown", "nosave"]))?;
    number(&done, "/operations_per_second")
}
