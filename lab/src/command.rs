//! Host commands: run them, capture their output, and report a failure in one line.

use std::process::{Command, Output, Stdio};

use crate::error::{Error, Kind, Result};

/// Runs `command` and returns its standard output.
///
/// # Errors
/// The program is missing, or its exit status is not 0: the last line of its stderr is the cause.
pub fn capture(command: &mut Command) -> Result<String> {
    let output = output(command)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs `command` and returns everything that it printed, if it succeeded.
///
/// # Errors
/// Same errors as [`capture`].
pub fn output(command: &mut Command) -> Result<Output> {
    let name = name(command);
    let output = command.stdin(Stdio::null()).output().map_err(|e| missing(&name, e))?;
    if output.status.success() {
        return Ok(output);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let last = stderr.lines().rfind(|l| !l.trim().is_empty()).unwrap_or("no message");
    Err(Error::new(Kind::Environment, name, format!("{} ({})", last.trim(), output.status)))
}

/// An error for a program that cannot be started.
pub fn missing(name: &str, cause: std::io::Error) -> Error {
    Error::new(Kind::Environment, name, cause).remedy("`make setup` installs what is needed")
}

fn name(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}
