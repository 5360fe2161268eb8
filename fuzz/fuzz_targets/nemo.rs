//! Fuzz target: requests of the host and of a guest to the telemetry driver. Each is carried out or
//! refused, a guest never observes requests to memory of others, and no resources leak. `cargo
//! +nightly fuzz run nemo`.

#![no_main]

#[path = "../nemo_input.rs"]
mod nemo_input;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = nemo_input::run(data);
});
