//! Fuzz target: access traces from untrusted sources. They are read or refused, and accesses that
//! were read survive writing and reading. The first byte chooses the format. `cargo +nightly fuzz
//! run trace`.

#![no_main]

#[path = "../trace_input.rs"]
mod trace_input;

use tierscope_trace::Format;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((first, rest)) = data.split_first() else { return };
    trace_input::read(rest, Format::ALL.get(usize::from(*first)).copied());
});
