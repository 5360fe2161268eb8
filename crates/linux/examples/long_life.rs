//! Measures whether descriptors and memory of a machine stay flat while its target executes
//! programs and forks: `long_life [EXECS [FORKS]]`, on this host, with a fake kernel module. Prints
//! a line of JSON for each; ends with 1 if something grew.

#[path = "../tests/fake/mod.rs"]
mod fake;

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use fake::Fake;
use tierscope_core::{Clock as _, Target as _};
use tierscope_instruments::registry::{Common, by_name};
use tierscope_linux::{LiveMachine, Selection};

/// A shell that executes itself again and again, and prints how often it did.
const EXECS: &str = r#"
[ $(($1 % 500)) -ne 0 ] || echo "$1"
[ "$1" -ge "$2" ] && { echo done; exec sleep 1000; }
exec sh -c "$0" "$0" $(($1 + 1)) "$2"
"#;

/// A shell that forks again and again, twenty children at a time, and prints how often it did.
const FORKS: &str = r#"
n=$1
while [ "$n" -lt "$2" ]; do
    for child in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do (:) & done
    wait
    n=$((n + 20))
    [ $((n % 500)) -ne 0 ] || echo "$n"
done
echo done
exec sleep 1000
"#;

/// What this process holds.
#[derive(Clone, Copy, Debug)]
struct Held {
    descriptors: usize,
    kib: u64,
}

impl Held {
    fn now() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0);
        let descriptors = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        Self { descriptors, kib }
    }
}

/// The target: a shell and the numbers that it prints.
struct Shell {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Shell {
    fn start(script: &str, count: u64) -> Self {
        let mut sh = Command::new("sh");
        sh.args(["-c", script, script, "0", &count.to_string()]).stdin(Stdio::null());
        let mut child = sh.stdout(Stdio::piped()).spawn().expect("a shell");
        let said = BufReader::new(child.stdout.take().expect("its output"));
        Self { child, said }
    }

    /// Waits for the next number; `None` at the end.
    fn next(&mut self) -> Option<u64> {
        let mut line = String::new();
        self.said.read_line(&mut line).expect("its output");
        line.trim().parse().ok()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Watches a shell until it has done its work; returns whether nothing grew since the first tenth.
fn watch(what: &str, script: &str, count: u64) -> bool {
    let mut shell = Shell::start(script, count);
    let selection = Selection::Process { pid: shell.child.id(), children: true };
    let fake = Fake::default();
    fake.0.borrow_mut().follows_execs = true;
    let mut machine = LiveMachine::open(&selection, fake.module()).expect("it is watched");
    let common = Common { cpu: Some(0.5), ..Common::default() };
    let mut instrument =
        by_name("rates").and_then(|rates| rates.make(None, &common)).expect("rates");
    let (began, mut first, mut spaces) = (Instant::now(), None, 0);
    let (send, numbers) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        while let Some(number) = shell.next() {
            if send.send(number).is_err() {
                break;
            }
        }
        drop(send);
        shell
    });
    loop {
        let step = instrument.step(&mut machine).expect("a step");
        machine.wait(step.wake);
        let mappings = machine.mappings(Duration::from_secs(1)).expect("mappings");
        spaces = mappings.spaces.iter().map(|space| space.id.0).max().unwrap_or(0).max(spaces);
        match numbers.try_recv() {
            Ok(number) if first.is_none() && number >= count / 10 => first = Some(Held::now()),
            Err(std::sync::mpsc::TryRecvError::Disconnected) => break,
            _ => {}
        }
    }
    let (first, last) = (first.unwrap_or_else(Held::now), Held::now());
    let flat = last.descriptors <= first.descriptors + 2 && last.kib <= first.kib + 2048;
    println!(
        "{{\"what\":\"{what}\",\"count\":{count},\"seconds\":{:.1},\"spaces\":{spaces},\
         \"descriptors\":[{},{}],\"kib\":[{},{}],\"flat\":{flat}}}",
        began.elapsed().as_secs_f64(),
        first.descriptors,
        last.descriptors,
        first.kib,
        last.kib
    );
    drop(reader.join());
    flat
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse().expect("a number"));
    let (execs, forks) =
        (arguments.next().unwrap_or(100_000), arguments.next().unwrap_or(1_000_000));
    let flat = watch("execs", EXECS, execs) & watch("forks", FORKS, forks);
    ExitCode::from(u8::from(!flat))
}
