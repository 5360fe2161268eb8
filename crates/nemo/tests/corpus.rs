//! Replays the corpus of the fuzz target `nemo`, and random bytes.

#[path = "../../../fuzz/nemo_input.rs"]
mod nemo_input;

use std::path::Path;

use proptest::prelude::*;

#[test]
fn the_corpus_is_run_without_a_panic() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/nemo");
    let files: Vec<_> = std::fs::read_dir(corpus).unwrap().map(|file| file.unwrap()).collect();
    let tallies = files.iter().map(|file| nemo_input::run(&std::fs::read(file.path()).unwrap()));
    let all = tallies.fold((0, 0), |(done, refused), one| (done + one.done, refused + one.refused));
    assert!(files.len() > 7 && all.0 > 20 && all.1 > 10, "{all:?} done and refused");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn any_bytes_are_run_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let tally = nemo_input::run(&bytes);
        prop_assert!(u64::from(tally.done + tally.refused) <= 300);
    }
}
