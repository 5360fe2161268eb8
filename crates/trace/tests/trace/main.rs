//! Trace files of all formats: reading, conversion, replay and damage.

mod corpus;
mod damage;
mod fixtures;
mod identity;
mod replay;

use std::path::PathBuf;

use tierscope_trace::{Batch, Options, open, read_all};

/// Path of a fixture file.
fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// Reads a whole fixture.
fn read(name: &str) -> Batch {
    let mut batch = Batch::default();
    let mut trace = open(&fixture(name), Options::default()).unwrap();
    read_all(&mut *trace.source, &mut batch).unwrap();
    batch
}
