//! Fuzz target: recordings of other tools, from untrusted sources. They are imported or refused,
//! and imported windows and regions are well-formed. `cargo +nightly fuzz run import`.

#![no_main]

#[path = "../import_input.rs"]
mod import_input;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    import_input::import(data);
});
