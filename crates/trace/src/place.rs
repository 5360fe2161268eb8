//! Errors of somebody else's traces: which file, where in it, and what is wrong there.

use std::fmt;

use tierscope_core::{Error, ErrorKind};

/// A place in a trace; bytes are counted in what came out of a compressed file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In a text: line and column from 1, byte from 0.
    Text {
        /// The line.
        line: u64,
        /// The column, in bytes.
        column: u64,
        /// The byte.
        byte: u64,
    },
    /// A byte, counted from 0.
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

/// `file` does not say at `place` what it should.
pub(crate) fn malformed(
    file: &str,
    place: Place,
    cause: impl fmt::Display,
    remedy: impl Into<String>,
) -> Error {
    Error::new(ErrorKind::Data, format!("cannot read the trace {file}"))
        .cause(format_args!("{place}{cause}"))
        .remedy(remedy)
}

/// `file` could not be read.
pub(crate) fn unreadable(file: &str, cause: &std::io::Error) -> Error {
    use std::io::ErrorKind as Io;
    let (kind, remedy) = match cause.kind() {
        Io::PermissionDenied => (ErrorKind::Permission, "check its permissions"),
        Io::NotFound => (ErrorKind::Usage, "check the name"),
        Io::UnexpectedEof | Io::InvalidData | Io::InvalidInput => {
            (ErrorKind::Data, "the file is damaged or cut short; get it anew")
        }
        _ => (ErrorKind::Io, "check the disk"),
    };
    Error::new(kind, format!("cannot read the trace {file}")).cause(cause).remedy(remedy)
}

/// The beginning of a text, for an error.
pub(crate) fn excerpt(text: &[u8]) -> String {
    let shown: String = String::from_utf8_lossy(text).trim().chars().take(60).collect();
    format!("`{shown}`")
}
