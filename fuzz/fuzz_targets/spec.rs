//! A line that describes a workload or a store comes from anybody: it is read or refused, and what is
//! read makes sense. `cargo +nightly fuzz run spec`.

#![no_main]

#[path = "../spec_input.rs"]
mod spec_input;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    spec_input::read(data);
});
