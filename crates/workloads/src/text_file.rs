//! Texts that users write: configurations, experiments, workloads, machines, rules.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

/// Longest file in bytes: a thousand times as long as any of ours.
const MOST: u64 = 16 << 20;

/// Reads a file of at most 16 MiB.
///
/// # Errors
/// Those of opening and reading; [`ErrorKind::InvalidData`] if it is longer, or not UTF-8.
pub fn read(path: impl AsRef<Path>) -> Result<String> {
    let mut text = String::new();
    let read = File::open(path)?.take(MOST + 1).read_to_string(&mut text)?;
    match read as u64 > MOST {
        true => Err(Error::new(ErrorKind::InvalidData, "it is longer than 16 MiB")),
        false => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_and_endless_files_are_refused() {
        assert_eq!(read("/dev/zero").unwrap_err().to_string(), "it is longer than 16 MiB");
        assert_eq!(read("/dev/null").unwrap(), "");
        assert_eq!(read("/no/such/file").unwrap_err().kind(), ErrorKind::NotFound);
    }
}
