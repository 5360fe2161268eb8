//! Recognises the files of a bus monitor's capture, which `tierscope-tlb` parses.

/// Magic number of a board's stream.
pub const STREAM: [u8; 8] = *b"\x89TSBUS\r\n";
/// Magic number of a kernel's dump.
pub const DUMP: [u8; 8] = *b"\x89TSDMP\r\n";

/// Whether a file begins like a stream or dump of a capture.
#[must_use]
pub(super) fn looks_like(start: &[u8]) -> bool {
    start.starts_with(&STREAM) || start.starts_with(&DUMP)
}
