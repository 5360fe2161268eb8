//! Replays the corpus of the fuzz target `walks`, as it is and with random changes.

use std::path::Path;

use tierscope_core::Rng;

#[path = "../../../../fuzz/walks_input.rs"]
mod walks_input;

/// Corpus files by name.
fn seeds() -> Vec<(String, Vec<u8>)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/walks");
    let seed = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (name, std::fs::read(&path).unwrap())
    };
    std::fs::read_dir(dir).unwrap().map(seed).collect()
}

/// Names begin with `good` or `bad`: good ones become a capture, bad ones are refused.
#[test]
fn walks_are_read_or_refused() {
    let seeds = seeds();
    assert!(seeds.len() >= 8, "{}", seeds.len());
    for (name, bytes) in seeds {
        let read = walks_input::read(&bytes);
        crate::verdict::judge(&name, read.is_some());
    }
}

// A minimal fuzzer that needs no nightly compiler. Most changed files still contain walks.
#[test]
fn changed_walks_are_read_or_refused() {
    let mut rng = Rng::seeded(5);
    let mut read = 0;
    for (_, bytes) in seeds().into_iter().filter(|(_, bytes)| bytes.len() > 4) {
        for _ in 0..500 {
            let mut bytes = bytes.clone();
            for _ in 0..=rng.below(3) {
                let at = 4 + rng.below(bytes.len() as u64 - 3) as usize;
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << rng.below(8);
                }
            }
            read += u32::from(walks_input::read(&bytes).is_some());
        }
    }
    assert!(read > 200, "{read}");
}
