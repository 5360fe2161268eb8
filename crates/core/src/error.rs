//! Errors that name the cause and the remedy.

use std::fmt;

/// What went wrong, as a script would want to tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument or a configuration makes no sense.
    Usage,
    /// This machine lacks something that is needed.
    Missing,
    /// The caller may not do this.
    Permission,
    /// There is no such target.
    NoTarget,
    /// Two parts of tierscope do not speak the same version.
    Version,
    /// The target is gone.
    Gone,
    /// Reading or writing failed.
    Io,
    /// Data is truncated, foreign or inconsistent.
    Data,
    /// Anything else.
    Other,
}

/// An error for people: what failed, why, and what to do about it.
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
    /// An error that says what failed; `cause` and `remedy` are added by the methods of that name.
    pub fn new(kind: ErrorKind, what: impl Into<String>) -> Self {
        Self { kind, what: what.into(), cause: String::new(), remedy: String::new() }
    }

    /// Adds why it failed.
    #[must_use]
    pub fn cause(mut self, cause: impl fmt::Display) -> Self {
        self.cause = cause.to_string();
        self
    }

    /// Adds what the user can do.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = remedy.into();
        self
    }

    /// The kind, for exit codes and for code that reacts.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

/// One line: `what: cause; remedy`.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if !self.cause.is_empty() {
            write!(f, ": {}", self.cause)?;
        }
        if !self.remedy.is_empty() {
            write!(f, "; {}", self.remedy)?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

/// Why a port is not there on this machine. A fact, not a failure: `doctor` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The port's name: `access bits`, `samples`, …
    pub port: &'static str,
    /// Why it is missing here.
    pub cause: String,
    /// What would make it present.
    pub remedy: String,
}

impl Missing {
    /// A port that this kind of machine never has.
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
    fn reads_as_one_line() {
        let error = Error::new(ErrorKind::NoTarget, "cannot watch process 4711")
            .cause("no such process")
            .remedy("check the pid with `ps -p 4711`");
        assert_eq!(
            error.to_string(),
            "cannot watch process 4711: no such process; check the pid with `ps -p 4711`"
        );
    }
}
