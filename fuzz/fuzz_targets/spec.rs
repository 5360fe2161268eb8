//! Fuzz target: one-line descriptions of workloads and stores, from untrusted sources. They are
//! parsed or refused, and parsed workloads are consistent. `cargo +nightly fuzz run spec`.

#![no_main]

#[path = "../spec_input.rs"]
mod spec_input;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    spec_input::read(data);
});
