//! Records of perf's ring come from the kernel, but from whichever kernel: no piece of it may bring us down.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tierscope_linux::perf::parse;

fuzz_target!(|bytes: &[u8]| {
    let mut records = 0;
    let besides = parse(bytes, |_| records += 1);
    // A sample is a header and forty bytes.
    assert!(records * 48 + besides.broken <= bytes.len());
});
