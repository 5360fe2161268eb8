//! Whatever is asked of the telemetry driver, by the host and by a guest: it is done or refused, nobody
//! sees what is not theirs, and in the end nothing is left. `cargo +nightly fuzz run nemo`.

#![no_main]

#[path = "../nemo_input.rs"]
mod nemo_input;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = nemo_input::run(data);
});
