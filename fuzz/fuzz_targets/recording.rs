//! Fuzz target: the files of a recording. The reader returns data or errors on any input, and never
//! panics. `cargo +nightly fuzz run recording`.

#![no_main]

#[path = "../recording_input.rs"]
mod recording_input;

libfuzzer_sys::fuzz_target!(|data: &[u8]| recording_input::read(data));
