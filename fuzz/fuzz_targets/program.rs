//! Programs and the logs of their mappings come from anybody: they are read, or give nothing.
//! `cargo +nightly fuzz run program`.

#![no_main]

#[path = "../program_input.rs"]
mod program_input;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = program_input::read(data);
});
