//! A line that names a policy comes from anybody: it is made or refused, and what is made can be made again from
//! what it says of itself. `cargo +nightly fuzz run policy`.

#![no_main]

#[path = "../policy_input.rs"]
mod policy_input;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    policy_input::read(data);
});
