//! One-line errors: what failed, the cause, the remedy.

use std::fmt;
use std::io;

/// Category of an error; determines the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The job in the VM, or a check on its results, failed: exit code 1.
    Job,
    /// A wrong command line, scenario or table: exit code 2.
    Usage,
    /// The kernel complained on its console: exit code 3.
    Kernel,
    /// The kernel hit a known bug of the emulated processor: exit code 3.
    Emulator,
    /// The job exceeded its timeout: exit code 4.
    Timeout,
    /// The machine lacks a tool, a package, space or a permission: exit code 5.
    Environment,
}

impl Kind {
    /// The exit code of `lab`.
    pub fn exit_code(self) -> u8 {
        match self {
            Kind::Job => 1,
            Kind::Usage => 2,
            Kind::Kernel | Kind::Emulator => 3,
            Kind::Timeout => 4,
            Kind::Environment => 5,
        }
    }
}

/// An error of the lab, shown as `what: cause (remedy)`.
#[derive(Debug, Clone)]
pub struct Error {
    /// Category, which determines the exit code.
    pub kind: Kind,
    what: String,
    cause: String,
    remedy: Option<String>,
}

/// The lab's result.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error without a remedy.
    pub fn new(kind: Kind, what: impl Into<String>, cause: impl fmt::Display) -> Self {
        Error { kind, what: what.into(), cause: cause.to_string(), remedy: None }
    }

    /// Adds a remedy for the user.
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.cause)?;
        match &self.remedy {
            Some(remedy) => write!(f, " ({remedy})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

/// Names the file or program of an [`io::Error`].
pub trait Context<T> {
    /// Turns the error into an [`Error`] of kind `Environment` that names `what`.
    fn at(self, what: impl fmt::Display) -> Result<T>;
}

impl<T> Context<T> for io::Result<T> {
    fn at(self, what: impl fmt::Display) -> Result<T> {
        self.map_err(|e| Error::new(Kind::Environment, what.to_string(), e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_failure_cause_and_remedy_in_one_line() {
        let e = Error::new(Kind::Environment, "qemu-system-x86_64", "not found")
            .remedy("run make setup");
        assert_eq!(e.to_string(), "qemu-system-x86_64: not found (run make setup)");
        assert_eq!(e.kind.exit_code(), 5);
    }
}
