//! Captures of bus monitors come from anybody: whatever the bytes, parsing ends, in bounded memory.
//! `cargo +nightly fuzz run ptat`.

#![no_main]

#[path = "../ptat_input.rs"]
mod ptat_input;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = ptat_input::read(data);
});
