//! Errors of trace files: which file, the position in it, and the cause.

use std::fmt;

use tierscope_core::{Error, ErrorKind};

/// A position in a trace; offsets count decompressed bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A position in a text: line and column from 1, byte from 0.
    Text {
        /// The line.
        line: u64,
        /// The column, in bytes.
        column: u64,
        /// The byte offset.
        byte: u64,
    },
    /// A byte offset, from 0.
    Byte(u64),
    /// The file as a whole.
    Whole,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Text { line, column, byte } => {
                write!(f, "line {line}, column {column} (byte {byte}): ")
            }
            Place::Byte(byte) => write!(f, "byte {byte}: "),
            Place::Whole => Ok(()),
        }
    }
}

/// The error for invalid content of `file` at `place`.
#[must_use]
pub fn malformed(
    file: &str,
    place: Place,
    cause: impl fmt::Display,
    remedy: impl Into<String>,
) -> Error {
    Error::new(ErrorKind::Data, format!("cannot read the trace {file}"))
        .cause(format_args!("{place}{cause}"))
        .remedy(remedy)
}

const DAMAGED: &str = "the file is damaged or cut short; get it again";

/// The error for a failed read of `file`.
#[must_use]
pub fn unreadable(file: &str, cause: &std::io::Error) -> Error {
    use std::io::ErrorKind as Io;
    let (kind, remedy) = match cause.kind() {
        Io::PermissionDenied => (ErrorKind::Permission, "check its permissions"),
        Io::NotFound => (ErrorKind::Usage, "check the name"),
        Io::UnexpectedEof | Io::InvalidData | Io::InvalidInput => (ErrorKind::Data, DAMAGED),
        // Not of the operating system: a decompressor's.
        _ if cause.raw_os_error().is_none() => (ErrorKind::Data, DAMAGED),
        _ => (ErrorKind::Io, "check the disk"),
    };
    Error::new(kind, format!("cannot read the trace {file}")).cause(cause).remedy(remedy)
}

/// The beginning of a text, quoted for an error.
pub(crate) fn excerpt(text: &[u8]) -> String {
    let shown: String = String::from_utf8_lossy(text).trim().chars().take(60).collect();
    format!("`{shown}`")
}
