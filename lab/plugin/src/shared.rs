//! Files of the run's directory, mapped for as long as QEMU runs.

use std::path::Path;
use std::sync::atomic::AtomicU64;

use tierscope_wire::Shared;

/// Maps a file of so many bytes at least, as words.
///
/// # Errors
/// It is missing or not as long as said: the path and why.
pub fn map_words(path: &str, bytes: u64) -> Result<&'static [AtomicU64], String> {
    let shared = Shared::open(Path::new(path), bytes).map_err(|e| format!("{path}: {e}"))?;
    shared.leak().map_err(|e| format!("{path}: {e}"))
}
