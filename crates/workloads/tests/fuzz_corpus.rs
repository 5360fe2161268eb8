//! Replays the corpora of the fuzz targets.

use std::path::Path;

#[path = "../../../fuzz/masim_input.rs"]
mod masim_input;
#[path = "../../../fuzz/verdict.rs"]
mod verdict;

#[path = "../../../fuzz/spec_input.rs"]
mod spec_input;

fn corpus(name: &str) -> Vec<(String, Vec<u8>)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let entry = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.unwrap().path();
        (path.file_name().unwrap().to_str().unwrap().to_owned(), std::fs::read(path).unwrap())
    };
    std::fs::read_dir(dir).unwrap().map(entry).collect()
}

/// Files whose names begin with `good` are accepted, all others rejected.
#[test]
fn masim_configurations_are_read_or_refused() {
    let seeds = corpus("masim");
    assert!(seeds.len() >= 8);
    for (name, data) in seeds {
        verdict::judge(&name, masim_input::read(&data).is_some());
    }
}

#[test]
fn lines_are_read_or_refused() {
    let seeds = corpus("spec");
    assert!(seeds.len() >= 12);
    for (name, data) in seeds {
        verdict::judge(&name, spec_input::read(&data));
    }
}
