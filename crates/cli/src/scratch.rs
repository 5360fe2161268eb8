//! Files without a name, gone with the process that uses them.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::path::Path;

use tierscope_core::{Error, ErrorKind, Result};

/// A scratch file in the directory that `path` is in: there is room where the result goes.
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
