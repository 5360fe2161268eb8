//! Whatever the files of a recording hold, the reader answers and never falls over.
//! `cargo +nightly fuzz run recording`.

#![no_main]

#[path = "../recording_input.rs"]
mod recording_input;

libfuzzer_sys::fuzz_target!(|data: &[u8]| recording_input::read(data));
