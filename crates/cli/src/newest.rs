//! Resolves a series to its newest recording, wherever a single recording is expected.

use std::path::{Path, PathBuf};

use tierscope_core::{Error, ErrorKind, Result};
use tierscope_record::series::{is_series, newest};

use crate::print::note;

/// The recording at `dir`: the directory itself, or the newest recording of a series, which is
/// reported on stderr.
///
/// # Errors
/// [`ErrorKind::Data`] for a series without a recording.
pub fn resolve(dir: &Path) -> Result<PathBuf> {
    if !is_series(dir) {
        return Ok(dir.to_owned());
    }
    let found = newest(dir)?.ok_or_else(|| {
        Error::new(ErrorKind::Data, format!("nothing is recorded in {}", dir.display()))
            .cause("the series holds no recording")
            .remedy("wait for its first window, or look whether its recorder runs")
    })?;
    note!("{} is a series; this is {}", dir.display(), found.display());
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_opens_as_its_newest_recording() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(resolve(dir.path()).unwrap(), dir.path());
        std::fs::write(dir.path().join("lock"), "").unwrap();
        assert_eq!(resolve(dir.path()).unwrap_err().kind(), ErrorKind::Data);
        for name in ["20260101T000000.000Z", "20261231T000000.000Z", "20270000T000000.000Z"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        assert_eq!(resolve(dir.path()).unwrap(), dir.path().join("20261231T000000.000Z"));
    }
}
