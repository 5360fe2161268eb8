//! A configuration of masim comes from anybody: it is read or refused, and what is read makes sense.
//! `cargo +nightly fuzz run masim`.

#![no_main]

#[path = "../masim_input.rs"]
mod masim_input;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = masim_input::read(data);
});
