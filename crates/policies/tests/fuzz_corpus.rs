//! Replays the corpus of the fuzz target `policy`.

use std::path::Path;

#[path = "../../../fuzz/policy_input.rs"]
mod policy_input;
#[path = "../../../fuzz/verdict.rs"]
mod verdict;

/// Corpus lines in files named `good*` must be accepted, all others rejected.
#[test]
fn lines_are_made_or_refused() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/policy");
    let mut seeds = 0;
    for entry in std::fs::read_dir(dir).expect("it is there") {
        let path = entry.expect("it can be read").path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let name = name.expect("a file has one");
        let data = std::fs::read(&path).expect("it can be read");
        verdict::judge(&name, policy_input::read(&data));
        seeds += 1;
    }
    assert!(seeds >= 20);
}
