//! Fuzz target: captures of bus monitors, from untrusted sources. Parsing ends on any input, in
//! bounded memory. `cargo +nightly fuzz run ptat`.

#![no_main]

#[path = "../ptat_input.rs"]
mod ptat_input;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = ptat_input::read(data);
});
