//! A second process of a program in the guest: it runs the same program with other arguments, and
//! answers each line of its input by one line.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use tierscope_core::{Error, ErrorKind, Result};

/// The second process; killed when dropped.
pub struct Servant {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Servant {
    /// Starts the running program again.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<Self> {
        let failed = |e: io::Error| Error::new(ErrorKind::Other, "cannot start the child").cause(e);
        let mut command = Command::new("/proc/self/exe");
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(gone());
        };
        Ok(Self { child, to, from: BufReader::new(from) })
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a line, and waits for the answer to it.
    ///
    /// # Errors
    /// It has ended.
    pub fn ask(&mut self, line: &str) -> Result<String> {
        writeln!(self.to, "{line}").map_err(|_| gone())?;
        self.answer()
    }

    /// Waits for a line.
    ///
    /// # Errors
    /// It has ended.
    pub fn answer(&mut self) -> Result<String> {
        let mut line = String::new();
        match self.from.read_line(&mut line) {
            Ok(bytes) if bytes > 0 => Ok(line.trim().to_owned()),
            _ => Err(gone()),
        }
    }
}

impl Drop for Servant {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The error if the second process has ended.
#[must_use]
pub fn gone() -> Error {
    Error::new(ErrorKind::Gone, "the child is gone")
        .remedy("give the machine more memory than --memory-mb")
}
