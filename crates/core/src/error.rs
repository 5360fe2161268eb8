//! Errors that name the cause and the remedy.

use std::{fmt, io};

use crate::names::plain;

/// Kinds of errors that a script may need to distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument or a configuration is invalid.
    Usage,
    /// This machine lacks a required feature.
    Missing,
    /// The caller may not do this.
    Permission,
    /// There is no such target.
    NoTarget,
    /// Another program uses it, and it cannot be shared.
    Busy,
    /// Two parts of tierscope have different versions.
    Version,
    /// The target is gone.
    Gone,
    /// Reading or writing failed.
    Io,
    /// Data is truncated, of another format, or inconsistent.
    Data,
    /// Any other error.
    Other,
}

/// The kind of a failed use of a file that the caller has to have: no permission, or any other
/// failure.
impl From<&io::Error> for ErrorKind {
    fn from(cause: &io::Error) -> Self {
        match cause.kind() {
            io::ErrorKind::PermissionDenied => Self::Permission,
            _ => Self::Io,
        }
    }
}

/// An error message: what failed, why, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    what: String,
    cause: String,
    remedy: String,
}

/// A result with tierscope's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error with the description `what`; [`Error::cause`] and [`Error::remedy`] add the rest.
    pub fn new(kind: ErrorKind, what: impl Into<String>) -> Self {
        Self { kind, what: what.into(), cause: String::new(), remedy: String::new() }
    }

    /// Adds the cause of the error.
    #[must_use]
    pub fn cause(mut self, cause: impl fmt::Display) -> Self {
        self.cause = cause.to_string();
        self
    }

    /// Adds a remedy for the user.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = remedy.into();
        self
    }

    /// The kind of the error: determines the exit code.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

/// One line: `what: cause; remedy`. Names of files and mappings in it are [plain].
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&plain(&self.what))?;
        if !self.cause.is_empty() {
            write!(f, ": {}", plain(&self.cause))?;
        }
        if !self.remedy.is_empty() {
            write!(f, "; {}", plain(&self.remedy))?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

/// Why a port is missing on this machine. A fact, not a failure: `doctor` prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The port's name: `access bits`, `samples`, …
    pub port: &'static str,
    /// Why the port is missing on this machine.
    pub cause: String,
    /// How the port could be provided.
    pub remedy: String,
}

impl Missing {
    /// A port that machines of this kind never have.
    #[must_use]
    pub fn on_this_machine(port: &'static str) -> Self {
        Self {
            port,
            cause: "this machine has none".into(),
            remedy: "choose an instrument or policy that does not need it".into(),
        }
    }
}

impl From<Missing> for Error {
    fn from(missing: Missing) -> Self {
        Error::new(ErrorKind::Missing, format!("{} are not available", missing.port))
            .cause(missing.cause)
            .remedy(missing.remedy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line() {
        let error = Error::new(ErrorKind::NoTarget, "cannot watch process 4711")
            .cause("no such process")
            .remedy("check the pid with `ps -p 4711`");
        assert_eq!(
            error.to_string(),
            "cannot watch process 4711: no such process; check the pid with `ps -p 4711`"
        );
    }

    #[test]
    fn an_error_is_one_line_whatever_a_file_is_called() {
        let error = Error::new(ErrorKind::Io, "cannot open a\nb").cause("\u{1b}[2J").remedy("\r");
        assert_eq!(error.to_string(), "cannot open a\\u{a}b: \\u{1b}[2J; \\u{d}");
    }
}
