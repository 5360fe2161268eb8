//! Walks that `tierscope tlb import` reads may come from anybody: whatever the bytes, they are refused, or become a capture that our
//! own parser takes. `cargo +nightly fuzz run walks`.

#![no_main]

#[path = "../walks_input.rs"]
mod walks_input;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = walks_input::read(data);
});
