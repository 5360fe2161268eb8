//! Fuzz target: masim configurations from untrusted sources. They are parsed or refused, and parsed
//! workloads are consistent. `cargo +nightly fuzz run masim`.

#![no_main]

#[path = "../masim_input.rs"]
mod masim_input;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = masim_input::read(data);
});
