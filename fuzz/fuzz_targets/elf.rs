//! Fuzz target: ELF files of recorded programs. Parsing ends on any input, in bounded memory.
//! `cargo +nightly fuzz run elf`.

#![no_main]

#[path = "../elf_input.rs"]
mod elf_input;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = elf_input::read(data);
});
