//! Fuzz target: telemetry rules from untrusted sources. They are parsed or refused, and a parsed
//! rule survives printing and parsing. `cargo +nightly fuzz run rule`.

#![no_main]

#[path = "../rule_input.rs"]
mod rule_input;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = rule_input::read(data);
});
