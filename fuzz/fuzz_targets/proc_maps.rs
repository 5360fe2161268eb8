//! Fuzz target: lines of `/proc/PID/maps` and `numa_maps`, whose format depends on the kernel
//! version. The parser never panics.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tierscope_linux::proc::{Names, parse_line, parse_numa_line};

fuzz_target!(|bytes: &[u8]| {
    let mut names = Names::default();
    for line in bytes.split(|byte| *byte == b'\n') {
        if let Ok(parsed) = parse_line(line) {
            assert!(parsed.start < parsed.end);
            let _ = (parsed.backing(), parsed.object());
            names.share(parsed.name);
        }
        let _ = parse_numa_line(line);
    }
});
