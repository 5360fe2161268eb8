//! Fuzz target: program files and logs of their mappings, from untrusted sources. They are parsed
//! or ignored. `cargo +nightly fuzz run program`.

#![no_main]

#[path = "../program_input.rs"]
mod program_input;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = program_input::read(data);
});
