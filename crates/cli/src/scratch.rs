//! Anonymous temporary files, which vanish with the process.

use std::fs::File;
use std::path::Path;

use tierscope_core::{Error, ErrorKind, Result};

/// Creates a scratch file on the file system of `path`, which has room for the result. It never has
/// a name that another process could foresee.
pub(crate) fn beside(path: &Path) -> Result<File> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    tempfile::tempfile_in(dir).map_err(|e| failed(dir, &e))
}

/// Creates a scratch file in the directory for temporary files.
pub(crate) fn anywhere() -> Result<File> {
    tempfile::tempfile().map_err(|e| failed(&std::env::temp_dir(), &e))
}

fn failed(dir: &Path, cause: &std::io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("cannot make a scratch file in {}", dir.display()))
        .cause(cause)
        .remedy("choose a place that you may write to, with -o or TMPDIR")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    // A link with the name of the scratch file of older versions leads to another file.
    #[test]
    fn a_scratch_file_has_no_name_and_follows_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let precious = dir.path().join("precious");
        std::fs::write(&precious, "data").unwrap();
        let name = format!("out.scratch-{}", std::process::id());
        std::os::unix::fs::symlink(&precious, dir.path().join(name)).unwrap();
        let mut file = beside(&dir.path().join("out")).unwrap();
        file.write_all(b"scratch").unwrap();
        assert_eq!(std::fs::read(&precious).unwrap(), b"data");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
        let missing = beside(&dir.path().join("none/out")).unwrap_err();
        assert!(missing.to_string().contains("none: No such file"), "{missing}");
    }
}
