//! Fuzz target: records of perf's ring, whose layout depends on the kernel version. The parser
//! never panics.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tierscope_linux::perf::parse;

fuzz_target!(|bytes: &[u8]| {
    let mut records = 0;
    let besides = parse(bytes, |_| records += 1);
    // A sample takes 48 bytes: a header and 40 bytes of data.
    assert!(records * 48 + besides.broken <= bytes.len());
});
