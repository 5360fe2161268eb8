//! Fuzz target: policy specifications from untrusted sources. They are accepted or refused, and the
//! settings that an accepted policy reports make an equal policy. `cargo +nightly fuzz run policy`.

#![no_main]

#[path = "../policy_input.rs"]
mod policy_input;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    policy_input::read(data);
});
