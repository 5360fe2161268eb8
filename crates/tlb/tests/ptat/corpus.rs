//! Replays the corpus of the fuzz target `ptat`.

use std::path::Path;

#[path = "../../../../fuzz/ptat_input.rs"]
mod ptat_input;

/// Names begin with `good` or `bad`: good ones are parsed without errors, bad ones are not.
#[test]
fn captures_are_read_or_refused() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/ptat");
    let mut seeds = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let read = ptat_input::read(&std::fs::read(&path).unwrap());
        crate::verdict::judge(&name, read.is_some());
        seeds += 1;
    }
    assert!(seeds >= 8, "{seeds}");
}
