//! Files in the run's directory, mapped until QEMU exits.

use std::path::Path;
use std::sync::atomic::AtomicU64;

use tierscope_wire::Shared;

/// Maps a file of at least `bytes` bytes as words.
///
/// # Errors
/// The file is missing or too short; the error names its path.
pub fn map_words(path: &str, bytes: u64) -> Result<&'static [AtomicU64], String> {
    let shared = Shared::open(Path::new(path), bytes).map_err(|e| format!("{path}: {e}"))?;
    shared.leak().map_err(|e| format!("{path}: {e}"))
}
