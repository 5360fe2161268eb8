//! Fuzz target: page walks for `tierscope tlb import`, from untrusted sources. They are refused, or
//! become a capture that our own parser accepts. `cargo +nightly fuzz run walks`.

#![no_main]

#[path = "../walks_input.rs"]
mod walks_input;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = walks_input::read(data);
});
