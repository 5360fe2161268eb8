//! Time belongs to the machine: no code sleeps or reads a clock, except the files in [`CLOCKS`],
//! each for its reason. Checked is the source of all crates; tests, benchmarks and examples in
//! folders of their own are left out.

#[path = "source/code.rs"]
mod code;
mod source;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use code::code;
use source::rust_files;

/// Names by which the standard library, rustix and libc read clocks, sleep, or wait with a timeout.
const NAMES: [&str; 9] = [
    "Instant",
    "SystemTime::now",
    "thread::sleep",
    "nanosleep",
    "clock_gettime",
    "timerfd_create",
    "recv_timeout",
    "wait_timeout",
    "park_timeout",
];

/// Files, or folders with all their files, and what each needs time for.
const CLOCKS: [(&str, &str); 22] = [
    // The live machine: implementations of `Clock`, and its own threads.
    ("crates/linux/src/clock.rs", "the clocks of the kernel, for `Clock` of the live machine"),
    ("crates/linux/src/alarm.rs", "the timer of `Clock` of the live machine"),
    ("crates/linux/src/module.rs", "the module spaces out flushes of translations"),
    ("crates/linux/src/mover/mod.rs", "the mover's thread waits for orders or a retry"),
    ("crates/linux/src/numa_usage/mod.rs", "the thread that reads resident memory"),
    // Requests and screens of users, which no instrument or policy sees.
    ("crates/cli/src/live/show.rs", "the screen: frames, and the age of the data"),
    ("crates/http/src/server.rs", "deadlines of HTTP requests"),
    (
        "crates/cli/src/serve",
        "pause between two polls of recordings, age of the last, deadlines of pages",
    ),
    ("crates/cli/src/ticker.rs", "progress line of conversions"),
    // Dates and durations that are written down, never decided by.
    ("crates/cli/src/output.rs", "dates in the names of recordings"),
    ("crates/cli/src/record.rs", "date at which a recording began"),
    ("crates/cli/src/tlb/record.rs", "duration of the recorded program"),
    ("crates/cli/src/reproduce.rs", "date of figures that are stored"),
    ("crates/evaluate/src/claims/mod.rs", "CPU time of an experiment"),
    ("crates/evaluate/src/contest/outcome.rs", "wall time of a simulation"),
    ("crates/evaluate/src/accuracy/judge.rs", "wall time of a simulation"),
    ("crates/evaluate/src/runs/run.rs", "wall time of a simulation, date of its recording"),
    ("crates/evaluate/src/runner.rs", "progress line of simulations"),
    // Programs that run in real time beside the machine under test.
    ("crates/tlb/src/record/tape.rs", "polls the rings of an emulator"),
    ("crates/toucher/src", "loads, which access real memory and servers in real time"),
    ("lab/plugin/src", "the emulator's side of a machine: its real time"),
    ("lab/src", "boots virtual machines and measures them in real time"),
];

/// The names that a file uses.
fn used(text: &str) -> Vec<&'static str> {
    let code = code(text);
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let uses = |name: &&str| {
        code.match_indices(*name).any(|(at, found)| {
            let after = &code[at + found.len()..];
            !code[..at].ends_with(is_word) && !after.starts_with(is_word)
        })
    };
    NAMES.into_iter().filter(uses).collect()
}

#[test]
fn only_the_listed_files_use_clocks() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let mut files = Vec::new();
    ["crates", "lab"].iter().for_each(|folder| rust_files(&root.join(folder), &mut files));
    let mut needed = BTreeSet::new();
    for file in files {
        let path = file.strip_prefix(root).unwrap();
        // crates/NAME/src, lab/plugin/src, lab/src
        let third = path.iter().nth(2);
        let source = path.starts_with("lab/src") || third.is_some_and(|folder| folder == "src");
        let used = used(&fs::read_to_string(&file).unwrap());
        if !source || used.is_empty() {
            continue;
        }
        let listed = CLOCKS.iter().find(|(listed, _)| path.starts_with(listed));
        let path = path.display();
        let (listed, _) = listed.unwrap_or_else(|| {
            panic!("{path} uses {used:?}: take a `Clock`, or list it here with the reason")
        });
        needed.insert(*listed);
    }
    let idle: Vec<_> = CLOCKS.iter().filter(|(listed, _)| !needed.contains(listed)).collect();
    assert!(idle.is_empty(), "these use no clock: {idle:?}");
}

#[test]
fn clocks_are_found_in_code_only() {
    assert_eq!(used("let now = std::time::Instant::now();"), ["Instant"]);
    assert_eq!(used("use std::thread::sleep;\nsleep(PAUSE)"), ["thread::sleep"]);
    assert_eq!(used("self.thread.sleep(until)"), [""; 0], "of a simulated machine");
    assert_eq!(used("create(dir, SystemTime::now)?;"), ["SystemTime::now"]);
    assert_eq!(used("// Instant::now\nlet a = \"thread::sleep\"; Instantly; SystemTime"), [""; 0]);
}
