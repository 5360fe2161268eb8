//! Traces come from anybody: they are read or refused, and what is read can be written and read again. The first byte
//! chooses the format. `cargo +nightly fuzz run trace`.

#![no_main]

#[path = "../trace_input.rs"]
mod trace_input;

use tierscope_trace::Format;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((first, rest)) = data.split_first() else { return };
    trace_input::read(rest, Format::ALL.get(usize::from(*first)).copied());
});
