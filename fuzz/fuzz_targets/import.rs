//! Files to import come from anybody: they are read or refused, and what is read makes sense.
//! `cargo +nightly fuzz run import`.

#![no_main]

#[path = "../import_input.rs"]
mod import_input;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    import_input::import(data);
});
