//! Replays the corpus of the fuzz target `program`.

use std::path::Path;

#[path = "../../../fuzz/program_input.rs"]
mod program_input;
#[path = "../../../fuzz/verdict.rs"]
mod verdict;

/// Names begin with `good` or `bad`: good ones yield events.
#[test]
fn programs_and_logs_yield_their_events() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/program");
    let mut seeds = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let read = program_input::read(&std::fs::read(&path).unwrap());
        verdict::judge(&name, read > 0);
        seeds += 1;
    }
    assert!(seeds >= 5, "{seeds}");
}
