//! Files that a result is written to.

use std::path::Path;

use tierscope_core::{Error, ErrorKind, Result};

/// Writes a file.
///
/// # Errors
/// [`ErrorKind::Io`] if it cannot be written.
pub fn save(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(|error| {
        Error::new(ErrorKind::Io, format!("cannot write {}", path.display()))
            .cause(error)
            .remedy("choose a file that you may write to")
    })
}
