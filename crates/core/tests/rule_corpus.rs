//! Corpus of the fuzz target `rule`: valid inputs are accepted, and no input crashes the parser.

#[path = "../../../fuzz/rule_input.rs"]
mod rule_input;
#[path = "../../../fuzz/verdict.rs"]
mod verdict;

use std::path::Path;

#[test]
fn the_corpus_is_parsed_without_a_panic() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/rule");
    let files: Vec<_> = std::fs::read_dir(corpus).unwrap().map(|file| file.unwrap()).collect();
    assert!(files.len() > 10);
    for file in files {
        let name = file.file_name().into_string().unwrap();
        let taken = rule_input::read(&std::fs::read(file.path()).unwrap()).is_some();
        verdict::judge(&name, taken);
    }
}
