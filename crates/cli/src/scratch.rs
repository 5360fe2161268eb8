//! Anonymous temporary files, which vanish with the process.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::path::Path;

use tierscope_core::{Error, ErrorKind, Result};

/// Creates a scratch file in the directory of `path`: the file system that has room for the result.
pub(crate) fn beside(path: &Path) -> Result<File> {
    let mut name = OsString::from(path.file_name().unwrap_or_default());
    name.push(format!(".scratch-{}", std::process::id()));
    let name = path.with_file_name(name);
    let mut options = OpenOptions::new();
    let made = options.read(true).write(true).create(true).truncate(true).open(&name);
    made.and_then(|file| fs::remove_file(&name).map(|()| file)).map_err(|e| {
        Error::new(ErrorKind::Io, format!("cannot make a scratch file {}", name.display()))
            .cause(e)
            .remedy("choose a place that you may write to, with -o")
    })
}
