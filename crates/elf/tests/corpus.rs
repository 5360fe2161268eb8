//! Replays the corpus of the fuzz target `elf`.

use std::path::Path;

#[path = "../../../fuzz/elf_input.rs"]
mod elf_input;
#[path = "../../../fuzz/verdict.rs"]
mod verdict;

/// File names begin with `good` or `bad`: good files have functions, bad ones are refused or have
/// none.
#[test]
fn files_are_read_or_refused() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/elf");
    let mut seeds = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let read = elf_input::read(&std::fs::read(&path).unwrap());
        let functions = read.map_or(0, |(functions, _)| functions);
        verdict::judge(&name, functions > 0);
        seeds += 1;
    }
    assert!(seeds >= 5, "{seeds}");
}
