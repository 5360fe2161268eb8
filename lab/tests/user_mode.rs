//! The plugin in user emulation: recorded accesses, and errors for invalid input. Needs the plugin
//! that `make build` puts next to `lab`.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tierscope_lab::instrumented::{Files, Heard};
use tierscope_lab::user::Program;
use tierscope_wire::{Consumer, RawAccess, Shared};

/// Serialises tests: a process has only one set of shared files.
static DESK: Mutex<()> = Mutex::new(());

fn desk() -> MutexGuard<'static, ()> {
    DESK.lock().unwrap_or_else(PoisonError::into_inner)
}

fn lab(words: &[&str]) -> (bool, String) {
    let Output { status, stderr, .. } =
        Command::new(env!("CARGO_BIN_EXE_lab")).args(words).output().unwrap();
    (status.success(), String::from_utf8_lossy(&stderr).into_owned())
}

#[test]
fn every_access_is_recorded_and_read() {
    let _desk = desk();
    let out = tempfile::tempdir().unwrap();
    let words = ["true"].map(str::to_owned).to_vec();
    let parts = ["raw", "llc"].map(str::to_owned).to_vec();
    let ended =
        Program { words, parts, quiet: true, ..Program::default() }.run(out.path()).unwrap();
    let outcome = ended.outcome.unwrap();
    let count = |name: &str| outcome.counts[name];
    assert!(ended.status.success());
    assert!(count("records") > 10_000, "a dynamic linker loads more than {}", count("records"));
    assert_eq!((count("records"), count("records_lost")), (count("accesses"), 0));
    assert_eq!((outcome.read.raw, outcome.read.lost), (count("records"), 0));
}

#[test]
fn parts_that_are_unknown_or_need_a_machine_are_refused() {
    let out = tempfile::tempdir().unwrap();
    let out = out.path().to_str().unwrap();
    for (parts, word) in [("telepathy", "telepathy"), ("llc,tiers", "needs a machine")] {
        let (done, said) = lab(&["trace", "--parts", parts, "--out", out, "--", "true"]);
        assert!(!done && said.contains(word), "{parts}: {said}");
    }
}

/// Runs QEMU with the plugin and these options; returns whether it succeeded, and its stderr.
fn with_options(options: &str) -> (bool, String) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), options).unwrap();
    let plugin = tierscope_lab::instrumented::plugin().unwrap();
    let plugin = format!("{},options={}", plugin.display(), file.path().display());
    let output =
        Command::new("qemu-x86_64").args(["-plugin", &plugin, "/bin/true"]).output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn shared_memory_that_is_missing_or_short_ends_the_run_with_its_path() {
    let run = tempfile::tempdir().unwrap();
    let run = run.path().display();
    let (done, said) = with_options(&format!("run = '{run}'\nparts = ['raw']"));
    assert!(!done && said.contains(&format!("{run}/stats")), "{said}");
    std::fs::write(format!("{run}/stats"), [0; 64]).unwrap();
    let (done, said) = with_options(&format!("run = '{run}'\nparts = ['raw']"));
    assert!(!done && said.contains("it has 64 bytes"), "{said}");
    let (done, said) = with_options(&format!("run = '{run}'\nparts = []\nspeed = 9"));
    assert!(!done && said.contains("speed"), "{said}");
}

/// Attaches to a ring as soon as it exists, and detaches at once.
fn come_and_go(path: &Path) {
    let shared = Shared::open(path, 0).unwrap();
    while Consumer::<RawAccess>::attach(shared.words().unwrap()).is_err() {
        std::thread::yield_now();
    }
}

#[test]
fn a_ring_whose_reader_is_gone_loses_records_and_says_so() {
    let _desk = desk();
    let table = toml::toml! {
        parts = ["raw"]
        ring_bytes = 65536
    };
    let files = Files::new(&table, 2, &[]).unwrap();
    let directory = files.directory().to_owned();
    let ring = files.path("raw-0");
    let reader = std::thread::spawn(move || come_and_go(&ring));
    let mut qemu = Command::new("qemu-x86_64");
    let done = qemu.args(files.qemu_args().unwrap()).arg("/bin/true").status().unwrap();
    reader.join().unwrap();
    let outcome = files.result(&Heard::default()).unwrap();
    assert!(done.success(), "the program goes on");
    assert_eq!(
        outcome.counts["records"] + outcome.counts["records_lost"],
        outcome.counts["accesses"]
    );
    assert!(outcome.counts["records_lost"] > 0);
    assert!(outcome.said.iter().any(|line| line.contains("has no reader")), "{:?}", outcome.said);
    drop(files);
    assert!(!directory.exists(), "nothing is left behind");
}
