//! A telemetry rule comes from anybody: it is read or refused, and what is read prints and reads back.
//! `cargo +nightly fuzz run rule`.

#![no_main]

#[path = "../rule_input.rs"]
mod rule_input;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = rule_input::read(data);
});
