//! Replays the corpus of the fuzz target `recording`.

use std::fs;
use std::path::PathBuf;

use tierscope_record::{Memory, Table};

use crate::common::{open, record};
use crate::damage::ten;

#[path = "../../../../fuzz/recording_input.rs"]
mod recording_input;

fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/recording")
}

/// A recording in the input format of the fuzz target.
fn input(memory: &Memory) -> Vec<u8> {
    let mut data = Vec::new();
    for table in Table::ALL {
        let stream = &memory.streams[&table];
        data.extend((stream.len() as u32).to_le_bytes());
        data.extend(stream);
    }
    data
}

/// Seed inputs for the fuzzer.
fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let whole = record(&ten()[..2], true);
    let mut torn = whole.clone();
    torn.streams.get_mut(&Table::Regions).unwrap().truncate(1_500);
    let mut swapped = whole.clone();
    swapped.streams.insert(Table::Windows, whole.streams[&Table::Regions].clone());
    vec![
        ("whole", input(&whole)),
        ("empty", input(&record(&[], false))),
        ("torn", input(&torn)),
        ("swapped", input(&swapped)),
    ]
}

#[test]
fn seeds_are_recordings_of_this_version() {
    if std::env::var_os("TIERSCOPE_ACCEPT").is_some() {
        seeds().iter().for_each(|(name, data)| fs::write(corpus().join(name), data).unwrap());
    }
    let data = fs::read(corpus().join("whole")).unwrap();
    let recording = open(&recording_input::streams(&data)).unwrap();
    assert_eq!(
        recording.commits().len(),
        2,
        "make new seeds with TIERSCOPE_ACCEPT=1 cargo test -p tierscope-record corpus"
    );
}

#[test]
fn the_corpus_is_read_or_refused() {
    let mut count = 0;
    for entry in fs::read_dir(corpus()).unwrap() {
        recording_input::read(&fs::read(entry.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count >= seeds().len());
}
