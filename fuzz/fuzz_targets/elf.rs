//! Programs that are recorded bring their files: whatever the bytes, reading them ends, in bounded memory.
//! `cargo +nightly fuzz run elf`.

#![no_main]

#[path = "../elf_input.rs"]
mod elf_input;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = elf_input::read(data);
});
