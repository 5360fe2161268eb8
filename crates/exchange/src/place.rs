//! Errors in imported files: which file, where in it, and what is wrong there.

use std::fmt;

use tierscope_core::{Error, ErrorKind};

/// A position in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A line number, counted from 1.
    Line(u64),
    /// A byte offset, counted from 0.
    Byte(u64),
    /// A snapshot, by its time in ns.
    Nanos(u64),
    /// The file as a whole.
    Whole,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Line(line) => write!(f, "line {line}: "),
            Place::Byte(byte) => write!(f, "byte {byte}: "),
            Place::Nanos(time) => {
                let [seconds, nanos] = [time / 1_000_000_000, time % 1_000_000_000];
                write!(f, "snapshot at {seconds}.{nanos:09} s: ")
            }
            Place::Whole => Ok(()),
        }
    }
}

/// Error: `file` is malformed at `place`.
pub(crate) fn malformed(file: &str, place: Place, cause: impl fmt::Display) -> Error {
    Error::new(ErrorKind::Data, format!("cannot import {file}"))
        .cause(format_args!("{place}{cause}"))
        .remedy("check that it is whole and of a format that `tierscope import --help` lists")
}

/// Error: `file` cannot be read.
pub(crate) fn unreadable(file: &str, cause: &std::io::Error) -> Error {
    let kind = match cause.kind() {
        std::io::ErrorKind::PermissionDenied => ErrorKind::Permission,
        std::io::ErrorKind::NotFound => ErrorKind::Usage,
        _ => ErrorKind::Io,
    };
    Error::new(kind, format!("cannot read {file}"))
        .cause(cause)
        .remedy("check name and permissions")
}

/// The first 60 characters of a text, for an error.
pub(crate) fn excerpt(text: &[u8]) -> String {
    let shown: String = String::from_utf8_lossy(text).trim().chars().take(60).collect();
    format!("`{shown}`")
}
